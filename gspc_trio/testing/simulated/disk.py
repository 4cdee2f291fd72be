"""A disk on trio's clock: it takes time, fills up, and forgets at a power loss what was not synced."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

import trio
from attrs import define, field

from gspc_trio.components.job.journal_bytes import About
from gspc_trio.components.job.shell.journal import FILE_BYTES_MAX, Journal
from gspc_trio.components.job.shell.journal_files import JournalDirectory, read_journal
from gspc_trio.records.shell.durable_files import FileSystem, make_directories
from gspc_trio.records.shell.journal_files import journals_in
from gspc_trio.testing.simulated.process import SimulatedProcess

T = TypeVar("T")

WRITE_S = 0.001
"""Mean time of a write, about; one in twenty takes a hundred times as long."""

ROOT = Path("/")

JOURNAL = Path("/journals/job")
"""Where the journal lies."""

ABOUT = About("simulation", "workload", "", (), {})


@define(eq=False)
class _File:
    """Content as processes see it, and what of it is durable."""

    content: bytes = b""
    durable: bytes = b""


@define(eq=False)
class _Directory:
    """Names as processes see them, those that are durable, and the changes since.

    A change gives names to files, or takes them away (None), all of them or none.
    """

    names: dict[str, _File | _Directory] = field(factory=dict)
    durable: dict[str, _File | _Directory] = field(factory=dict)
    changes: list[dict[str, _File | _Directory | None]] = field(factory=list)

    def change(self, change: dict[str, _File | _Directory | None]) -> None:
        _apply(change, self.names)
        self.changes.append(change)


def _apply(change: dict[str, _File | _Directory | None], names: dict[str, _File | _Directory]) -> None:
    for name, node in change.items():
        if node is not None:
            names[name] = node
        else:
            names.pop(name, None)


class SimulatedDisk:
    """The disk of one host, maybe with a journal; it outlives the processes that write to it.

    Args:
        name: for people.
        random: draws times, and what is left after a kill or a power loss.
        file_bytes_max: when a journal begins a new file.

    Attributes:
        full_until_s: until when it takes no more.
        was_full: how often it did not take something.
        on_read: told the content of the newest file when a job server is about to go on with its journal.
        on_write: told who is just writing.
    """

    def __init__(self, name: str, random: Random, file_bytes_max: int = FILE_BYTES_MAX) -> None:
        self.name = name
        self.full_until_s: float = 0.0
        self.was_full = 0
        self.on_read: Callable[[bytes], None] = lambda _: None
        self.on_write: Callable[[SimulatedProcess], None] = lambda _: None
        self._random = random
        self._file_bytes_max = file_bytes_max
        self._root = _Directory()

    def files(self, process: SimulatedProcess) -> ProcessFiles:
        """Return the file system as a process has it."""
        return ProcessFiles(self, process, self._random)

    def open_journal(self, process: SimulatedProcess) -> Journal:
        """Return the journal as a process has it: a new one, or that of an earlier process.

        Raises:
            JournalError: what is there is none.
        """
        files = self.files(process)
        make_directories(files, JOURNAL)
        directory = _WatchedDirectory(self, files)
        records = read_journal(directory)[1] if journals_in(files, JOURNAL) else []
        return Journal(directory, ABOUT, records, self._file_bytes_max)

    def durable_journal(self) -> bytes:
        """Return what of the newest file of the journal would be left if the power went now."""
        directory = self._root
        for name in JOURNAL.parts[1:]:
            below = directory.durable.get(name)
            if not isinstance(below, _Directory):
                return b""
            directory = below
        names = [name for name in directory.durable if name.startswith("journal.") and name[8:].isdigit()]
        newest = directory.durable[max(names)] if names else None
        return newest.durable if isinstance(newest, _File) else b""

    def draw_time_s(self) -> float:
        """Draw how long a write takes."""
        return self._random.expovariate(1 / WRITE_S) * (1 if self._random.random() < 0.95 else 100)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more now."""
        return trio.current_time() < self.full_until_s

    def find(self, path: Path) -> _File | _Directory:
        """Return a file or directory.

        Raises:
            FileNotFoundError: there is none.
        """
        node: _File | _Directory = self._root
        for name in path.parts[1:]:
            if isinstance(node, _File) or name not in node.names:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
            node = node.names[name]
        return node

    def directory(self, path: Path) -> _Directory:
        """Return a directory, as :meth:`find` does."""
        found = self.find(path)
        assert isinstance(found, _Directory), f"{path} is a file"
        return found

    def lose_power(self) -> None:
        """Forget what was not synced, or some of it, in any order."""
        self._forget(self._root)

    def _forget(self, node: _File | _Directory) -> None:
        if isinstance(node, _File):
            synced = len(node.durable)
            kept = node.content[: self._random.randint(synced, len(node.content))]
            torn = len(node.content) if self._random.random() < 0.8 else len(kept)
            node.content = node.durable = kept.ljust(
                torn, b"\0"
            )  # the length may be known, and not the bytes
            return
        names = dict(node.durable)
        for change in node.changes:
            if self._random.random() < 0.5:
                _apply(change, names)
        node.names, node.durable, node.changes = names, dict(names), []
        for one in dict.fromkeys(names.values()):
            self._forget(one)


