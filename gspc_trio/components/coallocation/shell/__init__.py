"""Co-allocation on trio: requests whose jobs run on a run-time system."""
