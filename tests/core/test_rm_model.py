"""The resource manager against a naive model that recomputes everything from what was said."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gspc_trio.core.exchange import Demand, Grant, Interrupt, Lapsed, Recall, Refuse, Release, Revoke, Revoked
from gspc_trio.core.ids import NO_GRANT, GrantId
from gspc_trio.core.machine import Tick
from gspc_trio.core.records import GrantChanged, ResourceChanged
from gspc_trio.core.resources import Resource
from gspc_trio.core.rm import (
    Added,
    Coming,
    JobGone,
    JobJoined,
    Limits,
    Placement,
    Removed,
    ResourceManager,
    Settled,
)
from gspc_trio.core.rm.errors import AddClashes, ResourceHeld
from gspc_trio.core.task import Requirement, Shape
from gspc_trio.policies.placement import PLACEMENTS

CLASSES = ("node", "core", "gpu")
JOBS = {"a": 1.0, "b": 2.0, "c": 0.5}
HOSTS = ("r1", "r2")
MEMORY_BYTES = 100


class Pool:
    """Resources by definition: nothing is kept that could be computed."""

    def __init__(self) -> None:
        self.there: dict[str, Resource] = {}
        self.lost_below: set[str] = set()

    def ancestors(self, name: str) -> set[str]:
        parents = set(self.there[name].parents) & set(self.there)
        return parents.union(*(self.ancestors(parent) for parent in parents)) if parents else set()

    def descendants(self, name: str) -> set[str]:
        return {other for other in self.there if name in self.ancestors(other)}

    def related(self, name: str) -> set[str]:
        return {name} | self.ancestors(name) | self.descendants(name)

    def leaves(self, name: str) -> int:
        return sum(not self.descendants(other) for other in self.descendants(name)) or 1

    def memories(self, host: str) -> dict[str, int]:
        offering = {r.resource_id: r.memory_bytes for r in self.there.values() if r.memory_bytes}
        return {
            name: size
            for name, size in offering.items()
            if name.startswith(host + ".") and not self.ancestors(name) & set(offering)
        }


class Live:
    """A grant as the model keeps it."""

    def __init__(self, grant: Grant, now: float, units: int) -> None:
        self.job = grant.job
        self.shape = grant.shape
        self.left = set(grant.resources)
        self.memories = list(zip(grant.memories, sizes(grant.shape), strict=True))
        self.since = now
        self.units = units
        self.recalled = False
        self.lease_until: float | None = None


def sizes(shape: Shape) -> list[int]:
    return [size for size in (shape.memory_bytes, *shape.memories) if size]


@st.composite
def dags(draw: st.DrawFn, name: str) -> tuple[Resource, ...]:
    """A host: either like real ones, or any DAG whatever."""
    if draw(st.booleans()):
        found = [Resource(f"{name}.node", "node", memory_bytes=MEMORY_BYTES)]
        for socket in range(draw(st.integers(1, 2))):
            found.append(Resource(f"{name}.socket{socket}", "socket", (f"{name}.node",)))
            for core in range(draw(st.integers(1, 2))):
                found.append(Resource(f"{name}.core{socket}{core}", "core", (f"{name}.socket{socket}",)))
        sockets = tuple(r.resource_id for r in found if r.resource_class == "socket")
        if draw(st.booleans()):
            found.append(Resource(f"{name}.gpu", "gpu", sockets))
        return tuple(found)
    found = []
    for index in range(draw(st.integers(1, 6))):
        names = [r.resource_id for r in found]
        parents = draw(st.lists(st.sampled_from(names), max_size=2, unique=True)) if names else []
        memory_bytes = draw(st.sampled_from([0, 0, MEMORY_BYTES]))
        kind = draw(st.sampled_from(CLASSES))
        found.append(Resource(f"{name}.x{index}", kind, tuple(parents), memory_bytes=memory_bytes))
    return tuple(draw(st.permutations(found)))


@st.composite
def shapes(draw: st.DrawFn, names: list[str]) -> Shape:
    requirements = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 3]))):
        preferences: list[str] = []
        if draw(st.integers(0, 3)) == 0:
            preferences = draw(st.lists(st.sampled_from([*names, "r1.nowhere"]), max_size=3, unique=True))
        hard = bool(preferences) and draw(st.booleans())
        requirements.append(Requirement(draw(st.sampled_from(CLASSES)), tuple(preferences), hard))
    return Shape(
        tuple(requirements),
        memory_bytes=draw(st.sampled_from([0, 0, 0, 0, 30, 60, 120])),
        memories=draw(st.sampled_from([(), (), (), (), (40,)])),
        estimate_s=draw(st.sampled_from([None, None, 0.25, 4.0])),
        wait=draw(st.integers(0, 4)) == 0,
        same_host=draw(st.integers(0, 3)) == 0,
    )


class AgainstTheModel(RuleBasedStateMachine):
    """Every operation, any DAG, removals, deaths; what the machine does is judged by recomputing all."""

    limits = Limits(recall_after_s=0.05, reserve_after_s=0.5, patience_s=0.1, lease_s=6.0)

    @initialize(placement=st.sampled_from([None, *PLACEMENTS.values()]))
    def start(self, placement: Placement | None) -> None:
        self.rm = ResourceManager(3, self.limits, placement)
        self.now = 1.0
        self.pool = Pool()
        self.jobs: set[str] = set()
        self.grants: dict[GrantId, Live] = {}
        self.over: dict[GrantId, str] = {}
        self.lapsed: set[GrantId] = set()
        self.ages: dict[tuple[str, Shape], list[float]] = {}
        self.sent: dict[str, list[Grant]] = {}
        self.received: dict[str, GrantId] = {}
        self.leaving: set[str] = set()
        self.coming = False
        self.known: list[str] = []
        self.last: GrantId = NO_GRANT

    # What is so, by definition ------------------------------------------------------------------------------

    def held(self) -> set[str]:
        return {name for live in self.grants.values() for name in live.left}

    def free(self) -> set[str]:
        blocked: set[str] = set(self.pool.lost_below)
        for name in self.held():
            blocked |= self.pool.related(name)
        return set(self.pool.there) - blocked

    def closed(self) -> set[str]:
        reserved = self.rm.status()["reserved"]
        names = set(self.leaving) | set(reserved["resources"] if reserved else ())
        return {other for name in names if name in self.pool.there for other in self.pool.related(name)}

    def ratio(self, job: str) -> float:
        return sum(live.units for live in self.grants.values() if live.job == job) / JOBS[job]

    def fitting(self, requirement: Requirement, among: set[str]) -> list[str]:
        names = [
            n for n in self.pool.there if self.pool.there[n].resource_class == requirement.resource_class
        ]
        if requirement.hard:
            wanted = {p for p in requirement.preferences if p in self.pool.there}
            names = [n for n in names if n in wanted or wanted & self.pool.ancestors(n)]
        return [n for n in names if n in among]

    def preferred_there(self, requirement: Requirement) -> list[str]:
        hard = Requirement(requirement.resource_class, requirement.preferences, True)
        return self.fitting(hard, set(self.pool.there))

    def solution(self, shape: Shape, among: set[str], empty: bool) -> tuple[str, ...] | None:
        """Any resources that would do, by trying all."""
        for names in product(*(self.fitting(r, among) for r in shape.requirements)):
            if len(set(names)) < len(names):
                continue
            if any(one in self.pool.ancestors(other) for one in names for other in names):
                continue
            if shape.same_host and len({name.partition(".")[0] for name in names}) > 1:
                continue
            if sizes(shape) and not self.room(names[0].partition(".")[0], sizes(shape), empty):
                continue
            return names
        return None

    def room(self, host: str, needed: list[int], empty: bool) -> bool:
        gaps: list[int] = []
        for memory, size in self.pool.memories(host).items():
            taken = []
            if not empty:
                for live in self.grants.values():
                    taken += [(place[1], n) for place, n in live.memories if place[0] == memory]
            position = 0
            for offset, length in [*sorted(taken), (size, 0)]:
                gaps.append(offset - position)
                position = offset + length
        return self.fill(gaps, needed)

    def fill(self, gaps: list[int], needed: list[int]) -> bool:
        if not needed:
            return True
        return any(
            gap >= needed[0] and self.fill([*gaps[:i], gap - needed[0], *gaps[i + 1 :]], needed[1:])
            for i, gap in enumerate(gaps)
        )

    # One event ----------------------------------------------------------------------------------------------

    def send(self, event: Any) -> list[Any]:
        """Let the machine take the event, and judge each action in turn."""
        actions = self.rm.handle(event, self.now)
        for action in actions:
            judge = getattr(self, "on_" + type(action).__name__)
            judge(action, event)
        return actions

    def on_Grant(self, grant: Grant, _event: Any) -> None:
        assert grant.grant_id > self.last
        self.last = grant.grant_id
        ages = self.ages[grant.job, grant.shape]
        assert ages, "a grant without credit"
        free = self.free() - self.leaving
        shape = grant.shape
        assert len(grant.resources) == len(shape.requirements)
        for name, requirement in zip(grant.resources, shape.requirements, strict=True):
            assert name in self.fitting(requirement, free), f"{name} is not free or not right"
            for other in grant.resources:
                assert other not in self.pool.ancestors(name)
        assert len(set(grant.resources)) == len(grant.resources)
        hosts = {name.partition(".")[0] for name in grant.resources}
        assert not shape.same_host or len(hosts) == 1
        self.judge_memory(grant)
        self.judge_turn(grant)
        ages.pop(0)
        units = sum(self.pool.leaves(name) for name in grant.resources)
        self.grants[grant.grant_id] = Live(grant, self.now, units)
        self.sent.setdefault(grant.job, []).append(grant)

    def judge_memory(self, grant: Grant) -> None:
        host = grant.resources[0].partition(".")[0]
        needed = sizes(grant.shape)
        assert len(grant.memories) == len(needed)
        mine: list[tuple[str, int, int]] = []
        for (memory, offset), size in zip(grant.memories, needed, strict=True):
            assert 0 <= offset <= self.pool.memories(host)[memory] - size
            mine.append((memory, offset, size))
        others = [(p[0], p[1], n) for live in self.grants.values() for p, n in live.memories]
        for index, (memory, offset, size) in enumerate(mine):
            for other, start, length in (*others, *mine[:index]):
                assert other != memory or offset + size <= start or start + length <= offset, "memory twice"

    def judge_turn(self, grant: Grant) -> None:
        """Of those who take any of the class, the job with least for its weight comes first, then age."""
        if not is_plain(grant.shape) or self.rm.status()["reserved"]:
            return
        mine = self.ratio(grant.job)
        for (job, shape), ages in self.ages.items():
            if not ages or not is_plain(shape) or shape.requirements != grant.shape.requirements:
                continue
            if job == grant.job:
                assert self.ages[job, grant.shape][0] <= ages[0], "an older one of the job waits"
            else:
                assert mine <= self.ratio(job), f"{job} holds less for its weight"

    def on_Recall(self, recall: Recall, event: Any) -> None:
        waiting = {key for key, ages in self.ages.items() if ages}
        for grant_id in recall.grant_ids:
            live = self.grants[grant_id]
            assert live.job == recall.job
            assert not live.recalled
            assert live.lease_until is None
            live.recalled = True
            if isinstance(event, Removed):
                continue
            assert self.now >= live.since + self.limits.recall_after_s
            assert waiting - {(live.job, live.shape)} or self.rm.status()["reserved"]

    def on_Refuse(self, refuse: Refuse, event: Any) -> None:
        ages = self.ages[refuse.job, refuse.shape]
        assert ages
        ages.clear()
        if refuse.kind == "interrupted":
            assert isinstance(event, Interrupt)
            return
        assert not self.coming
        assert not refuse.shape.wait
        assert self.solution(refuse.shape, set(self.pool.there), empty=True) is None, refuse.reason

    def on_Lapsed(self, lapsed: Lapsed, event: Any) -> None:
        assert isinstance(event, Removed)
        for grant_id in lapsed.grant_ids:
            self.lapsed.add(grant_id)

    def on_Revoke(self, revoke: Revoke, _event: Any) -> None:
        live = self.grants[revoke.grant_id]
        assert live.left == set(revoke.resources)
        assert live.lease_until is None
        live.lease_until = self.now + self.limits.lease_s

    def on_GrantChanged(self, record: GrantChanged, event: Any) -> None:
        live = self.grants[record.grant_id]
        if record.held:
            assert live.left == set(record.resources)
            return
        names = set(record.resources)
        assert names <= live.left
        if isinstance(event, Tick):
            assert live.lease_until is not None
            assert live.lease_until <= self.now
            for name in names:
                self.pool.lost_below |= self.pool.ancestors(name)
        live.units -= sum(self.pool.leaves(name) for name in names)
        live.left -= names
        if not live.left:
            del self.grants[record.grant_id]
            self.over[record.grant_id] = live.job

    def on_ResourceChanged(self, record: ResourceChanged, _event: Any) -> None:
        if record.state == "removed":
            name = record.resource_id
            assert name not in self.held()
            del self.pool.there[name]
            self.pool.lost_below.discard(name)
            self.leaving.discard(name)

    # Rules --------------------------------------------------------------------------------------------------

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
        names = {name} | self.pool.descendants(name)
        if whole:
            host = name.partition(".")[0]
            names = {other for other in self.pool.there if other.startswith(host + ".")}
        in_use = {n for n in names if self.pool.related(n) & self.held()}
        lapsing = {g for g, live in self.grants.items() if live.left & names and live.lease_until is None}
        event = Removed((name,) if not whole else tuple(sorted(names)), policy)
        if policy == "refuse" and in_use:
            try:
                self.rm.handle(event, self.now)
            except ResourceHeld:
                return
            raise AssertionError("removed what is in use")
        if policy == "lose":
            before = set(self.lapsed)
            self.send(event)
            assert self.lapsed - before == lapsing
            assert not names & set(self.pool.there)
        else:
            self.leaving |= names
            self.send(event)

    @rule(job=st.sampled_from(sorted(JOBS)))
    def join(self, job: str) -> None:
        if job not in self.jobs:
            self.jobs.add(job)
            self.send(JobJoined(job, JOBS[job]))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), credit=st.integers(0, 4))
    def demand(self, data: st.DataObject, credit: int) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        used = sorted((shape for owner, shape in self.ages if owner == job), key=repr)
        shape = (
            data.draw(st.sampled_from(used) | shapes(self.known)) if used else data.draw(shapes(self.known))
        )
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

    @precondition(lambda self: any(live.lease_until is None for live in self.grants.values()))
    @rule(data=st.data(), part=st.booleans())
    def release(self, data: st.DataObject, part: bool) -> None:
        grant_id = data.draw(
            st.sampled_from(sorted(g for g, v in self.grants.items() if v.lease_until is None))
        )
        live = self.grants[grant_id]
        sent = self.sent.get(live.job, [])
        while sent and sent[0].grant_id <= grant_id:
            self.received[live.job] = sent.pop(0).grant_id
        names: tuple[str, ...] = ()
        if part:
            names = tuple(data.draw(st.lists(st.sampled_from(sorted(live.left)), unique=True)))
        self.send(Release(live.job, grant_id, names))

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        self.send(Interrupt(job))
        assert not any(ages for (owner, _), ages in self.ages.items() if owner == job)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), fenced=st.booleans())
    def die(self, data: st.DataObject, fenced: bool) -> None:
        job = data.draw(st.sampled_from(sorted(self.jobs)))
        self.jobs.discard(job)
        mine = {g for g, live in self.grants.items() if live.job == job and live.lease_until is None}
        for key in [key for key in self.ages if key[0] == job]:
            del self.ages[key]
        self.sent.pop(job, None)
        self.received.pop(job, None)
        actions = self.send(JobGone(job, fenced))
        revoked = {action.grant_id for action in actions if isinstance(action, Revoke)}
        assert revoked == (set() if fenced else mine)
        assert fenced <= (not mine & set(self.grants))

    @precondition(lambda self: any(live.lease_until is not None for live in self.grants.values()))
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        lapsing = sorted(g for g, live in self.grants.items() if live.lease_until is not None)
        grant_id = data.draw(st.sampled_from(lapsing))
        names = data.draw(st.lists(st.sampled_from(sorted(self.grants[grant_id].left)), unique=True))
        self.send(Revoked(grant_id, tuple(names)))

    @rule(coming=st.booleans())
    def expect(self, coming: bool) -> None:
        self.coming = coming
        self.send(Coming({"core": 1}) if coming else Settled())

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

    # At rest ------------------------------------------------------------------------------------------------

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "rm"):
            return
        self.rm.check()
        status = self.rm.status()
        self.judge_counts(status)
        demand: dict[str, int] = {}
        for job in self.jobs:
            for text, unmet in status["jobs"][job]["demand"].items():
                demand[job + text] = unmet
        texts: dict[str, int] = {}
        for (job, shape), ages in self.ages.items():
            if ages:
                texts[job + str(shape)] = texts.get(job + str(shape), 0) + len(ages)
        assert set(demand) == set(texts)
        self.judge_idleness(status)
        for job in self.jobs:
            waiting = [shape for (owner, shape), ages in self.ages.items() if owner == job and ages]
            explained = self.rm.explain(job)
            assert sorted(str(s) for s in waiting) == sorted(e["shape"] for e in explained)
            assert all(entry["reason"] and entry["place"] >= 1 for entry in explained)

    def judge_counts(self, status: dict[str, Any]) -> None:
        free, held = self.free(), self.held()
        for name in {r.resource_class for r in self.pool.there.values()} | set(status["classes"]):
            members = {n for n, r in self.pool.there.items() if r.resource_class == name}
            if not members and name not in status["classes"]:
                continue
            assert status["classes"][name] == {
                "total": len(members),
                "free": len(members & free),
                "held": len(members & held),
                "blocked": len(members - free - held),
            }

    def judge_idleness(self, status: dict[str, Any]) -> None:
        """Nobody waits for what is free, except for what he prefers; nor for the impossible."""
        free, closed = self.free(), self.closed()
        reserved = status["reserved"]
        for (job, shape), ages in self.ages.items():
            if not ages:
                continue
            among = free - closed
            first = shape.requirements[0]
            if (
                is_preferring(shape)
                and self.now < ages[0] + self.limits.patience_s
                and self.preferred_there(first)
            ):
                hard = Requirement(first.resource_class, first.preferences, True)
                assert not self.fitting(hard, among), f"{job} waits for {shape}, which it prefers and is free"
                continue
            found = self.solution(shape, among, empty=False)
            assert found is None, f"{job} waits for {shape} while {found} are free"
            if not self.coming and not shape.wait:
                assert self.solution(shape, set(self.pool.there), empty=True) is not None, (
                    f"{shape} is impossible"
                )
        if reserved:
            owner = reserved["job"]
            assert any(job == owner and ages for (job, _), ages in self.ages.items())


def is_plain(shape: Shape) -> bool:
    return len(shape.requirements) == 1 and not shape.requirements[0].preferences and not sizes(shape)


def is_preferring(shape: Shape) -> bool:
    first = shape.requirements[0]
    return len(shape.requirements) == 1 and bool(first.preferences) and not first.hard and not sizes(shape)


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
