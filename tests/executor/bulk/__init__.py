"""Many items, and many separate calls."""
