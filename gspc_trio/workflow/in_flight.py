"""Tasks that depend on others: so many of a kind at most are in flight (SWF-2), or a group ends together."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gspc_trio.core.ids import TaskId

IN_FLIGHT = 16_384
"""How many iterations of a farm are in flight at most, unless told otherwise."""


class InFlight:
    """The tasks of one transition that have begun and not ended.

    New ones begin while fewer than ``most`` have not ended. This depends on nothing but the states of tasks,
    so a journal that is replayed begins the same ones. Those that began earlier, and are to be run again, may
    be more than ``most``: they are handed out as others end.

    Args:
        most: how many may be in flight.

    Attributes:
        most: see above; infinite while the limit is lifted.
        unended: how many are ready or extracted, handed out or not.
        out: how many of them are handed out.
        waiting: those that began earlier and wait until another one has ended, in order.
    """

    __slots__ = ("_limit", "most", "out", "unended", "waiting")

    def __init__(self, most: int) -> None:
        self._limit = most
        self.most: float = most
        self.unended = 0
        self.out = 0
        self.waiting: dict[TaskId, None] = {}

    def lift(self, lifted: bool) -> None:
        """Lift the limit, or put it into force again."""
        self.most = math.inf if lifted else self._limit

    def next_waiting(self) -> TaskId | None:
        """Take one that waits and may be handed out now; None if there is none."""
        if not self.waiting or self.out >= self.most:
            return None
        task_id = next(iter(self.waiting))
        del self.waiting[task_id]
        return task_id


class TaskGroups:
    """Which tasks under way belong to which group, and which of them were dropped.

    A dropped task is gone with the tokens it took, and nothing failed. One that was handed out may still end:
    how it ends counts for nothing.

    Attributes:
        dropped: tasks that were handed out and dropped, and have not ended.
    """

    def __init__(self) -> None:
        self._members: dict[object, dict[TaskId, None]] = {}
        self._group_of: dict[TaskId, object] = {}
        self.dropped: dict[TaskId, None] = {}

    def add(self, task_id: TaskId, group: object) -> None:
        """A task of this group is under way."""
        self._members.setdefault(group, {})[task_id] = None
        self._group_of[task_id] = group

    def remove(self, task_id: TaskId) -> None:
        """A task has ended, if it belongs to a group."""
        if task_id not in self._group_of:
            return
        group = self._group_of.pop(task_id)
        members = self._members[group]
        del members[task_id]
        if not members:
            del self._members[group]

    def end(self, groups: Iterable[object]) -> list[TaskId]:
        """Return the tasks under way of these groups; the groups are forgotten."""
        ended = [task_id for group in groups for task_id in self._members.pop(group, ())]
        for task_id in ended:
            del self._group_of[task_id]
        return ended

    def is_over(self, task_id: TaskId) -> bool:
        """Return whether this task was dropped; it has ended now, and is forgotten."""
        if task_id not in self.dropped:
            return False
        del self.dropped[task_id]
        return True
