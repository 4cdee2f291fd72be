"""Policies: pure functions that rate and choose, such as retries, work ahead and placement."""
