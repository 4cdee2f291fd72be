"""What tasks that wait would need, by kinds that are alike: what blocks of batch systems are asked for by."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from gspc_trio.core.ids import Count, JobId, RifId

WALLTIME_S = 600.0
"""Seconds that a task is taken for which states neither a time limit nor an estimate."""

WALLTIME_MAX_S = 1e9
"""A task that states more seconds, or that it may go on for ever, is taken for one of so many: 30 years."""

WallTime: TypeAlias = Annotated[float, Meta(ge=0.0, le=WALLTIME_MAX_S)]
"""Seconds."""


class TaskGroup(Struct, frozen=True):
    """Tasks that wait and are alike.

    Attributes:
        walltime_s: seconds that one takes at most: its time limit, else its estimate, else WALLTIME_S.
        cores: that one needs; what stands for a whole node needs none by itself.
        nodes: whole nodes that one needs.
        count: how many they are.
    """

    walltime_s: WallTime
    cores: Count = 1
    nodes: Count = 0
    count: Count = 1


class RunningGroup(Struct, frozen=True):
    """Tasks that run on one host and are alike.

    Attributes:
        rif_id: of the host.
        rest_s: seconds of their walltime that are left.
        cores, nodes: that one has, as of those that wait.
        count: how many they are.
    """

    rif_id: RifId
    rest_s: WallTime
    cores: Count = 1
    nodes: Count = 0
    count: Count = 1


class EndedTasks(Struct, frozen=True):
    """So many tasks have come to their end on a host: finished, or failed by their own error."""

    rif_id: RifId
    count: Count


class TaskDemand(Struct, frozen=True):
    """Job to RTS: what its tasks that wait would need, and what runs where.

    It replaces what the job has said before, but for ``ended``: what has ended since then.
    """

    job: JobId
    groups: tuple[TaskGroup, ...] = ()
    running: tuple[RunningGroup, ...] = ()
    ended: tuple[EndedTasks, ...] = ()


class DemandWanted(Struct, frozen=True):
    """RTS to job: whether to say, whenever it changes, what tasks that wait would need."""

    wanted: bool


class GroupRefused(Struct, frozen=True):
    """RTS to job: tasks of this group can never run, for this reason."""

    group: TaskGroup
    reason: str
