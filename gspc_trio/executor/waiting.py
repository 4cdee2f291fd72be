"""Waiting for executors: of those who submit, and for their end; and what they say meanwhile."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol

import trio

from gspc_trio.components.job.result import JobResult
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError
from gspc_trio.nursery.scopes.scope import open_scope

FORKED = "this executor belongs to the process from which this one was forked; make another one here"

WAITS_FOR_ITSELF = (
    "the result is not there, and this thread cannot wait for it: results come through it. "
    "A callback can submit a call with the future as an argument; under trio, wait in another "
    "thread (await trio.to_thread.run_sync(future.result))"
)

PATIENCE_S = 5.0
"""So long may tasks wait while none runs until it is said why."""

LOOK_INTERVAL_S = 0.5
"""Pauses between looks."""

FIRST_CALLS = 64
"""After so many calls without a pause whoever submits waits for the first result, if that comes soon."""

FIRST_S = 0.002
"""So soon: longer calls are in no hurry."""

PAUSE_CALLS = 512
"""After so many calls the loop may look: it hands out the first ones."""

PAUSE_SOON = 256
"""After so many more it may look again: the first results are there."""

PAUSE_GROWTH = 4
"""From then on, after so many times as many as before.

With more pauses the loop handles calls and results in small numbers, which costs twice as much for each.
"""

PAUSE_S = 0.01
"""At most for so long: the loop may be in a callback of a future."""


def late_call(interpreter_ends: bool) -> RuntimeError:
    """Return what is said of a call that comes after the shutdown of an executor."""
    when = "interpreter shutdown" if interpreter_ends else "shutdown"
    return RuntimeError(f"cannot schedule new futures after {when}")  # as the standard ones say


class First(Protocol):
    """The future of the first of many calls."""

    def wait_ended(self, timeout: float) -> None:
        """Wait for its end, for so many seconds at most."""
        ...


class HandOver:
    """Decides when whoever submits waits for the loop.

    A thread that works has the interpreter's lock for 5 ms, and the first result needs the loop often. So the
    submitting thread stops until the first result is there, and later until the loop has looked: the first
    calls run while the others are submitted.

    Attributes:
        count: calls that were put since the loop had none.
        limit: at so many of them it is time to wait.
    """

    def __init__(self) -> None:
        self.limit: int = FIRST_CALLS
        self.count: int = 0
        self._first: weakref.ref[First] | None = None  # nobody may want its result any more
        self._is_awaited = False
        self._looked = threading.Event()

    def is_due(self, calls: int, first: First | None) -> bool:
        """Return whether to wait, when so many calls more are put; the loop's lock is held.

        Args:
            calls: number of them.
            first: future of the first one, if the loop had none before.
        """
        if first is not None:
            self.limit, self.count, self._first = FIRST_CALLS, calls, weakref.ref(first)
        else:
            self.count += calls
        if self.count < self.limit:
            return False
        if self.count < PAUSE_CALLS:
            self.limit = PAUSE_CALLS
            return True
        self.limit = self.count + PAUSE_SOON if self.limit <= PAUSE_CALLS else PAUSE_GROWTH * self.count
        self._looked.clear()
        self._is_awaited = True
        return True

    def wait(self, for_first: bool) -> None:
        """Return when the first call has ended, later when the loop has looked; or after a while.

        Args:
            for_first: wait for the first one, too.
        """
        reference, self._first = self._first, None
        if reference is None:
            self._looked.wait(PAUSE_S)
        elif for_first and (first := reference()) is not None:
            first.wait_ended(FIRST_S)

    def looked(self) -> None:
        """The loop has looked."""
        if self._is_awaited:
            self._is_awaited = False
            self._looked.set()


async def tell_waiting(
    counts: Callable[[], Mapping[TaskState, int]],
    why: Callable[[], Awaitable[str]],
    tell: Callable[[str], None],
) -> None:
    """Say once why tasks wait, when some have waited for a while and none ran meanwhile.

    Args:
        counts: returns the number of tasks in each state.
        why: returns the reason in one line, "" if there is none.
        tell: shows it.
    """
    since_s: float | None = None
    while True:
        await trio.sleep(LOOK_INTERVAL_S)
        tasks = counts()
        runs = tasks.get(TaskState.RUNNING) or tasks.get(TaskState.SUBMITTED)
        if runs or not tasks.get(TaskState.READY):
            since_s = None
            continue
        if since_s is None:
            since_s = trio.current_time()
        if trio.current_time() - since_s < PATIENCE_S:
            continue
        if reason := await why():
            tell(reason)
            return


async def wait_ended(
    job: Job,
    rts: RunTimeSystem,
    who: str = "gspc_trio.Executor",
    beside: Callable[[], Awaitable[None]] | None = None,
) -> JobResult:
    """Wait for the end of the job; meanwhile it is said on a terminal why its tasks wait, when they do.

    Args:
        job: which job.
        rts: where it runs.
        who: says it.
        beside: runs meanwhile.
    """
    is_seen = sys.stderr is not None and sys.stderr.isatty()
    async with open_scope() as nursery:
        if is_seen:
            nursery.start_soon(_tell_waiting, job, rts, who)
        if beside is not None:
            nursery.start_soon(beside)
        result = await job.wait_ended()
        nursery.cancel_scope.cancel()
    if is_seen and result.cache is not None:
        _tell(who, job, str(result.cache))
    return result


async def _tell_waiting(job: Job, rts: RunTimeSystem, who: str) -> None:
    async def why() -> str:
        waiting = await rts.explain(job.job_id)
        return f"waits for {waiting[0].shape}: {waiting[0].reason}" if waiting else ""

    with suppress(RemoteError, PeerGone):
        await tell_waiting(job.machine.counts, why, lambda reason: _tell(who, job, reason))


def _tell(who: str, job: Job, text: str) -> None:
    print(f"{who}: {job.job_id} {text}", file=sys.stderr, flush=True)


def first_of(error: BaseException) -> BaseException:
    """Return the first exception of groups of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Ending(Protocol):
    """A loop of an executor, as far as the end of the interpreter asks for it."""

    forked: bool
    interpreter_ends: bool
    will_look: bool

    def close(self) -> None:
        """Take no more calls, and end when those taken have ended."""
        ...

    def join(self) -> None:
        """Wait for the end."""
        ...


loops: weakref.WeakSet[Ending] = weakref.WeakSet()
"""Those that were started."""


def _close_all() -> None:
    """At the end of the interpreter, wait for executors that were not shut down, as the standard ones do."""
    for loop in tuple(loops):
        if not loop.forked:
            loop.interpreter_ends = True
            loop.close()
            loop.join()


def _mark_forked() -> None:
    for loop in tuple(loops):
        loop.forked, loop.will_look = True, False


# Before threads are joined and while new ones can still be started, as the standard executors do it.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
os.register_at_fork(after_in_child=_mark_forked)
