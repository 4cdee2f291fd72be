"""Worker: runs the tasks of one resource, at most one in each of three phases."""
