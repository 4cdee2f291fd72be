"""Launcher of studies: a server job, and the client jobs that it asks for, on a batch system or this host."""
