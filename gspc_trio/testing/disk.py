"""A disk on trio's clock: it takes time, fills up, and keeps of a write that was under way what it likes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import trio

from gspc_trio.components.journal import FILE_BYTES_MAX, Journal, read_journal
from gspc_trio.protocol.journal import About
from gspc_trio.testing.process import SimulatedProcess

WRITE_S = 0.001
"""Mean time of a write, about; one in twenty takes a hundred times as long."""

ABOUT = About("simulation", "workload", "", (), {})


class SimulatedDisk:
    """The disk of one host with one journal; it outlives the processes that write to it.

    Args:
        name: for people.
        random: draws times, and what is left of a write that was under way.
        file_bytes_max: when the journal begins a new file.

    Attributes:
        files: name -> content, oldest first.
        note: the small text beside the journal, or None.
        full_until_s: until when it takes no more.
        was_full: how often it did not take something.
        on_read: told the content of the newest file when a job server is about to go on with it.
    """

    def __init__(self, name: str, random: Random, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        self.name = name
        self.files: dict[str, bytes] = {}
        self.note: str | None = None
        self.full_until_s = 0.0
        self.was_full = 0
        self.on_read: Callable[[bytes], None] = lambda _: None
        self._random = random
        self._file_bytes_max = file_bytes_max
        self._number = 0

    def open_journal(self, process: SimulatedProcess) -> Journal:
        """Return the journal as a process has it: a new one, or that of an earlier process.

        Raises:
            JournalError: what is there is none.
        """
        disk = OpenDisk(self, process)
        records = read_journal(disk)[1] if self.files else []
        return Journal(disk, ABOUT, records, self._file_bytes_max)

    def draw_time_s(self) -> float:
        """Draw how long a write takes."""
        return self._random.expovariate(1 / WRITE_S) * (1 if self._random.random() < 0.95 else 100)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more now."""
        return trio.current_time() < self.full_until_s

    def next_name(self) -> str:
        """Return the name of the next file."""
        self._number += 1
        return f"journal.{self._number:06}"

    def leave(self, data: bytes, *, dark: bool) -> bytes:
        """Return what is left of a write: its first bytes, after a power loss zeros for the others."""
        kept = data[: self._random.randint(0, len(data))]
        return kept.ljust(len(data), b"\0") if dark and self._random.random() < 0.8 else kept

    def leave_files(self, name: str, data: bytes) -> None:
        """Leave what is left of the change to a new file: that is there or not, the old one gone or not."""
        old = dict(self.files)
        if self._random.random() < 0.7:
            self.files[name] = data
            if self._random.random() < 0.5:
                for one in old:
                    del self.files[one]


class OpenDisk:
    """A disk as one process has it; see :class:`~gspc_trio.components.journal_files.JournalDisk`."""

    def __init__(self, disk: SimulatedDisk, process: SimulatedProcess) -> None:
        self.name = disk.name
        self._disk = disk
        self._process = process
        self._file = ""
        self._appending = b""
        self._replacing: tuple[str, bytes] | None = None
        process.on_kill.append(self._killed)

    def _killed(self) -> None:
        disk, dark = self._disk, self._process.dark
        if self._appending:
            disk.files[self._file] += disk.leave(self._appending, dark=dark)
            self._appending = b""
        if self._replacing is not None:
            disk.leave_files(*self._replacing)
            self._replacing = None

    async def replace(self, data: bytes) -> None:
        """Begin the next file."""
        disk, name = self._disk, self._disk.next_name()
        self._replacing = name, data
        await self._take_time()
        self._replacing = None
        if disk.is_full:
            self._refuse()
        disk.files.clear()
        disk.files[name] = data
        self._file = name

    async def append(self, data: bytes) -> None:
        """Add to the file."""
        disk = self._disk
        self._appending = data
        await self._take_time()
        self._appending = b""
        if disk.is_full:
            disk.files[self._file] += disk.leave(data, dark=False)
            self._refuse()
        disk.files[self._file] += data

    async def _take_time(self) -> None:
        with trio.CancelScope(shield=True):  # what the kernel was given it does
            await trio.sleep(self._disk.draw_time_s())
        self._process.step()
        if not self._process.alive:
            await trio.sleep_forever()  # until the end that is on its way

    def _refuse(self) -> None:
        self._disk.was_full += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    async def compute(self, function: Callable[..., Any], *args: Any) -> Any:
        """Compute at once."""
        await trio.lowlevel.checkpoint()
        return function(*args)

    def read(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Return the files, the newest first."""
        self._disk.on_read(next(reversed(self._disk.files.values())))
        for name in reversed(list(self._disk.files)):
            yield name, partial(self._disk.files.__getitem__, name)

    def note(self, text: str) -> None:
        """Keep a small text."""
        if self._process.alive:
            self._disk.note = text

    def noted(self) -> str:
        """Return the text."""
        if self._disk.note is None:
            raise FileNotFoundError
        return self._disk.note

    def close(self) -> None:
        """Append no more."""
        self._file = ""
