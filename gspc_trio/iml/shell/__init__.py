"""Coordinator, servers and clients of the layer, on trio."""
