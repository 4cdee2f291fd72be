"""The contract of all machines.

A machine is plain state: ``handle(event, now)`` returns the actions its shell has to carry out, ``check()``
asserts its invariants, ``deadline()`` names the time at which it wants a :class:`Tick`. It never reads a
clock, does no I/O, and an unknown or illegal event raises :class:`IllegalEvent` and changes nothing.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct


class IllegalEvent(Exception):
    """The event is unknown to the machine or impossible in its present state; nothing was changed."""


class Tick(Struct, frozen=True):
    """Time has passed: the machine looks at its deadlines."""


class Machine(Protocol):
    """The contract of a pure machine."""

    def handle(self, event: Any, now: float) -> list[Any]:
        """Take one event at time ``now`` (seconds, any origin) and return the actions to carry out, in order.

        Raises:
            IllegalEvent: the event is unknown or impossible now; the state is unchanged.
        """
        ...

    def deadline(self) -> float | None:
        """Return the time at which :class:`Tick` is due, or None."""
        ...

    def check(self) -> None:
        """Assert every invariant of the state."""
        ...
