"""Compute processes and threads, and staging, on trio."""
