"""Monitoring on trio: the sampler of a host, the collector beside the run-time system, and its store."""
