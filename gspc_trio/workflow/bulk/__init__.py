"""Many tokens at a time: values that are no tokens yet, and tasks for ranges of them."""
