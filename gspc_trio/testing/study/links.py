"""Connections of a simulated study: in order each way, after a while, late, or never."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

import trio

T = TypeVar("T")

LATENCY_S = 0.002
"""How long something is on its way, about."""


class OneWayItems(Generic[T]):
    """One direction of a connection.

    Args:
        random: to draw from.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._items: deque[T] = deque()
        self._changed = trio.Event()
        self._held_until_s = 0.0
        self._is_closed = self._is_cut = False

    def send(self, item: T) -> None:
        """Send something, unless it is closed."""
        if not self._is_closed:
            self._items.append(item)
            self._change()

    def close(self) -> None:
        """Send nothing more; what was sent still arrives."""
        self._is_closed = True
        self._change()

    def cut(self) -> None:
        """Let the other side know that nothing more arrives, also of what was sent."""
        self._is_closed = self._is_cut = True
        self._items.clear()
        self._change()

    def hold(self, until_s: float) -> None:
        """Let nothing arrive before a time."""
        self._held_until_s = max(self._held_until_s, until_s)

    async def receive(self) -> T | None:
        """Return what arrives next, None when nothing more does."""
        while not self._items and not self._is_closed:
            await self._changed.wait()
        await trio.sleep(self._random.uniform(0.0, 2 * LATENCY_S))
        while trio.current_time() < self._held_until_s:
            if self._held_until_s == math.inf:
                await trio.sleep_forever()
            await trio.sleep_until(self._held_until_s)
        return self._items.popleft() if self._items else None

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


Up = TypeVar("Up")
Down = TypeVar("Down")


class Link(Generic[Up, Down]):
    """A connection from a server to the launcher.

    Args:
        number: of the connection.
        random: to draw from.
        on_step: told of all that the server sends.

    Attributes:
        up, down: what goes to the launcher, and to the server.
    """

    def __init__(self, number: int, random: Random, on_step: Callable[[], None]) -> None:
        self.number = number
        self.up: OneWayItems[Up] = OneWayItems(random)
        self.down: OneWayItems[Down] = OneWayItems(random)
        self._on_step = on_step

    def say(self, item: Up) -> None:
        """Send something to the launcher."""
        self.up.send(item)
        self._on_step()

    def cut(self) -> None:
        """Break it for both sides."""
        self.up.cut()
        self.down.cut()

    def hold(self, until_s: float) -> None:
        """Let nothing arrive anywhere before a time."""
        self.up.hold(until_s)
        self.down.hold(until_s)
