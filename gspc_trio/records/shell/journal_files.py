"""Files of a journal: a directory with one current file, replaced whole, made durable at each write.

Files of before may stay beside it for what is nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from gspc_trio.records.shell.durable_files import THIS_MACHINE, FileSystem, append, put_in_place

T = TypeVar("T")

_PREFIX = "journal."
_EARLIER = "earlier."

EARLIER_BYTES_MAX = 1 << 30
"""Of files of before so many bytes are kept, the newest."""


class JournalFiles:
    """Where a journal lies.

    Args:
        directory: which is locked.
        files: the file system that it is in.

    Attributes:
        name: for people.
    """

    def __init__(self, directory: Path, files: FileSystem = THIS_MACHINE) -> None:
        self.name: str = str(directory)
        self._directory = directory
        self._files = files
        self._descriptor: int | None = None

    async def replace(self, data: bytes, keep: bool = False) -> None:
        """Begin the next file with ``data``, whole or not at all, durable on return.

        Args:
            data: its first bytes.
            keep: whether the file of before is kept for :meth:`read_earlier`; otherwise it goes.

        Raises:
            OSError: the disk does not take it.
        """
        self.close()
        self._descriptor = await self._files.wait(_replace, self._files, self._directory, data, keep)

    def drop_earlier(self) -> None:
        """Forget the files of before. Raises OSError if that cannot be."""
        for name in names_of(self._files, self._directory, _EARLIER):
            self._files.remove(self._directory / name)

    def read_earlier(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Return the name of each file of before, the oldest first, and what reads it (or raises OSError)."""
        for name in names_of(self._files, self._directory, _EARLIER):
            yield name, partial(self._files.read, self._directory / name)

    async def append(self, data: bytes) -> None:
        """Add to the file; durable on return. Raises OSError as ``replace`` does."""
        await self._files.wait(append, self._files, self._descriptor, data)

    def replace_now(self, data: bytes) -> None:
        """Do what :meth:`replace` does, and let the caller wait: for small files."""
        self.close()
        self._descriptor = _replace(self._files, self._directory, data, False)

    def append_now(self, data: bytes) -> None:
        """Do what :meth:`append` does, and let the caller wait: for little data."""
        assert self._descriptor is not None, "a file has begun"
        append(self._files, self._descriptor, data)

    async def compute(self, function: Callable[..., T], *args: object) -> T:
        """Return what a function returns that takes long, while heartbeats go on."""
        return await self._files.compute(function, *args)

    def read(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Return the name of each file, the newest first, and what reads it (or raises OSError)."""
        for name in reversed(journals_in(self._files, self._directory)):
            yield name, partial(self._files.read, self._directory / name)

    def close(self) -> None:
        """Append no more."""
        if self._descriptor is not None:
            self._files.close(self._descriptor)
            self._descriptor = None


def journals_in(files: FileSystem, directory: Path) -> list[str]:
    """Return the names of a journal's files, oldest first."""
    return names_of(files, directory, _PREFIX)


def names_of(files: FileSystem, directory: Path, prefix: str) -> list[str]:
    """Return the names of files that are this prefix and a number, by their numbers."""
    return sorted(name for name in files.names(directory) if _number_of(name, prefix))


def _number_of(name: str, prefix: str = _PREFIX) -> int:
    """Return the number of a file of a journal, 0 for another file."""
    number = name.removeprefix(prefix)
    return int(number) if number != name and number.isdecimal() else 0


def _replace(files: FileSystem, directory: Path, data: bytes, keep: bool) -> int:
    """Write the next file, whole or not at all; remove the others or rename them; return its descriptor."""
    old = journals_in(files, directory)
    number = _number_of(old[-1]) + 1 if old else 1
    descriptor = put_in_place(files, directory / f"{_PREFIX}{number:06}", data)
    try:
        for name in old:
            if keep:
                files.rename(directory / name, directory / f"{_EARLIER}{_number_of(name):06}")
            else:
                files.remove(directory / name)
        if keep:
            _drop_oldest(files, directory)
    except BaseException:
        files.close(descriptor)
        raise
    return descriptor


def _drop_oldest(files: FileSystem, directory: Path) -> None:
    """Keep so many bytes of files of before as are allowed."""
    room = EARLIER_BYTES_MAX
    for name in reversed(names_of(files, directory, _EARLIER)):
        room -= files.size_bytes(directory / name)
        if room < 0:
            files.remove(directory / name)
