"""How much memory a process has for bytes that it moves over connections, all together (SWF-10)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

TRANSFER_BYTES = 64 << 20
"""Buffers of all transfers of a process together."""


class Budget:
    """So many bytes, of which each buffer takes its size; who comes first is served first.

    Args:
        size_bytes: all of them together. Who wants more at once gets all.

    Attributes:
        held_bytes: how many are taken.
        most_bytes: how many were taken at most.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.held_bytes: int = 0
        self.most_bytes: int = 0
        self._waiting: deque[tuple[int, trio.Event]] = deque()

    async def take(self, size_bytes: int) -> int:
        """Wait until there is room, and take it; return how many bytes that are, to be given back."""
        size_bytes = min(size_bytes, self.size_bytes)
        if not self._waiting and self.held_bytes + size_bytes <= self.size_bytes:
            self._hold(size_bytes)
            return size_bytes
        turn = (size_bytes, trio.Event())
        self._waiting.append(turn)
        try:
            await turn[1].wait()
        except trio.Cancelled:
            if turn[1].is_set():
                self.give_back(size_bytes)
            else:
                self._waiting.remove(turn)
                self._serve()
            raise
        return size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Give back what was taken; those who wait may have it."""
        self.held_bytes -= size_bytes
        assert self.held_bytes >= 0, "more was given back than was taken"
        self._serve()

    @asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Have so many bytes for as long as a block lasts."""
        taken = await self.take(size_bytes)
        try:
            yield
        finally:
            self.give_back(taken)

    def _hold(self, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        self.most_bytes = max(self.most_bytes, self.held_bytes)

    def _serve(self) -> None:
        while self._waiting and self.held_bytes + self._waiting[0][0] <= self.size_bytes:
            size_bytes, event = self._waiting.popleft()
            self._hold(size_bytes)
            event.set()


class TransferBuffers:
    """The buffers of one process.

    Those of transfers that it has asked for, and of those that others have asked it for, are apart: who asks
    waits for who serves, never the other way. With one budget for both, two processes, or two parts of one,
    could wait for each other for ever.

    Args:
        size_bytes: all of them together.

    Attributes:
        asked: for transfers that this process has asked for.
        served: for those that others have asked it for.
    """

    def __init__(self, size_bytes: int = TRANSFER_BYTES) -> None:
        self.asked: Budget = Budget(size_bytes - size_bytes // 2)
        self.served: Budget = Budget(size_bytes // 2)
