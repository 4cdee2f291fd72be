"""Pending connections of a listener: their number, those that are evicted, and the bytes read of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import trio

from gspc_trio.nursery.connections.pending import PendingConnections
from gspc_trio.nursery.connections.websocket import UNPROVED_MESSAGES
from gspc_trio.protocol.limits import Limits
from gspc_trio.testing.checkers.base import Broken

if TYPE_CHECKING:
    from gspc_trio.testing.simulated.wires import WireEnd


class PendingChecker(PendingConnections):
    """The connections of one listener that have not proved themselves yet, checked.

    Args:
        limits: how many, and how much, may be.
        fail: told of what does not hold.
    """

    def __init__(self, limits: Limits, fail: Callable[[BaseException], None]) -> None:
        super().__init__(limits.unproved_max)
        self._limits = limits
        self._fail = fail

    def enter(self, who: object, evict: Callable[[], object], now: float, *, asking: bool = False) -> None:
        """Take a place; somebody else may lose one."""
        is_out = [False]

        def noted() -> None:
            is_out[0] = True
            evict()

        super().enter(who, noted, now, asking=asking)
        most = self._limits.unproved_max
        if len(self) > most:
            self._fail(Broken(f"{len(self)} connections of a listener are pending; {most} may"))
        if is_out[0]:
            self._fail(Broken("the newest connection is evicted, and one that was silent for long stays"))

    @contextmanager
    def place(self, stream: object, deadline_s: float) -> Iterator[trio.CancelScope]:
        """Run a handshake; count what is read meanwhile."""
        end = cast("WireEnd", stream)
        most, read = UNPROVED_MESSAGES * self._limits.handshake_bytes_max, [0]

        def count(size_bytes: int) -> None:
            read[0] += size_bytes
            if read[0] > most:
                what = f"{read[0]} bytes were read of {end.other.process.name}, who has proved nothing"
                self._fail(Broken(f"{what}; {most} may be"))

        end.on_read = count
        with super().place(stream, deadline_s) as scope:
            try:
                yield scope
            finally:
                end.on_read = None
