"""What people install: the source distribution, and the wheel that is built from it."""
