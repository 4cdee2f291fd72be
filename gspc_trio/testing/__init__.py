"""Shipped like trio.testing: a simulated cluster, faults, checkers."""
