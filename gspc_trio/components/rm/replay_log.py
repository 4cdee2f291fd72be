"""What a run-time system keeps in mind of a resource manager that runs elsewhere (RTS-4).

All that is said between them passes through here. When the connection is lost, either end may have lost what
it had; the resource manager then begins anew, with a higher epoch, and is told what there is, what is held,
and what is wanted. Grants that it had given and that did not arrive are used by nobody, and are free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.rm.events import (
    Added,
    Claimed,
    Coming,
    JobGone,
    JobJoined,
    JobWeighed,
    Removed,
    Rested,
    Resumed,
    RmEvent,
    Settled,
)
from gspc_trio.components.rm.messages import (
    Checkpoint,
    Demand,
    Grant,
    Interrupt,
    Lapsed,
    Refuse,
    Release,
    Revoke,
    Revoked,
)
from gspc_trio.core.ids import NO_GRANT, GrantId, JobId, ResourceId, host_name
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Requirement, Shape

ENDING = "(ending)"
"""In the name of this job grants are claimed that were revoked, and of which some work may still run."""


class _Wanted(Struct):
    """A demand of a job, and the grants for it that have come since."""

    demand: Demand
    sent: deque[GrantId] = field(default_factory=deque)

    @property
    def left(self) -> int:
        """How many grants more it can use."""
        return self.demand.credit - len(self.sent)


class _Job(Struct):
    """A job that has joined: what it wants and holds."""

    joined: JobJoined
    wants: dict[Shape, _Wanted] = field(default_factory=dict)
    grants: dict[GrantId, Grant] = field(default_factory=dict)


class ReplayLog:
    """Follows both directions; :meth:`replay` says what a resource manager has to be told that begins anew.

    Attributes:
        epoch: the highest of which grants are known.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch: int = epoch
        self._jobs: dict[JobId, _Job] = {}
        self._hosts: dict[str, tuple[str, dict[ResourceId, Resource]]] = {}
        self._newest: dict[ResourceId, GrantId] = {}
        self._ending: dict[GrantId, Grant] = {}
        self._resting: dict[ResourceId, None] = {}
        self._leaving: dict[ResourceId, None] = {}
        self._coming: dict[str, Coming] = {}
        self._asked: list[Added | Removed] = []

    def newest_given(self, resource_id: ResourceId, grant_id: GrantId) -> GrantId:
        """Return the newest grant of a resource that was given, or ``grant_id`` if that cannot be known."""
        return self._newest.get(resource_id, NO_GRANT) if grant_id[0] == self.epoch else grant_id

    @property
    def hosts(self) -> Mapping[str, tuple[str, Mapping[ResourceId, Resource]]]:
        """The hosts whose resources it has taken in: id -> (name for people, resources)."""
        return self._hosts

    @property
    def asked(self) -> Sequence[Added | Removed]:
        """What it has been asked to take in or to remove, and has not answered yet."""
        return self._asked

    @property
    def resting(self) -> Set[ResourceId]:
        """Of which nothing is to be given out now, or that are to go when they are free."""
        return self._resting.keys() | self._leaving.keys()

    @property
    def ending(self) -> Iterable[GrantId]:
        """Grants that were revoked, and of which some work may still run."""
        return self._ending.keys()

    def held(self) -> Iterator[ResourceId]:
        """Yield all resources in use."""
        for job in self._jobs.values():
            for grant in job.grants.values():
                yield from grant.resources
        for grant in self._ending.values():
            yield from grant.resources

    def holder(self, grant_id: GrantId) -> JobId:
        """Return which job holds a grant, "" if none does any more."""
        return next((name for name, job in self._jobs.items() if grant_id in job.grants), "")

    def unmet(self) -> Iterator[tuple[JobId, Demand, int]]:
        """Yield each demand that is not met, and how many grants it lacks."""
        for name, job in self._jobs.items():
            for wanted in job.wants.values():
                if wanted.left > 0:
                    yield name, wanted.demand, wanted.left

    def weight(self, job: JobId) -> float:
        """Return the share of a job that has joined."""
        return self._jobs[job].joined.weight

    def newest_of(self, host: str) -> dict[ResourceId, GrantId]:
        """Return the newest grant of each resource of a host of which there was one."""
        there = self._hosts.get(host, ("", {}))[1]
        return {name: self._newest[name] for name in there if name in self._newest}

    def note_newest(self, newest: Mapping[ResourceId, GrantId]) -> None:
        """Note what others have given of resources that this one gets."""
        self._newest.update(newest)

    def unask(self, event: Removed) -> None:
        """Forget that it was asked to remove something: it will not answer any more."""
        self._asked.remove(event)

    # Towards the resource manager ---------------------------------------------------------------------------

    def said(self, event: RmEvent) -> None:
        """Note what the resource manager is told, whether or not it hears it."""
        if isinstance(event, Demand):
            self._demanded(event)
        elif isinstance(event, Release):
            self._released(event)
        elif isinstance(event, Revoked):
            self._subtract(event.grant_id, event.resources)
        elif isinstance(event, Added | Removed):
            self._asked.append(event)
        elif isinstance(event, Coming):
            self._coming[event.name] = event
        elif isinstance(event, Settled):
            self._coming.pop(event.name, None)
        elif isinstance(event, Rested):
            self._resting.update(dict.fromkeys(event.resource_ids))
        elif isinstance(event, Resumed):
            for name in event.resource_ids:
                self._resting.pop(name, None)
        else:
            self._told_of_job(event)

    def _told_of_job(self, event: RmEvent) -> None:
        if isinstance(event, JobJoined):
            self._jobs[event.job] = _Job(event)
        elif isinstance(event, JobWeighed) and event.job in self._jobs:
            job = self._jobs[event.job]
            priority = job.joined.priority if event.priority is None else event.priority
            placement = job.joined.placement if event.placement is None else event.placement
            job.joined = JobJoined(event.job, event.weight, priority, placement)
        elif isinstance(event, Interrupt) and event.job in self._jobs:
            self._jobs[event.job].wants.clear()
        elif isinstance(event, Claimed) and event.job in self._jobs:
            job = self._jobs[event.job]
            if event.whole:
                job.wants.clear()
                job.grants.clear()
            for grant in event.grants:
                job.grants.setdefault(grant.grant_id, grant)
        elif isinstance(event, JobGone) and event.job in self._jobs:
            job = self._jobs.pop(event.job)
            if not event.fenced:
                self._ending.update(job.grants)

    def _demanded(self, demand: Demand) -> None:
        job = self._jobs.get(demand.job)
        if job is None:
            return
        wanted = job.wants.get(demand.shape)
        if wanted is None:
            if demand.credit:
                job.wants[demand.shape] = _Wanted(demand)
            return
        wanted.demand = demand
        while wanted.sent and wanted.sent[0] <= demand.seen:
            wanted.sent.popleft()
        if not demand.credit:
            del job.wants[demand.shape]

    def _released(self, release: Release) -> None:
        job = self._jobs.get(release.job)
        grant = None if job is None else job.grants.pop(release.grant_id, None)
        if job is not None and grant is not None and release.resources:
            rest = _without(grant, release.resources)
            if rest is not None:
                job.grants[rest.grant_id] = rest

    def _subtract(self, grant_id: GrantId, names: Iterable[ResourceId]) -> None:
        """Of a grant that was revoked nothing runs on these any more."""
        grant = self._ending.pop(grant_id, None)
        rest = None if grant is None else _without(grant, names)
        if rest is not None:
            self._ending[grant_id] = rest

    # From the resource manager ------------------------------------------------------------------------------

    def heard(self, word: Grant | Refuse | Lapsed | Revoke) -> None:
        """Note what the resource manager says of grants."""
        if isinstance(word, Revoke):
            known = self._ending.get(word.grant_id)
            shape = Shape(()) if known is None else known.shape
            whole = Grant(ENDING, shape, word.grant_id, word.resources) if known is None else known
            self._ending[word.grant_id] = whole
            return
        job = self._jobs.get(word.job)
        if job is None:
            return
        if isinstance(word, Grant):
            job.grants[word.grant_id] = word
            self._newest.update(dict.fromkeys(word.resources, word.grant_id))
            self.epoch = max(self.epoch, word.grant_id[0])
            if word.shape in job.wants:
                job.wants[word.shape].sent.append(word.grant_id)
        elif isinstance(word, Refuse):
            job.wants.pop(word.shape, None)
        else:
            for grant_id in word.grant_ids:
                job.grants.pop(grant_id, None)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take what the resource manager says that all jobs hold and wait for in place of what was noted."""
        told = {one.job: one for one in checkpoint.jobs}
        self._newest.update(checkpoint.given)
        for name, job in self._jobs.items():
            job.wants.clear()
            job.grants.clear()
            one = told.get(name)
            if one is None:
                continue
            for grant in one.grants:
                job.grants[grant.grant_id] = grant
                self._newest.update(dict.fromkeys(grant.resources, grant.grant_id))
            for demand, sent in zip(one.demands, one.sent, strict=True):
                job.wants[demand.shape] = _Wanted(demand, deque(sent))

    def answered(self, event: Added | Removed, refusal: str) -> bool:
        """Note that it has taken resources, or what is to go, or would not; return whether it was asked."""
        if event not in self._asked:
            return False  # what was told again
        self._asked.remove(event)
        if isinstance(event, Removed):
            if event.policy == "wait" and not refusal:
                self._leaving.update(dict.fromkeys(event.resource_ids))
        elif not refusal:
            name = host_name(event.resources[0].resource_id)
            there = self._hosts.setdefault(name, (event.host, {}))[1]
            there.update((resource.resource_id, resource) for resource in event.resources)
        return True

    def left(self, names: Iterable[ResourceId]) -> None:
        """Note that it has these resources no more."""
        gone = set(names)
        for name in gone:
            host = self._hosts.get(host_name(name))
            if host is not None:
                host[1].pop(name, None)
                if not host[1]:
                    del self._hosts[host_name(name)]
            self._newest.pop(name, None)
            self._leaving.pop(name, None)
            self._resting.pop(name, None)
        for grant_id in list(self._ending):
            self._subtract(grant_id, gone)

    # To one that begins anew --------------------------------------------------------------------------------

    def replay(self) -> list[RmEvent]:
        """Return what to tell it, in this order."""
        told: list[RmEvent] = [job.joined for job in self._jobs.values()]
        told += [Claimed(name, tuple(job.grants.values()), whole=True) for name, job in self._jobs.items()]
        if self._ending:
            ending = [self._shaped(grant) for grant in self._ending.values()]
            told += [JobJoined(ENDING), Claimed(ENDING, tuple(ending))]
        told += [Added(tuple(there.values()), label) for label, there in self._hosts.values()]
        if self._resting:
            told.append(Rested(tuple(self._resting)))
        if self._leaving:
            told.append(Removed(tuple(self._leaving), "wait"))
        told += self._coming.values()
        told += self._asked
        if self._ending:  # after all hosts, also those that nobody has answered for: it claims nothing later
            told.append(JobGone(ENDING))
        for job in self._jobs.values():
            for wanted in job.wants.values():
                if wanted.left > 0:
                    told.append(replace(wanted.demand, credit=wanted.left, seen=NO_GRANT))
        return told

    def _shaped(self, grant: Grant) -> Grant:
        """Return a grant that was revoked, with a shape of as many requirements as it has resources."""
        known = [self._resource(name) for name in grant.resources]
        classes = ["node" if one is None else one.resource_class for one in known]
        return Grant(ENDING, Shape(tuple(map(Requirement, classes))), grant.grant_id, grant.resources)

    def _resource(self, name: ResourceId) -> Resource | None:
        host = self._hosts.get(host_name(name))
        if host is not None and name in host[1]:
            return host[1][name]
        asked = (r for one in self._asked if isinstance(one, Added) for r in one.resources)
        return next((resource for resource in asked if resource.resource_id == name), None)


def _without(grant: Grant, names: Iterable[ResourceId]) -> Grant | None:
    """Return what is left of a grant without these resources, None if nothing is."""
    gone = set(names)
    kept = [number for number, name in enumerate(grant.resources) if name not in gone]
    if not kept:
        return None
    needs = grant.shape.requirements
    shape = grant.shape
    if len(needs) == len(grant.resources):
        shape = replace(shape, requirements=tuple(needs[number] for number in kept))
    return replace(grant, shape=shape, resources=tuple(grant.resources[number] for number in kept))
