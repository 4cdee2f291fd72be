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

PATIENCE_S = 5.0
"""So long may tasks wait while none runs until it is said why."""

LOOK_INTERVAL_S = 0.5
"""Pauses between looks."""

PAUSE_CALLS = 512
"""After so many calls without a pause the loop may look: it hands out the first ones."""

PAUSE_SOON = 256
"""After so many more it may look again: the first results are there."""

PAUSE_GROWTH = 4
"""From then on, after so many times as many as before.

With more pauses the loop handles calls and results in small numbers, which costs twice as much for each.
"""

PAUSE_S = 0.01
"""At most for so long: the loop may be in a callback of a future."""


class HandOver:
    """Decides when whoever submits waits for the loop.

    A thread that works has the interpreter's lock for 5 ms, and the first result needs the loop often. So the
    submitting thread stops until the loop has looked: the first calls run while the others are submitted.
    """

    def __init__(self) -> None:
        self._limit = PAUSE_CALLS
        self._count = 0
        self._is_awaited = False
        self._looked = threading.Event()

    def is_due(self, calls: int, is_idle: bool) -> bool:
        """Return whether to wait, when so many calls more are put; the loop's lock is held.

        Args:
            calls: number of them.
            is_idle: whether the loop had none before.
        """
        if is_idle:
            self._limit, self._count = PAUSE_CALLS, calls
        else:
            self._count += calls
        if self._count < self._limit:
            return False
        self._limit = self._count + PAUSE_SOON if self._limit == PAUSE_CALLS else PAUSE_GROWTH * self._count
        self._looked.clear()
        self._is_awaited = True
        return True

    def wait(self) -> None:
        """Return when the loop has looked, or after a while."""
        self._looked.wait(PAUSE_S)

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
        loop.forked = True


# Before threads are joined and while new ones can still be started, as the standard executors do it.
getattr(threading, "_register_atexit", atexit.register)(_close_all)
os.register_at_fork(after_in_child=_mark_forked)
