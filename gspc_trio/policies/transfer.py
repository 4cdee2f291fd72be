"""Tasks go where their data lies (SCH-8, GSPC19 3.7): preferences by the cost of moving the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from itertools import islice
from typing import Protocol

from attrs import define, evolve, field
from msgspec.structs import replace

from gspc_trio.core.ids import ResourceId
from gspc_trio.core.task import Shape, Task, TaskVariants

MEASURED_BYTES_MIN = 1 << 16
"""A shorter transfer says more of latency than of bandwidth."""

USUAL_BYTES_PER_S = 1e9
"""What a network between hosts is taken to move, as long as nothing was measured."""

LOOKED_AT_MAX = 16
"""So many hosts that have none of a task's data are looked at."""

SMOOTHING = 0.3
"""Weight of the newest transfer in a measured bandwidth."""


@define
class Bandwidths:
    """Bytes per second between hosts, as the stage-ins of a job's tasks have found them."""

    _measured: dict[tuple[str, str], float] = field(factory=dict)

    def note(self, source: str, target: str, size_bytes: int, seconds: float) -> None:
        """Take a transfer into account."""
        if size_bytes < MEASURED_BYTES_MIN or seconds <= 0 or source == target:
            return
        key, newest = (source, target), size_bytes / seconds
        before = self._measured.get(key, newest)
        self._measured[key] = before + SMOOTHING * (newest - before)

    def of(self, source: str, target: str) -> float:
        """Return the bandwidth from a host to another.

        What was not measured yet is what was on average, from that host if it is known. As long as nothing
        was measured it is 1 everywhere: then the bytes alone count.
        """
        measured = self._measured
        found = measured.get((source, target))
        if found is not None:
            return found
        known = [value for (host, _), value in measured.items() if host == source] or list(measured.values())
        return sum(known) / len(known) if known else 1.0

    def likely(self, source: str, target: str) -> float:
        """Return the bandwidth as :meth:`of`, but that of a usual network where none was measured."""
        return self.of(source, target) if self._measured else USUAL_BYTES_PER_S

    def dump(self) -> dict[str, float]:
        """Return what was measured, as plain data: ``source -> target`` -> bytes per second."""
        return {f"{source} -> {target}": value for (source, target), value in self._measured.items()}


class DataPlaces(Protocol):
    """What the policy asks of whoever knows where data lies."""

    def places_of(self, task: Task) -> Mapping[str, int]:
        """Return host -> bytes of the task's data there; empty if it has none."""
        ...

    def bytes_of(self, task: Task) -> int:
        """Return the bytes that have to be in the memory of the host on which the task computes."""
        ...


def cost_s(places: Mapping[str, int], host: str, bandwidth: Callable[[str, str], float]) -> float:
    """Return the seconds that it takes to bring to a host what does not lie there.

    Args:
        places: host -> bytes of data.
        host: to which it is brought.
        bandwidth: bytes per second from a host to another.
    """
    return sum(
        size_bytes / bandwidth(source, host) for source, size_bytes in places.items() if source != host
    )


def cheapest_hosts(places: Mapping[str, int], bandwidth: Callable[[str, str], float]) -> list[str]:
    """Return the hosts that hold some of the data, the cheapest to compute on first."""
    return sorted(places, key=lambda host: (cost_s(places, host, bandwidth), host))


@define
class TransferCost:
    """Prefers for each task the hosts that hold its data.

    It gives equal shapes to tasks that want the same, and one object for all of those.

    Attributes:
        data: where data lies.
        tops: host -> its resources that are below no others.
        memory_bytes: host -> what its memory server can hold; a host that is not in it has room enough.
        bandwidths: between the hosts.
        classes: host -> its resources with their classes.
    """

    data: DataPlaces
    tops: dict[str, list[ResourceId]] = field(factory=dict)
    memory_bytes: dict[str, int] = field(factory=dict)
    bandwidths: Bandwidths = field(factory=Bandwidths)
    classes: dict[str, dict[ResourceId, str]] = field(factory=dict)
    _hosts_with: dict[str, list[str]] = field(factory=dict)
    _shapes: dict[Shape, Shape] = field(factory=dict)

    def note_resource(self, host: str, resource_id: ResourceId, resource_class: str) -> None:
        """A host has this resource."""
        self.classes.setdefault(host, {})[resource_id] = resource_class
        self._hosts_with.clear()

    def forget_resources(self, lost: Set[ResourceId]) -> None:
        """These resources are not there any more."""
        self._hosts_with.clear()
        for host, resources in list(self.classes.items()):
            for resource_id in lost & resources.keys():
                del resources[resource_id]
            if not resources:
                del self.classes[host]

    def variants_of(self, task: Task) -> TaskVariants | None:
        """Return the variants of a task with what it takes to bring its data to each, None if it has none."""
        variants = task.variants
        places = self.data.places_of(task)
        if variants is None or not places:
            return variants
        ways = [
            replace(
                way,
                shape=self.shape_of(replace(task, shape=way.shape)),
                transfer_s=self._transfer_s(places, way.shape.requirements[0].resource_class),
            )
            for way in variants.ways
        ]
        return replace(variants, ways=tuple(ways))

    def _transfer_s(self, places: Mapping[str, int], resource_class: str) -> float:
        """Return the seconds that it takes to bring data to the best host with a resource of a class.

        It is one that has some of the data, or one of the first of those that have none: there may be many.
        """
        holders = [host for host in places if resource_class in self.classes.get(host, {}).values()]
        hosts = holders or self._first_with(resource_class)
        return min((cost_s(places, host, self.bandwidths.likely) for host in hosts), default=0.0)

    def _first_with(self, resource_class: str) -> list[str]:
        """Return the first hosts with a resource of a class."""
        found = self._hosts_with.get(resource_class)
        if found is None:
            hosts = (host for host, resources in self.classes.items() if resource_class in resources.values())
            found = self._hosts_with[resource_class] = list(islice(hosts, LOOKED_AT_MAX))
        return found

    def fits_everywhere(self, task: Task) -> bool:
        """Return whether the memory of each host can hold the task's data."""
        total = self.data.bytes_of(task)
        return not any(self.memory_bytes.get(host, total) < total for host in self.tops)

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
        total = self.data.bytes_of(task)
        fits = [host for host in self.tops if self.memory_bytes.get(host, total) >= total]
        order = [host for host in cheapest_hosts(places, self.bandwidths.of) if host in fits]
        hard = len(fits) < len(self.tops)
        if hard:
            order += [host for host in fits if host not in order]
        preferences = tuple(top for host in order for top in self.tops.get(host, ()))
        if not preferences and not hard:
            return shape
        requirement = evolve(first, preferences=preferences, hard=hard)
        wanted = replace(shape, requirements=(requirement, *shape.requirements[1:]))
        return self._shapes.setdefault(wanted, wanted)
