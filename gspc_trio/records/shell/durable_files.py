"""Files that outlive the machine: written aside, made durable, then put in place, which is made durable too.

A simulation has a file system of its own, which forgets what was not synced.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import trio

T = TypeVar("T")

ASIDE = "new"
"""The name of a file that is not in its place yet."""


class FileSystem:
    """That of this machine. What a power loss leaves of anything that was not synced, nobody knows."""

    async def wait(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what a function does that waits for the disk."""
        return await trio.to_thread.run_sync(function, *arguments)

    async def compute(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what a function does that takes long."""
        return await trio.to_thread.run_sync(function, *arguments)

    def is_directory(self, path: Path) -> bool:
        """Whether there is a directory."""
        return path.is_dir()

    def make_directory(self, path: Path, *, private: bool) -> None:
        """Make a directory, maybe for this user alone; somebody else may just have done it."""
        path.mkdir(mode=0o700 if private else 0o777, exist_ok=True)

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory."""
        return os.listdir(directory)

    def read(self, path: Path) -> bytes:
        """Return what a file has."""
        return path.read_bytes()

    def size_bytes(self, path: Path) -> int:
        """Return how long a file is."""
        return path.stat().st_size

    def create(self, path: Path) -> int:
        """Create a file; return its descriptor, to append to it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, 0o600)

    def write(self, descriptor: int, data: bytes | memoryview) -> None:
        """Append all of the data."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]

    def sync(self, descriptor: int) -> None:
        """Return when what the file has is durable; its name need not be."""
        os.fdatasync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are durable: what was created, renamed and removed there."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Append no more."""
        os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, that of another file maybe, which is gone then."""
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)


THIS_MACHINE = FileSystem()


def make_directories(files: FileSystem, directory: Path) -> None:
    """Make a directory for this user alone, and those above it, durable on return; they may be there.

    Raises:
        OSError: one cannot be made.
    """
    directory = directory.absolute()
    missing = [path for path in (directory, *directory.parents) if not files.is_directory(path)]
    for path in reversed(missing):
        files.make_directory(path, private=path == directory)
        files.sync_directory(path.parent)
    if not missing:  # whoever made it may have been killed before it was durable
        with suppress(PermissionError):
            files.sync_directory(directory.parent)


def append(files: FileSystem, descriptor: int, data: bytes | memoryview) -> None:
    """Append to a file; durable on return.

    Raises:
        OSError: the disk does not take it.
    """
    files.write(descriptor, data)
    files.sync(descriptor)


def create_aside(files: FileSystem, directory: Path, data: bytes | memoryview) -> int:
    """Write a file that is not in its place yet; return its descriptor, to append to it.

    Raises:
        OSError: the disk does not take it.
    """
    files.remove(directory / ASIDE)
    descriptor = files.create(directory / ASIDE)
    try:
        append(files, descriptor, data)
    except BaseException:
        files.close(descriptor)
        raise
    return descriptor


def put_in_place(files: FileSystem, path: Path, data: bytes | memoryview) -> int:
    """Give a file this content, whole or not at all, durable on return; return its descriptor, to append.

    Raises:
        OSError: the disk does not take it.
    """
    descriptor = create_aside(files, path.parent, data)
    try:
        files.rename(path.parent / ASIDE, path)
        files.sync_directory(path.parent)
    except BaseException:
        files.close(descriptor)
        raise
    return descriptor
