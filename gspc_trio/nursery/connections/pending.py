"""Pending connections, whose other side has not proved yet who it is: limits on their number and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio
from msgspec import Struct

SILENT_STAY_S = 0.1
"""No silent connection is evicted sooner: what an honest peer asks for is here by then."""
ASKING_STAY_S = 0.5
"""No other connection is evicted sooner: a proof takes two more messages, and this process some time."""


class LimitedStream(trio.abc.Stream):
    """A stream that lets in only so many bytes before it is opened, and tells of every arrival.

    Args:
        stream: to read from and write to.
        bytes_max: read before :meth:`open`; what is more stays in the network.
    """

    def __init__(self, stream: trio.abc.Stream, bytes_max: int) -> None:
        self._stream = stream
        self._left = bytes_max
        self._opened = trio.Event()
        self.on_arrival: Callable[[], object] | None = None

    def open(self) -> None:
        """Let everything in from now on."""
        self._opened.set()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive; waits for :meth:`open` when the allowance is used up."""
        if not self._opened.is_set():
            if self._left == 0:
                await self._opened.wait()
            else:
                max_bytes = self._left if max_bytes is None else min(self._left, max_bytes)
                data = await self._stream.receive_some(max_bytes)
                self._left -= len(data)
                return data
        data = await self._stream.receive_some(max_bytes)
        if self.on_arrival is not None:
            self.on_arrival()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until sending may go on."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()


class _PendingConnection(Struct, frozen=True):
    evict: Callable[[], object]
    until_s: float


class PendingConnections:
    """The connections of a listener that are not authenticated yet; of too many the oldest is evicted.

    Those on which something was asked for, and the silent ones, keep half of the places each, if they need
    them: a crowd of the one kind does not displace the other.
    """

    def __init__(self, places: int) -> None:
        self._places = places
        self._silent: dict[object, _PendingConnection] = {}
        self._asking: dict[object, _PendingConnection] = {}

    def __len__(self) -> int:
        return len(self._silent) + len(self._asking)

    def is_closed(self, now: float) -> bool:
        """Whether one more would displace somebody who may stay yet."""
        if len(self) < self._places:
            return False
        oldest = next(iter(self._crowd().values()), None)
        return oldest is not None and now < oldest.until_s

    def enter(self, who: object, evict: Callable[[], object], now: float, *, asking: bool = False) -> None:
        """Take a place.

        Args:
            who: takes it.
            evict: called when it is the oldest of too many; its place is free already.
            now: the time.
            asking: whether it has asked for something.
        """
        until_s = now + (ASKING_STAY_S if asking else SILENT_STAY_S)
        (self._asking if asking else self._silent)[who] = _PendingConnection(evict, until_s)
        if len(self) > self._places:
            self.evict_oldest()

    def leave(self, who: object) -> None:
        """Give the place back, if it has not been taken away."""
        self._silent.pop(who, None)
        self._asking.pop(who, None)

    def evict_oldest(self) -> None:
        """Take the oldest's place away, if there is anybody: of those who take more than their half."""
        crowd = self._crowd()
        oldest = next(iter(crowd), None)
        if oldest is not None:
            crowd.pop(oldest).evict()

    def _crowd(self) -> dict[object, _PendingConnection]:
        """Return those of which the next is evicted."""
        half = max(1, self._places // 2)
        return self._asking if len(self._asking) > half or not self._silent else self._silent

    def ask(self, who: object, now: float, stream: object) -> None:
        """Who has a place asks for something, on this stream: it keeps the place until :meth:`place`."""
        self.leave(who)
        self.enter(stream, lambda: None, now, asking=True)  # it begins at once, and can be evicted then

    @contextmanager
    def place(self, stream: object, deadline_s: float) -> Iterator[trio.CancelScope]:
        """Run a handshake in the block; cancel it at the deadline (of trio's clock) or when evicted."""
        with trio.CancelScope(deadline=deadline_s) as scope:
            self.leave(stream)
            self.enter(scope, scope.cancel, trio.current_time(), asking=True)
            try:
                yield scope
            finally:
                self.leave(scope)
