"""What the tests of the resource manager share: hosts, shapes, and a driver that checks after every event."""

from __future__ import annotations

from typing import Any

from gspc_trio.components.rm.events import Added, JobJoined
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.components.rm.parts import DEMAND_TRANSITIONS, GRANT_TRANSITIONS, DemandState, GrantState
from gspc_trio.components.rm.state import Limits
from gspc_trio.core.ids import NO_GRANT, GrantId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.records.facts import GrantChanged, ResourceChanged
from tests.components.support import TransitionsSeen

NODE = Shape((Requirement("node"),))
SOCKET = Shape((Requirement("socket"),))
GPU = Shape((Requirement("gpu"),))


def cores(count: int, name: str = "r1") -> tuple[Resource, ...]:
    """Return so many cores without hierarchy."""
    return tuple(Resource(f"{name}.core{index}", "core") for index in range(count))


def host(name: str, sockets: int = 2, per_socket: int = 2, memory_bytes: int = 0) -> tuple[Resource, ...]:
    """Return a node with sockets with cores."""
    found = [Resource(f"{name}.node", "node", memory_bytes=memory_bytes)]
    for socket in range(sockets):
        found.append(Resource(f"{name}.socket{socket}", "socket", (f"{name}.node",)))
        found += [
            Resource(f"{name}.core{socket * per_socket + core}", "core", (f"{name}.socket{socket}",))
            for core in range(per_socket)
        ]
    return tuple(found)


def any_of(resource_class: str, *preferences: str, hard: bool = False) -> Shape:
    """Return the shape of one resource with preferences."""
    return Shape((Requirement(resource_class, preferences, hard),))


def several(*classes: str, same_host: bool = False) -> Shape:
    """Return the shape of a co-allocation."""
    return Shape(tuple(Requirement(name) for name in classes), same_host=same_host)


def all_states(
    rm: ResourceManager,
) -> tuple[dict[tuple[str, Shape], DemandState | None], dict[GrantId, GrantState | None]]:
    """Return where all demands and grants are."""
    state = rm._state
    demands: dict[tuple[str, Shape], DemandState | None] = {
        (job.job, shape): want.state for job in state.jobs.values() for shape, want in job.wants.items()
    }
    return demands, {grant_id: holding.state for grant_id, holding in state.grants.items()}


class Driver:
    """A resource manager under test: checked after each event, with what each job has received."""

    def __init__(self, *resources: Resource, jobs: tuple[str, ...] = ("a", "b"), **limits: float) -> None:
        self.rm = ResourceManager(1, Limits(**limits))  # type: ignore[arg-type]
        self.demands = TransitionsSeen(DEMAND_TRANSITIONS, DemandState.GONE)
        self.grants = TransitionsSeen(GRANT_TRANSITIONS, GrantState.OVER)
        self.now = 0.0
        self.seen: dict[str, GrantId] = {}
        self.held: dict[str, list[Grant]] = {}
        self.history: list[Grant] = []
        if resources:
            self.send(Added(resources))
        for job in jobs:
            self.send(JobJoined(job))

    def send(self, event: Any) -> list[Any]:
        """Send one event and return the actions without records."""
        demands, grants = all_states(self.rm)
        actions = self.rm.handle(event, self.now)
        self.rm.check()
        demands_now, grants_now = all_states(self.rm)
        self.demands.compare(demands, demands_now)
        self.grants.compare(grants, grants_now)
        for action in actions:
            if isinstance(action, Grant):
                self.seen[action.job] = action.grant_id
                self.held.setdefault(action.job, []).append(action)
                self.history.append(action)
        return [action for action in actions if not isinstance(action, GrantChanged | ResourceChanged)]

    def demand(self, job: str, credit: int = 1, shape: Shape = CORE) -> list[Any]:
        """Demand credit, having seen everything sent."""
        return self.send(Demand(job, shape, credit, self.seen.get(job, NO_GRANT)))

    def take(self, job: str, shape: Shape = CORE) -> tuple[str, ...] | None:
        """Demand one grant and return its resources; without a grant the demand stays."""
        grants = [action for action in self.demand(job, 1, shape) if isinstance(action, Grant)]
        return grants[0].resources if grants else None

    def release(self, job: str, *resources: str) -> list[Any]:
        """Give back the job's oldest grant, or the one that holds these resources."""
        held = self.held[job]
        grant = held[0] if not resources else next(g for g in held if set(resources) <= set(g.resources))
        held.remove(grant)
        return self.send(Release(job, grant.grant_id))

    def wait(self, seconds: float) -> list[Any]:
        """Let time pass, with a Tick at each deadline."""
        until = self.now + seconds
        actions: list[Any] = []
        for _ in range(10_000):
            deadline = self.rm.deadline()
            if deadline is None or deadline > until:
                break
            self.now = max(self.now, deadline)
            actions += self.send(Tick())
        else:
            raise AssertionError("the machine asks for Ticks without end")
        self.now = until
        return actions

    def granted(self, job: str) -> list[tuple[str, ...]]:
        """Return the resources of the grants that the job holds."""
        return [grant.resources for grant in self.held.get(job, [])]
