"""DECIDES: pure machines, ``handle(event, now) -> [action]``; no I/O, no clock, no trio."""
