"""What is shown beside a job: the progress bar, or with ``--top`` gspc-top as a process of its own.

And what is said when somebody interrupts it.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from math import inf
from pathlib import Path
from typing import TypeVar

import psutil
import trio

from gspc_trio.cli.common import CommandError
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.journal import Journal
from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.nursery.scopes.scope import open_scope

T = TypeVar("T")

INTERRUPTED = 128 + signal.SIGINT
"""Exit status of a terminal whose user has pressed Ctrl-C."""

LEAVE_TIMEOUT_S = 2.0
"""How long the terminal may take to see that the job has ended, and to leave."""

CONTINUE_S = 0.2
"""How long a shell may take to continue both processes. Without a shell, this one continues the terminal."""


@contextmanager
def place_for_connection_file(rts_file: Path | None, top: bool) -> Iterator[Path | None]:
    """Return where a run-time system started for this run publishes itself; None if nobody has to find it.

    Raises:
        CommandError: there is no terminal to show anything on.
    """
    if top and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise CommandError("--top needs a terminal; without one, look with gspc-top --once")
    if not top or rts_file is not None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="gspc-top-") as folder:
        yield Path(folder) / "rts.json"


@asynccontextmanager
async def show_top(job: Job, connection_file: Path) -> AsyncIterator[None]:
    """Show gspc-top while the block runs, or until its user leaves it; then a progress bar."""
    command = [sys.executable, "-m", "gspc_trio.cli.top", "--rts", str(connection_file)]
    async with open_scope() as nursery:
        with _pipe_of_owner() as pipe:
            options = ["--until-job", job.job_id, "--owner", str(pipe)]
            process = await trio.lowlevel.open_process([*command, *options], stdin=None, pass_fds=(pipe,))
            nursery.start_soon(_bar_afterwards, process, job)
            nursery.start_soon(_stop_with, process)
            try:
                yield
                with trio.move_on_after(LEAVE_TIMEOUT_S):
                    await process.wait()
            finally:
                await _end(process)
        nursery.cancel_scope.cancel()


@contextmanager
def _pipe_of_owner() -> Iterator[int]:
    """Yield the end of a pipe for the terminal; the other end is closed when this process ends in any way."""
    theirs, ours = os.pipe()
    try:
        yield theirs
    finally:
        os.close(theirs)
        os.close(ours)


async def _bar_afterwards(process: trio.Process, job: Job) -> None:
    if await process.wait() == INTERRUPTED:
        signal.raise_signal(signal.SIGINT)  # to its user, terminal and run are one program
    elif not job.has_ended:
        async with show_progress(job):
            await job.wait_ended()


async def _stop_with(process: trio.Process) -> None:
    """Stop when the terminal does: Ctrl-Z in it is for both, and the shell waits for this process."""
    with trio.open_signal_receiver(signal.SIGCHLD) as signals:
        async for _ in signals:
            if process.poll() is None and _has_stopped(process.pid):
                os.kill(os.getpid(), signal.SIGTSTP)
                await trio.sleep(CONTINUE_S)
                # A terminal that is continued twice would read its keys twice.
                if process.poll() is None and psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:
                    process.send_signal(signal.SIGCONT)


def _has_stopped(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG) is not None


async def _end(process: trio.Process) -> None:
    """Have the terminal leave in good order, so that it gives back the screen as it was."""
    with trio.CancelScope(shield=True):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with trio.move_on_after(LEAVE_TIMEOUT_S):
                await process.wait()
        if process.poll() is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def show_progress(job: Job) -> AsyncIterator[None]:
    """Show on standard error how far the job is, while the block runs."""
    from gspc_trio.executor.progress import (  # what draws takes a moment to load
        REFRESH_INTERVAL_S,
        how_far,
        terminal_bar,
    )

    with terminal_bar(job.machine.name) as show:

        async def refresh() -> None:
            while True:
                show(how_far(job.machine.counts()))
                await trio.sleep(REFRESH_INTERVAL_S)

        async with open_scope() as nursery:
            nursery.start_soon(refresh)
            yield
            nursery.cancel_scope.cancel()


class Interruption:
    """Says in one line what had ended and what had not when a run is stopped by a signal.

    Args:
        journal: that of the run, from which it can be resumed; None if there is none.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._counts: Mapping[TaskState, int] | None = None

    @contextmanager
    def of(self, job: Job) -> Iterator[None]:
        """Note how far a job is when the block is left early: all that is left of it is cancelled then."""
        self._counts = job.machine.counts()
        try:
            yield
        finally:
            self._counts = job.machine.counts()

    async def told(self, run: Awaitable[T]) -> T:
        """Wait for a run, and print the line if it is cancelled from without."""
        try:
            return await run
        except BaseException:
            if trio.current_effective_deadline() == -inf:
                print(
                    f"gspc-jobserver: {describe_interruption(self._counts, self._journal)}", file=sys.stderr
                )
            raise


def describe_interruption(counts: Mapping[TaskState, int] | None, journal: Journal | None) -> str:
    """Return the line about a run that was interrupted.

    Args:
        counts: tasks in each state at that time; None: no job had begun.
        journal: from which it can be resumed; None if there is none.
    """
    if counts is None or not any(counts.values()):
        return "interrupted before the job had any task"
    ended = sum(number for state, number in counts.items() if state in FINAL_STATES)
    running = counts.get(TaskState.RUNNING, 0)
    waiting = sum(counts.values()) - ended - running
    goes_on = "" if journal is None else f"; to go on: gspc-jobserver resume {journal.name}"
    return f"interrupted: {ended} tasks had ended, {running} were running, {waiting} had not begun{goes_on}"
