"""The calls of a map of a pool in trio: sent as there is room, their results taken as they are wanted."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import trio

from gspc_trio.core.ids import TaskId
from gspc_trio.workflow.failures import TaskFailed

AT_ONCE = 64
"""So many items are read, or results taken, at a time until other tasks of trio get their turn."""

IN_FLIGHT_MIN = 256
IN_FLIGHT_FACTOR = 4
"""Items of a map that are on their way unless it is said: so many for each task that can run at a time."""


class PoolCall:
    """A call on its way.

    Attributes:
        task_id: of its task.
        data: its result, encoded; None: there is none.
        error: why there is none.
        ended: whether it has ended.
        item: of a map.
        on_end: told when it ends.
    """

    __slots__ = ("data", "ended", "error", "item", "name", "on_end", "task_id")

    def __init__(self, name: str, on_end: Callable[[PoolCall], object]) -> None:
        self.name: str = name
        self.task_id: TaskId = 0
        self.data: bytes | None = None
        self.error: BaseException | None = None
        self.ended: bool = False
        self.item: object = None
        self.on_end: Callable[[PoolCall], object] = on_end

    def finish(self, data: bytes) -> None:
        """The task has returned this."""
        if not self.ended:
            self.data = data
            self._end()

    def fail(self, error: BaseException) -> None:
        """The task has failed."""
        if not self.ended:
            self.error = error
            self._end()

    def give_up(self) -> None:
        """The task was cancelled, here or by somebody else."""
        self.fail(TaskFailed("cancelled: it was cancelled", "cancelled", self.name))

    def _end(self) -> None:
        self.ended = True
        self.on_end(self)


Send: TypeAlias = Callable[[Any, Callable[[PoolCall], object]], Awaitable[PoolCall]]
"""Sends the call of an item."""


class Flight:
    """The calls of one map.

    Args:
        items: of which it reads; None if :meth:`feed` does.
        limit: how many calls are on their way at most.
        ordered: whether their results are wanted in order.
        send: sends the call of an item, and has somebody told of its end.

    Attributes:
        calls: those whose results were not taken, in order.
        feeding: cancels :meth:`feed`.
    """

    def __init__(self, items: Iterator[Any] | None, limit: int, ordered: bool, send: Send) -> None:
        self.calls: dict[PoolCall, None] = {}
        self.feeding: trio.CancelScope = trio.CancelScope()
        self._items = items
        self._limit = limit
        self._ordered = ordered
        self._send = send
        self._ended: deque[PoolCall] = deque()
        self._has_more = True
        self._turns = 0
        self._error: Exception | None = None
        self._changed = trio.Event()

    def _note(self, call: PoolCall) -> None:
        if not self._ordered:
            self._ended.append(call)
        self._changed.set()

    def _has_room(self) -> bool:
        """Whether there is room again: for several calls at a time, which costs less for each."""
        return len(self.calls) <= self._limit - max(1, self._limit // 4)

    async def _wait(self) -> None:
        if self._changed.is_set():
            self._changed = trio.Event()
        await self._changed.wait()

    async def feed(self, items: AsyncIterable[Any]) -> None:
        """Send calls of the items while there is room."""
        why: Exception | None = RuntimeError("no more items are read: the block of the pool was left")
        try:
            with self.feeding:
                iterator = aiter(items)
                try:
                    while True:
                        if len(self.calls) >= self._limit:
                            while not self._has_room():
                                await self._wait()
                        self.calls[await self._send(await anext(iterator), self._note)] = None
                finally:
                    if isinstance(iterator, AsyncGenerator):
                        await iterator.aclose()
        except StopAsyncIteration:
            why = None
        except Exception as error:
            why = error
        finally:
            self._end(why)

    async def _fill(self, items: Iterator[Any]) -> None:
        """Send calls of the next items, as there is room for."""
        try:
            while len(self.calls) < self._limit:
                self.calls[await self._send(next(items), self._note)] = None
                if not len(self.calls) % AT_ONCE:
                    await trio.lowlevel.checkpoint()
        except StopIteration:
            self._end(None)
        except Exception as error:
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        self._has_more, self._items, self._error = False, None, error
        self._changed.set()

    async def next(self) -> PoolCall | None:
        """Return the call whose result is to be taken, None after the last one.

        Raises:
            Exception: the items that come next could not be read, or sent.
        """
        while True:
            self._turns = (self._turns + 1) % AT_ONCE
            if self._turns:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                await trio.lowlevel.checkpoint()
            if self._items is not None and self._has_room():
                await self._fill(self._items)
            call = self._first()
            if call is not None:
                del self.calls[call]
                if self._has_room():
                    self._changed.set()
                return call
            if not (self.calls or self._has_more):
                if self._error is not None:
                    raise self._error
                return None
            await self._wait()

    def _first(self) -> PoolCall | None:
        if not self._ordered:
            return self._ended.popleft() if self._ended else None
        call = next(iter(self.calls), None)
        return call if call is not None and call.ended else None
