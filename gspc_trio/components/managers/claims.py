"""Optimistic sharing (ASP-11): all managers see all hosts, and a claim that comes too late is refused."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from random import Random

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.managers.members import Managers, Member
from gspc_trio.components.managers.messages import (
    JobWords,
    ManagerClaim,
    ManagerDown,
    ManagerSaid,
    ManagerUp,
    ManagerWords,
    TellManager,
)
from gspc_trio.components.rm.claims import TAKEN
from gspc_trio.components.rm.events import (
    Added,
    Awaited,
    Coming,
    GivenElsewhere,
    JobGone,
    JobJoined,
    JobWeighed,
    Overruled,
    Removed,
    Rested,
    Resumed,
    RmEvent,
    Settled,
)
from gspc_trio.components.rm.messages import (
    Demand,
    Grant,
    GrantsAhead,
    Interrupt,
    Lapsed,
    Offence,
    Recall,
    Refuse,
    Release,
    Revoke,
    Revoked,
)
from gspc_trio.components.rm.replay_log import ReplayLog
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.core.allocator import Allocator
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId, host_name
from gspc_trio.core.machine import IllegalEvent, Tick, handles
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Shape
from gspc_trio.records.facts import GrantChanged, ResourceChanged

JITTER_FROM = 3
"""From so many conflicts on, one after the other, a request pauses before it chooses again."""

JITTER_S = 0.005
"""Longest first pause; each further one may be twice as long."""

JITTER_MAX_S = 0.5
"""Longest pause."""

Key = tuple[JobId, Shape]


class _View(Struct, eq=False):
    """What a manager has seen.

    Attributes:
        told: number of events that it was told.
        news: of those that it may not have taken yet: number of the event, version after it.
        version: that it had seen when it made its last claim.
    """

    told: int = 0
    news: deque[tuple[int, int]] = field(default_factory=deque)
    version: int = 0

    def seen(self, told: int) -> int:
        """Return the version that a manager knew when it had taken so many events."""
        while self.news and self.news[0][0] <= told:
            self.version = self.news.popleft()[1]
        return self.version


class _Versions:
    """When each resource was last given, and by whom.

    The version counts what was given. A claim is stale if another manager was given one of its resources, or
    one that contains it or that it contains, after the version that the claim names.
    """

    def __init__(self) -> None:
        self.version: int = 0
        self.holders: dict[ResourceId, GrantId] = {}
        self._above: dict[ResourceId, tuple[ResourceId, ...]] = {}
        self._given: dict[ResourceId, dict[int, int]] = {}
        self._below: dict[ResourceId, dict[int, int]] = {}

    def __contains__(self, name: ResourceId) -> bool:
        return name in self._above

    def above(self, name: ResourceId) -> tuple[ResourceId, ...]:
        """Return what contains a resource."""
        return self._above.get(name, ())

    def add(self, event: Added) -> None:
        """These resources may be given."""
        for resource in event.resources:
            above: dict[ResourceId, None] = {}
            for parent in resource.parents:
                above.update(dict.fromkeys((parent, *self._above.get(parent, ()))))
            self._above[resource.resource_id] = tuple(above)

    def remove(self, names: Iterable[ResourceId]) -> None:
        """These may not."""
        for name in names:
            for known in (self._above, self._given, self._below, self.holders):
                known.pop(name, None)

    def is_fresh(self, number: int, names: Iterable[ResourceId], version: int) -> bool:
        """Whether nobody else was given one of these, or a relative, since a version."""
        for name in names:
            above = self._above.get(name)
            if above is None:
                return False
            for given in (self._given.get(name), self._below.get(name), *map(self._given.get, above)):
                if given is not None and any(at > version for by, at in given.items() if by != number):
                    return False
        return True

    def give(self, number: int, grant: Grant) -> None:
        """A manager has given these."""
        self.version += 1
        for name in grant.resources:
            self.holders[name] = grant.grant_id
            self._given.setdefault(name, {})[number] = self.version
            for above in self._above[name]:
                self._below.setdefault(above, {})[number] = self.version

    def free(self, grant_id: GrantId, names: Iterable[ResourceId]) -> None:
        """These are held under the grant no more."""
        for name in names:
            if self.holders.get(name) == grant_id:
                del self.holders[name]

    def holding(self, names: Iterable[ResourceId]) -> dict[GrantId, None]:
        """Return the grants on these resources and their relatives."""
        wanted = set(names)
        near = wanted.union(*(self._above.get(name, ()) for name in wanted))
        return {
            grant_id: None
            for name, grant_id in self.holders.items()
            if name in near or not wanted.isdisjoint(self._above[name])
        }


class _Memories:
    """Where which grant has pieces of memory."""

    def __init__(self) -> None:
        self._there: dict[ResourceId, Allocator] = {}
        self._taken: dict[GrantId, list[tuple[ResourceId, Allocator, int, int]]] = {}
        self._given: dict[ResourceId, dict[int, int]] = {}

    def add(self, event: Added, versions: _Versions) -> None:
        """These resources may be given; of those that offer memory the topmost one counts."""
        for resource in event.resources:
            above = versions.above(resource.resource_id)
            if resource.memory_bytes > 0 and not any(name in self._there for name in above):
                self._there[resource.resource_id] = Allocator(resource.memory_bytes)

    def remove(self, names: Iterable[ResourceId]) -> None:
        """These may not."""
        for name in names:
            self._there.pop(name, None)
            self._given.pop(name, None)

    def take(self, number: int, grant: Grant, version: int, new: int) -> bool:
        """Take the pieces of a grant, all or none; return whether that can be.

        They must be free, and no other manager was given anything of these memories since the version that
        this one had seen: when it hears of that, it gives up what it has there, even if it is free again.
        """
        if not grant.memories:
            return True
        for name, _ in grant.memories:
            if any(at > version for by, at in self._given.get(name, {}).items() if by != number):
                return False
        taken = self._taken[grant.grant_id] = []
        for name, offset, size_bytes in _pieces_of(grant):
            memory = self._there.get(name)
            if memory is None or not memory.allocate_at(offset, size_bytes):
                self.free(grant.grant_id)
                return False
            taken.append((name, memory, offset, size_bytes))
        for name, _ in grant.memories:
            self._given.setdefault(name, {})[number] = new
        return True

    def free(self, grant_id: GrantId) -> None:
        """The grant is over."""
        for _, memory, offset, _ in self._taken.pop(grant_id, ()):
            memory.free(offset)

    def holding(self, grant: Grant) -> set[GrantId]:
        """Return the grants that have something of the pieces of this one."""
        wanted = list(_pieces_of(grant))
        return {
            grant_id
            for grant_id, taken in (self._taken.items() if wanted else ())
            for name, _, at, bytes_there in taken
            for other, offset, size_bytes in wanted
            if name == other and at < offset + size_bytes and offset < at + bytes_there
        }


def _pieces_of(grant: Grant) -> Iterable[tuple[ResourceId, int, int]]:
    """Yield memory, offset and size of each piece of a grant."""
    sizes = [size for size in (grant.shape.memory_bytes, *grant.shape.memories) if size]
    for (name, offset), size_bytes in zip(grant.memories, sizes, strict=True):
        yield name, offset, size_bytes


class OptimisticManagers(Managers):
    """Decides between managers that all see all hosts: it takes a claim that is fresh, and refuses others.

    Each manager is told all but the demands of jobs that others serve. What it gives is a claim, which names
    what it had been told by then. A claim that is taken is a grant, of which all others are told. If it is
    refused, its manager is told who holds what it wanted, and chooses again.

    Args:
        count: how many managers there are, more than 1.
        epoch: of all grants.
        random: for the length of pauses.

    Attributes:
        claims, conflicts: how many there were, and how many of them were refused.
    """

    def __init__(self, count: int, epoch: int, random: Random) -> None:
        super().__init__(count, epoch)
        self.claims: int = 0
        self.conflicts: int = 0
        self._random = random
        self._log = ReplayLog(epoch)
        for member in self._members:
            member.noted = self._log
        self._views = [_View() for _ in self._members]
        self._versions = _Versions()
        self._memories = _Memories()
        self._live: dict[GrantId, Grant] = {}
        self._revoking: set[GrantId] = set()
        self._instead: dict[Removed, Removed] = {}
        self._lost: dict[Key, int] = {}
        self._again: dict[Key, float] = {}

    def deadline(self) -> float | None:
        """Return when the next request chooses again."""
        return min(self._again.values(), default=None)

    def newest_given(self, resource_id: ResourceId, grant_id: GrantId) -> GrantId:
        """See Managers."""
        return self._log.newest_given(resource_id, grant_id)

    def check(self) -> None:
        """Assert that nothing is in two grants, and that what is held is what is known of it."""
        given = {name: grant_id for grant_id, one in self._live.items() for name in one.resources}
        assert len(given) == sum(len(one.resources) for one in self._live.values()), "one is in two grants"
        assert self._versions.holders.items() <= given.items(), "somebody holds what nobody was given"
        assert self.why.keys() == self.job_of.keys()

    def _tell(self, number: int, event: RmEvent) -> None:
        """Tell one manager alone."""
        if self._members[number].is_up:
            self._views[number].told += 1
            self.actions.append(TellManager(number, event))

    def _tell_all(self, event: RmEvent, but: int = -1) -> None:
        for member in self._members:
            if member.number != but:
                self._tell(member.number, event)

    # What the run-time system and jobs say ------------------------------------------------------------------

    @handles(JobJoined)
    def _job_joined(self, event: JobJoined) -> None:
        if event.job in self.job_of:
            raise IllegalEvent(f"job {event.job} has joined already")
        self._log.said(event)
        self.job_of[event.job] = self._least_busy()
        self.why[event.job] = "it served the fewest jobs when the job came"
        self._tell_all(event)

    def _least_busy(self) -> int:
        members = [one.number for one in self._members if one.is_up] or [0]
        counts = [*self.job_of.values()]
        return min(members, key=lambda number: (counts.count(number), number))

    @handles(Demand, Interrupt)
    def _of_job(self, event: Demand | Interrupt) -> None:
        number = self._serving(event.job)
        self._log.said(event)
        self._tell(number, event)

    @handles(JobWords)
    def _job_said(self, event: JobWords) -> None:
        self._serving(event.job)
        for word in event.words:
            self._method_of[type(word)](self, word)

    @handles(Release)
    def _release(self, event: Release) -> None:
        self._serving(event.job)
        grant = self._live.get(event.grant_id)
        self._log.said(event)
        if grant is not None and grant.job == event.job:
            self._end(grant, event.resources or grant.resources)
        self._tell_all(event)

    @handles(JobGone)
    def _job_gone(self, event: JobGone) -> None:
        self._serving(event.job)
        self._log.said(event)
        del self.job_of[event.job], self.why[event.job]
        for key in [key for key in self._lost if key[0] == event.job]:
            del self._lost[key]
            self._again.pop(key, None)
        self._tell_all(event)

    @handles(Revoked)
    def _revoked(self, event: Revoked) -> None:
        if event.grant_id not in self._revoking:
            raise IllegalEvent(f"grant {event.grant_id} has not been revoked")
        self._log.said(event)
        grant = self._live.get(event.grant_id)
        if grant is not None:
            self._end(grant, event.resources)
        if event.grant_id not in self._live:
            self._revoking.discard(event.grant_id)
        self._tell_all(event)

    def _end(self, grant: Grant, names: Iterable[ResourceId]) -> None:
        """A part of a grant is over, or all of it."""
        gone = set(names)
        self._versions.free(grant.grant_id, gone)
        ended = tuple(name for name in grant.resources if name in gone)
        rest = tuple(name for name in grant.resources if name not in gone)
        if rest:
            self._live[grant.grant_id] = replace(grant, resources=rest)
        else:
            del self._live[grant.grant_id]
            self._memories.free(grant.grant_id)
        if ended:
            self.actions.append(GrantChanged(self.now, grant.job, grant.grant_id, ended, False))

    @handles(JobWeighed, Awaited, Coming, Settled, Rested, Resumed)
    def _to_all(self, event: JobWeighed | Awaited | Coming | Settled | Rested | Resumed) -> None:
        self._log.said(event)
        self._tell_all(event)

    @handles(Added)
    def _added(self, event: Added) -> None:
        self._log.said(event)
        self._versions.add(event)
        self._memories.add(event, self._versions)
        self._tell_all(event)

    @handles(Removed)
    def _removed(self, event: Removed) -> None:
        held = self._versions.holding(event.resource_ids) if event.policy == "refuse" else {}
        for grant_id in held:
            grant = self._live[grant_id]
            who = f"{grant.job} holds {', '.join(grant.resources)} under grant {grant_id}"
            self.actions.append(RmAnswered(event, f"{event.resource_ids[0]} cannot be removed: {who}"))
            return
        self._log.said(event)
        told = event
        if event.policy == "refuse":  # nobody has any of it: what is claimed of it comes too late
            told = Removed(event.resource_ids, "lose")
            self._instead[told] = event
        if told.policy == "lose":
            self._versions.remove(told.resource_ids)
            self._memories.remove(told.resource_ids)
        self._tell_all(told)

    # What managers say --------------------------------------------------------------------------------------

    @handles(ManagerSaid)
    def _heard(self, event: ManagerSaid) -> None:
        number, word = event.number, event.word
        if isinstance(word, ManagerWords):
            for _, words in word.by_job:
                for one in words:
                    self._heard(ManagerSaid(number, one))
        elif isinstance(word, ManagerClaim):
            self._claim(number, word)
        elif isinstance(word, Refuse | Offence):
            if self.job_of.get(word.job) == number:
                if isinstance(word, Refuse):
                    self._log.heard(word)
                self.actions.append(word)
        elif isinstance(word, Recall):
            known = tuple(one for one in word.grant_ids if one in self._live)
            if known and word.job in self.job_of:
                self.actions.append(Recall(word.job, known))
        elif isinstance(word, Lapsed) and word.reason != TAKEN:  # else this manager alone cannot hold it
            known = tuple(one for one in word.grant_ids if self._log.holder(one) == word.job)
            if known and word.job in self.job_of:
                self._log.heard(word)
                self.actions.append(Lapsed(word.job, known, word.reason))
        elif isinstance(word, Revoke):
            self._revoke(number, word)
        elif isinstance(word, ResourcesLeft):
            self._left(number, word)
        elif isinstance(word, RmAnswered):
            self._answered(word)
        elif isinstance(word, GrantsAhead):
            self._grants_ahead(word)

    def _claim(self, number: int, claim: ManagerClaim) -> None:
        """A manager wants to give resources, all or none."""
        grant = claim.grant
        self.claims += 1
        if self.job_of.get(grant.job) != number:
            self._overrule(number, grant)
            return
        names = sorted(grant.resources, key=host_name)
        key = (grant.job, grant.shape)
        version = self._views[number].seen(claim.seen)
        is_fresh = self._versions.is_fresh(number, names, version)
        if not is_fresh or not self._memories.take(number, grant, version, self._versions.version + 1):
            self.conflicts += 1
            self._overrule(number, grant)
            self._choose_again(number, key, grant.grant_id)
            return
        self._lost.pop(key, None)
        self._versions.give(number, grant)
        self._live[grant.grant_id] = grant
        self._log.heard(grant)
        self.note_newest(grant.grant_id)
        self.actions.append(grant)
        self.actions.append(GrantChanged(self.now, grant.job, grant.grant_id, grant.resources, True))
        for member in self._members:
            if member.number != number and member.is_up:
                self._tell(member.number, GivenElsewhere(grant))
                view = self._views[member.number]
                view.news.append((view.told, self._versions.version))

    def _overrule(self, number: int, grant: Grant) -> None:
        """Tell a manager that it has not given this, and who holds what it wanted."""
        holders = [*self._versions.holding(grant.resources), *sorted(self._memories.holding(grant))]
        self._tell(
            number,
            Overruled(grant.job, grant.grant_id, tuple(self._live[one] for one in dict.fromkeys(holders))),
        )

    def _choose_again(self, number: int, key: Key, grant_id: GrantId) -> None:
        times = self._lost[key] = self._lost.get(key, 0) + 1
        demand = self._demand(key, grant_id)
        if demand is None:
            return
        if times < JITTER_FROM:
            self._tell(number, demand)
        else:
            longest_s = min(JITTER_S * 2 ** (times - JITTER_FROM), JITTER_MAX_S)
            self._tell(number, replace(demand, credit=0))
            self._again[key] = self.now + self._random.uniform(0.0, longest_s)

    def _demand(self, key: Key, seen: GrantId) -> Demand | None:
        """Return what a job still wants of a shape, as the manager is to hear it again."""
        for job, demand, left in self._log.unmet():
            if (job, demand.shape) == key:
                return replace(demand, credit=left, seen=seen)
        return None

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        for key, at_s in list(self._again.items()):
            if at_s <= self.now:
                del self._again[key]
                demand = self._demand(key, NO_GRANT)
                if demand is not None:
                    self._tell(self._serving(key[0]), demand)

    def _revoke(self, number: int, word: Revoke) -> None:
        if word.grant_id not in self._live:  # it was not given, or is over
            self._tell(number, Revoked(word.grant_id, word.resources))
        elif word.grant_id not in self._revoking:
            self._revoking.add(word.grant_id)
            self._log.heard(word)
            self.actions.append(word)

    def _left(self, number: int, word: ResourcesLeft) -> None:
        """A manager has these no more: so nobody has."""
        there = self._log.hosts
        names = tuple(one for one in word.resource_ids if one in there.get(host_name(one), ("", {}))[1])
        if not names:
            return
        for name in names:
            label, resources = there[host_name(name)]
            self._note(resources[name], "removed", label)
        self._log.left(names)
        self._versions.remove(names)
        self._memories.remove(names)
        for grant in [one for one in self._live.values() if not set(names).isdisjoint(one.resources)]:
            self._end(grant, names)
        self.actions.append(ResourcesLeft(names))
        self._tell_all(Removed(names, "lose"), but=number)

    def _answered(self, word: RmAnswered) -> None:
        event = word.event
        if isinstance(event, Removed):
            event = self._instead.pop(event, event)
        if self._log.answered(event, word.refusal):
            self.actions.append(RmAnswered(event, word.refusal))
            if isinstance(event, Added) and not word.refusal:
                for resource in event.resources:
                    self._note(resource, "added", event.host)
            elif isinstance(event, Added):
                names = tuple(one.resource_id for one in event.resources)
                self._versions.remove(names)
                self._memories.remove(names)
                self._tell_all(Removed(names, "lose"))

    def _note(self, resource: Resource, state: str, label: str) -> None:
        name, kind = resource.resource_id, resource.resource_class
        self.actions.append(ResourceChanged(self.now, name, kind, state, label, resource.parents))

    # Managers that come and go ------------------------------------------------------------------------------

    @handles(ManagerUp)
    def _up(self, event: ManagerUp) -> None:
        member = self._members[event.number]
        if member.is_up:
            raise IllegalEvent(f"resource manager {event.number} is there already")
        member.is_up = True
        self._views[event.number] = _View(version=self._versions.version)
        for told in self._log.replay():
            if not isinstance(told, Demand):
                self._tell(event.number, told)
        for job, number in list(self.job_of.items()):
            if not self._members[number].is_up or number == event.number:
                self._serve(job, event.number)

    @handles(ManagerDown)
    def _down(self, event: ManagerDown) -> None:
        member: Member = self._members[event.number]
        if not member.is_up:
            return
        member.is_up = False
        member.losses += 1
        if any(one.is_up for one in self._members):
            for job in [job for job, number in self.job_of.items() if number == event.number]:
                self._serve(job, self._least_busy())
                self.why[job] = f"manager {event.number + 1}, which served it, was lost"

    def _serve(self, job: JobId, number: int) -> None:
        """A manager serves a job from now on."""
        self.job_of[job] = number
        for name, demand, left in list(self._log.unmet()):
            if name == job:
                self._tell(number, replace(demand, credit=left, seen=NO_GRANT))
