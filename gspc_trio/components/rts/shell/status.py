"""The state of a run-time system, and why requests wait there, for people and scripts."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from gspc_trio.components.rm.explain import ExplainedRequest, JobShare
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import (
    AwaitedHost,
    RegisteredJob,
    RequestExplanation,
    RifStatus,
    RtsStatus,
)
from gspc_trio.components.rts.state import ManagedJob, ManagedRif
from gspc_trio.core.ids import JobId
from gspc_trio.version import VERSION

_NOTHING = JobShare(0.0, {}, {}, 0.0)
"""What a job has that the RM does not know yet."""


def describe(
    rts: Rts, rm: ResourceManager, addresses: Sequence[str], pid: int, uptime_s: float, now: float
) -> RtsStatus:
    """Return the state; ``gspc-rts status --json`` prints it."""
    counts = rm.status()
    return RtsStatus(
        VERSION,
        pid,
        tuple(addresses),
        uptime_s,
        rifs=tuple([_rif_status(rif, now) for rif in rts.rifs]),
        hosts={host: tuple(ids) for host, ids in rts.host_to_resource().items()},
        classes=counts.classes,
        memories=counts.memories,
        jobs=tuple([_registered(job, counts.jobs.get(job.job, _NOTHING)) for job in rts.jobs]),
    )


def _rif_status(rif: ManagedRif, now: float) -> RifStatus:
    state, detail = rif.shown
    return RifStatus(
        rif.rif_id,
        rif.host,
        state,
        rif.incarnation,
        rif.strategy,
        dict(rif.options),
        rif.address,
        rif.pid,
        workers=len(rif.resources),
        detail=detail,
        retry_in_s=rif.retry_in_s(now),
    )


def explained(rts: Rts, rm: ResourceManager, job: JobId, now: float) -> tuple[RequestExplanation, ...]:
    """Return what the RM explains of a job's requests, with what only the RTS knows of their hosts.

    The reason names hosts on their way that a request waits for, and hosts that are not used for now.
    """
    return tuple([_explained(rts, entry, now) for entry in rm.explain(job)])


def _explained(rts: Rts, entry: ExplainedRequest, now: float) -> RequestExplanation:
    awaited = [rif for rif in rts.rifs if rif.rif_id in entry.awaits]
    unused = [rif for rif in rts.rifs if rif.quarantine is not None]
    named = [f"; {rif.host} is {': '.join(filter(None, rif.shown))}" for rif in (*awaited, *unused)]
    until_s = entry.patient_until_s
    facts = structs.asdict(entry) | {
        "reason": entry.reason + "".join(named),
        "awaits": tuple([AwaitedHost(rif.rif_id, rif.host, rif.retry_in_s(now)) for rif in awaited]),
    }
    return RequestExplanation(
        **facts,
        waited_s=now - entry.since_s,
        patience_left_s=None if until_s is None else max(0.0, until_s - now),
    )


def _registered(job: ManagedJob, share: JobShare) -> RegisteredJob:
    return RegisteredJob(
        job.job,
        job.name,
        job.pid,
        job.host,
        job.address,
        job.weight,
        demand=sum(share.demand.values()),
        held=sum(share.held.values()),
        share=share.share,
        waiting=share.demand,
        holds=share.held,
    )
