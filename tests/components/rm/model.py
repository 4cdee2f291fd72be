"""A naive model of the resource manager: nothing is kept that could be computed from what was said."""

from __future__ import annotations

from itertools import product

from attrs import evolve
from msgspec.structs import replace

from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.rm.state import Limits
from gspc_trio.core.ids import NO_GRANT, GrantId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Requirement, Shape

JOBS = {"a": 1.0, "b": 2.0, "c": 0.5}


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

    def features(self, name: str) -> set[str]:
        host = name.partition(".")[0] + "."
        return {each for r in self.there.values() if r.resource_id.startswith(host) for each in r.features}

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
        self.orphaned = False
        self.robbed = False
        self.lease_until: float | None = None


def sizes(shape: Shape) -> list[int]:
    return [size for size in (shape.memory_bytes, *shape.memories) if size]


def is_plain(shape: Shape) -> bool:
    first = shape.requirements[0]
    return len(shape.requirements) == 1 and not (first.preferences or first.features or sizes(shape))


def is_preferring(shape: Shape) -> bool:
    first = shape.requirements[0]
    alone = len(shape.requirements) == 1 and not first.features and not sizes(shape)
    return alone and bool(first.preferences) and not first.hard


class Model:
    """What has been said and granted so far, and what is so by definition."""

    limits = Limits(recall_after_s=0.05, reserve_after_s=0.5, patience_s=0.1, lease_s=6.0)

    def begin(self, placement: str) -> None:
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
        self.coming: tuple[Resource, ...] | None = ()
        self.known: list[str] = []
        self.idle: dict[str, float] = {}
        self.declined: dict[tuple[str, Shape], float] = {}
        self.hasty: set[tuple[str, Shape]] = set()
        self.last: GrantId = NO_GRANT

    # What is so, by definition ------------------------------------------------------------------------------

    def held(self) -> set[str]:
        return {name for live in self.grants.values() for name in live.left}

    def free(self) -> set[str]:
        blocked: set[str] = set(self.pool.lost_below)
        for name in self.held():
            blocked |= self.pool.related(name)
        return set(self.pool.there) - blocked

    def usable(self) -> set[str]:
        """What could be given if nothing were held: work may still run below the rest."""
        return set(self.pool.there) - self.pool.lost_below

    def closed(self) -> set[str]:
        reserved = self.rm.status().reserved
        names = set(self.leaving) | set(reserved.resources if reserved else ())
        return {other for name in names if name in self.pool.there for other in self.pool.related(name)}

    def ratio(self, job: str) -> float:
        mine = [live.units for live in self.grants.values() if live.job == job and not live.orphaned]
        return sum(mine) / JOBS[job]

    def fitting(self, requirement: Requirement, among: set[str]) -> list[str]:
        names = [
            n for n in self.pool.there if self.pool.there[n].resource_class == requirement.resource_class
        ]
        if requirement.hard:
            wanted = {p for p in requirement.preferences if p in self.pool.there}
            names = [n for n in names if n in wanted or wanted & self.pool.ancestors(n)]
        names = [n for n in names if self.pool.features(n) >= set(requirement.features)]
        return [n for n in names if n in among]

    def preferred_there(self, requirement: Requirement) -> list[str]:
        hard = evolve(requirement, hard=True)
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

    def patience_of(self, requirement: Requirement) -> float:
        if requirement.hard or not self.preferred_there(requirement):
            return 0.0
        return self.limits.patience_s if requirement.patience_s is None else requirement.patience_s

    def insisting(self, shape: Shape, start: float, now: float) -> Shape | None:
        """What someone waits for who has declined others since ``start``; None: for anything that will do.

        What does not go together with the preferences before it is not insisted on.
        """
        found = None
        for position, requirement in enumerate(shape.requirements):
            if now >= start + self.patience_of(requirement):
                continue
            needs = list((found or shape).requirements)
            needs[position] = evolve(requirement, hard=True)
            strict = replace(shape, requirements=tuple(needs))
            if is_preferring(shape) or self.solution(strict, self.usable(), empty=True) is not None:
                found = strict
        return found

    def alone(self, shape: Shape, resources: tuple[Resource, ...], there: bool) -> bool:
        """Whether these resources, alone or with what is there, could meet the shape."""
        before, lost = self.pool.there, self.pool.lost_below
        self.pool.there = {**(before if there else {}), **{one.resource_id: one for one in resources}}
        self.pool.lost_below = lost if there else set()
        found = self.solution(shape, self.usable(), empty=True)
        self.pool.there, self.pool.lost_below = before, lost
        return found is not None

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
