"""Locations: a workflow names by rank where a task is to run (ASP-7, ASPIDE chapter 5)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

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


class RankedHost(Struct, frozen=True):
    """A host of a memory layer and what a run-time system has there.

    Attributes:
        host: its name.
        worker: the resource whose worker stands for the rank.
        node: its resources that are below no others.
    """

    host: str
    worker: ResourceId
    node: tuple[ResourceId, ...]


class UnknownRank(ValueError):
    """No host with workers has this rank; the message says which there are."""


def location(
    rank: int,
    target: Target,
    level: Level,
    hosts: Mapping[int, RankedHost],
    resource_class: str = "core",
    patience_s: float | None = None,
) -> Requirement:
    """Return what a task requires that is to run at a rank.

    - hard, rank: on this very worker;
    - hard, node: on the best worker of its node;
    - soft, rank: on this worker, else on its node, else anywhere;
    - soft, node: on a worker of its node, else anywhere.

    Args:
        rank: as ``Iml.get_rank`` returns it.
        target, level: how strict, and what is named.
        hosts: rank -> host, see ``gspc_trio.iml.shell.host.ranked_hosts``.
        resource_class: of the resource that the task needs.
        patience_s: how long a soft place is waited for, see :class:`~gspc_trio.core.task.Requirement`.

    Raises:
        UnknownRank: no host has this rank.
    """
    host = hosts.get(rank)
    if host is None:
        there = ", ".join(map(str, sorted(hosts))) or "none"
        raise UnknownRank(f"no host with workers has the rank {rank}; there are: {there}")
    hard = target is Target.HARD
    if level is Level.NODE:
        return Requirement(resource_class, host.node, hard, patience_s)
    preferences = (host.worker,) if hard else (host.worker, *host.node)
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
