"""TALKS TO PEOPLE: one module per command; prints, parses, nothing else."""
