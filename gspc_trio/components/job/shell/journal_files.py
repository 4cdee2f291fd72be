"""Journal files: a directory with one current file, replaced whole, made durable at each write.

Files of before stay as long as they have results that are nowhere else: a changed workflow may want them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TypeVar

from gspc_trio.records.shell.durable_files import THIS_MACHINE, FileSystem, append, put_in_place
from gspc_trio.records.shell.own_directory import own_directory

T = TypeVar("T")

_PREFIX = "journal."
_EARLIER = "earlier."
_VALUE = "value."
_NOTE = "job"

EARLIER_BYTES_MAX = 1 << 30
"""Of files of before so many bytes are kept, the newest."""


class JournalError(ValueError):
    """The journal cannot be used; one line says why, and what to do."""


class JournalDirectory:
    """Where a journal lies.

    Args:
        directory: which is locked.
        files: the file system that it is in.

    Attributes:
        name: for people, and for ``gspc-jobserver resume``.
    """

    def __init__(self, directory: Path, files: FileSystem = THIS_MACHINE) -> None:
        self.name = str(directory)
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
        for name in _names(self._files, self._directory, _EARLIER):
            self._files.remove(self._directory / name)

    def read_earlier(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Return the name of each file of before, the oldest first, and what reads it (or raises OSError)."""
        for name in _names(self._files, self._directory, _EARLIER):
            yield name, partial(self._files.read, self._directory / name)

    async def append(self, data: bytes) -> None:
        """Add to the file; durable on return. Raises OSError as ``replace`` does."""
        await self._files.wait(append, self._files, self._descriptor, data)

    async def compute(self, function: Callable[..., T], *args: object) -> T:
        """Return what a function returns that takes long, while heartbeats go on."""
        return await self._files.compute(function, *args)

    def read(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Return the name of each file, the newest first, and what reads it (or raises OSError)."""
        for name in reversed(journals_in(self._files, self._directory)):
            yield name, partial(self._files.read, self._directory / name)

    def note(self, text: str) -> None:
        """Keep a small text beside the journal, in place of the one before; durable on return.

        Raises:
            OSError: the disk does not take it.
        """
        self._files.close(put_in_place(self._files, self._directory / _NOTE, text.encode()))

    def noted(self) -> str:
        """Return that text. Raises OSError if there is none."""
        return self._files.read(self._directory / _NOTE).decode()

    def values(self) -> list[str]:
        """Return the names of the files that are large values."""
        return _names(self._files, self._directory, _VALUE)

    def put_value(self, name: str, data: bytes | memoryview) -> None:
        """Keep a large value under a name; durable on return. Raises OSError if the disk does not take it."""
        self._files.close(put_in_place(self._files, self._directory / name, data))

    def read_value(self, name: str) -> bytes:
        """Return it. Raises OSError if it is not there."""
        return self._files.read(self._directory / name)

    def remove_value(self, name: str) -> None:
        """Remove it, if it is there. Raises OSError if that cannot be."""
        self._files.remove(self._directory / name)

    def close(self) -> None:
        """Append no more."""
        if self._descriptor is not None:
            self._files.close(self._descriptor)
            self._descriptor = None


def journals_in(files: FileSystem, directory: Path) -> list[str]:
    """Return the names of a journal's files, oldest first."""
    return _names(files, directory, _PREFIX)


def _names(files: FileSystem, directory: Path, prefix: str) -> list[str]:
    return sorted(name for name in files.names(directory) if _number_of(name, prefix))


def _number_of(name: str, prefix: str = _PREFIX) -> int:
    """Return the number of a file of a journal, 0 for another file."""
    number = name.removeprefix(prefix)
    return int(number) if number != name and number.isdecimal() else 0


def has_journal(directory: Path) -> bool:
    """Whether there is a journal in a directory."""
    return bool(journals_in(THIS_MACHINE, directory))


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
    for name in reversed(_names(files, directory, _EARLIER)):
        room -= files.size_bytes(directory / name)
        if room < 0:
            files.remove(directory / name)


def locked(directory: Path) -> AbstractContextManager[None]:
    """Keep other users and job servers out of a journal's directory for the time of a block.

    Raises:
        JournalError: others can look into it, or another job server uses it.
    """
    return own_directory(directory, "a job server that runs uses the journal", JournalError)
