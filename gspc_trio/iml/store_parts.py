"""State of the parts that a memory server holds."""

from __future__ import annotations

from collections import deque
from enum import Enum

from attrs import define, field

from gspc_trio.iml.store_events import Create, Key, Pin, PinUse

PAGE_BYTES = 4096
"""Memory is taken in pages."""


class PartPlace(Enum):
    """Where a part is."""

    MEMORY = "memory"
    SPILLING = "spilling"
    SPILLED = "spilled"
    LOADING = "loading"


@define(eq=False)
class StoredPart:
    """A part of some data on this host.

    Attributes:
        key, size_bytes: which, and how long.
        segment: number of its segment, 0 when it has none.
        write_token: what others than the server itself show to write it; "": nobody else may.
        offset: where it lies in the spill file, -1 when it does not.
        writing: nobody may read it yet.
        cached: it may be dropped when room is short.
        place: where it is.
        pins: how many use it.
        readers: how many of them read its bytes where they lie.
        changing: whether one of them changes it.
        used: when it was last pinned (a count).
        gone: whether it was dropped while pinned or moved.
        waiting: pins that wait.
    """

    key: Key
    size_bytes: int
    segment: int
    writing: bool
    cached: bool
    used: int
    write_token: str = ""
    offset: int = -1
    place: PartPlace = PartPlace.MEMORY
    pins: int = 0
    readers: int = 0
    changing: bool = False
    gone: bool = False
    waiting: deque[Pin] = field(factory=deque)

    def has_pin(self, use: PinUse) -> bool:
        """Return whether somebody has pinned it for this use."""
        if use is PinUse.READ:
            return self.readers > 0
        if use is PinUse.CHANGE:
            return self.changing
        return self.pins > self.readers + self.changing


@define(eq=False)
class MemoryRequest:
    """Somebody waits for memory: a part to be made, or one to be loaded."""

    room_bytes: int
    create: Create | None = None
    part: StoredPart | None = None


def in_pages(size_bytes: int) -> int:
    """Return how much memory so many bytes take."""
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES
