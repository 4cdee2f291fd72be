"""What a process of this host has printed so far, seen from outside."""

from __future__ import annotations

import os
import stat

import trio

from gspc_trio.compute.channel import OUTPUT_BYTES_MAX

STDOUT, STDERR = 1, 2


async def printed_by(pid: int) -> tuple[bytes, bytes]:
    """Return the last part of what a process has written to its standard output and error.

    Nothing is returned of what is no file. A file may lie where reading takes long; whoever waits may be
    cancelled.
    """
    return await trio.to_thread.run_sync(
        lambda: (_tail(pid, STDOUT), _tail(pid, STDERR)), abandon_on_cancel=True
    )


def _tail(pid: int, descriptor: int) -> bytes:
    """Return the last part of an open file of another process, b"" if it is none or the process has gone."""
    try:
        file = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return b""
        return os.pread(file, OUTPUT_BYTES_MAX, max(0, found.st_size - OUTPUT_BYTES_MAX))
    except OSError:
        return b""
    finally:
        os.close(file)
