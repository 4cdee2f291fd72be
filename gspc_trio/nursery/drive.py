"""The one loop that feeds a machine and carries out what it decides."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import trio

from gspc_trio.core.machine import IllegalEvent, Machine, Tick
from gspc_trio.nursery.witness import witnessed

E = TypeVar("E")

CHECK_VARIABLE = "GSPC_CHECK"
"""Environment variable; set to 1 every machine checks its invariants after each event."""


class Inbox(Generic[E]):
    """Events for one driver: anyone puts without waiting, the driver takes all that has gathered.

    A wake-up costs more than an event, so the driver is woken once for however many events are put before it
    runs.
    """

    def __init__(self) -> None:
        self._events: list[E] = []
        self._wake: trio.Event | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: E) -> None:
        """Add an event; never blocks. After :meth:`close` it is dropped: nobody listens any more."""
        if self.closed:
            return
        self._events.append(event)
        if self._wake is not None:
            self._wake.set()

    def close(self) -> None:
        """Take no more events; those put before are still taken."""
        self.closed = True
        if self._wake is not None:
            self._wake.set()

    def take_nowait(self) -> list[E]:
        """Return all events that have gathered, maybe none."""
        events, self._events = self._events, []
        return events

    async def take(self) -> list[E]:
        """Wait for at least one event and return all that have gathered.

        Raises:
            trio.EndOfChannel: the inbox is closed and empty.
            trio.BusyResourceError: another task is taking.
        """
        if self._wake is not None:
            raise trio.BusyResourceError("another task takes from this inbox already")
        if self._events or self.closed:
            # Others run first and may add to the batch.
            await trio.lowlevel.checkpoint()
        else:
            self._wake = trio.Event()
            try:
                await self._wake.wait()
            finally:
                self._wake = None
        if not self._events:
            raise trio.EndOfChannel
        return self.take_nowait()


async def drive(
    machine: Machine,
    inbox: Inbox[Any],
    perform: Callable[[Any], None],
    *,
    check: bool | None = None,
    refused: Callable[[Any, IllegalEvent], None] | None = None,
) -> None:
    """Feed the machine until its inbox is closed and empty.

    Args:
        machine: gets every event in the order of the inbox, and a :class:`~gspc_trio.core.machine.Tick` at
            its deadline.
        inbox: of events; put to from ``perform`` too.
        perform: carries out one action at once; what takes time it starts in a nursery, and puts its end into
            the inbox.
        check: call ``machine.check()`` after each event; None: as the environment variable GSPC_CHECK says.
        refused: told of an event that the machine refused as illegal; without it the error is raised.
    """
    if check is None:
        check = os.environ.get(CHECK_VARIABLE) == "1"
    machine = witnessed(machine)

    def feed(event: Any, now: float) -> None:
        try:
            actions = machine.handle(event, now)
        except IllegalEvent as error:
            if refused is None:
                raise
            refused(event, error)
            return
        if check:
            machine.check()
        for action in actions:
            perform(action)

    while True:
        due_s = machine.deadline()
        if due_s is not None and due_s <= trio.current_time():
            # Also when events never cease: a deadline is not starved.
            feed(Tick(), trio.current_time())
            due_s = machine.deadline()
        events: list[Any] = []
        try:
            if due_s is None or len(inbox):
                events = await inbox.take()
            else:
                with trio.move_on_at(due_s):
                    events = await inbox.take()
        except trio.EndOfChannel:
            return
        now = trio.current_time()
        for event in events:
            feed(event, now)
