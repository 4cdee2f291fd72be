"""The detail in which a job's tasks are recorded, for a file and for those who watch."""

from __future__ import annotations

from enum import Enum

FAST_PER_S = 500.0
"""Tasks that end per second from which on watchers are not told of each; nobody could read that."""

SLOW_PER_S = 250.0
"""Tasks that end per second up to which they are told of each again."""

MANY_LIVE = 2_000
"""Live tasks from which on watchers get glances however slow it is."""

MEASURED_S = 0.5
"""Seconds over which the rate is taken."""


class Mode(Enum):
    """What is recorded of tasks."""

    COUNTS = "counts"
    GLANCES = "glances"
    EACH = "each"


class Watching:
    """Decides what is recorded: nothing but counts while nobody reads, everything for a file; for watchers
    everything as long as it is little, else glances: now and then how many there are, and some by name.
    """

    def __init__(self) -> None:
        self.mode = Mode.COUNTS
        self._since_s = 0.0
        self._ended = 0

    def decide(self, now: float, *, to_file: bool, watched: bool, ended: int, live: int = 0) -> Mode:
        """Return what to record from now on.

        Args:
            now: time, seconds.
            to_file: all records are written to a file.
            watched: somebody watches.
            ended, live: number of tasks that have ended so far, and that have not.
        """
        if to_file:
            self.mode = Mode.EACH
        elif not watched:
            self.mode = Mode.COUNTS
        elif self.mode is Mode.COUNTS:
            self.mode = Mode.EACH if live <= MANY_LIVE else Mode.GLANCES
            self._since_s, self._ended = now, ended
        elif now - self._since_s >= MEASURED_S:
            rate_per_s = (ended - self._ended) / (now - self._since_s)
            self._since_s, self._ended = now, ended
            if rate_per_s >= FAST_PER_S or live > MANY_LIVE:
                self.mode = Mode.GLANCES
            elif rate_per_s <= SLOW_PER_S and live <= MANY_LIVE // 2:
                self.mode = Mode.EACH
        return self.mode
