"""The memory in which the preloaded library (``io.c``) counts, and the names of what is counted."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from struct import Struct as Layout
from time import monotonic_ns, time_ns
from typing import Self

from msgspec import Struct

VARIABLE = "GSPC_IO_AREA"
"""Environment variable that names the file of the area in which a process counts."""

SOURCE = os.path.join(os.path.dirname(__file__), "io.c")
"""The library."""

FLAGS = ("-pthread", "-ldl")
"""What it is compiled with."""

COUNTS = (
    "read_calls",
    "write_calls",
    "read_bytes",
    "write_bytes",
    "storage_read_bytes",
    "storage_write_bytes",
)
"""What the kernel counts of a process, in this order: of all descriptors, pipes and terminals too.

Bytes that were read and did not come from storage were in the page cache."""

SIZES = ("100", "1KiB", "10KiB", "100KiB", "1MiB", "4MiB", "10MiB", "100MiB", "1GiB", "more")
"""Ranges of sizes, as Darshan has them: the most that an operation of each moves."""

_AMOUNTS = ("bytes", "ns", "files", "consecutive", "forward", "random", *(f"to_{size}" for size in SIZES))

CALLS = tuple(f"file_{direction}_{name}" for direction in ("read", "write") for name in _AMOUNTS)
"""What the library counts of regular files in each frame, in the order of its memory."""

OTHERS = ("other_read_bytes", "other_write_bytes")
"""What it counts of everything else, for the share that it sees."""

SLOTS = 256
"""So many processes of one compute process can count at a time."""

EVENT_FIELDS = 5
"""Beside results and readings a compute process sends events: None, task, attempt, when, text."""

EVENT_CHARS_MAX = 1000
"""So much of the text of an event is kept."""

_HEAD = Layout("<QIIqIIQ")
_HEAD_BYTES = 4096
_MAGIC = 0x316F692D63707367
_SLOT_WORDS = 1 + len(OTHERS) + 2 * len(CALLS)
_WALL_AT, _TASK_AT, _HIGHEST_AT, _UNSEEN_AT = 16, 24, 28, 32


class Sums(Struct, frozen=True):
    """What all processes of an area have counted since it was made.

    Attributes:
        others: as :data:`OTHERS`.
        even, odd: as :data:`CALLS`, of operations that have ended in frames of even and of odd number.
    """

    others: tuple[int, ...]
    even: tuple[int, ...]
    odd: tuple[int, ...]


NO_SUMS = Sums((0,) * len(OTHERS), (0,) * len(CALLS), (0,) * len(CALLS))
"""Of an area in which nobody has counted."""


class Area:
    """The memory in which processes count.

    Args:
        descriptor: of its file; the caller's.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, 0)

    @classmethod
    def make(cls, descriptor: int) -> Self:
        """Make one of an empty file."""
        os.ftruncate(descriptor, _HEAD_BYTES + SLOTS * _SLOT_WORDS * 8)
        made = cls(descriptor)
        _HEAD.pack_into(made._memory, 0, _MAGIC, SLOTS, _SLOT_WORDS * 8, 0, 1, 0, 0)
        made.set_clock(time_ns() - monotonic_ns())
        return made

    def set_clock(self, wall_ns: int) -> None:
        """Say what is to be added to the monotonic clock of this host for the time since 1970."""
        self._memory[_WALL_AT : _WALL_AT + 8] = wall_ns.to_bytes(8, "little", signed=True)

    def next_task(self) -> None:
        """A task ends: files that others use are counted anew."""
        number = int.from_bytes(self._memory[_TASK_AT : _TASK_AT + 4], "little")
        self._memory[_TASK_AT : _TASK_AT + 4] = max(1, (number + 1) & 0xFFFFFFFF).to_bytes(4, "little")

    @property
    def unseen(self) -> int:
        """Number of processes that found no slot, and so were not counted."""
        return int.from_bytes(self._memory[_UNSEEN_AT : _UNSEEN_AT + 8], "little")

    def slots(self) -> list[tuple[int, Sums]]:
        """Return process id (0: it has ended) and sums of each slot that was ever used."""
        used = int.from_bytes(self._memory[_HIGHEST_AT : _HIGHEST_AT + 4], "little")
        begin = _HEAD_BYTES // 8
        with memoryview(self._memory) as view, view.cast("Q") as words:
            found = [
                words[begin + n * _SLOT_WORDS : begin + (n + 1) * _SLOT_WORDS].tolist() for n in range(used)
            ]
        return [(one[0] & 0xFFFFFFFF, _sums(one[1:])) for one in found]

    def sums(self) -> Sums:
        """Return what all processes have counted; it only grows."""
        found = [one for _, one in self.slots()]
        if not found:
            return NO_SUMS
        if len(found) == 1:
            return found[0]
        return Sums(
            _added([one.others for one in found]),
            _added([one.even for one in found]),
            _added([one.odd for one in found]),
        )

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()


def _sums(words: Sequence[int]) -> Sums:
    first, second = len(OTHERS), len(OTHERS) + len(CALLS)
    return Sums(tuple(words[:first]), tuple(words[first:second]), tuple(words[second:]))


def _added(rows: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*rows, strict=True)))


class Reading(Struct, array_like=True, frozen=True):
    """What a compute process says of itself: after a task, or before one.

    Attributes:
        tasks: id and attempt of each task that has ended since its last reading; they share equally.
        grown: by so much the counts of the kernel have grown since then, in the order of :data:`COUNTS`.
        counts: where they are, with what the reading itself adds.
        sums: of its area, flat; () without one.
        pid: of the process.
        descriptor: of its area there, -1 for none.
    """

    tasks: tuple[tuple[int, int], ...]
    grown: tuple[int, ...]
    counts: tuple[int, ...]
    sums: tuple[int, ...]
    pid: int
    descriptor: int


def flat(sums: Sums) -> tuple[int, ...]:
    """Return sums as a reading has them."""
    return (*sums.others, *sums.even, *sums.odd)


def counts_in(content: bytes) -> tuple[int, ...]:
    """Return the counts in what ``/proc/PID/io`` says."""
    _, read_bytes, _, written, _, reads, _, writes, _, from_storage, _, to_storage, *_ = content.split()
    return int(reads), int(writes), int(read_bytes), int(written), int(from_storage), int(to_storage)
