"""The service beside the run-time system, on trio."""
