"""Checker of deadlines: what must have happened by some time."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from gspc_trio.testing.checkers.base import Broken

LATE_S = 1.0
"""A process that is at work has done what was due so long after it could."""


class Due:
    """The next thing that a process is to have done.

    A process may stand still, or the clock may jump: what counts is the time since it was seen at work after
    the thing was due.
    """

    def __init__(self) -> None:
        self.next_s: float = inf
        self._what = ""
        self._since_s: float | None = None

    def set(self, things: Iterable[tuple[float, str]]) -> None:
        """Take what is to be done by when, for now."""
        next_s, what = min(things, default=(inf, ""))
        if (next_s, what) != (self.next_s, self._what):
            self.next_s, self._what, self._since_s = next_s, what, None

    def look(self, now: float) -> None:
        """The process is at work.

        Raises:
            Broken: it has let pass what was due.
        """
        if now <= self.next_s:
            return
        if self._since_s is None:
            self._since_s = now
        elif now > self._since_s + LATE_S:
            late_s = now - self.next_s
            raise Broken(f"{self._what}, and nothing has come of it {late_s:.3g} s later")
