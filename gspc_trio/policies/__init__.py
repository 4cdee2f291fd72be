"""CHOOSES: pure functions of a read-only view."""
