"""Several resource managers of one run-time system, each in a process of its own (ASP-11)."""
