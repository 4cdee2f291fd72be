"""Frames: amounts of equal stretches of time, which begin at multiples of 5 s since 1970 on every host.

So frames of all hosts and jobs can be added, however late one of them began (ASPIDE 2.2.2). Amounts are whole
numbers: sums by task, node, job and installation agree exactly.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

FRAME_S = 5
"""Seconds of a frame."""

LATE_S = 1.0
"""So long after its end a frame takes in what has ended in it, for that is told a little later."""

STRETCH_S_MAX = 60.0
"""Hosts look more often than that: a longer stretch is none that was seen, for the clock was set forward."""

Key = TypeVar("Key", bound=Hashable)


def frame_of(at_s: float) -> int:
    """Return when the frame begins to which a moment belongs, in seconds since 1970.

    Args:
        at_s: the moment, in seconds since 1970.
    """
    return math.floor(at_s / FRAME_S) * FRAME_S


def pieces(begin_s: float, end_s: float) -> Iterator[tuple[int, float]]:
    """Yield the frames that a stretch of time touches, and how many seconds of each it covers.

    Args:
        begin_s, end_s: of the stretch, in seconds since 1970; it may be empty.
    """
    while begin_s < end_s:
        first = frame_of(begin_s)
        until_s = min(end_s, first + FRAME_S)
        yield first, until_s - begin_s
        begin_s = until_s


def add_up(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return name -> sum; a name that none of them has is absent."""
    total: dict[str, int] = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


class FrameClock:
    """Time for frames: the clock of the host, except that it never goes back.

    While the clock of the host is behind because it was set back, this one goes half as fast, until both
    agree. So no old frame is opened, and none stays open for as long as the step was.
    """

    def __init__(self) -> None:
        self._last_s = -math.inf
        self._last_now = 0.0

    def read(self, wall_s: float, now: float) -> float:
        """Return the time for frames.

        Args:
            wall_s: what the clock of the host shows, in seconds since 1970.
            now: seconds on a clock that nobody sets.
        """
        self._last_s = max(wall_s, self._last_s + max(0.0, now - self._last_now) / 2)
        self._last_now = now
        return self._last_s


class Frame(Struct, Generic[Key], frozen=True):
    """A frame that is over.

    Attributes:
        begin_s: when it began, in seconds since 1970.
        key: what it tells of.
        covered_s: so many seconds of it were seen; less than 5 if that began or ended within.
        amounts: name -> what was counted.
    """

    begin_s: int
    key: Key
    covered_s: float
    amounts: dict[str, int]


class OpenFrames(Generic[Key]):
    """Adds up by frame and by key what has ended, until the frames are over.

    Each amount is in exactly one frame: what is told too late for its own is in the oldest that is open.

    Args:
        late_s: so long after its end a frame takes in more.
    """

    def __init__(self, late_s: float = LATE_S) -> None:
        self._late_s = late_s
        self._first = 0
        self._amounts: dict[tuple[int, Key], dict[str, int]] = {}
        self._covered_s: dict[tuple[int, Key], float] = {}

    def add(self, key: Key, at_s: float, amounts: Mapping[str, int]) -> None:
        """Count something to the frame in which it has ended.

        Args:
            key: of whom.
            at_s: when it has ended, in seconds since 1970.
            amounts: name -> how much.
        """
        known = self._amounts.setdefault((max(frame_of(at_s), self._first), key), {})
        for name, amount in amounts.items():
            known[name] = known.get(name, 0) + amount

    def cover(self, key: Key, begin_s: float, end_s: float) -> None:
        """Note that all was seen from one moment to another; of frames that are over it says nothing.

        If the clock was set forward between them, only the frame of the second one counts as seen.
        """
        begin_s = max(begin_s, float(self._first))
        if end_s - begin_s > STRETCH_S_MAX:
            begin_s = float(frame_of(end_s))
        for begin, covered_s in pieces(begin_s, end_s):
            place = begin, key
            self._covered_s[place] = min(FRAME_S, self._covered_s.get(place, 0.0) + covered_s)

    def close(self, at_s: float) -> list[Frame[Key]]:
        """Return the frames that are over, the oldest first; they are told once.

        Args:
            at_s: the time for frames, see :class:`FrameClock`; ``math.inf`` closes all.
        """
        until = frame_of(at_s - self._late_s) if at_s < math.inf else math.inf
        places = dict.fromkeys((*self._amounts, *self._covered_s))
        over = sorted((place for place in places if place[0] < until), key=lambda place: place[0])
        if until < math.inf:
            self._first = max(self._first, int(until))
        elif over:
            self._first = max(self._first, over[-1][0] + FRAME_S)
        return [
            Frame(place[0], place[1], self._covered_s.pop(place, 0.0), self._amounts.pop(place, {}))
            for place in over
        ]
