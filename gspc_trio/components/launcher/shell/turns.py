"""Marks in the row of a launcher's events: who has put one learns when all before it has been seen to."""

from __future__ import annotations

from typing import TypeAlias

import trio

from gspc_trio.components.launcher.events import LauncherAction, LauncherEvent
from gspc_trio.core.machine import Machine
from gspc_trio.nursery.scopes.drive import Inbox


class Mark:
    """A place among the events, and among the actions that follow from them.

    Attributes:
        passed: set when what follows from all events before it has been done.
    """

    def __init__(self) -> None:
        self.passed: trio.Event = trio.Event()


DrivenEvent: TypeAlias = LauncherEvent | Mark
DrivenAction: TypeAlias = LauncherAction | Mark


class MarkedLauncher:
    """A launcher that lets marks through, in order.

    Args:
        machine: the launcher.
    """

    def __init__(self, machine: Machine[LauncherEvent, LauncherAction]) -> None:
        self._machine = machine

    def handle(self, event: DrivenEvent, now: float) -> list[DrivenAction]:
        """Take one event; see :class:`Machine`."""
        if isinstance(event, Mark):
            return [event]
        return [*self._machine.handle(event, now)]

    def deadline(self) -> float | None:
        """See :class:`Machine`."""
        return self._machine.deadline()

    def check(self) -> None:
        """See :class:`Machine`."""
        self._machine.check()


async def all_done(inbox: Inbox[DrivenEvent]) -> None:
    """Wait until what follows from all that was put into an inbox has been done."""
    if not inbox.closed:
        mark = Mark()
        inbox.put(mark)
        await mark.passed.wait()
