"""Events and actions of a memory server's machine."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.machine import Tick

Key: TypeAlias = tuple[str, int]
"""A part: id of the data, number of the part."""


class PinUse(Enum):
    """What a part is pinned for."""

    READ = "read"
    """Its bytes, wherever they lie."""
    MAP = "map"
    """Its segment: it comes back from the spill file."""
    CHANGE = "change"
    """Its bytes are changed where they lie; it does not move, and nobody but who has it mapped reads them."""


# Events ----------------------------------------------------------------------------------------------------


class Create(Struct, frozen=True):
    """Make a part; ``writing``: nobody reads it before Seal. Answered by Granted or Refused.

    ``write_token`` is what others than the server itself show to write it; "": nobody else may.
    """

    ask: int
    key: Key
    size_bytes: int
    writing: bool = False
    cached: bool = False
    write_token: str = ""


class Seal(Struct, frozen=True):
    """The part was written; ``cached`` as in Create, None: as it was."""

    key: Key
    cached: bool | None = None


class Pin(Struct, frozen=True):
    """Let the part stay where it is. Answered by Granted or Refused; Granted holds until Unpin."""

    ask: int
    key: Key
    use: PinUse = PinUse.READ


class Unpin(Struct, frozen=True):
    """A pin is not needed any more."""

    key: Key
    use: PinUse = PinUse.READ


class Drop(Struct, frozen=True):
    """Nobody shall find the part any more; its room comes back when nothing is pinned or mapped."""

    key: Key


class Moved(Struct, frozen=True):
    """Answer to SpillOut or LoadIn; ``problem`` says why it failed."""

    key: Key
    problem: str = ""


class SegmentFree(Struct, frozen=True):
    """Answer to Retire: nobody maps the segment, its memory is free."""

    segment: int


class SegmentHeld(Struct, frozen=True):
    """Answer to Retire: somebody still maps it; SegmentFree follows."""

    segment: int


StoreEvent: TypeAlias = Create | Seal | Pin | Unpin | Drop | Moved | SegmentFree | SegmentHeld | Tick


# Actions ---------------------------------------------------------------------------------------------------


class MakeSegment(Struct, frozen=True):
    """Make a segment, of zeros unless it is ``overwritten`` before anybody reads it.

    ``spare_bytes`` is the memory that is not used beside it.
    """

    segment: int
    size_bytes: int
    spare_bytes: int
    overwritten: bool = False


class Granted(Struct, frozen=True):
    """What was asked for was done; ``segment`` is 0 when the part lies in the spill file at ``offset``."""

    ask: int
    key: Key
    size_bytes: int
    segment: int
    offset: int = 0


class StoreRefused(Struct, frozen=True):
    """What was asked for cannot be done; ``kind`` names an error of :mod:`gspc_trio.iml.errors`."""

    ask: int
    kind: str
    message: str


class SpillOut(Struct, frozen=True):
    """Write the segment into the spill file; answer Moved."""

    key: Key
    segment: int
    offset: int
    size_bytes: int


class LoadIn(Struct, frozen=True):
    """Read from the spill file into the segment; answer Moved."""

    key: Key
    segment: int
    offset: int
    size_bytes: int


class Retire(Struct, frozen=True):
    """The segment is not needed any more; answer SegmentFree or SegmentHeld."""

    segment: int


class Evict(Struct, frozen=True):
    """A cached copy was dropped: tell the coordinator."""

    key: Key


StoreAction: TypeAlias = MakeSegment | Granted | StoreRefused | SpillOut | LoadIn | Retire | Evict
