"""Processes, compute, wires and disks of a simulated cluster."""
