"""Launcher of studies: options, and machine of a server job and its clients; it has no shell yet."""
