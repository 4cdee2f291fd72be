"""Observation of machines: a simulation sees every event and its actions, whatever shell there is."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar, cast

M = TypeVar("M")


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

    def saw(self, machine: Any, event: Any, now: float, actions: list[Any]) -> None:
        """``machine`` took ``event`` at time ``now`` (seconds) and answered with ``actions``."""
        ...

    def holds(self, queue: Queue) -> None:
        """There is a new queue."""
        ...


OBSERVER: ContextVar[MachineObserver | None] = ContextVar("observer", default=None)
"""The observer of all machines that are started in a context; None in production."""


class _Observed:
    """A machine in front of an observer; everything else is the machine's."""

    def __init__(self, machine: Any, observer: MachineObserver) -> None:
        self._machine = machine
        self._observer = observer
        self.deadline = machine.deadline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    @property
    def phase(self) -> Any:
        """Where the machine is, asked for with every event; ``__getattr__`` is slow."""
        return self._machine.phase

    def handle(self, event: Any, now: float) -> list[Any]:
        actions: list[Any] = self._machine.handle(event, now)
        self._observer.saw(self._machine, event, now, actions)
        return actions


def observed(machine: M) -> M:
    """Return the machine, behind the observer of this context if there is one."""
    observer = OBSERVER.get()
    return machine if observer is None else cast(M, _Observed(machine, observer))


def show_queue(queue: Queue) -> None:
    """Let the observer of this context know of a queue."""
    observer = OBSERVER.get()
    if observer is not None:
        observer.holds(queue)