class ProcessFiles(FileSystem):
    """A disk as one process has it: when that is killed while it waits, some of what it wanted is done.

    Args:
        disk: the disk.
        process: whose it is.
        random: draws how much of it.
    """

    def __init__(self, disk: SimulatedDisk, process: SimulatedProcess, random: Random) -> None:
        self._disk = disk
        self._process = process
        self._random = random
        self._open: dict[int, _File] = {}
        self._waiting: Callable[[], object] | None = None
        self._left = 0
        self._done = 0
        process.on_kill.append(self._killed)

    def _killed(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._done = 0
            waiting()  # nothing is done: it is counted
            self._left = self._random.randint(0, self._done)
            waiting()
        if self._process.dark:
            self._disk.lose_power()

    def _may(self) -> bool:
        """Whether something is done: for a process that lives, or by the kernel before the power goes."""
        if self._process.alive:
            return True
        self._done += 1
        self._left -= 1
        return self._left >= 0

    async def wait(self, function: Callable[..., T], *arguments: object) -> T:
        """Take some time, and then do it."""
        self._waiting = partial(function, *arguments)
        with trio.CancelScope(shield=True):  # what the kernel was given it does
            await trio.sleep(self._disk.draw_time_s())
        self._disk.on_write(self._process)
        self._process.step()
        if not self._process.alive:
            await trio.sleep_forever()  # until the end that is on its way
        self._waiting = None
        return function(*arguments)

    async def compute(self, function: Callable[..., T], *arguments: object) -> T:
        """Compute at once."""
        await trio.lowlevel.checkpoint()
        return function(*arguments)

    def is_directory(self, path: Path) -> bool:
        """Whether there is a directory."""
        try:
            return isinstance(self._disk.find(path), _Directory)
        except FileNotFoundError:
            return False

    def make_directory(self, path: Path, *, private: bool) -> None:
        """Make a directory."""
        del private  # there are no users
        if self._may():
            self._disk.directory(path.parent).change({path.name: _Directory()})

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory."""
        return list(self._disk.directory(directory).names)

    def read(self, path: Path) -> bytes:
        """Return what a file has."""
        file = self._disk.find(path)
        assert isinstance(file, _File), f"{path} is a directory"
        return file.content

    def size_bytes(self, path: Path) -> int:
        """Return how long a file is."""
        return len(self.read(path))

    def create(self, path: Path) -> int:
        """Create a file."""
        file, descriptor = _File(), len(self._open)
        if self._may():
            self._disk.directory(path.parent).change({path.name: file})
        self._open[descriptor] = file
        return descriptor

    def write(self, descriptor: int, data: bytes | memoryview) -> None:
        """Append to a file; a disk that is full, and the last that a kernel does, take some of it."""
        file, disk = self._open[descriptor], self._disk
        if not self._may():
            return
        is_full = self._process.alive and disk.is_full
        is_last = not self._process.alive and not self._left
        file.content += data[: self._random.randint(0, len(data))] if is_full or is_last else data
        if is_full:
            disk.was_full += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    def sync(self, descriptor: int) -> None:
        """Make the content of a file durable."""
        if self._may():
            file = self._open[descriptor]
            file.durable = file.content

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        if self._may():
            directory = self._disk.directory(path)
            directory.durable = dict(directory.names)
            directory.changes = []

    def close(self, descriptor: int) -> None:
        """Append no more."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file of a directory another name."""
        if self._may():
            directory = self._disk.directory(old.parent)
            directory.change({new.name: directory.names[old.name], old.name: None})

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        directory = self._disk.directory(path.parent)
        if path.name in directory.names and self._may():
            directory.change({path.name: None})


class _WatchedDirectory(JournalDirectory):
    """The directory of a journal; what is read there is shown to the disk first."""

    def __init__(self, disk: SimulatedDisk, files: FileSystem) -> None:
        super().__init__(JOURNAL, files)
        self.name = disk.name
        self._disk = disk

    def read(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Return the files, the newest first."""
        read = list(super().read())
        if read:
            self._disk.on_read(read[0][1]())
        yield from read
