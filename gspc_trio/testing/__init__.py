"""Simulated clusters, injected faults and checkers, shipped like ``trio.testing``."""
