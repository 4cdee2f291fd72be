"""gspc-top, the terminal: one more fold of the record stream."""
