"""Status of the resource manager for people: how much there is, who has it, and why somebody waits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.rm.messages import (
    Blocking,
    Checkpoint,
    ClassNeed,
    ClassStatus,
    Demand,
    Grant,
    GrantHolder,
    HostMemory,
    JobCheckpoint,
    WaitingRequest,
)
from gspc_trio.components.rm.parts import ClassQueue, Holding, Job, Vertex, Want
from gspc_trio.components.rm.search import impossible, of_class_below, preferred, tops_for
from gspc_trio.components.rm.state import ManagerState, memories_of
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId, RifId
from gspc_trio.core.messages import Question
from gspc_trio.core.task import Requirement
from gspc_trio.policies.placement import FIFO

HOLDERS_NAMED = 8
"""How many grants an explanation names."""

HOSTS_NAMED = 8
"""How many hosts that are on their way it names."""


class JobShare(Struct, frozen=True):
    """What a job has of the resources.

    Attributes:
        weight: its share relative to others.
        demand: shape -> number of grants that it waits for.
        held: class -> number of resources that it holds.
        share: fraction of all that is held.
    """

    weight: float
    demand: dict[str, int]
    held: dict[str, int]
    share: float


class Reserved(Struct, frozen=True):
    """Resources that are put aside for a request of a job."""

    job: JobId
    shape: str
    resources: tuple[ResourceId, ...]


class ManagerStatus(Struct, frozen=True):
    """How much there is, and who has it.

    Attributes:
        classes: class -> its resources.
        memories: memory -> how much of it is free.
        jobs: job -> what it has.
        coming: class -> number of resources that are on their way.
        revoking: grants that end as soon as their hosts say so.
        leaving: resources that go when they are free.
        reserved: what is put aside, if anything is.
    """

    classes: dict[str, ClassStatus]
    memories: dict[str, HostMemory]
    jobs: dict[JobId, JobShare]
    coming: dict[str, int]
    revoking: tuple[GrantId, ...]
    leaving: tuple[ResourceId, ...]
    reserved: Reserved | None


class ExplainedRequest(WaitingRequest, frozen=True):
    """Why a request waits.

    Attributes:
        awaits: ids of RIFs that are on their way and that it waits for.
        placement: from which host its resources come, a name in ``policies.placement``.
        lacks: some of the hosts without features that it needs -> which.
    """

    awaits: tuple[RifId, ...]
    placement: str = FIFO
    lacks: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Explained(Struct, frozen=True):
    """Why each request of a job waits.

    Attributes:
        waiting: the requests, with times on the clock of the resource manager.
        now_s: what that clock shows.
    """

    waiting: tuple[ExplainedRequest, ...]
    now_s: float


class ExplainJob(Question[Explained], frozen=True):
    """RTS to resource manager: why does each request of this job wait?"""

    job: JobId


class GetManagerStatus(Question[ManagerStatus], frozen=True):
    """RTS to resource manager: how much is there, and who has it?"""


def status(state: ManagerState) -> ManagerStatus:
    """Return classes, memories and jobs, what is coming, what leaves, what is reserved."""
    held: dict[str, int] = {}
    of_job: dict[JobId, dict[str, int]] = {job: {} for job in state.jobs}
    for holding in state.grants.values():
        mine = of_job.setdefault(holding.owner, {})
        for vertex in holding.vertices:
            name = vertex.queue.name
            held[name] = held.get(name, 0) + 1
            mine[name] = mine.get(name, 0) + 1
    units = sum(holding.units for holding in state.grants.values())
    classes = {}
    for name, queue in state.pool.queues.items():
        number = held.get(name, 0)
        classes[name] = ClassStatus(queue.total, queue.free, number, queue.total - queue.free - number)
    memories = {
        name: HostMemory(host.label, memory.size_bytes, memory.free_bytes)
        for host in state.pool.hosts.values()
        for name, memory in host.memories.items()
    }
    jobs = {
        job.job: JobShare(job.weight, _demand(job), of_job[job.job], job.units / units if units else 0.0)
        for job in state.jobs.values()
    }
    return ManagerStatus(
        classes,
        memories,
        jobs,
        coming=state.coming.counts(),
        revoking=tuple(state.lapsing),
        leaving=tuple(vertex.resource_id for vertex in state.pool.leaving),
        reserved=_reserved(state),
    )


def _reserved(state: ManagerState) -> Reserved | None:
    found = state.reservation
    if found is None:
        return None
    resources = tuple(vertex.resource_id for vertex in found.targets)
    return Reserved(found.want.owner.job, str(found.want.form.shape), resources)


def _demand(job: Job) -> dict[str, int]:
    """Return the unmet credit by shape as people read it: those that differ in their estimate are one."""
    demand: dict[str, int] = {}
    for want in job.wants.values():
        if want.unmet:
            text = str(want.form.shape)
            demand[text] = demand.get(text, 0) + want.unmet
    return demand


def explain(state: ManagerState, job: str) -> list[ExplainedRequest]:
    """Return one entry for each request of the job that waits, the oldest first."""
    wants = [want for want in state.job(job).wants.values() if want.unmet]
    return [_explain(state, want) for want in sorted(wants, key=lambda want: (want.since, want.number))]


def _explain(state: ManagerState, want: Want) -> ExplainedRequest:
    queues = list(want.form.counts)
    only = _only(state, want)
    holders = []
    for holding in state.grants.values():
        if any(
            _concerns(vertex, queues) and (only is None or _overlaps(vertex, only))
            for vertex in holding.vertices
        ):
            holders.append(holding)
            if len(holders) == HOLDERS_NAMED:
                break
    awaits: list[str] = []
    if state.coming and impossible(state.pool, want.form) is not None:
        awaits += islice(state.coming.waited_for(want.form), HOSTS_NAMED)
    comes = islice(state.coming.waited_for(want.form) if only is None else (), HOSTS_NAMED)
    blocking = None
    for queue in queues:
        if blocking is None and queue.free < want.form.counts[queue]:
            blocking = _blocking(state, want, queue, only)
    needs = {
        queue.name: ClassNeed(count, queue.total, queue.free) for queue, count in want.form.counts.items()
    }
    return ExplainedRequest(
        str(want.form.shape),
        want.unmet,
        want.since,
        needs,
        held_by=tuple([GrantHolder(it.owner, it.grant_id, tuple(it.resources)) for it in holders]),
        place=_place(state, want),
        patient_until_s=state.patience.ends_for(want),
        blocking=blocking,
        reason=_reason(state, want, blocking, awaits),
        awaits=tuple(awaits or comes),
        placement=want.owner.placement,
        lacks=_lacks(state, want),
    )


def _lacks(state: ManagerState, want: Want) -> dict[str, tuple[str, ...]]:
    """Return some of the hosts without features that are needed -> which they do not have."""
    needed = frozenset().union(*(need.features for need in want.form.needs))
    found: dict[str, tuple[str, ...]] = {}
    for host in state.pool.hosts.values() if needed else ():
        if missing := needed - host.features:
            found[host.label or host.name] = tuple(sorted(missing))
            if len(found) == HOSTS_NAMED:
                break
    return found


def _concerns(vertex: Vertex, queues: list[ClassQueue]) -> bool:
    """Whether holding the resource keeps any of these classes from being taken."""
    concerned = {vertex.queue, *vertex.kinds.queues, *(above.queue for above in vertex.place.ancestors)}
    return not concerned.isdisjoint(queues)


def _only(state: ManagerState, want: Want) -> list[Vertex] | None:
    """Return what there is of the resources that it insists on; None if it takes others, too."""
    if not all(need.is_bound for need in want.form.needs):
        return None
    return [vertex for need in want.form.needs for vertex in tops_for(state.pool, need)]


def _overlaps(vertex: Vertex, others: list[Vertex]) -> bool:
    """Whether the resource is one of these, or above or below one of them."""
    return any(
        vertex is other or vertex in other.place.ancestors or other in vertex.place.ancestors
        for other in others
    )


def _place(state: ManagerState, want: Want) -> int:
    """Return its place among those who wait for one of the same classes: 1 is served next."""
    mine = want.turn
    return 1 + sum(
        other.turn < mine
        for other in state.waiting
        if any(queue in other.form.counts for queue in want.form.counts)
    )


def _blocking(
    state: ManagerState, want: Want, queue: ClassQueue, only: list[Vertex] | None
) -> Blocking | None:
    """Return a resource that would do, the relative (or itself) that is held, and by whom.

    ``only``: what there is of the resources that it insists on.
    """
    reservation = state.reservation
    tops: list[Vertex] = [vertex for need in want.form.needs for vertex in preferred(state.pool, need)]
    if reservation is not None and reservation.want is want:
        tops = reservation.targets
    if not tops and only is None:
        tops = [root for host in islice(state.pool.hosts.values(), 16) for root in host.roots]
    for top in tops:
        for vertex in islice(of_class_below(state.pool, top, queue), 64):
            for holding in state.pool.related_holdings(vertex, limit=1):
                relatives = {vertex, *vertex.place.ancestors}
                held = next((v for v in holding.vertices if v in relatives), None)
                if held is None:
                    held = next(v for v in holding.vertices if vertex in v.place.ancestors)
                return Blocking(vertex.resource_id, held.resource_id, holding.owner, holding.grant_id)
    return None


def _reason(state: ManagerState, want: Want, blocking: Blocking | None, awaits: list[str]) -> str:
    form = want.form
    missing = [queue for queue, count in form.counts.items() if queue.total < count]
    if missing:
        there = ", ".join(f"{queue.total} {queue.name}" for queue in missing)
        return f"not there yet: there is {there} now"
    if awaits:
        return "what is there now cannot meet it"
    reservation = state.reservation
    if reservation is not None and reservation.want is want:
        names = ", ".join(vertex.resource_id for vertex in reservation.targets[:HOLDERS_NAMED])
        return f"{names} put aside for it, and not all free yet"
    if want.patient:
        needs = [need for need in (want.strict or form).needs if need.hard or form.preferring]
        word = "needs" if form.preferring and needs[0].hard else "still waits for"
        choices = dict.fromkeys(", ".join(need.preferences[:HOLDERS_NAMED]) for need in needs)
        return f"{word} " + " and ".join(f"one of {names}" for names in choices)
    short = [queue for queue, count in form.counts.items() if queue.free < count]
    if short:
        text = f"{short[0].free} of {short[0].total} {short[0].name} free"
        if blocking is None:
            return text
        if blocking.relative != blocking.resource:
            text += f"; {blocking.resource} is blocked by {blocking.relative}"
        return f"{text}, held by {blocking.job}"
    if reservation is not None:
        return f"what is free is put aside for {reservation.want.owner.job}"
    for need in form.needs:
        if need.features and not any(
            state.pool.find_on(host, need.queue) for host in state.pool.suitable(need)
        ):
            return f"no {need.queue.name} is free on a host with {' and '.join(sorted(need.features))}"
    if form.sizes:
        return "no host has both the resources and the memory free"
    return "what is free does not fit together"


# What a run-time system needs to know, so that it need not keep all that was said before ------------------


def checkpoint_of(state: ManagerState, told: int) -> Checkpoint:
    """Return what all jobs hold and wait for, after so many events."""
    jobs = tuple(_job_checkpoint(state, job) for job in state.jobs.values())
    held = {name for job in jobs for grant in job.grants for name in grant.resources}
    given = {
        name: vertex.newest
        for name, vertex in state.pool.resources.items()
        if vertex.newest != NO_GRANT and name not in held
    }
    return Checkpoint(told, state.last, jobs, given)


def _job_checkpoint(state: ManagerState, job: Job) -> JobCheckpoint:
    grants = dict(_live(chain.from_iterable(want.grants.values() for want in job.wants.values())))
    for grant_id, grant in state.claims.items():
        if grant.job == job.job:  # what is not there yet is not among what it holds
            grants[grant_id] = grant
    waiting = [want for want in job.wants.values() if want.unmet or want.sent]
    demands = tuple(
        Demand(
            job.job,
            want.form.shape,
            want.unmet + len(want.sent),
            NO_GRANT,
            want.priority,
            want.shared_as is not None,
        )
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
