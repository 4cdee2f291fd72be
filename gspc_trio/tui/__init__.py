"""What people see of a run: a fold of the record stream, and the terminal that draws it."""
