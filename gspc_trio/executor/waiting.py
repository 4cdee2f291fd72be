"""What an executor says on a terminal: why its tasks wait, and in the end what its cache was good for."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import trio

from gspc_trio.components.job.shell.handle import Job, JobResult
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError
from gspc_trio.nursery.scopes.scope import open_scope

PATIENCE_S = 5.0
"""So long may tasks wait while none runs until it is said why."""

LOOK_INTERVAL_S = 0.5
"""Pauses between looks."""


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
