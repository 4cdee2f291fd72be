"""Monitoring: what hosts and tasks do, in frames of 5 s, and the file that keeps them (ASPIDE 2.2, 4.2)."""
