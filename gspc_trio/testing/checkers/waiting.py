"""State of the requests that wait for resources: the ground on which turns are judged."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from gspc_trio.components.rm.events import Claimed, JobGone, JobJoined, JobWeighed, RmAction, RmEvent
from gspc_trio.components.rm.messages import Demand, Grant, Interrupt, Refuse
from gspc_trio.core.ids import GrantId, JobId, ResourceId
from gspc_trio.core.task import Shape
from gspc_trio.testing.checkers.base import Family
from gspc_trio.testing.checkers.grants import Grants

Key: TypeAlias = tuple[JobId, Shape]

Turn: TypeAlias = tuple[int, float, int, float]


class Waiting:
    """The demands at one resource manager, from what it hears and says.

    Args:
        family: of the resources.
        grants: who holds what; it has seen each event before.

    Attributes:
        since: of those who wait: when each credit that no grant has used came, the oldest first.
    """

    def __init__(self, family: Family, grants: Grants) -> None:
        self._family = family
        self._grants = grants
        self._jobs: dict[JobId, JobJoined] = {}
        self._weights: dict[JobId, float] = {}
        self._priorities: dict[Key, int] = {}
        self._units: dict[tuple[GrantId, ResourceId], int] = {}
        self._held_since: dict[GrantId, float] = {}
        self._key_of: dict[GrantId, Key] = {}
        self.since: dict[Key, deque[float]] = {}

    def take(self, event: RmEvent, now: float, actions: Sequence[RmAction]) -> None:
        """An event begins: what it asks for waits from now on; what was given follows one by one."""
        if type(event) is Demand:
            key = (event.job, event.shape)
            self._priorities[key] = event.priority
            given = sum(1 for action in actions if type(action) is Grant and action.shape == event.shape)
            self._wait(key, self._grants.credit(key) + given, now)
        elif type(event) is JobJoined:
            self._jobs[event.job], self._weights[event.job] = event, event.weight
        elif type(event) is JobWeighed:
            self._weights[event.job] = event.weight
            if event.priority is not None and event.job in self._jobs:
                self._jobs[event.job] = replace(self._jobs[event.job], priority=event.priority)
        elif type(event) is JobGone or type(event) is Interrupt or (type(event) is Claimed and event.whole):
            for key in [key for key in self.since if key[0] == event.job]:
                del self.since[key]
        for action in actions:
            if type(action) is Refuse:
                self.since.pop((action.job, action.shape), None)
        self._forget()

    def _wait(self, key: Key, credit: int, now: float) -> None:
        since = self.since.get(key, deque())
        while len(since) > credit:
            since.pop()
        since.extend([now] * (credit - len(since)))
        if since:
            self.since[key] = since
        else:
            self.since.pop(key, None)

    def _forget(self) -> None:
        live = self._grants.live
        for over in [grant_id for grant_id in self._held_since if grant_id not in live]:
            del self._held_since[over]
            self._key_of.pop(over, None)
        for name in [one for one in self._units if one[0] not in live or one[1] not in live[one[0]].left]:
            del self._units[name]

    def given(self, grant: Grant, now: float) -> None:
        """A grant has used the oldest credit of its demand."""
        key = (grant.job, grant.shape)
        since = self.since.get(key)
        if since:
            since.popleft()
            if not since:
                del self.since[key]
        self._key_of[grant.grant_id] = key
        self._note(grant.grant_id, grant.resources, now)

    def took_back(self, now: float) -> None:
        """Note what a job has claimed that an earlier resource manager gave."""
        for grant_id, live in self._grants.live.items():
            if grant_id not in self._held_since:
                self._note(grant_id, tuple(live.left), now)

    def _note(self, grant_id: GrantId, names: tuple[ResourceId, ...], now: float) -> None:
        self._held_since[grant_id] = now
        for name in names:
            self._units[grant_id, name] = self._family.units(name, self._grants.there)

    def held_since(self, grant_id: GrantId) -> float:
        """Return when a grant was given or claimed."""
        return self._held_since[grant_id]

    def demand_of(self, grant_id: GrantId) -> Key | None:
        """Return which demand a grant has answered; None for one that was claimed."""
        return self._key_of.get(grant_id)

    def units_of_grant(self, grant_id: GrantId) -> int:
        """Return how many leaves of the hierarchy a grant holds."""
        live = self._grants.live[grant_id]
        return sum(self._units.get((grant_id, name), 0) for name in live.left)

    def units(self, job: JobId, shape: Shape | None = None) -> int:
        """Return how many leaves a job holds, or those of its grants of one shape."""
        return sum(
            self.units_of_grant(grant_id)
            for grant_id, live in self._grants.live.items()
            if live.job == job and (shape is None or self._key_of.get(grant_id) == (job, shape))
        )

    def weight(self, job: JobId) -> float:
        """Return a job's weight."""
        return self._weights.get(job, 1.0)

    def priority_of_job(self, job: JobId) -> int:
        """Return a job's priority."""
        return self._jobs[job].priority if job in self._jobs else 0

    def priority(self, key: Key) -> int:
        """Return the priority of a demand among those of its job."""
        return self._priorities.get(key, 0)

    def turn(self, key: Key, since_s: float) -> Turn:
        """Return whose turn comes first: the lowest."""
        job, ratio = key[0], self.units(key[0]) / self.weight(key[0])
        return -self.priority_of_job(job), ratio, -self.priority(key), since_s

    def is_single(self, shape: Shape) -> bool:
        """Whether one resource that contains no other is wanted, and no memory."""
        return len(shape.requirements) == 1 and not (shape.memory_bytes or shape.memories)

    def takes_any(self, key: Key) -> bool:
        """Whether any one resource of a class whose resources contain no others will do."""
        first = key[1].requirements[0]
        simple = self.is_single(key[1]) and not first.preferences and not first.is_bound
        return simple and self._family.is_leaf_class(first.resource_class)
