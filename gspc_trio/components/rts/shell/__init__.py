"""Run-time system on trio: the service, its peers, its state on disk, and clients of it."""
