"""What stands between the network and a connection until the other side has proved who it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio


class Gate(trio.abc.Stream):
    """A stream that lets in only so many bytes before it is opened, and tells of every arrival.

    Args:
        stream: to read from and write to.
        bytes_max: read before :meth:`open`; what is more stays in the network.
    """

    def __init__(self, stream: trio.abc.Stream, bytes_max: int) -> None:
        self._stream = stream
        self._left = bytes_max
        self._opened = trio.Event()
        self._kept: bytes | bytearray = b""
        self.on_arrival: Callable[[], object] | None = None

    def open(self) -> None:
        """Let everything in from now on."""
        self._opened.set()

    async def wait_for(self, mark: bytes) -> bool:
        """Wait until the mark has arrived, the allowance is used up, or the other side has closed.

        Returns:
            False if it has closed. What has arrived is still to be received.
        """
        while self._left and mark not in self._kept:
            data = await self._stream.receive_some(self._left)
            if not data:
                return False
            self._left -= len(data)
            self._kept += data
        return True

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """Receive; waits for :meth:`open` when the allowance is used up."""
        if self._kept:
            end = len(self._kept) if max_bytes is None else max_bytes
            data, self._kept = self._kept[:end], self._kept[end:]
            return data
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


class Vestibule:
    """The connections that have not proved themselves yet; of too many the oldest is thrown out."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._inside: dict[trio.CancelScope, None] = {}

    def __len__(self) -> int:
        return len(self._inside)

    @contextmanager
    def place(self, deadline_s: float) -> Iterator[trio.CancelScope]:
        """Run the block; cancel it at the deadline (of trio's clock) or when it is the oldest of too many."""
        with trio.CancelScope(deadline=deadline_s) as scope:
            if len(self._inside) >= self._places:
                oldest = next(iter(self._inside))
                del self._inside[oldest]
                oldest.cancel()
            self._inside[scope] = None
            try:
                yield scope
            finally:
                self._inside.pop(scope, None)
