"""The resource manager as a machine: events in, actions out."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.components.rm import claims, explain, lapse, recall, reserve
from gspc_trio.components.rm.errors import (
    BadDemand,
    BadPlacement,
    BadWeight,
    DoubleRelease,
    DuplicateJob,
    NotYours,
    TooManyShapes,
    UnknownGrant,
)
from gspc_trio.components.rm.events import (
    Added,
    Advanced,
    Awaited,
    Claimed,
    Coming,
    GivenElsewhere,
    JobGone,
    JobJoined,
    JobWeighed,
    Numbering,
    Overruled,
    Removed,
    Rested,
    Resumed,
    RmAction,
    RmEvent,
    Settled,
)
from gspc_trio.components.rm.messages import Checkpoint, Demand, Interrupt, Refuse, Release, Revoked
from gspc_trio.components.rm.parts import Form, Holding, Job, Vertex, Want, shared_part
from gspc_trio.components.rm.search import impossible
from gspc_trio.components.rm.serve import (
    give_at_once,
    look_who_declines,
    lose_patience,
    may_starve,
    move,
    serve,
    start_waiting,
)
from gspc_trio.components.rm.state import Limits, ManagerState
from gspc_trio.core.ids import GrantId, JobId, ResourceId
from gspc_trio.core.machine import ComposedMachine, Tick, handles
from gspc_trio.core.task import Shape
from gspc_trio.policies.placement import FIFO, bad_placement
from gspc_trio.records.facts import ResourceChanged

LEAD_MIN = 1 << 16
"""Hosts are told of so many grants ahead, at least: they hear of more long before these are given."""

LEAD_MAX = 1 << 30
"""And at most: where the numbers leap, that is no rate."""

LEAD_S = 60.0
"""At the rate at which grants are given of late, those that hosts are told of last so long."""


class Aside(Struct, frozen=True):
    """What is put aside for a request that others could starve.

    Attributes:
        job, shape: whose request it is.
        resource_ids: one for each of its requirements.
        since: when it was put aside.
    """

    job: JobId
    shape: Shape
    resource_ids: tuple[ResourceId, ...]
    since: float


class ResourceManager(ComposedMachine[RmEvent, RmAction]):
    """Who holds which resource (GSPC19 2.4, RM-1 to RM-13).

    Illegal events raise a subclass of :class:`~.errors.RmError` that names what is wrong.
    """

    noun = "the resource manager"

    def __init__(
        self,
        epoch: int,
        limits: Limits | None = None,
        placement: str = FIFO,
        numbering: Numbering | None = None,
    ) -> None:
        """Start empty.

        Args:
            epoch: first part of its grant ids; higher than that of every resource manager before it.
            limits: times and numbers; the defaults suit people's machines.
            placement: of the jobs that ask for none, a name in ``policies.placement``.
            numbering: which numbers its grants have; all, if nobody else gives any of this epoch.

        Raises:
            BadPlacement: there is none of this name.
        """
        if wrong := bad_placement(placement):
            raise BadPlacement(f"{placement!r:.60}: {wrong}")
        self._state = ManagerState(epoch, limits or Limits(), numbering)
        self._placement = placement
        super().__init__(self._state)
        self._judged_at = -1

    @property
    def newest(self) -> GrantId:
        """The newest grant that it has given."""
        return self._state.last

    def newest_given(self, resource_id: ResourceId, grant_id: GrantId) -> GrantId:
        """Return the newest grant of a resource that was given, or ``grant_id`` if that cannot be known.

        It cannot when the resource is not there, or an earlier resource manager may have given ``grant_id``.
        """
        vertex = self._state.pool.resources.get(resource_id)
        return grant_id if vertex is None or grant_id[0] != self._state.epoch else vertex.newest

    @property
    def aside(self) -> Aside | None:
        """What is put aside, if anything is."""
        found = self._state.reservation
        if found is None:
            return None
        names = tuple(vertex.resource_id for vertex in found.targets)
        return Aside(found.want.owner.job, found.want.form.shape, names, found.made_at)

    def deadline(self) -> float | None:
        """Return when a Tick is due: for recalls, reservations, patience and leases."""
        state = self._state
        soonest = state.recall_at
        for time in (state.reserve_at, state.patience.ends_at):
            if time is not None and (soonest is None or time < soonest):
                soonest = time
        for holding in state.lapsing.values():
            if soonest is None or (holding.lease_until is not None and holding.lease_until < soonest):
                soonest = holding.lease_until
        return soonest

    def check(self) -> None:
        """Assert every invariant: the figures kept up to date equal those counted anew."""
        from gspc_trio.components.rm.check import check_state  # only here: few ask

        check_state(self._state)

    def checkpoint(self, told: int) -> Checkpoint:
        """Return what all jobs hold and wait for, after so many events."""
        return explain.checkpoint_of(self._state, told)

    @property
    def held(self) -> int:
        """Number of live grants."""
        return len(self._state.grants)

    def status(self) -> explain.ManagerStatus:
        """Return plain data: per class total, free, held and blocked; per job demand, held and share."""
        return explain.status(self._state)

    def explain(self, job: str) -> list[explain.ExplainedRequest]:
        """Return why each waiting request of the job waits: what it needs, who holds it, its place, a
        blocking relative.

        Raises:
            UnknownJob: it has not joined, or has gone.
        """
        return explain.explain(self._state, job)

    # Jobs ---------------------------------------------------------------------------------------------------

    @handles(JobJoined)
    def _job_joined(self, event: JobJoined) -> None:
        if event.job in self._state.jobs:
            raise DuplicateJob(f"job {event.job} has joined already")
        weight, placement = _checked_weight(event), self._checked_placement(event)
        job = self._state.jobs[event.job] = Job(event.job, weight, event.priority)
        self._state.place(job, placement)

    @handles(JobWeighed)
    def _job_weighed(self, event: JobWeighed) -> None:
        job, weight = self._state.job(event.job), _checked_weight(event)
        if event.placement is not None:
            self._state.place(job, self._checked_placement(event))
        job.weight = weight
        job.priority = job.priority if event.priority is None else event.priority
        self._after()

    def _checked_placement(self, event: JobJoined | JobWeighed) -> str:
        placement = event.placement or self._placement
        if wrong := bad_placement(placement):
            raise BadPlacement(f"job {event.job} asks for the placement {placement!r:.60}: {wrong}")
        return placement

    @handles(JobGone)
    def _job_gone(self, event: JobGone) -> None:
        lapse.job_gone(self._state, self._state.job(event.job), event.fenced)
        claims.drop(self._state, event.job)
        self._state.count_places()
        self._after()

    @handles(Interrupt)
    def _interrupt(self, event: Interrupt) -> None:
        state = self._state
        job = state.job(event.job)
        for want in list(job.wants.values()):
            if want.unmet:
                self._drop(want)
                reason = f"interrupted: job {job.job} withdrew its demand for {want.form.shape}"
                state.actions.append(Refuse(job.job, want.form.shape, reason, "interrupted"))
        self._after()

    @handles(Demand)
    def _demand(self, event: Demand) -> None:
        state = self._state
        try:
            job = state.jobs[event.job]
        except KeyError:
            job = state.job(event.job)  # which says what is wrong
        credit, seen = event.credit, event.seen
        if credit < 0 or seen > state.last:
            raise self._bad_demand(event)
        want = job.latest
        if want is None or want.form.shape is not event.shape:
            want = job.wants.get(event.shape)
            if want is None:
                if not credit:
                    return
                want = self._new_want(job, event)
            job.latest = want
        if event.shared is not (want.shared_as is not None):
            want.shared_as = shared_part(event.shape) if event.shared else None
        if seen > job.seen:
            job.seen = seen
        sent = want.sent
        while sent and sent[0] <= seen:
            sent.popleft()
        if want.unmet:
            self._demand_again(want, event)
            return
        want.priority = event.priority
        unmet = credit - len(sent) if sent else credit
        form = want.form
        if unmet <= 0 or (form.possible_at != state.pool.changed and self._refuse(want)):
            return
        if not state.waiting:
            if form.plain:
                while state.give_one(want):
                    unmet -= 1
                    if not unmet:
                        return
            else:
                unmet = give_at_once(state, want, unmet)
                if not unmet:
                    return
        want.unmet = want.fresh = unmet
        start_waiting(state, want)
        recall.soon(state)
        self._after()

    def _demand_again(self, want: Want, event: Demand) -> None:
        """A want that waits already states another credit, or has moved to another priority."""
        state = self._state
        is_moved = want.priority != event.priority
        want.priority = event.priority
        change = want.set_credit(event.credit)
        if not want.unmet:
            self._drop(want)
        elif change > 0 or is_moved:
            if is_moved:
                move(state, want)
            if want.form.possible_at != state.pool.changed and self._refuse(want):
                return
            start_waiting(state, want)
            recall.soon(state)
        self._after()

    def _bad_demand(self, event: Demand) -> BadDemand:
        if event.credit < 0:
            return BadDemand(f"job {event.job} demands the credit {event.credit}: it must not be negative")
        return BadDemand(f"job {event.job} says it has seen grant {event.seen}, which was never given")

    def _new_want(self, job: Job, event: Demand) -> Want:
        state = self._state
        shape = event.shape
        if not shape.requirements:
            raise BadDemand(f"job {job.job} demands a shape without requirements")
        if shape.memory_bytes < 0 or any(size < 1 for size in shape.memories):
            raise BadDemand(f"job {job.job} demands memory of a size that is not positive: {shape}")
        most = state.limits.shapes_max
        if len(job.wants) >= most:
            for want in [want for want in job.wants.values() if want.is_idle]:
                job.forget(want)
            if sum(1 for want in job.wants.values() if want.unmet) >= most:
                raise TooManyShapes(
                    f"job {job.job} waits for {most} shapes already; withdraw one before {event.shape}"
                )
        return state.new_want(job, Form(event.shape, state.pool.queue))

    def _refuse(self, want: Want) -> bool:
        """Refuse the want if it can never be met, by what is there and what is on its way."""
        state = self._state
        if want.form.shape.wait:
            return False
        found = impossible(state.pool, want.form)
        if found is None or (state.coming and state.coming.may_meet(state.pool, want.form)):
            return False
        kind, reason = found
        if coming := ", ".join(f"{number} {name}" for name, number in state.coming.counts().items()):
            reason += f"; what is on its way will not do either: {coming}"
        self._drop(want)
        if want.is_idle:
            want.owner.forget(want)
            state.forget_queues(want.form)
        state.actions.append(Refuse(want.owner.job, want.form.shape, reason, kind))
        return True

    def _drop(self, want: Want) -> None:
        state = self._state
        state.drop_want(want)
        if state.reservation is not None and state.reservation.want is want:
            state.end_reservation()

    # Grants -------------------------------------------------------------------------------------------------

    @handles(Release)
    def _release(self, event: Release) -> None:
        state = self._state
        grant_id = event.grant_id
        try:
            holding = state.grants[grant_id]
        except KeyError:
            self._check_crossing(event, None)
            return
        if holding.want.owner.job != event.job or holding.lease_until is not None:
            self._check_crossing(event, holding)
            return
        vertices = self._part(event, holding) if event.resources else holding.vertices
        state.release(holding, vertices)
        if state.waiting or state.freed:
            holding.want.owner.saw(grant_id)
            self._after()

    def _check_crossing(self, event: Release, holding: Holding | None) -> None:
        """Raise what is wrong with a release, unless the job could not know yet that its grant is over."""
        state = self._state
        job = state.job(event.job)
        if event.grant_id in job.lapsed:
            return
        if holding is not None and holding.owner != event.job:
            raise NotYours(f"grant {event.grant_id} is held by {holding.owner}, not by {event.job}")
        claim = state.claims.get(event.grant_id)
        if claim is not None and claim.job == event.job:
            del state.claims[event.grant_id]
            return  # of an earlier resource manager, and nothing of it is there
        epoch, number = event.grant_id
        if epoch == state.epoch and 0 < number <= state.last[1]:
            raise DoubleRelease(f"grant {event.grant_id} has been given back already")
        raise UnknownGrant(f"grant {event.grant_id} was never given by this resource manager")

    def _part(self, event: Release, holding: Holding) -> list[Vertex]:
        if len(set(event.resources)) != len(event.resources):
            raise DoubleRelease(f"a resource is named twice: {', '.join(event.resources)}")
        there = {vertex.resource_id: vertex for vertex in holding.vertices}
        for name in event.resources:
            if name in there:
                continue
            if name in holding.returned:
                raise DoubleRelease(f"{name} of grant {event.grant_id} has been given back already")
            raise NotYours(f"{name} is not part of grant {event.grant_id}")
        return [there[name] for name in event.resources]

    @handles(Claimed)
    def _claimed(self, event: Claimed) -> None:
        claims.claimed(self._state, event)
        self._after()

    @handles(Advanced)
    def _advanced(self, event: Advanced) -> None:
        self._state.advance(event.grant_id)

    @handles(GivenElsewhere)
    def _given_elsewhere(self, event: GivenElsewhere) -> None:
        claims.given_elsewhere(self._state, event.grant)
        self._after()

    @handles(Overruled)
    def _overruled(self, event: Overruled) -> None:
        claims.overruled(self._state, event)
        self._after()

    @handles(Revoked)
    def _revoked(self, event: Revoked) -> None:
        lapse.revoked(self._state, event)
        self._after()

    # Resources ----------------------------------------------------------------------------------------------

    @handles(Added)
    def _added(self, event: Added) -> None:
        state = self._state
        for vertex in state.changer.add(event.resources, event.host):
            name = vertex.queue.name
            parents = tuple(parent.resource_id for parent in vertex.place.parents)
            label = vertex.host.label
            state.actions.append(
                ResourceChanged(state.now, vertex.resource_id, name, "added", label, parents)
            )
        if state.claims:
            claims.there(state)
        for want in state.waiting:
            want.form.sort()
            if may_starve(want):
                state.starving[want] = None
        for want in state.special:
            state.wake(want)
            if want.form.preferring:
                state.unwatch(want)
                state.watch(want)
        if state.waiting or state.freed:
            self._after()

    @handles(Removed)
    def _removed(self, event: Removed) -> None:
        lapse.removed(self._state, event)
        self._after()

    @handles(Rested)
    def _rested(self, event: Rested) -> None:
        lapse.rested(self._state, event)
        self._after()

    @handles(Resumed)
    def _resumed(self, event: Resumed) -> None:
        lapse.resumed(self._state, event)
        self._after()

    @handles(Awaited)
    def _awaited(self, event: Awaited) -> None:
        lapse.awaited(self._state, event)

    @handles(Coming)
    def _coming(self, event: Coming) -> None:
        self._state.coming.expect(event.name, event.resources, event.host)
        self._judged_at = -1
        self._after()

    @handles(Settled)
    def _settled(self, event: Settled) -> None:
        self._state.coming.settle(event.name)
        claims.settled(self._state, event.name)
        self._judged_at = -1
        self._after()

    def _refuse_hopeless(self) -> None:
        """Refuse those who wait for what has been removed, or has not come."""
        state = self._state
        if self._judged_at != state.pool.changed:
            self._judged_at = state.pool.changed
            for want in list(state.waiting):
                self._refuse(want)

    # Time ---------------------------------------------------------------------------------------------------

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        lapse.expire(self._state)
        self._after(happened=False)

    def _after(self, happened: bool = True) -> None:
        """After whatever may have freed or asked for something, or after some time: remove what was to leave
        when it is free, give, reserve, recall.
        """
        state = self._state
        if state.freed:
            state.leave_freed()
        if state.pool.memories_lost:
            lapse.memory_lost(state)
        self._refuse_hopeless()
        if not state.waiting:
            state.rest()
            return
        lose_patience(state)
        serve(state)
        look_who_declines(state)
        if state.waiting:
            if happened or state.actions:
                reserve.later(state)
            reserve.reserve(state)
            if happened or state.actions:
                recall.later(state)
            if state.recall_at is not None and state.now >= state.recall_at:
                recall.recall(state)
        if not state.waiting:
            state.rest()


def _checked_weight(event: JobJoined | JobWeighed) -> float:
    if not 0 < event.weight < float("inf"):
        raise BadWeight(f"job {event.job} has the weight {event.weight}: it must be more than 0")
    return event.weight


class GrantsAheadOf:
    """Says when hosts have to be told of more grants, so that no grant waits for them to hear.

    Args:
        last: the grant before the first one.

    Attributes:
        newest: no grant is newer until hosts have been told of more.
        due_from: number of the first grant with which hosts are to be told.
    """

    def __init__(self, last: GrantId) -> None:
        self.newest: GrantId = (last[0], last[1] + LEAD_MIN)
        self.due_from: int = last[1] + LEAD_MIN - LEAD_MIN // 2
        self._lead = LEAD_MIN
        self._told_at = last[1]
        self._told_s: float | None = None

    def look(self, last: GrantId, now: float) -> bool:
        """Take the newest grant given; return whether hosts are to be told, of :attr:`newest`."""
        given = last[1]
        if given < self.due_from:
            return False
        if self._told_s is not None:
            per_s = (given - self._told_at) / max(now - self._told_s, 1e-3)
            self._lead = max(LEAD_MIN, min(int(per_s * LEAD_S), LEAD_MAX))
        self._told_at, self._told_s = given, now
        self.newest = (last[0], given + self._lead)
        self.due_from = given + self._lead - self._lead // 2
        return True
