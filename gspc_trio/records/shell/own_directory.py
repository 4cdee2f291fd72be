"""A directory for one user and one process at a time: with a journal, or with a run-time system's state."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gspc_trio.records.shell.durable_files import THIS_MACHINE, make_directories

_LOCK = "lock"


@contextmanager
def own_directory(directory: Path, used: str, refuse: Callable[[str], Exception]) -> Iterator[None]:
    """Make the directory if need be, and keep others out for the time of a block.

    The lock goes with the process.

    Args:
        directory: may be there already.
        used: what is said of one that somebody else has, before its name.
        refuse: makes the error; of one line.

    Raises:
        Exception: made by ``refuse``: others can look into the directory, it holds other files, or somebody
            else uses it.
        OSError: the directory cannot be made, or its lock is no file of its own.
    """
    make_directories(THIS_MACHINE, directory)
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
