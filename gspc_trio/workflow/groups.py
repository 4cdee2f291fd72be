"""Groups of tasks that end together: a firing names groups, and their tasks are dropped."""

from __future__ import annotations

from collections.abc import Iterable

from gspc_trio.core.ids import TaskId


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
