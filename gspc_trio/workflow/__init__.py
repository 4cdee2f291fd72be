"""Workflows: Petri nets, their engine, task graphs, patterns; which task is ready."""
