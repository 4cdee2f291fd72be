"""The service, its peers, its state on disk, and clients of it, on trio."""
