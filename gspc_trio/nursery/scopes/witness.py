"""Who watches the machines: a simulation sees every event and what came of it, whatever shell drives them."""

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


class Witness(Protocol):
    """Sees what machines do, and where something waits."""

    def saw(self, machine: Any, event: Any, now: float, actions: list[Any]) -> None:
        """``machine`` took ``event`` at time ``now`` (seconds) and answered with ``actions``."""
        ...

    def holds(self, queue: Queue) -> None:
        """There is a new queue."""
        ...


WITNESS: ContextVar[Witness | None] = ContextVar("witness", default=None)
"""The witness of all machines that are started in a context; None in production."""


class _Witnessed:
    """A machine in front of a witness; everything else is the machine's."""

    def __init__(self, machine: Any, witness: Witness) -> None:
        self._machine = machine
        self._witness = witness
        self.deadline = machine.deadline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    @property
    def phase(self) -> Any:
        """Where the machine is, asked for with every event; ``__getattr__`` is slow."""
        return self._machine.phase

    def handle(self, event: Any, now: float) -> list[Any]:
        actions: list[Any] = self._machine.handle(event, now)
        self._witness.saw(self._machine, event, now, actions)
        return actions


def witnessed(machine: M) -> M:
    """Return the machine, behind the witness of this context if there is one."""
    witness = WITNESS.get()
    return machine if witness is None else cast(M, _Witnessed(machine, witness))


def show_queue(queue: Queue) -> None:
    """Let the witness of this context know of a queue."""
    witness = WITNESS.get()
    if witness is not None:
        witness.holds(queue)
