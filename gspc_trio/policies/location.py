"""Locations: a workflow names by rank where a task is to run (ASP-7, ASPIDE chapter 5)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from gspc_trio.core.ids import ResourceId
from gspc_trio.core.task import Requirement


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
