"""RIF on trio: the service of a host, the router of results, and the stand-alone process."""
