"""Output of tasks as it comes: running tasks are asked what they print; lines are shown or written."""

from __future__ import annotations

import logging
import math
import re
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Literal, TextIO, TypeAlias

import trio

from gspc_trio.components.job.messages import (
    GetOutput,
    GetTaskOutput,
    OutputLines,
    TaskOutput,
)
from gspc_trio.components.job.output import JOB_SERVER, Printed
from gspc_trio.components.job.scheduler.interface import AttemptEnded, TaskDone
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.worker.messages import AttemptStatus, GetAttempt
from gspc_trio.core.ids import Attempt, ResourceId, TaskId
from gspc_trio.core.messages import OutputLine
from gspc_trio.core.task import Reason, Task, TaskState
from gspc_trio.nursery.scopes.scope import open_scope

log: logging.Logger = logging.getLogger(__name__)

ASK_INTERVAL_S = 0.3
"""Seconds between two looks at what a running task has printed; tasks that are faster are not looked at."""

ASKED_AT_ONCE_MAX = 16
ASKED_PER_S_MAX = 100
"""Questions under way, and for each second, at most: of many tasks each is asked less often."""

SHOW_INTERVAL_S = 0.1
SHOWN_AT_ONCE_MAX = 500
"""Seconds between two looks at the lines that have come, and most lines that are shown then."""

ANSWERED_AT_ONCE_MAX = 1_000
"""Most lines in an answer to a client."""

WAIT_FOR_LINES_S = 2.0
"""How long a client waits for lines; then it is answered without, and asks again."""

WANTED_S = 5.0
"""How long after the last question of a client running tasks are asked what they print."""

FLUSH_TIMEOUT_S = 2.0
"""How long all lines that have come may take to be shown: a terminal may be stopped."""

WAITING_FILES_MAX = 10_000
"""Tasks whose output waits to be written to files."""

HOW = {
    Reason.FINISHED: "finished",
    Reason.FAILED: "failed",
    Reason.CANCELLED: "was cancelled",
    Reason.LOST: "was lost",
    Reason.RETURNED: "was given back",
}
"""What people are told of an attempt that was followed by another one."""

OutputMode = Literal["show", "keep", "files"]
"""What becomes of what tasks print: it is shown as it comes, kept for those who ask, or written to files."""

OUTPUT_DIRECTORY = Path("gspc-output")
"""Where it is written, in the working directory."""

AskWorker: TypeAlias = Callable[[ResourceId, GetAttempt], Awaitable[AttemptStatus | None]]
"""Asks the RIF of a resource for an attempt; returns None if it does not answer."""

Show: TypeAlias = Callable[[Sequence[OutputLine], int], None]
"""Shows lines, and how many were left out before them; called in a thread, for it may block."""

Flush: TypeAlias = Callable[[], Awaitable[None]]
"""Returns when all that tasks have printed so far, as it is known here, is shown, and soon in any case."""


def output_of(job: Job, done: TaskDone, now: float) -> None:
    """Keep what a task has printed that has ended."""
    outcome = done.outcome
    tails = (outcome.stdout, outcome.stderr)
    failed = done.state is not TaskState.FINISHED
    job.printed.ended(done.task_id, done.name, outcome.attempt, tails, now, failed=failed)
    if job.on_printed is not None and any(tails):
        job.on_printed(Printed(done.task_id, done.name, *job.printed.streams_of(done.task_id)))


def attempt_output_of(job: Job, ended: AttemptEnded, now: float) -> None:
    """Keep what an attempt has printed that did not finish, for as long as its task may be tried again."""
    outcome = ended.outcome
    why, error = f"attempt {ended.tries} {HOW[outcome.reason]}", outcome.error
    if error is not None:
        why += f": {error.kind}: {error.message}" if outcome.reason is Reason.FAILED else f": {error.message}"
    if job.tracer is not None:
        job.tracer.ended(ended, time.time())
    tails = (outcome.stdout, outcome.stderr)
    if not any(tails):
        return
    job.printed.ended(outcome.task_id, ended.name, outcome.attempt, tails, now, failed=True, why=why)
    if job.on_printed is not None:
        job.on_printed(Printed(outcome.task_id, ended.name, *job.printed.streams_of(outcome.task_id)))


def show_beside(nested: Job, job: Job) -> None:
    """Show what nested tasks print among what the tasks of their job do, and write it as that is written."""

    def show(line: OutputLine) -> None:
        job.printed.put_line(OutputLine(line.task_id, nested_name(line.name), line.stderr, line.text))

    def printed(output: Printed) -> None:
        if job.on_printed is not None:
            job.on_printed(Printed(output.task_id, nested_name(output.name), output.stdout, output.stderr))

    nested.printed.told = show
    nested.on_printed = printed
    job.tell_output_wanted(nested.want_output)


def nested_name(name: str) -> str:
    """Return how a nested task is called beside the others: their numbers are not those of its job."""
    return f"{name} (nested)"


