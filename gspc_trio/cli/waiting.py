"""Text for people about why the requests of a job wait."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import trio

from gspc_trio.components.rts.messages import RequestExplanation
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError
from gspc_trio.policies.placement import FIFO

if TYPE_CHECKING:
    from gspc_trio.components.job.shell.handle import Job

LOOK_INTERVAL_S = 3.0
"""Pauses between looks at whether anything of a job runs."""

START_INTERVAL_S = 1.0
"""The same of hosts that are started by hand."""

AT_WORK = (TaskState.RUNNING, TaskState.SUBMITTED)


def describe_waiting(job: str, waiting: Sequence[RequestExplanation]) -> list[str]:
    """Return what each request needs, who holds it, its place and what blocks it, as lines.

    Args:
        job: the job's id.
        waiting: what the resource manager explains of it.
    """
    lines = [] if waiting else [f"{job} waits for no resources"]
    for entry in waiting:
        lines.append(f"{job} waits for {entry.credit} x {entry.shape}: {entry.reason}")
        lines.append(f"    for {entry.waited_s:.1f} s, place {entry.place}")
        if entry.patience_left_s is not None:
            lines.append(f"    takes any other in {entry.patience_left_s:.1f} s")
        for host in entry.awaits:
            when = "is being started"
            if host.retry_in_s is not None:
                when = f"is tried again in {host.retry_in_s:.1f} s"
            lines.append(f"    {host.host} {when}")
        for name, need in entry.needs.items():
            lines.append(f"    needs {need.needed} {name}: {need.free} of {need.total} free")
        blocking = entry.blocking
        if blocking:
            relative = blocking.relative
            by = "" if relative == blocking.resource else f"blocked by {relative}, "
            lines.append(f"    {blocking.resource}: {by}held by {blocking.job}")
        if entry.placement != FIFO:
            lines.append(f"    its resources go by the placement {entry.placement}")
        lines += [f"    {host} has no {' or '.join(lacks)}" for host, lacks in entry.lacks.items()]
        lines += [f"    held by {held.job}: {', '.join(held.resources)}" for held in entry.held_by]
    return lines


async def tell_waiting(job: Job, rts: RunTimeSystem) -> None:
    """Say on standard error why nothing of a job runs, when so; in one line for each new reason.

    A job may outlive its run-time system: that which comes back is asked then.
    """
    told = await _tell_waiting(job, rts, "")
    while True:
        await trio.sleep(LOOK_INTERVAL_S)
        with suppress(ConnectionProblem):
            connection = rts.network.connect(rts.address, role="control", name="client", expect="rts")
            async with connection as peer:
                told = await _tell_waiting(job, RunTimeSystem(rts.network, rts.address, peer), told)


async def _tell_waiting(job: Job, rts: RunTimeSystem, told: str) -> str:
    """Tell it until the run-time system is gone; return what was told last."""
    with suppress(PeerGone):
        while True:
            await trio.sleep(LOOK_INTERVAL_S)
            counts = job.machine.counts()
            if any(counts.get(state) for state in AT_WORK):
                told = ""
            elif counts.get(TaskState.READY):
                reason = await _why_waiting(job, rts)
                if reason and reason != told:
                    told = reason
                    print(f"gspc-jobserver: {job.job_id} ({job.machine.name}) {told}", file=sys.stderr)
    return told


async def _why_waiting(job: Job, rts: RunTimeSystem) -> str:
    try:
        waiting = await rts.explain(job.job_id)
    except RemoteError:  # it has not joined yet, or has gone
        return ""
    return f"waits for {waiting[0].shape}: {waiting[0].reason}" if waiting else ""


@asynccontextmanager
async def watched(rts: RunTimeSystem, names: Sequence[str]) -> AsyncIterator[None]:
    """Say on standard error, as long as the block lasts, what these hosts wait for, or these blocks."""
    problem: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, rts, names)
        try:
            yield
        except Exception as error:
            problem = error  # not within the nursery, which would make a group of it
        nursery.cancel_scope.cancel()
    if problem is not None:
        raise problem


async def _watch(rts: RunTimeSystem, names: Sequence[str]) -> None:
    told: dict[str, str] = {}
    with suppress(PeerGone):
        while True:
            await trio.sleep(START_INTERVAL_S)
            for rif in (await rts.status()).rifs:
                name = next((name for name in names if rif.host in (name, f"{name}.0")), None)
                if name is not None and rif.state == "starting" and rif.detail not in ("", told.get(name)):
                    told[name] = rif.detail
                    print(f"{name}: {rif.detail}", file=sys.stderr)
