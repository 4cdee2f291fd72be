"""What a run-time system tells people of itself, and of why requests wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from msgspec import structs

from gspc_trio.components.rm.explain import ExplainedRequest, JobShare, ManagerStatus
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import (
    AwaitedHost,
    RegisteredJob,
    RequestExplanation,
    RifStatus,
    RtsStatus,
)
from gspc_trio.components.rts.state import ManagedJob, ManagedRif, RifState
from gspc_trio.core.ids import JobId
from gspc_trio.version import VERSION


class ManagerView(Protocol):
    """What a resource manager tells people."""

    def status(self) -> ManagerStatus:
        """Return how much there is, and who has it."""
        ...

    def explain(self, job: str) -> Sequence[ExplainedRequest]:
        """Return why each waiting request of the job waits."""
        ...


_NOTHING = JobShare(0.0, {}, {}, 0.0)
"""What a job has that the RM does not know yet."""


def describe(
    rts: Rts, rm: ManagerView, addresses: Sequence[str], pid: int, uptime_s: float, now: float
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
        ends_in_s=rif.ends_in_s(now),
        features=tuple(sorted({each for one in rif.resources.values() for each in one.features})),
    )


def explained(
    rts: Rts,
    rm: ManagerView,
    job: JobId,
    now: float,
    of_sites: Callable[[Sequence[str]], str] = lambda _: "",
) -> tuple[RequestExplanation, ...]:
    """Return what the RM explains of a job's requests, with what only the RTS knows of their hosts.

    The reason names hosts on their way that a request waits for, and hosts that are not used for now.
    """
    return tuple([_explained(rts, entry, now, of_sites(entry.awaits)) for entry in rm.explain(job)])


def _explained(rts: Rts, entry: ExplainedRequest, now: float, sites: str) -> RequestExplanation:
    named = [rif for rif in rts.rifs if rif.rif_id in entry.awaits]
    awaited = [rif for rif in named if rif.state is not RifState.UP]
    unused = [rif for rif in rts.rifs if rif.quarantine is not None]
    until_s = entry.patient_until_s
    facts = structs.asdict(entry) | {
        "reason": entry.reason + who_may_move(named) + how_they_are((*awaited, *unused)) + sites,
        "awaits": tuple([AwaitedHost(rif.rif_id, rif.host, rif.retry_in_s(now)) for rif in awaited]),
    }
    return RequestExplanation(
        **facts,
        waited_s=now - entry.since_s,
        patience_left_s=None if until_s is None else max(0.0, until_s - now),
    )


def who_may_move(rifs: Iterable[ManagedRif]) -> str:
    """Return which hosts that a request waits for are there: of several managers another one has them."""
    there = [rif.host for rif in rifs if rif.state is RifState.UP and rif.quarantine is None]
    return f"; hosts of other managers may move to it: {', '.join(there)}" if there else ""


def how_they_are(rifs: Iterable[ManagedRif]) -> str:
    """Return how hosts are; the nodes of a block that are all alike are told of together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for rif in rifs:
        words = ": ".join(filter(None, rif.shown))
        alike.setdefault((rif.block or rif.host, words), []).append(rif.host)
    return "".join(
        f"; {hosts[0]} is {words}" if len(hosts) == 1 else f"; {len(hosts)} nodes of {block} are {words}"
        for (block, words), hosts in alike.items()
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
        priority=job.priority,
        placement=job.placement,
    )