class OutputFollower:
    """Asks running tasks what they print while somebody wants to know it, and answers clients.

    Args:
        job: whose tasks.
        ask_worker: asks the RIF of a resource for an attempt; returns None if it does not answer.
    """

    def __init__(self, job: Job, ask_worker: AskWorker) -> None:
        self._job = job
        self._ask_worker = ask_worker
        self._limit = trio.CapacityLimiter(ASKED_AT_ONCE_MAX)

    async def run(self) -> None:
        """Ask until cancelled."""
        job = self._job
        before: set[tuple[TaskId, Attempt]] = set()
        while True:
            await job.output_wanted()
            running = job.machine.scheduler.running()
            long = [one for one in running if (one[1].task_id, one[2]) in before]
            before = {(task.task_id, attempt) for _, task, attempt in running}
            await self._ask_all(long)
            await trio.sleep(max(ASK_INTERVAL_S, len(long) / ASKED_PER_S_MAX))

    async def lines_for(self, asked: GetOutput) -> OutputLines:
        """Return the lines that a client has not seen."""
        job, printed = self._job, self._job.printed
        if not (asked.wait or job.is_output_wanted()):  # nobody has asked tasks lately, and nobody will wait
            with trio.move_on_after(WAIT_FOR_LINES_S):
                await self._ask_all(job.machine.scheduler.running()[:ASKED_PER_S_MAX])
        await self._wait_until(asked.wait, lambda: printed.number > asked.seen)
        lines, seen, left_out = printed.lines_since(asked.seen, ANSWERED_AT_ONCE_MAX)
        return OutputLines(tuple(lines), seen, left_out, job.has_ended and seen == printed.number)

    async def task_output(self, asked: GetTaskOutput) -> TaskOutput:
        """Return what a task has printed that a client has not seen, as far as it is kept."""
        job, printed, task_id = self._job, self._job.printed, asked.task_id
        scheduler = job.machine.scheduler
        await self.ask(task_id)

        def is_over() -> bool:
            return job.has_ended or scheduler.state_of(task_id) in (None, TaskState.FAILED)

        def is_new() -> bool:
            (stdout, _), (stderr, _) = printed.streams_since(task_id, asked.seen)
            return bool(stdout or stderr or is_over())

        await self._wait_until(asked.wait, is_new)
        over = is_over()
        (stdout, stdout_bytes), (stderr, stderr_bytes) = printed.streams_since(task_id, asked.seen)
        known = bool(stdout_bytes or stderr_bytes or scheduler.task(task_id) is not None)
        return TaskOutput(stdout, stderr, (stdout_bytes, stderr_bytes), known, over)

    async def ask(self, task_id: TaskId) -> AttemptStatus | None:
        """Ask the worker of a task how far it is, and keep what it has printed; None if none answers."""
        scheduler = self._job.machine.scheduler
        at_worker, task = scheduler.attempt_of(task_id), scheduler.task(task_id)
        return await self._ask(at_worker[0], task, at_worker[1]) if at_worker and task is not None else None

    async def _ask_all(self, attempts: Iterable[tuple[ResourceId, Task, Attempt]]) -> None:
        async with trio.open_nursery() as nursery:
            for one in attempts:
                nursery.start_soon(self._ask, *one)

    async def _ask(self, resource_id: ResourceId, task: Task, attempt: Attempt) -> AttemptStatus | None:
        """Ask a worker what a running task has printed since it was last asked."""
        job, task_id = self._job, task.task_id
        async with self._limit:
            seen = job.printed.seen(task_id, attempt)
            told = await self._ask_worker(
                resource_id, GetAttempt(job.job_id, resource_id, task_id, attempt, seen)
            )
        if told is None or job.machine.scheduler.attempt_of(task_id) != (resource_id, attempt):
            return None
        pieces = ((told.stdout_bytes, told.stdout), (told.stderr_bytes, told.stderr))
        job.printed.printed(task_id, task.name, attempt, pieces, trio.current_time())
        return told

    async def _wait_until(self, wait: bool, ready: Callable[[], bool]) -> None:
        """Have running tasks asked; with ``wait`` return when there is something new, but soon."""
        asked_s = trio.current_time()
        self._job.want_output(asked_s + WANTED_S)
        while wait and not (ready() or self._job.has_ended):
            if trio.current_time() > asked_s + WAIT_FOR_LINES_S:
                return
            await trio.sleep(SHOW_INTERVAL_S)


def print_lines(lines: Sequence[OutputLine], left_out: int, *, to: TextIO | None = None) -> None:
    """Show lines as the program's own output.

    Args:
        lines: of tasks.
        left_out: how many lines before them are not shown.
        to: where all is printed; by default standard output and error of tasks go where the program's own go.
    """
    if left_out:
        print(left_out_text(left_out), file=to or sys.stderr)
    for line in lines:
        print(prefixed(line), file=to or (sys.stderr if line.stderr else sys.stdout))
    for stream in (to,) if to is not None else (sys.stdout, sys.stderr):
        stream.flush()


