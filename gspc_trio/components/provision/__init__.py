"""Strategies: how a RIF is started on a host."""
