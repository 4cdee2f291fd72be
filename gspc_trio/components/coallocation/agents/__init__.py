"""Agents of co-allocation: which site for each part, its request, the barrier, and services in a tree."""
