"""Simulated studies: a launcher, its servers and clients, and the batch system that has their jobs."""
