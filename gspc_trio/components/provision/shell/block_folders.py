"""Directories for blocks in a file system that the nodes see, too: slow at times, and so for threads."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gspc_trio.compute.folders import remove_tree

KEPT = "kept"
"""A file that says: a run-time system may come back for this directory."""

KEPT_S = 30 * 86400.0
"""For so long such a directory is left alone, seconds."""

SHARED_FOLDER = ".gspc-trio"
"""In the home directory: where the directories for blocks are, if nothing else is said."""

OUTPUT_TAIL_BYTES = 4096
"""How much of what a job printed is looked at, from the end."""


def _prefix() -> str:
    # Only on the same host does a lock tell what was left. No host has "_" in its name.
    return f"batch-{socket.gethostname()}_"


class BlockFolder:
    """The directory of one block, which nobody else may look into; locked for as long as its block is there.

    Attributes:
        path: its name.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @classmethod
    def make(cls, shared: str, keep: bool) -> BlockFolder:
        """Return a new one; what was left of others is removed.

        Args:
            shared: in which directory; "" for the usual one.
            keep: it is to be left when this process is killed.

        Raises:
            OSError: it cannot be made.
        """
        parent = Path(shared or Path.home() / SHARED_FOLDER)
        parent.mkdir(mode=0o700, exist_ok=True)
        sweep(parent)
        while True:
            path = parent / f"{_prefix()}{secrets.token_hex(8)}"
            path.mkdir(mode=0o700)
            try:
                folder = cls(str(path))
            except FileNotFoundError:
                continue  # somebody has taken it for left before it was locked: so it is
            if path.exists():
                break
            folder.remove()
        if keep:
            folder.write(KEPT, b"")
        return folder

    def write(self, name: str, content: bytes) -> str:
        """Write a file that only its owner can read, in place of one that was there; return its path.

        Raises:
            OSError: it cannot be written.
        """
        path, aside = os.path.join(self.path, name), os.path.join(self.path, f".{name}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(aside, flags, 0o600), "wb") as file:
            file.write(content)
        os.rename(aside, path)
        return path

    def last_lines(self, name: str) -> list[str]:
        """Return the last lines of a file, if there are any."""
        return last_lines(os.path.join(self.path, name))

    def remove(self) -> None:
        """Remove it with all that is in it."""
        remove_tree(self.path)
        os.close(self._lock)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file to read it; a pipe by its name, which nobody writes to, holds no thread up.

    Raises:
        OSError: it is not there, or is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def last_lines(path: str) -> list[str]:
    """Return the last lines of a file, if there are any."""
    try:
        with open_regular(path) as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(max(0, size_bytes - OUTPUT_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def sweep(parent: Path) -> None:
    """Remove the directories of blocks whose run-time system is gone, and does not come back."""
    with suppress(OSError):
        for entry in list(os.scandir(parent)):
            if entry.name.startswith(_prefix()):
                with suppress(OSError):
                    _remove_if_left(entry.path)


def _remove_if_left(path: str) -> None:
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(lock)
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.exists(os.path.join(path, KEPT)) and time.time() - found.st_mtime < KEPT_S:
            return
        remove_tree(path)
    finally:
        os.close(lock)
