"""Tasks go where their data lies (SCH-8, GSPC19 3.7): preferences by the cost of moving the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from attrs import define, evolve, field

from gspc_trio.core.ids import ResourceId
from gspc_trio.core.task import Shape, Task

BANDWIDTH_UNKNOWN = 1e9
"""Bytes per second between hosts that is assumed until it is measured: only its relation to others counts."""


class DataPlaces(Protocol):
    """What the policy asks of whoever knows where data lies."""

    def places_of(self, task: Task) -> Mapping[str, int]:
        """Return host -> bytes of the task's data there; empty if it has none."""
        ...


def cost_s(places: Mapping[str, int], host: str, bandwidth: Callable[[str, str], float]) -> float:
    """Return the seconds that it takes to bring to a host what does not lie there.

    Args:
        places: host -> bytes of data.
        host: to which it is brought.
        bandwidth: bytes per second from a host to another; 0: not measured yet.
    """
    return sum(
        size_bytes / (bandwidth(source, host) or BANDWIDTH_UNKNOWN)
        for source, size_bytes in places.items()
        if source != host
    )


def cheapest_hosts(places: Mapping[str, int], bandwidth: Callable[[str, str], float]) -> list[str]:
    """Return the hosts that hold some of the data, the cheapest to compute on first."""
    return sorted(places, key=lambda host: (cost_s(places, host, bandwidth), host))


def _unmeasured(_source: str, _target: str) -> float:
    return 0.0


@define
class TransferCost:
    """Prefers for each task the hosts that hold its data.

    It gives equal shapes to tasks that want the same, and one object for all of those.

    Attributes:
        data: where data lies.
        tops: host -> its resources that are below no others.
        memory_bytes: host -> what its memory server can hold; a host that is not in it has room enough.
        bandwidth: bytes per second from a host to another, 0 if it was not measured.
    """

    data: DataPlaces
    tops: dict[str, list[ResourceId]] = field(factory=dict)
    memory_bytes: dict[str, int] = field(factory=dict)
    bandwidth: Callable[[str, str], float] = _unmeasured
    _shapes: dict[Shape, Shape] = field(factory=dict)

    def shape_of(self, task: Task) -> Shape:
        """Return the task's shape with preferences for its first resource, if it states none itself.

        A host whose memory cannot hold the task's data is not among them, and the task goes to no such host.
        """
        shape = task.shape
        first = shape.requirements[0]
        if first.preferences:
            return shape
        places = self.data.places_of(task)
        if not places:
            return shape
        total = sum(places.values())
        fits = [host for host in self.tops if self.memory_bytes.get(host, total) >= total]
        order = [host for host in cheapest_hosts(places, self.bandwidth) if host in fits]
        hard = len(fits) < len(self.tops)
        if hard:
            order += [host for host in fits if host not in order]
        preferences = tuple(top for host in order for top in self.tops.get(host, ()))
        if not preferences and not hard:
            return shape
        requirement = evolve(first, preferences=preferences, hard=hard)
        wanted = evolve(shape, requirements=(requirement, *shape.requirements[1:]))
        return self._shapes.setdefault(wanted, wanted)
