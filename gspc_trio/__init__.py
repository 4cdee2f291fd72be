"""gspc-trio: a Trio-based runtime for many-task workflows."""
