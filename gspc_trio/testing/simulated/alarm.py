"""Wakes a task at a time that may change meanwhile."""

from __future__ import annotations

from math import inf
from typing import Any

import trio
from trio._core import _run as scheduler


class Alarm:
    """Wakes one task, as a cancel scope with a deadline does, for a fraction of what that costs.

    Trio keeps deadlines in a heap; this puts itself there, as if it were a scope. (It does so tens of
    thousands of times in a simulation. Trio has no public name for it.)
    """

    __slots__ = ("_registered_deadline", "_task")

    def __init__(self) -> None:
        self._registered_deadline = inf
        self._task: trio.lowlevel.Task | None = None

    async def wait(self, due_s: float) -> None:
        """Wait until ``due_s``, or the time that :meth:`set` has named since."""
        self._task = trio.lowlevel.current_task()
        self.set(due_s)
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def set(self, due_s: float) -> None:
        """Wake whoever waits at another time; at once if that has passed."""
        before_s = self._registered_deadline
        if self._task is None or due_s == before_s:
            return
        scope: Any = self
        deadlines = scheduler.GLOBAL_RUN_CONTEXT.runner.deadlines
        if before_s != inf:
            deadlines.remove(before_s, scope)
        self._registered_deadline = due_s
        if due_s != inf:
            deadlines.add(due_s, scope)

    def _cancel(self, _reason: object) -> None:
        """It is time (trio calls this)."""
        task = self._task
        self._abort(None)
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        """Nobody waits any more: woken, or cancelled."""
        self.set(inf)
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


async def sleep_until(deadline: float) -> None:
    """Sleep until a time of trio's clock, like :func:`trio.sleep_until`."""
    await Alarm().wait(deadline)
