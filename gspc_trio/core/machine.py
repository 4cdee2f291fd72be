"""The contract of all machines, and the base class that finds the handler of an event.

A machine is plain state: ``handle(event, now)`` returns the actions its shell has to carry out, ``check()``
asserts its invariants, ``deadline()`` names the time at which it wants a :class:`Tick`. It never reads a
clock, does no I/O, and an unknown or illegal event raises :class:`IllegalEvent` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, overload

from msgspec import Struct


class IllegalEvent(Exception):
    """The event is unknown to the machine or impossible in its present state; nothing was changed."""


class Tick(Struct, frozen=True):
    """Time has passed: the machine looks at its deadlines."""


EventT = TypeVar("EventT")
ActionT = TypeVar("ActionT")
_Event = TypeVar("_Event", contravariant=True)


class Machine(Protocol[_Event, ActionT]):
    """The contract of a pure machine, over the union of its events and that of its actions."""

    def handle(self, event: _Event, now: float) -> list[ActionT]:
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


M = TypeVar("M")
First = TypeVar("First")
Second = TypeVar("Second")
Third = TypeVar("Third")
Method: TypeAlias = Callable[[M, EventT], None]


@overload
def handles(first: type[First], /) -> Callable[[Method[M, First]], Method[M, First]]: ...
@overload
def handles(
    first: type[First], second: type[Second], /
) -> Callable[[Method[M, First | Second]], Method[M, First | Second]]: ...
@overload
def handles(
    first: type[First], second: type[Second], third: type[Third], /
) -> Callable[[Method[M, First | Second | Third]], Method[M, First | Second | Third]]: ...
def handles(*kinds: type[object]) -> Callable[[Any], Any]:
    """Declare that a method of a :class:`MachineBase` handles events of these kinds."""

    def declare(method: Any) -> Any:
        method.handles = kinds
        return method

    return declare


class MachineBase(Generic[EventT, ActionT]):
    """A machine whose methods say with :func:`handles` which events they take.

    The table from kind of event to method is made once for each class. A method takes the event, and appends
    what is to be done to ``actions``.

    Attributes:
        actions: what is to be done after the event that is being handled, in order.
        now: the time of that event.
    """

    noun: ClassVar[str] = "a machine"
    """What it is, for messages."""

    _methods: ClassVar[dict[type[object], Callable[[Any, Any], None]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        declared = {kind: method for method in vars(cls).values() for kind in getattr(method, "handles", ())}
        cls._methods = cls._methods | declared

    def __init__(self) -> None:
        self.actions: list[ActionT] = []
        self.now = 0.0

    @classmethod
    def event_kinds(cls) -> frozenset[type[object]]:
        """Return the kinds of events that it takes."""
        return frozenset(cls._methods)

    def handle(self, event: EventT, now: float) -> list[ActionT]:
        """Take one event; see :class:`Machine`."""
        method = self._methods.get(event.__class__)
        if method is None:
            raise IllegalEvent(f"{type(event).__name__} is no event of {self.noun}")
        self.now = now
        method(self, event)
        self.settle()
        actions, self.actions = self.actions, []
        return actions

    def settle(self) -> None:
        """Do what follows from any event; called after the method that has handled it."""
