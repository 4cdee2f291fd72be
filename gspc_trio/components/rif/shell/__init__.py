"""RIF on trio: the service of a host, results on their way to jobs, and the stand-alone process."""
