"""Starting a program, without trio: a process that needs it at once starts it before it imports trio."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

STDIN_BYTES_MAX = 1 << 15
"""Most data for standard input: it must fit into the empty pipe, because nobody writes the rest later."""


class UnsupportedSystem(RuntimeError):
    """gspc-trio runs on Linux only."""


class ProcessStartError(OSError):
    """The program could not be started; the message is one line for people."""


def require_linux() -> None:
    """Raise UnsupportedSystem with one clear line anywhere but on Linux."""
    if sys.platform != "linux":
        raise UnsupportedSystem(f"gspc-trio runs on Linux, but this is {sys.platform}")


class Spawned(NamedTuple):
    """A program that was started, and our ends of its standard streams."""

    popen: subprocess.Popen[bytes]
    stdin: int | None
    stdout: int


def spawn(
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    hold_stdin: bool = False,
    environment: Mapping[str, str] | None = None,
    working_directory: str | None = None,
    pass_fds: Sequence[int] = (),
) -> Spawned:
    """Start a program in a session of its own, in the calling thread; standard error is shared.

    Args:
        command: the program and its arguments.
        stdin: what it reads on standard input, e.g. a secret; at most STDIN_BYTES_MAX bytes.
        hold_stdin: keep standard input open after that, so that it sees the end of file when this process is
            gone.
        environment: all of its environment; None means that of this process.
        working_directory: None means that of this process.
        pass_fds: file descriptors that it inherits under the same numbers.

    Raises:
        UnsupportedSystem: not on Linux.
        ProcessStartError: no such program, or no process could be made.
        ValueError: there is more for standard input than fits.
    """
    require_linux()
    if len(stdin) > STDIN_BYTES_MAX:
        raise ValueError(f"standard input of {len(stdin)} bytes, at most {STDIN_BYTES_MAX} are possible")
    try:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=environment,
            cwd=working_directory,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        raise ProcessStartError(f"cannot start {command[0]}: {error.strerror or error}") from error
    assert popen.stdin is not None
    assert popen.stdout is not None
    with suppress(BrokenPipeError):  # it has ended already: who waits for it will see
        popen.stdin.write(stdin)
    held = os.dup(popen.stdin.fileno()) if hold_stdin else None
    popen.stdin.close()
    stdout = os.dup(popen.stdout.fileno())
    popen.stdout.close()
    return Spawned(popen, held, stdout)
