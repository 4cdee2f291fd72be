"""The highest grant number that hosts were told of; grants with a higher one were never given."""

from __future__ import annotations

from gspc_trio.core.ids import GrantId

LEAD_MIN = 1 << 16
"""Hosts are told of so many grants ahead, at least: they hear of more long before these are given."""

LEAD_S = 60.0
"""At the rate at which grants are given of late, those that hosts are told of last so long."""


class GrantsAheadOf:
    """Says when hosts have to be told of more grants, so that no grant waits for them to hear.

    Args:
        epoch: first part of all grant ids.

    Attributes:
        newest: no grant is newer until hosts have been told of more.
    """

    def __init__(self, epoch: int) -> None:
        self.newest: GrantId = (epoch, LEAD_MIN)
        self._lead = LEAD_MIN
        self._told_at = 0
        self._told_s: float | None = None

    def look(self, last: GrantId, now: float) -> bool:
        """Take the newest grant given; return whether hosts are to be told, of :attr:`newest`."""
        given = last[1]
        if 2 * (self.newest[1] - given) > self._lead:
            return False
        if self._told_s is not None:
            per_s = (given - self._told_at) / max(now - self._told_s, 1e-3)
            self._lead = max(LEAD_MIN, int(per_s * LEAD_S))
        self._told_at, self._told_s = given, now
        self.newest = (last[0], given + self._lead)
        return True
