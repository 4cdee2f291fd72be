"""Batch systems that gspc-trio knows, one in each file: commands and what their output means."""
