"""Strategies on trio: local processes, SSH, installed packages; discovery of a host's hardware."""
