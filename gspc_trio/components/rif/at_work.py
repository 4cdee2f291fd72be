"""Work in progress on the resources of a RIF: never two on one resource, nor on one and a relative of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from gspc_trio.components.rif.fence import Fence
from gspc_trio.core.ids import GrantId, JobId, ResourceId


class Use(StrEnum):
    """What a resource is used for at its RIF."""

    IDLE = "idle"
    """Nothing runs on it."""
    HELD = "held"
    """It belongs to a grant whose task runs at another worker; submits under that grant are refused here."""
    AT_WORK = "at_work"
    """Tasks run on it under a grant, at its own worker or at that of the grant's first resource."""
    ENDING = "ending"
    """What runs there is being ended: revoked, overtaken by a newer grant, or its job is gone."""
    REMOVING = "removing"
    """Its worker takes no more, and stops when nothing is left."""
    GONE = "gone"


TRANSITIONS: dict[Use, frozenset[Use]] = {
    Use.IDLE: frozenset({Use.HELD, Use.AT_WORK, Use.REMOVING}),
    Use.HELD: frozenset({Use.IDLE, Use.AT_WORK, Use.REMOVING}),
    Use.AT_WORK: frozenset({Use.IDLE, Use.HELD, Use.ENDING, Use.REMOVING}),
    Use.ENDING: frozenset({Use.IDLE, Use.HELD, Use.REMOVING}),
    Use.REMOVING: frozenset({Use.GONE}),
    Use.GONE: frozenset(),
}
"""What a resource may be used for next."""


class Work(Struct, eq=False):
    """What a worker does for a job under one grant.

    Attributes:
        job, grant_id: for whom.
        resources: those of this RIF that it takes, the worker's own first.
        ending: whether the worker was told to end it.
    """

    job: JobId
    grant_id: GrantId
    resources: tuple[ResourceId, ...]
    ending: bool = False


class AtWork:
    """The work of all workers of a RIF.

    Args:
        fence: knows which resources are relatives.
    """

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._by_resource: dict[ResourceId, Work] = {}
        self._below: dict[ResourceId, int] = {}

    def __iter__(self) -> Iterator[Work]:
        return iter(list({id(work): work for work in self._by_resource.values()}.values()))

    def on(self, resource_id: ResourceId) -> Work | None:
        """Return the work that takes this resource."""
        return self._by_resource.get(resource_id)

    def of_worker(self, resource_id: ResourceId) -> Work | None:
        """Return the work that the worker of this resource does."""
        work = self._by_resource.get(resource_id)
        return work if work is not None and work.resources[0] == resource_id else None

    def near(self, names: Iterable[ResourceId]) -> list[Work]:
        """Return the work on these resources, their ancestors and their descendants."""
        found: dict[int, Work] = {}
        at = self._by_resource
        for name in names:
            relatives: Iterable[ResourceId] = self._fence.ancestors(name)
            if name in at or self._below.get(name):
                relatives = (name, *relatives, *self._fence.descendants(name))
            for relative in relatives:
                if relative in at:
                    work = at[relative]
                    found[id(work)] = work
        return list(found.values())

    def begin(self, job: JobId, grant_id: GrantId, resources: Sequence[ResourceId]) -> None:
        """Note new work; nothing is near it."""
        work = Work(job, grant_id, tuple(resources))
        for name in resources:
            self._by_resource[name] = work
            for above in self._fence.ancestors(name):
                if above in self._below:
                    self._below[above] += 1

    def end(self, work: Work) -> None:
        """The worker has nothing left of it."""
        for name in work.resources:
            del self._by_resource[name]
            for above in self._fence.ancestors(name):
                if above in self._below:
                    self._below[above] -= 1

    def add(self, resource_id: ResourceId) -> None:
        """A resource was added to the fence."""
        below = sum(name in self._by_resource for name in self._fence.descendants(resource_id))
        self._below[resource_id] = below

    def remove(self, resource_id: ResourceId) -> None:
        """A resource that nobody works on is about to be removed from the fence."""
        del self._below[resource_id]

    def check(self) -> None:
        """Assert every invariant."""
        for work in self:
            assert work.resources, "work that takes no resource"
            for name in work.resources:
                assert self._by_resource[name] is work, "two at work on one resource"
                assert name in self._fence, "work on a resource that is not there"
                relatives = {*self._fence.ancestors(name), *self._fence.descendants(name)}
                others = [r for r in relatives if r in self._by_resource]
                assert all(self._by_resource[r] is work for r in others), (
                    "at work on a resource and a relative"
                )
                newest = self._fence.newest(name)
                assert work.ending or work.grant_id == newest, "work goes on under a grant that has lapsed"
        for name, count in self._below.items():
            below = sum(other in self._by_resource for other in self._fence.descendants(name))
            assert count == below, "work below a resource is miscounted"
