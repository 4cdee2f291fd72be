"""Patterns: plain functions that build a net with an input port and an output port (ASP-2)."""
