"""Bootstrap strategies: how a RIF is started on a host."""
