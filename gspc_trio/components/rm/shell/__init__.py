"""Resource manager on trio: the service beside the run-time system."""
