"""Adapters of gspc-trio: one file for each way to start the jobs of a study."""
