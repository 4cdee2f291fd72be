"""How many tasks of one transition are in flight, where there may be only so many (SWF-2)."""

from __future__ import annotations

import math

from gspc_trio.core.ids import TaskId

IN_FLIGHT = 16_384
"""How many iterations of a farm are in flight at most, unless told otherwise."""


class Flight:
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
