"""The command ``gspc-coallocate``."""
