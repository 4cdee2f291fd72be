"""Calls that come one at a time: each is waited for before the next is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from gspc_trio.core.ids import TaskId
from gspc_trio.executor.futures import Call, SomeTaskFuture

if TYPE_CHECKING:
    from gspc_trio.executor.bulk import Maps
    from gspc_trio.executor.codes import CodeTable
    from gspc_trio.executor.direct import DirectCalls

SINGLES = 16
"""After so many calls of which each was waited for, further ones are sent directly (``executor.direct``)."""

SINGLE_S = 0.05
"""If no more than this has passed between two of them."""

SINGLES_MAX = 8_192
"""So many are needed at most after it had been in vain several times."""


SOON_S = 0.01
"""So long at most a call is awaited by who makes another one with its result.

It is no task of the graph, of which a whole chain could be known before the first result is there.
"""


class Pace:
    """Decides when calls that come one at a time are taken directly."""

    def __init__(self) -> None:
        self._count = 0
        self._needed = SINGLES
        self._last_s = 0.0

    def is_due(self, was_awaited: bool, now_s: float) -> bool:
        """Return whether a call is to be sent directly that is made while there is no other.

        Args:
            was_awaited: whether somebody has waited for a result since the last time.
            now_s: the time.
        """
        is_next = was_awaited and now_s - self._last_s < SINGLE_S
        self._count = self._count + 1 if is_next else 0
        self._last_s = now_s
        return self._count >= self._needed

    def ended(self, sent: int) -> None:
        """Calls are no longer sent directly for now: so many were."""
        if sent >= SINGLES:
            self._needed = SINGLES
        else:
            self._count = 0
            self._needed = min(SINGLES_MAX, 4 * self._needed)


class Owner(Protocol):
    """What single calls ask of the executor's loop."""

    forked: bool
    was_awaited: bool
    """Whether a thread has waited for a result since a call was made that was alone."""

    def stir(self) -> None:
        """Look at what is new."""
        ...

    def submit_again(self, call: Call) -> None:
        """Run a call as a task of its own; in the loop's thread."""
        ...


class SingleCalls:
    """Has single calls taken directly, once there were some.

    Args:
        owner: the executor's loop.
        maps: those of the executor.
        codes: its code table.
        are_possible: whether its compute processes are on this host, and its own.

    Attributes:
        maps: those of the executor.
        codes: its code table.
        direct: takes calls now; None: each is a task of its own.
        computing: those whose tasks have not ended; the job must not end before these.
    """

    def __init__(self, owner: Owner, maps: Maps, codes: CodeTable, are_possible: bool) -> None:
        self._owner = owner
        self.maps: Maps = maps
        self.codes: CodeTable = codes
        self.direct: DirectCalls | None = None
        self.computing: set[DirectCalls] = set()
        self._are_possible = are_possible
        self._pace = Pace()

    def look(self, calls: Sequence[Call]) -> None:
        """Look at calls, none perhaps, that are made while there are no others; the loop's lock is held."""
        owner = self._owner
        is_due = self._pace.is_due(owner.was_awaited and len(calls) == 1, monotonic())
        owner.was_awaited = False
        if not is_due or not self._are_possible or self.maps.told is not None:
            return
        (call,) = calls
        if call.values and self.maps.may_open(call.shape, call.options):
            from gspc_trio.executor.direct import DirectCalls  # most executors never need it

            with suppress(OSError):  # there are too many open files
                self.direct = DirectCalls(self, call)

    def close(self, calls: Sequence[Call] = ()) -> None:
        """Take no more calls directly for now, as these are made; in any thread."""
        direct = self.direct
        if direct is None:
            return
        direct.close()
        last = direct.last
        if last is not None and any(argument is last for call in calls for argument in call.arguments):
            direct.wait(last, SOON_S)

    def forget(self, direct: DirectCalls, are_possible: bool = True) -> None:
        """These take no more calls; in any thread.

        Args:
            direct: which.
            are_possible: whether others may, later.
        """
        if self.direct is direct:
            self.direct = None
            self._pace.ended(direct.sent)
        self._are_possible &= are_possible

    def ended(self, direct: DirectCalls, are_possible: bool = True) -> None:
        """The task of these has ended; the rest as :meth:`forget`, in the loop's thread."""
        self.forget(direct, are_possible)
        self.computing.discard(direct)
        self._owner.stir()

    def waiting(self, is_running: Callable[[TaskId], bool]) -> list[SomeTaskFuture]:
        """Return the futures of those whose task has not begun; in the loop's thread."""
        waiting = [direct.last for direct in self.computing if not is_running(direct.task_id)]
        return [future for future in waiting if future is not None]

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of that of the executor."""
        return self._owner.forked

    def submit_again(self, call: Call) -> None:
        """Run a call as a task of its own; in the loop's thread."""
        self._owner.submit_again(call)
