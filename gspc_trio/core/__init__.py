"""Shared words (ids, tasks, resources), and the contract of machines: ``handle(event, now) -> [action]``."""
