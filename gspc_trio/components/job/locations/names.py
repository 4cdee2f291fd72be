"""Names of what a run-time system has, in a job on several (GSPC19 3.5): ``there/r1.core0``.

Each run-time system has names of its own for jobs, resources and grants, and knows nothing of the others. A
job puts the name of the run-time system before the ids, and its number into the epoch of grants, so that
none is there twice; what it says to a run-time system is in the words of that again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from attrs import evolve
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import (
    Claims,
    GivenUp,
    HostEvacuated,
    HostRestricted,
    HostRests,
    OutsideEvent,
    ResourcesLost,
    ResourcesUp,
    Withheld,
)
from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import Grant, Lapsed, Recall, Release
from gspc_trio.components.rts.messages import LOCATIONS_MAX, Lend
from gspc_trio.components.worker.messages import (
    Begun,
    Cancel,
    Finished,
    FromTask,
    GetAttempt,
    Submit,
    TakeBack,
    ToTask,
)
from gspc_trio.core.ids import GrantId, JobId, ResourceId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Requirement, Shape

MARK = "/"
"""Between the name of a run-time system and an id."""

Change: TypeAlias = Callable[["Location", Any], Any]


def location_of(resource_id: ResourceId) -> str:
    """Return the name of the run-time system that has a resource, "" if the id does not say.

    >>> location_of("there/r1.core0"), location_of("r1.core0")
    ('there', '')
    """
    return resource_id.partition(MARK)[0] if MARK in resource_id else ""


class Location(Struct, frozen=True):
    """One of the run-time systems of a job.

    Attributes:
        name: which the user has given it.
        number: from 0, among those of the job.
        job: what the job is called in this process.
        job_there: and by the run-time system.
    """

    name: str
    number: int
    job: JobId
    job_there: JobId

    def id_here(self, resource_id: ResourceId) -> ResourceId:
        """Return the id of what the run-time system calls so."""
        return f"{self.name}{MARK}{resource_id}"

    def id_there(self, resource_id: ResourceId) -> ResourceId:
        """Return what the run-time system calls a resource."""
        return resource_id[len(self.name) + 1 :]

    def has(self, resource_id: ResourceId) -> bool:
        """Return whether it is of this run-time system."""
        return resource_id.startswith(f"{self.name}{MARK}")

    def grant_here(self, grant_id: GrantId) -> GrantId:
        """Return a grant of the run-time system as one of the job: in the same order."""
        return grant_id[0] * LOCATIONS_MAX + self.number, grant_id[1]

    def grant_there(self, grant_id: GrantId) -> GrantId:
        """Return what the run-time system calls a grant."""
        return grant_id[0] // LOCATIONS_MAX, grant_id[1]

    def shape_there(self, shape: Shape) -> Shape:
        """Return a shape as the run-time system is asked for it: with what is preferred of its own."""
        return replace(shape, requirements=tuple(map(self._requirement_there, shape.requirements)))

    def _requirement_there(self, one: Requirement) -> Requirement:
        if not one.preferences:
            return one
        own = tuple(self.id_there(name) for name in one.preferences if self.has(name))
        return evolve(one, preferences=own, hard=one.hard and bool(own))

    def inward(self, event: OutsideEvent) -> OutsideEvent:
        """Return what the run-time system or one of its hosts says, in the words of the job."""
        change = _INWARD.get(type(event))
        changed: OutsideEvent = event if change is None else change(self, event)
        return changed

    def outward(self, action: object) -> object:
        """Return what the job says to the run-time system or one of its hosts, in the words of that."""
        change = _OUTWARD.get(type(action))
        return action if change is None else change(self, action)

    def from_task(self, message: FromTask) -> FromTask:
        """Return what a task says that runs there."""
        return replace(message, job=self.job, resource_id=self.id_here(message.resource_id))

    def resource_here(self, one: Resource) -> Resource:
        """Return a resource of the run-time system as the job names it."""
        parents = tuple(map(self.id_here, one.parents))
        return replace(one, resource_id=self.id_here(one.resource_id), parents=parents)


def number_of(grant_id: GrantId) -> int:
    """Return the number of the run-time system that has given a grant of the job."""
    return grant_id[0] % LOCATIONS_MAX


def _all_here(at: Location, ids: tuple[ResourceId, ...]) -> tuple[ResourceId, ...]:
    return tuple(map(at.id_here, ids))


def _all_there(at: Location, ids: tuple[ResourceId, ...]) -> tuple[ResourceId, ...]:
    return tuple(map(at.id_there, ids))


def _grant(at: Location, event: Grant) -> Grant:
    grant_id, names = at.grant_here(event.grant_id), _all_here(at, event.resources)
    return replace(event, job=at.job, grant_id=grant_id, resources=names)


def _grants(at: Location, event: Recall | Lapsed) -> Recall | Lapsed:
    return replace(event, job=at.job, grant_ids=tuple(map(at.grant_here, event.grant_ids)))


def _worker_said(at: Location, event: Finished | Begun) -> Finished | Begun:
    return replace(event, job=at.job, resource_id=at.id_here(event.resource_id))


def _up(at: Location, event: ResourcesUp) -> ResourcesUp:
    return ResourcesUp(tuple(map(at.resource_here, event.resources)), event.until_s)


def _lost(at: Location, event: ResourcesLost) -> ResourcesLost:
    return ResourcesLost(_all_here(at, event.resource_ids), event.reason)


def _of_host(
    at: Location, event: HostEvacuated | HostRests | HostRestricted
) -> HostEvacuated | HostRests | HostRestricted:
    return replace(event, resources=tuple(map(at.resource_here, event.resources)))


def _withheld(at: Location, event: Withheld) -> Withheld:
    grants = tuple(map(at.grant_here, event.grant_ids))
    return Withheld(_all_here(at, event.resource_ids), event.after, grants)


def _given_up(at: Location, action: GivenUp) -> GivenUp:
    one = action.withheld
    grants = tuple(map(at.grant_there, one.grant_ids))
    return GivenUp(Withheld(_all_there(at, one.resource_ids), one.after, grants))


def _held(at: Location, action: Release | Submit | Hold) -> Release | Submit | Hold:
    grant_id, names = at.grant_there(action.grant_id), _all_there(at, action.resources)
    return replace(action, job=at.job_there, grant_id=grant_id, resources=names)


def _to_worker(at: Location, action: Cancel | TakeBack | GetAttempt | Lend) -> object:
    return replace(action, job=at.job_there, resource_id=at.id_there(action.resource_id))


def _claims(at: Location, action: Claims) -> Claims:
    grants = tuple(
        replace(
            one,
            job=at.job_there,
            grant_id=at.grant_there(one.grant_id),
            resources=_all_there(at, one.resources),
        )
        for one in action.grants
    )
    return Claims(at.job_there, grants)


def _to_task(at: Location, action: ToTask) -> ToTask:
    return replace(action, job=at.job_there)


_INWARD: dict[type, Change] = {
    Grant: _grant,
    Recall: _grants,
    Lapsed: _grants,
    Finished: _worker_said,
    Begun: _worker_said,
    ResourcesUp: _up,
    ResourcesLost: _lost,
    HostEvacuated: _of_host,
    HostRests: _of_host,
    HostRestricted: _of_host,
    Withheld: _withheld,
}

_OUTWARD: dict[type, Change] = {
    GivenUp: _given_up,
    Release: _held,
    Submit: _held,
    Hold: _held,
    Cancel: _to_worker,
    TakeBack: _to_worker,
    GetAttempt: _to_worker,
    Lend: _to_worker,
    Claims: _claims,
    ToTask: _to_task,
}
