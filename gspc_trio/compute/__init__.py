"""Code of template and compute process, without trio; others import ``channel``, ``code``, ``folders``."""
