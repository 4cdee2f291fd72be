"""The resource manager against a naive model that recomputes everything from what was said.

Requirements: RM-1 to RM-11.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gspc_trio.components.rm.errors import AddClashes, ResourceHeld
from gspc_trio.components.rm.events import Added, Coming, JobGone, JobJoined, Removed, Settled
from gspc_trio.components.rm.messages import Demand, Interrupt, Release, Revoke, Revoked
from gspc_trio.core.ids import NO_GRANT, GrantId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Requirement, Shape
from gspc_trio.policies.placement import PLACEMENTS
from tests.components.rm.judge import Judge
from tests.components.rm.model import JOBS

CLASSES = ("node", "core", "gpu")
HOSTS = ("r1", "r2")
MEMORY_BYTES = 100
FEATURES = ((), (), ("avx",), ("big",), ("avx", "big"))
WANTED = ((), (), (), (), ("avx",), ("avx", "big"), ("nowhere",))


@st.composite
def dags(draw: st.DrawFn, name: str) -> tuple[Resource, ...]:
    """A host: either like real ones, or any DAG whatever."""
    if draw(st.booleans()):
        has = draw(st.sampled_from(FEATURES))
        found = [Resource(f"{name}.node", "node", memory_bytes=MEMORY_BYTES, features=has)]
        for socket in range(draw(st.integers(1, 2))):
            found.append(Resource(f"{name}.socket{socket}", "socket", (f"{name}.node",)))
            for core in range(draw(st.integers(1, 2))):
                found.append(Resource(f"{name}.core{socket}{core}", "core", (f"{name}.socket{socket}",)))
        sockets = tuple(r.resource_id for r in found if r.resource_class == "socket")
        if draw(st.booleans()):
            found.append(Resource(f"{name}.gpu", "gpu", draw(st.sampled_from([sockets, ()]))))
        return tuple(found)
    found = []
    for index in range(draw(st.integers(1, 6))):
        names = [r.resource_id for r in found]
        parents = draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []
        memory_bytes = draw(st.sampled_from([0, 0, MEMORY_BYTES]))
        kind = draw(st.sampled_from(CLASSES))
        has = draw(st.sampled_from(FEATURES))
        known = tuple(parents)
        found.append(Resource(f"{name}.x{index}", kind, known, memory_bytes=memory_bytes, features=has))
    return tuple(draw(st.permutations(found)))


@st.composite
def shapes(draw: st.DrawFn, names: list[str]) -> Shape:
    requirements = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 3]))):
        preferences: list[str] = []
        if draw(st.integers(0, 3)) == 0:
            preferences = draw(st.lists(st.sampled_from([*names, "r1.nowhere"]), max_size=3, unique=True))
        hard = bool(preferences) and draw(st.booleans())
        patience_s = draw(st.sampled_from([None, None, 0.0, 1.0])) if preferences else None
        kind = draw(st.sampled_from(CLASSES))
        wanted = draw(st.sampled_from(WANTED))
        requirements.append(Requirement(kind, tuple(preferences), hard, patience_s, wanted))
    return Shape(
        tuple(requirements),
        memory_bytes=draw(st.sampled_from([0, 0, 0, 0, 30, 60, 120])),
        memories=draw(st.sampled_from([(), (), (), (), (40,)])),
        estimate_s=draw(st.sampled_from([None, None, 0.25, 4.0])),
        wait=draw(st.integers(0, 4)) == 0,
        same_host=draw(st.integers(0, 3)) == 0,
    )


class AgainstTheModel(Judge, RuleBasedStateMachine):
    """Every operation, any DAG, removals, deaths; what the machine does is judged by recomputing all."""

    @initialize(placement=st.sampled_from(list(PLACEMENTS)), data=st.data())
    def start(self, placement: str, data: st.DataObject) -> None:
        self.begin(placement)
        for job in JOBS:
            self.join(job, data.draw(st.sampled_from(["", "", *PLACEMENTS])))
        for name in HOSTS:
            self.add(data, name)

    @invariant()
    def at_rest(self) -> None:
        if hasattr(self, "rm"):
            self.everything_adds_up()

    @rule(data=st.data(), name=st.sampled_from(HOSTS))
    def add(self, data: st.DataObject, name: str) -> None:
        if any(other.startswith(name + ".") for other in self.pool.there):
            return
        resources = data.draw(dags(name))
        for resource in resources:
            self.pool.there[resource.resource_id] = resource
        self.known = sorted({*self.known, *(r.resource_id for r in resources)})
        self.send(Added(resources))

    @precondition(lambda self: self.pool.there)
    @rule(data=st.data())
    def add_below(self, data: st.DataObject) -> None:
        if len(self.pool.there) > 11:
            return
        parent = data.draw(st.sampled_from(sorted(self.pool.there)))
        name = f"{parent.partition('.')[0]}.late{len(self.known)}"
        resource = Resource(name, data.draw(st.sampled_from(CLASSES)), (parent,))
        if (self.pool.ancestors(parent) | {parent}) & (self.held() | self.leaving):
            try:
                self.rm.handle(Added((resource,)), self.now)
            except AddClashes:
                return
            raise AssertionError("added below a held one")
        self.pool.there[name] = resource
        self.known.append(name)
        self.send(Added((resource,)))

    @precondition(lambda self: self.pool.there)
    @rule(data=st.data(), policy=st.sampled_from(["lose", "wait", "refuse"]), whole=st.booleans())
    def remove(self, data: st.DataObject, policy: str, whole: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.pool.there)))
        self.take_out(name, policy, whole)

    @precondition(lambda self: self.memories_used())
    @rule(data=st.data(), policy=st.sampled_from(["lose", "wait", "refuse"]))
    def remove_memory(self, data: st.DataObject, policy: str) -> None:
        self.take_out(data.draw(st.sampled_from(self.memories_used())), policy, whole=False)

    def robbed(self) -> set[GrantId]:
        return {grant_id for grant_id, live in self.grants.items() if live.robbed}

    def memories_used(self) -> list[str]:
        return sorted({memory for live in self.grants.values() for (memory, _), _ in live.memories})

    def take_out(self, name: str, policy: str, whole: bool) -> None:
        names = {name} | self.pool.descendants(name)
        if whole:
            host = name.partition(".")[0]
            names = {other for other in self.pool.there if other.startswith(host + ".")}
        in_use = {n for n in names if self.pool.related(n) & self.held()}
        lapsing = {
            grant_id
            for grant_id, live in self.grants.items()
            if live.lease_until is None
            and (live.left & names or any(memory in names for (memory, _), _ in live.memories))
        }
        event = Removed((name,) if not whole else tuple(sorted(names)), policy)
        if policy == "refuse" and in_use:
            try:
                self.rm.handle(event, self.now)
            except ResourceHeld:
                return
            raise AssertionError("removed what is in use")
        if policy == "lose":
            before = set(self.lapsed)
            intact = {g for g, live in self.grants.items() if live.lease_until is None and not live.robbed}
            self.send(event)
            # What was to leave may be free now, and goes: who has memory of it lapses with it.
            assert self.lapsed - before == lapsing | (self.robbed() & intact)
            assert not names & set(self.pool.there)
        else:
            self.leaving |= names
            self.send(event)

    @precondition(lambda self: len(self.jobs) < len(JOBS))
    @rule(data=st.data())
    def join_again(self, data: st.DataObject) -> None:
        self.join(data.draw(st.sampled_from(sorted(set(JOBS) - self.jobs))))

    def join(self, job: str, placement: str = "") -> None:
        self.jobs.add(job)
        self.send(JobJoined(job, JOBS[job], placement=placement))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), kind=st.sampled_from(CLASSES), credit=st.integers(1, 4))
    def demand_any(self, data: st.DataObject, kind: str, credit: int) -> None:
        self.demand(data, Shape((Requirement(kind),)), credit)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), credit=st.integers(1, 3))
    def demand_something(self, data: st.DataObject, credit: int) -> None:
        self.demand(data, data.draw(shapes(self.known)), credit)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), kind=st.sampled_from(CLASSES), size_bytes=st.sampled_from([10, 40]))
    def demand_memory(self, data: st.DataObject, kind: str, size_bytes: int) -> None:
        self.demand(data, Shape((Requirement(kind),), memories=(size_bytes,)), 1)

    @precondition(lambda self: self.jobs and self.known)
    @rule(data=st.data(), kind=st.sampled_from(CLASSES), credit=st.integers(1, 3), form=st.integers(0, 4))
    def demand_preferred(self, data: st.DataObject, kind: str, credit: int, form: int) -> None:
        """One resource, with memory, or several, some of them on one host."""
        preferences = st.lists(st.sampled_from(self.known), min_size=1, max_size=2, unique=True)
        first = Requirement(kind, tuple(data.draw(preferences)))
        shape = Shape((first,), memory_bytes=30 if form == 1 else 0)
        if form > 1:
            second = tuple(data.draw(preferences)) if form == 2 else ()
            shape = Shape((first, Requirement(kind, second)), same_host=form == 4)
        self.demand(data, shape, credit)

    @precondition(lambda self: self.ages)
    @rule(data=st.data(), credit=st.integers(0, 4))
    def demand_again(self, data: st.DataObject, credit: int) -> None:
        used = sorted(self.ages, key=repr)
        job, shape = data.draw(st.sampled_from(used))
        self.demand(data, shape, credit, job)

    def demand(self, data: st.DataObject, shape: Shape, credit: int, job: str = "") -> None:
        """Demand as a client does that has received some of what was sent to it."""
        job = job or data.draw(st.sampled_from(sorted(self.jobs)))
        sent = self.sent.get(job, [])
        if sent:
            arrived = data.draw(st.integers(0, len(sent)))
            for grant in sent[:arrived]:
                self.received[job] = grant.grant_id
            del sent[:arrived]
        underway = sum(grant.shape == shape for grant in sent)
        ages = self.ages.setdefault((job, shape), [])
        unmet = max(0, credit - underway)
        del ages[unmet:]
        ages += [self.now] * (unmet - len(ages))
        self.send(Demand(job, shape, credit, self.received.get(job, NO_GRANT)))

    @precondition(lambda self: self.releasable())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.give_back(data.draw(st.sampled_from(self.releasable())), ())

    @precondition(lambda self: self.releasable())
    @rule(data=st.data())
    def release_some(self, data: st.DataObject) -> None:
        """What a well-behaved job does: what was recalled goes first, and all of it."""
        recalled = [grant_id for grant_id in self.releasable() if self.grants[grant_id].recalled]
        for grant_id in recalled or self.releasable()[: data.draw(st.integers(1, 3))]:
            self.give_back(grant_id, ())

    @precondition(lambda self: any(len(self.grants[g].left) > 1 for g in self.releasable()))
    @rule(data=st.data())
    def release_part(self, data: st.DataObject) -> None:
        several = [grant_id for grant_id in self.releasable() if len(self.grants[grant_id].left) > 1]
        grant_id = data.draw(st.sampled_from(several))
        left = sorted(self.grants[grant_id].left)
        self.give_back(grant_id, tuple(data.draw(st.lists(st.sampled_from(left), min_size=1, unique=True))))

    def releasable(self) -> list[GrantId]:
        return sorted(grant_id for grant_id, live in self.grants.items() if live.lease_until is None)

    def give_back(self, grant_id: GrantId, names: tuple[str, ...]) -> None:
        live = self.grants[grant_id]
        sent = self.sent.get(live.job, [])
        while sent and sent[0].grant_id <= grant_id:
            self.received[live.job] = sent.pop(0).grant_id
        self.send(Release(live.job, grant_id, names))

    @precondition(lambda self: any(self.ages.values()))
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted({job for (job, _), ages in self.ages.items() if ages})))
        self.send(Interrupt(job))
        assert not any(ages for (owner, _), ages in self.ages.items() if owner == job)

    @precondition(lambda self: self.jobs and self.grants)
    @rule(data=st.data(), fenced=st.booleans())
    def die(self, data: st.DataObject, fenced: bool) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        self.jobs.discard(job)
        mine = {g for g, live in self.grants.items() if live.job == job and live.lease_until is None}
        for live in self.grants.values():
            live.orphaned = live.orphaned or live.job == job
        for key in [key for key in self.ages if key[0] == job]:
            del self.ages[key]
        self.sent.pop(job, None)
        self.received.pop(job, None)
        actions = self.send(JobGone(job, fenced))
        revoked = {action.grant_id for action in actions if isinstance(action, Revoke)}
        robbed = {grant_id for grant_id, live in self.grants.items() if live.robbed}
        assert revoked - robbed == (set() if fenced else mine - robbed), "others may go with what was leaving"
        assert fenced <= (not mine & set(self.grants))

    @precondition(lambda self: any(live.lease_until is not None for live in self.grants.values()))
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        lapsing = sorted(g for g, live in self.grants.items() if live.lease_until is not None)
        grant_id = data.draw(st.sampled_from(lapsing))
        names = data.draw(st.lists(st.sampled_from(sorted(self.grants[grant_id].left)), unique=True))
        self.send(Revoked(grant_id, tuple(names)))

    @rule(data=st.data(), number=st.integers(0, 8))
    def expect(self, data: st.DataObject, number: int) -> None:
        """A host comes, nobody knows with what; or one that was there before; or it does not come."""
        known = number in (1, 2)
        self.coming = None if not number else data.draw(dags("r3")) if known else ()
        self.send(Coming("r3", self.coming) if known or not number else Settled("r3"))

    @rule(seconds=st.sampled_from([0.001, 0.06, 0.3, 1.0, 7.0]))
    def time(self, seconds: float) -> None:
        until = self.now + seconds
        for _ in range(2000):
            deadline = self.rm.deadline()
            if deadline is None or deadline > until:
                break
            self.now = max(self.now, deadline)
            self.send(Tick())
        else:
            raise AssertionError("Ticks without end")
        self.now = until


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = settings(max_examples=30, stateful_step_count=60)
