"""The file that ``--records`` writes: one run has it at a time, and nothing but records is ever replaced."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

log: logging.Logger = logging.getLogger(__name__)

HEAD = b'{"record":'
"""So the first line of a file of records begins, but for spaces."""

HEAD_BYTES = 64
"""So much of a file is looked at for it."""


def open_records_file(path: Path) -> BinaryIO:
    """Return a file for the records of a run, empty; what an earlier run has recorded there is gone.

    It belongs to this run until :func:`close_records_file`. Devices and pipes are opened as they are.

    Args:
        path: of the file.

    Raises:
        OSError: another run writes to it, it holds something else than records, or it cannot be written;
            then it stays as it is. ``strerror`` says why.
    """
    descriptor = _claimed(path)
    if descriptor is None:
        return path.open("wb")
    os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "wb")


def part_of(path: Path, attempt: int) -> Path:
    """Return the file for the records of an attempt to run a job, from 1: each has a file of its own.

    A job that goes on when its run-time system is back would else replace what it has recorded before.
    """
    if attempt == 1:
        return path
    part = path.with_name(f"{path.stem}.{attempt}{path.suffix}")
    log.warning("from now on records are written to %s", part)
    return part


def close_records_file(file: BinaryIO) -> None:
    """Write what is buffered, and close the file: another run may have it then.

    Raises:
        OSError: the disk does not take the rest.
    """
    try:
        file.flush()
    finally:
        _release(file.fileno())
        with suppress(OSError):  # it tries once more to write what is buffered
            file.close()


def check_records_file(path: Path) -> None:
    """See that records may be written to a file, which stays as it is.

    Raises:
        OSError: as :func:`open_records_file`.
    """
    descriptor = _claimed(path)
    if descriptor is not None:
        _release(descriptor)
        os.close(descriptor)


def _release(descriptor: int) -> None:
    with suppress(OSError):  # processes that were forked meanwhile may have it open, too
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _claimed(path: Path) -> int | None:
    """Return the descriptor of a file that belongs to this run now, None for what is no regular file."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            if path.is_dir():
                raise _refusal(errno.EISDIR, os.strerror(errno.EISDIR), path)
            return None
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(descriptor, path)
        head = b"".join(os.pread(descriptor, HEAD_BYTES, 0).split())
        if not (head.startswith(HEAD) or HEAD.startswith(head)):
            why = "it holds something else than records, and stays as it is: name another file"
            raise _refusal(errno.EEXIST, why, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _refusal(errno.EBUSY, "another run writes its records there: name another file", path) from None
    except OSError:  # some file systems have no locks
        pass


def _refusal(number: int, why: str, path: Path) -> OSError:
    return OSError(number, why, str(path))
