"""Several run-time systems of one job: between its scheduler and their resource managers (SCH-6)."""
