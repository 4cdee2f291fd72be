"""Observation of machines: a simulation sees every event and its actions, whatever shell there is."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar

from gspc_trio.core.machine import IllegalEvent, Machine, MachineBase, OnIllegal

M = TypeVar("M", bound=Machine[Any, Any])


class Fill(NamedTuple):
    """How much waits in a queue, and how much may: items and their bytes."""

    name: str
    items: int
    items_max: int
    size_bytes: int
    bytes_max: int


class Queue(Protocol):
    """Where something may wait."""

    def fills(self) -> Sequence[Fill]:
        """Return how much waits; nothing once it is over."""
        ...


class MachineObserver(Protocol):
    """Sees what machines do, and where something waits."""

    def saw(self, machine: object, event: object, now: float, actions: Sequence[object]) -> None:
        """``machine`` took ``event`` at time ``now`` (seconds) and answered with ``actions``."""
        ...

    def holds(self, queue: Queue) -> None:
        """There is a new queue."""
        ...


OBSERVER: ContextVar[MachineObserver | None] = ContextVar("observer", default=None)
"""The observer of all machines that are started in a context; None in production."""


def observed(machine: M) -> M:
    """Return the machine; the observer of this context, if there is one, sees from now on what it handles."""
    observer = OBSERVER.get()
    if observer is not None:
        take = machine.handle

        def handle(event: object, now: float) -> Sequence[object]:
            actions: Sequence[object] = take(event, now)
            observer.saw(machine, event, now, actions)
            return actions

        vars(machine)["handle"] = handle
        if isinstance(machine, MachineBase) and machine.gathered:
            take_run = machine.handle_run

            def handle_run(events: Sequence[object], now: float, refuse: OnIllegal) -> Sequence[object]:
                refused = set()

                def note(place: int, error: IllegalEvent) -> None:
                    refused.add(place)
                    refuse(place, error)

                actions: Sequence[object] = take_run(events, now, note)
                taken = [event for place, event in enumerate(events) if place not in refused]
                for event in taken[:-1]:
                    observer.saw(machine, event, now, ())
                if taken:
                    observer.saw(machine, taken[-1], now, actions)
                return actions

            vars(machine)["handle_run"] = handle_run
    return machine


def show_queue(queue: Queue) -> None:
    """Let the observer of this context know of a queue."""
    observer = OBSERVER.get()
    if observer is not None:
        observer.holds(queue)
