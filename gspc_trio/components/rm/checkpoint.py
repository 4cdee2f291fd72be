"""What all jobs hold and wait for, so that a run-time system need not keep all that was said before."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from msgspec.structs import replace

from gspc_trio.components.rm.messages import Checkpoint, Demand, Grant, JobCheckpoint
from gspc_trio.components.rm.parts import Holding, Job
from gspc_trio.components.rm.state import ManagerState, memories_of
from gspc_trio.core.ids import NO_GRANT, GrantId
from gspc_trio.core.task import Requirement


def checkpoint_of(state: ManagerState, told: int) -> Checkpoint:
    """Return what all jobs hold and wait for, after so many events."""
    jobs = tuple(_job(state, job) for job in state.jobs.values())
    held = {name for job in jobs for grant in job.grants for name in grant.resources}
    given = {
        name: vertex.newest
        for name, vertex in state.pool.resources.items()
        if vertex.newest != NO_GRANT and name not in held
    }
    return Checkpoint(told, state.last, jobs, given)


def _job(state: ManagerState, job: Job) -> JobCheckpoint:
    grants = dict(_live(chain.from_iterable(want.grants.values() for want in job.wants.values())))
    for grant_id, grant in state.claims.items():
        if grant.job == job.job:  # what is not there yet is not among what it holds
            grants[grant_id] = grant
    waiting = [want for want in job.wants.values() if want.unmet or want.sent]
    demands = tuple(
        Demand(job.job, want.form.shape, want.unmet + len(want.sent), NO_GRANT, want.priority)
        for want in waiting
    )
    return JobCheckpoint(
        job.job, tuple(grants.values()), demands, tuple(tuple(want.sent) for want in waiting)
    )


def _live(holdings: Iterable[Holding]) -> Iterable[tuple[GrantId, Grant]]:
    for holding in holdings:
        if holding.lease_until is None:
            yield holding.grant_id, _grant(holding)


def _grant(holding: Holding) -> Grant:
    """Return a live grant, with what is left of it."""
    shape = holding.want.form.shape
    if len(holding.resources) < len(shape.requirements):
        left = [*shape.requirements]
        kept: list[Requirement] = []
        for vertex in holding.vertices:
            kept.append(next(need for need in left if need.resource_class == vertex.queue.name))
            left.remove(kept[-1])
        shape = replace(shape, requirements=tuple(kept))
    return Grant(holding.owner, shape, holding.grant_id, holding.resources, memories_of(holding))
