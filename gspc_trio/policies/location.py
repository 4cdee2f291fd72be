"""Locations: a workflow names by rank where a task is to run (ASP-7, ASPIDE chapter 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from zlib import crc32

from msgspec import Struct

from gspc_trio.core.ids import ResourceId, host_name
from gspc_trio.core.task import Requirement, Shape


class Target(Enum):
    """How strict a location is; only a soft one lets the task be taken elsewhere when its place is busy."""

    HARD = "hard"
    SOFT = "soft"


class Level(Enum):
    """What a location names: the worker of the rank, or any worker of its node."""

    RANK = "rank"
    NODE = "node"


class RankedWorker(Struct, frozen=True):
    """The worker of a rank.

    Attributes:
        host: its name.
        server: rank of the memory server there.
        number: of the worker among those of its host, from 0.
        worker: its resource.
        node: resources of its host that are below no others.
    """

    host: str
    server: int
    number: int
    worker: ResourceId
    node: tuple[ResourceId, ...]


class UnknownRank(ValueError):
    """No worker has this rank; the message says which there are."""


def unknown_rank(rank: int, workers: Mapping[int, RankedWorker]) -> UnknownRank:
    """Return the error that says that no worker has this rank."""
    there = f"0 to {max(workers)}" if workers else "none"
    return UnknownRank(f"no worker has the rank {rank}; there are: {there}")


def rank_workers(
    servers: Mapping[int, str], hosts: Mapping[str, tuple[Sequence[ResourceId], Sequence[ResourceId]]]
) -> dict[int, RankedWorker]:
    """Return rank -> worker: each has one, from 0, host by host in the order of their memory servers.

    Args:
        servers: rank of a memory server -> its host.
        hosts: host -> the resources of its workers, and its resources that are below no others.
    """
    found: dict[int, RankedWorker] = {}
    for server, host in sorted(servers.items()):
        workers, node = hosts.get(host, ((), ()))
        for number, worker in enumerate(workers):
            found[len(found)] = RankedWorker(host, server, number, worker, tuple(node))
    return found


def rank_of_name(name: str, server: int, number: int, workers: Mapping[int, RankedWorker]) -> int:
    """Return the rank of a name: of the worker that was named, or else of the one that its hash says.

    Args:
        name: of the data.
        server: rank of the memory server where it lies.
        number: of the worker on that host that was named, -1 for none.
        workers: rank -> worker.

    Raises:
        UnknownRank: that host has no worker.
    """
    here = {rank: worker.number for rank, worker in workers.items() if worker.server == server}
    if not here:
        raise UnknownRank(f"{name!r} lies on the memory server of rank {server}, whose host has no workers")
    named = [rank for rank, its_number in here.items() if its_number == number]
    # Not as servers share out names: with the same hash, some workers of each server would have none.
    return named[0] if named else sorted(here)[crc32(name.encode("utf-8", "surrogatepass")) % len(here)]


def location(
    rank: int,
    target: Target,
    level: Level,
    workers: Mapping[int, RankedWorker],
    resource_class: str = "core",
    patience_s: float | None = None,
) -> Requirement:
    """Return what a task requires that is to run at a rank.

    - hard, rank: on this very worker;
    - hard, node: on the best worker of its node;
    - soft, rank: on this worker, else on its node, else anywhere;
    - soft, node: on a worker of its node, else anywhere.

    Args:
        rank: of a worker.
        target, level: how strict, and what is named.
        workers: rank -> worker, see ``gspc_trio.iml.shell.host.ranked_workers``.
        resource_class: of the resource that the task needs.
        patience_s: how long a soft place is waited for, see :class:`~gspc_trio.core.task.Requirement`.

    Raises:
        UnknownRank: no worker has this rank.
    """
    ranked = workers.get(rank)
    if ranked is None:
        raise unknown_rank(rank, workers)
    hard = target is Target.HARD
    if level is Level.NODE:
        return Requirement(resource_class, ranked.node, hard, patience_s)
    preferences = (ranked.worker,) if hard else (ranked.worker, *ranked.node)
    return Requirement(resource_class, preferences, hard, patience_s)


def steal_order(shape: Shape, thief: ResourceId) -> int | None:
    """Return how soon an idle worker steals a task, the lowest first, or None: it must not.

    Tasks without a place come first (0), then those whose soft place is on the host of the thief (1), then
    those of other hosts (2): a task keeps its place as long as there is anything else to steal. A hard place
    is never left. What needs several resources is not stolen either: it has one grant for all of them.

    Args:
        shape: what the task needs.
        thief: the resource of the idle worker.
    """
    if len(shape.requirements) > 1:
        return None
    place = shape.requirements[0]
    if place.hard:
        return None
    if not place.preferences:
        return 0
    here = host_name(thief)
    return 1 if any(host_name(preferred) == here for preferred in place.preferences) else 2
