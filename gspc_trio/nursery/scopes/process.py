"""Long-lived programs as scopes: spawn, cancel, bounded wait, kill of the process group, reap; no shell."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import trio

from gspc_trio.nursery.scopes.spawn import Spawned, spawn

LINE_BYTES_MAX = 1 << 20
"""Longest line that :meth:`Process.receive_line` takes."""

UNKNOWN_STATUS = 255
"""Stands for an exit status that the system has not kept."""


class Process:
    """A running program; made by :func:`open_process`.

    Attributes:
        pid: its process id, and that of its session and process group.
        exit_status: None while it runs, else its exit status, or minus the number of the signal that ended
            it.
    """

    def __init__(self, spawned: Spawned) -> None:
        popen = spawned.popen
        self.pid: int = popen.pid
        self.exit_status: int | None = None
        self._popen = popen
        self._pidfd = os.pidfd_open(popen.pid)
        self._stdin = spawned.stdin
        self._stdout = trio.lowlevel.FdStream(spawned.stdout)
        self._unread = b""
        self._waiting = trio.Lock()

    async def wait(self) -> int:
        """Wait until the program has ended and return its exit status; what it started may still run."""
        async with self._waiting:  # one at a time may wait for a descriptor
            if self.exit_status is None:
                await trio.lowlevel.wait_readable(self._pidfd)
                self.exit_status = self._find_exit_status()
            return self.exit_status

    async def receive_line(self) -> str:
        """Return the next line of its standard output, without the line break.

        Raises:
            trio.EndOfChannel: standard output has ended.
            ValueError: a line is longer than LINE_BYTES_MAX.
        """
        while b"\n" not in self._unread:
            if len(self._unread) > LINE_BYTES_MAX:
                raise ValueError(f"process {self.pid} wrote a line of more than {LINE_BYTES_MAX} bytes")
            data = await self._stdout.receive_some(65536)
            if not data:
                raise trio.EndOfChannel
            self._unread += data
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode(errors="replace")

    def terminate(self) -> None:
        """Ask it to end (SIGTERM); nothing happens if it has ended."""
        if self.exit_status is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def kill(self) -> None:
        """End it and its process group at once (SIGKILL); nothing happens if it has ended."""
        if self.exit_status is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def close_stdin(self) -> None:
        """Close its standard input, if it was held open."""
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    async def _stop(self, grace_s: float) -> None:
        self.close_stdin()
        self.terminate()
        with trio.move_on_after(grace_s):
            await self.wait()
        # The leader is not reaped yet, so the number of the group cannot belong to anybody else.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        await self.wait()
        self._popen.wait()
        os.close(self._pidfd)
        await self._stdout.aclose()

    def _find_exit_status(self) -> int:
        try:
            # WNOWAIT leaves it a zombie: the group is killed before it is reaped.
            found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            found = None
        if found is None:  # SIGCHLD is ignored in this process: the kernel has reaped it
            return UNKNOWN_STATUS
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


@asynccontextmanager
async def open_process(
    command: Sequence[str],
    *,
    stdin: bytes = b"",
    hold_stdin: bool = False,
    environment: Mapping[str, str] | None = None,
    working_directory: str | None = None,
    pass_fds: Sequence[int] = (),
    grace_s: float = 5.0,
) -> AsyncIterator[Process]:
    """Run a program for as long as the block lasts, in a session of its own; standard error is shared.

    On exit of the block, for whatever reason, it gets SIGTERM, after ``grace_s`` its whole process group gets
    SIGKILL, and it is reaped. It starts in the calling thread, so that a parent-death signal stands for this
    thread.

    Args:
        command: the program and its arguments.
        stdin: what it reads on standard input, e.g. a secret; at most STDIN_BYTES_MAX bytes.
        hold_stdin: keep standard input open after that, so that it sees the end of file when this process is
            gone.
        environment: all of its environment; None means that of this process.
        working_directory: None means that of this process.
        pass_fds: file descriptors that it inherits under the same numbers.
        grace_s: seconds between SIGTERM and SIGKILL.

    Raises:
        UnsupportedSystem: not on Linux.
        ProcessStartError: no such program, or no process could be made.
    """
    spawned = spawn(
        command,
        stdin=stdin,
        hold_stdin=hold_stdin,
        environment=environment,
        working_directory=working_directory,
        pass_fds=pass_fds,
    )
    async with supervised(spawned, grace_s) as process:
        yield process


@asynccontextmanager
async def supervised(spawned: Spawned, grace_s: float = 5.0) -> AsyncIterator[Process]:
    """A program that was started, for as long as the block lasts; it ends as that of :func:`open_process`."""
    process = Process(spawned)
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            await process._stop(grace_s)
