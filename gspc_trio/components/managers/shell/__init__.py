"""Several resource managers on trio: their processes, and what stands for them in the run-time system."""
