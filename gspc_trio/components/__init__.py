"""DOES: the trio shell of each machine, under the machine's name."""
