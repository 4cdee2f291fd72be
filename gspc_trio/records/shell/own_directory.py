"""A directory for one user and one process at a time: with a journal, or with a run-time system's state."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gspc_trio.records.shell.durable_files import THIS_MACHINE, make_directories

_LOCK = "lock"


def why_no_directory(directory: Path, error: OSError) -> str:
    """Return why there can be no such directory, as one line for people."""
    for part in (directory, *directory.parents):
        if part.exists() and not part.is_dir():
            return f"{part} is a file, and a directory is meant: name another one"
    return f"{directory}: {error.strerror}"


@contextmanager
def own_directory(directory: Path, used: str, refuse: Callable[[str], Exception]) -> Iterator[None]:
    """Make the directory if need be, and keep others out for the time of a block.

    The lock goes with the process.

    Args:
        directory: may be there already.
        used: what is said of one that somebody else has, before its name.
        refuse: makes the error; of one line.

    Raises:
        Exception: made by ``refuse``: the directory cannot be made, others can look into it, it holds other
            files, or somebody else uses it.
        OSError: its lock is no file of its own.
    """
    try:
        make_directories(THIS_MACHINE, directory)
    except OSError as error:
        raise refuse(why_no_directory(directory, error)) from error
    status = directory.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        if (names := os.listdir(directory)) and _LOCK not in names:  # nobody should shut /etc or a project
            raise refuse(f"{directory} is in use for something else: name another directory, or a new one")
        raise refuse(f"others can look into {directory}: chmod 700 it, or name another directory")
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refuse(f"{used} {directory}") from None
        yield
    finally:
        os.close(descriptor)
