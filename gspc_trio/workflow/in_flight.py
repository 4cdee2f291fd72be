"""Tasks that depend on others: so many of a kind are in flight (SWF-2), or end together, or in order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from gspc_trio.core.ids import TaskId
from gspc_trio.workflow.search import Binding

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
        self.unended: int = 0
        self.out: int = 0
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


Encoded: TypeAlias = tuple[tuple[bytes, ...], ...]
"""For each output of a task's code, the encoded tokens."""


class Order:
    """The tasks of one transition that have begun, and results that wait for those of earlier ones.

    A task that has failed or was cancelled keeps its turn, for it may be made ready again.

    Args:
        produce: puts the result of a task on the places behind its transition.
    """

    __slots__ = ("_held", "_produce", "_turns")

    def __init__(self, produce: Callable[[TaskId, Binding, Encoded], None]) -> None:
        self._produce = produce
        self._turns: deque[TaskId] = deque()
        self._held: dict[TaskId, tuple[Binding, Encoded]] = {}

    @property
    def held(self) -> Mapping[TaskId, tuple[Binding, Encoded]]:
        """Results that wait: task -> the tokens it took, and its result."""
        return self._held

    def began(self, task_id: TaskId) -> None:
        """A task has begun: its turn comes behind those of all before it."""
        self._turns.append(task_id)

    def ended(self, task_id: TaskId, binding: Binding, values: Encoded) -> None:
        """A task has finished: put its result where it belongs when it has its turn, and those behind it."""
        if self._turns[0] != task_id:
            self._held[task_id] = (binding, values)
            return
        self._turns.popleft()
        self._produce(task_id, binding, values)
        self._go_on()

    def dropped(self, task_id: TaskId) -> None:
        """A task is gone, and nothing comes of it: those behind it need not wait for it."""
        self._turns.remove(task_id)
        self._go_on()

    def _go_on(self) -> None:
        turns, held = self._turns, self._held
        while turns and turns[0] in held:
            following = turns.popleft()
            self._produce(following, *held.pop(following))

    def load(self, unended: Iterable[TaskId], held: Mapping[TaskId, tuple[Binding, Encoded]]) -> None:
        """Go on with these tasks, and with these results that wait."""
        self._held = dict(held)
        self._turns = deque(sorted({*unended, *held}))

    def check(self, unended: Collection[TaskId]) -> None:
        """Assert that these tasks and the results that wait have their turns, the first one no result."""
        assert list(self._turns) == sorted({*unended, *self._held}), "a task has no turn, or two"
        assert not self._turns or self._turns[0] not in self._held, "a result waits in vain"
