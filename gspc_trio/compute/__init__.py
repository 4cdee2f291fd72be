"""COMPUTES: template and compute process, started by exec; no trio; imported by nobody."""
