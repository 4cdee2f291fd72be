"""The service, results on their way to jobs, and the RIF as a process, on trio."""