def prefixed(line: OutputLine) -> str:
    """Return a line for people, with the task that has printed it."""
    who = f"{line.name} {line.task_id}" if line.task_id != JOB_SERVER else line.name
    return f"[{who}] {line.text}"


def left_out_text(number: int) -> str:
    """Say that lines were printed faster than they could be shown."""
    return f"[... {number} lines of tasks left out: they came too fast to be shown ...]"


@asynccontextmanager
async def treat_output(job: Job, mode: OutputMode, show: Show) -> AsyncIterator[Flush]:
    """Do with what tasks print what is wanted, while the block runs; it is kept in any case.

    The block gets a function that has all shown that has come, if it is to be shown.
    """
    async with AsyncExitStack() as stack:
        flush: Flush = trio.lowlevel.checkpoint
        if mode == "show":
            flush = await stack.enter_async_context(show_output(job, show))
        elif mode == "files":
            await stack.enter_async_context(write_output(job, OUTPUT_DIRECTORY))
        yield flush


@asynccontextmanager
async def show_output(job: Job, show: Show = print_lines) -> AsyncIterator[Flush]:
    """Show what tasks print as it comes, by whole lines, while the block runs.

    Tasks never wait for it: lines that come too fast are left out and counted. The block gets a function to
    await: it returns when all that has come is shown, and in 2 s at most.

    Args:
        job: whose tasks.
        show: shows lines; called in a thread.
    """
    number = job.printed.number
    over = trio.Event()
    taken: deque[tuple[Sequence[OutputLine], int]] = deque()
    turn = Lock()  # a thread that nobody waits for any more may still show lines: the next one comes after it
    job.want_output(math.inf)

    def show_taken() -> None:
        with turn:
            while taken:
                _safely(show, *taken.popleft())

    async def show_new() -> bool:
        nonlocal number
        lines, number, missed = job.printed.lines_since(number, SHOWN_AT_ONCE_MAX)
        if lines or missed:
            taken.append((lines, missed))
            await trio.to_thread.run_sync(show_taken, abandon_on_cancel=True)
        return bool(lines)

    async def keep_showing() -> None:
        while not over.is_set():
            await show_new()
            with trio.move_on_after(SHOW_INTERVAL_S):
                await over.wait()

    async def flush() -> None:
        with trio.move_on_after(FLUSH_TIMEOUT_S):
            while await show_new():
                pass
            await trio.to_thread.run_sync(show_taken, abandon_on_cancel=True)  # after what is being shown

    try:
        async with open_scope() as nursery:
            nursery.start_soon(keep_showing)
            yield flush
            over.set()  # what is being shown is shown to its end, unless that takes too long
            nursery.cancel_scope.deadline = trio.current_time() + FLUSH_TIMEOUT_S
    finally:
        with trio.CancelScope(shield=True):
            await flush()


def _safely(show: Show, lines: Sequence[OutputLine], missed: int) -> None:
    """Show lines; where they cannot be shown (a closed terminal) that is no trouble of the job."""
    with suppress(OSError, ValueError):
        show(lines, missed)


@asynccontextmanager
async def write_output(job: Job, directory: Path) -> AsyncIterator[None]:
    """Write what each task prints into files of its own, ``ID-NAME.out`` and ``ID-NAME.err``, when it ends.

    Args:
        job: whose tasks.
        directory: made if it is not there.

    Raises:
        OSError: the directory cannot be made.
    """
    await trio.Path(directory).mkdir(parents=True, exist_ok=True)
    send, receive = trio.open_memory_channel[Printed](WAITING_FILES_MAX)
    left_out = 0
    job.want_output(math.inf)  # or only the end of a long output would be there

    def ended(printed: Printed) -> None:
        nonlocal left_out
        try:
            send.send_nowait(printed)
        except trio.WouldBlock:  # the disk is slower than the tasks, which do not wait for it
            left_out += 1

    job.on_printed = ended
    try:
        async with open_scope() as nursery:
            nursery.start_soon(_write_all, directory, receive)
            try:
                yield
            finally:
                job.on_printed = None
                send.close()
    finally:
        if left_out:
            log.warning("the output of %d tasks came too fast to be written to %s", left_out, directory)


async def _write_all(directory: Path, receive: trio.MemoryReceiveChannel[Printed]) -> None:
    async for printed in receive:
        try:
            await trio.to_thread.run_sync(_write, directory, printed)
        except OSError as error:
            where, why = error.filename or directory, error.strerror  # a write that fails names no file
            log.error("the output of tasks cannot be written: %s: %s", where, why)
            return


def _write(directory: Path, printed: Printed) -> None:
    name = re.sub(r"[^\w.-]+", "_", printed.name).rstrip("_")
    for suffix, content in ((".out", printed.stdout), (".err", printed.stderr)):
        if content:
            directory.joinpath(f"{printed.task_id}-{name}{suffix}").write_bytes(content)
