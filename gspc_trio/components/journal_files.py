"""Where a journal lies: a directory with one file at a time, replaced whole, made durable at each write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import trio

from gspc_trio.components.own_directory import own_directory

_PREFIX = "journal."
_NOTE = "job"


class JournalError(ValueError):
    """The journal cannot be used; one line says why, and what to do."""


class JournalDisk(Protocol):
    """What a journal needs from where it lies.

    Attributes:
        name: for people, and for ``gspc-jobserver resume``.
    """

    name: str

    async def replace(self, data: bytes) -> None:
        """Begin the next file with ``data``, whole or not at all, durable on return; earlier ones go.

        Raises:
            OSError: the disk does not take it.
        """
        ...

    async def append(self, data: bytes) -> None:
        """Add to the file; durable on return. Raises OSError as ``replace`` does."""
        ...

    async def compute(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a function returns that takes long, while heartbeats go on."""
        ...

    def read(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Return the name of each file, the newest first, and what reads it (or raises OSError)."""
        ...

    def note(self, text: str) -> None:
        """Keep a small text beside the journal, in place of the one before."""
        ...

    def noted(self) -> str:
        """Return that text. Raises OSError if there is none."""
        ...

    def close(self) -> None:
        """Append no more."""
        ...


class JournalDirectory:
    """A journal's directory of a real file system.

    Args:
        directory: which is locked.
    """

    def __init__(self, directory: Path) -> None:
        self.name = str(directory)
        self._directory = directory
        self._descriptor = -1

    async def replace(self, data: bytes) -> None:
        """Begin the next file."""
        self.close()
        self._descriptor = await trio.to_thread.run_sync(_replace, self._directory, data)

    async def append(self, data: bytes) -> None:
        """Add to the file."""
        await trio.to_thread.run_sync(_append, self._descriptor, data)

    async def compute(self, function: Callable[..., Any], *args: Any) -> Any:
        """Compute in a thread."""
        return await trio.to_thread.run_sync(function, *args)

    def read(self) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Return the files."""
        for path in reversed(_files(self._directory)):
            yield path.name, path.read_bytes

    def note(self, text: str) -> None:
        """Keep a small text."""
        temporary = self._directory / "new"
        temporary.unlink(missing_ok=True)
        temporary.write_text(text)
        temporary.rename(self._directory / _NOTE)

    def noted(self) -> str:
        """Return the text."""
        return (self._directory / _NOTE).read_text()

    def close(self) -> None:
        """Append no more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _append(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fdatasync(descriptor)


def _files(directory: Path) -> list[Path]:
    """Return the files of a journal, oldest first."""
    return sorted(path for path in directory.glob(f"{_PREFIX}*") if path.suffix[1:].isdigit())


def has_journal(directory: Path) -> bool:
    """Whether there is a journal in a directory."""
    return bool(_files(directory))


def _replace(directory: Path, data: bytes) -> int:
    """Write the next file, whole or not at all; remove the others; return its descriptor."""
    old = _files(directory)
    number = int(old[-1].suffix[1:]) + 1 if old else 1
    path = directory / f"{_PREFIX}{number:06}"
    temporary = directory / "new"
    temporary.unlink(missing_ok=True)
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        _append(descriptor, data)
        temporary.rename(path)
        _sync_directory(directory)
        for one in old:
            one.unlink()
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def locked(directory: Path) -> AbstractContextManager[None]:
    """Keep other users and job servers out of a journal's directory for the time of a block.

    Raises:
        JournalError: others can look into it, or another job server uses it.
    """
    return own_directory(directory, "a job server that runs uses the journal", JournalError)
