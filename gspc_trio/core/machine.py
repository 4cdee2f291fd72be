"""The contract of all machines, and the base class that finds the handler of an event.

A machine is plain state: ``handle(event, now)`` returns the actions its shell has to carry out, ``check()``
asserts its invariants, ``deadline()`` names the time at which it wants a :class:`Tick`. It never reads a
clock, does no I/O, and an unknown or illegal event raises :class:`IllegalEvent` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
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
F = TypeVar("F", bound=Callable[..., None])
First = TypeVar("First")
Second = TypeVar("Second")
Third = TypeVar("Third")
Fourth = TypeVar("Fourth")
Method: TypeAlias = Callable[[M, EventT], None]
Table: TypeAlias = dict[type[object], Callable[[Any, Any], None]]

OnIllegal: TypeAlias = Callable[[int, IllegalEvent], None]
"""Told of an event of a run that cannot be taken: its place in it, and why."""


class _Mark:
    """A decorator by which a method says for which kinds of events, or of actions, it is.

    Args:
        name: attribute of the method that has the kinds.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @overload
    def __call__(self, first: type[First], /) -> Callable[[Method[M, First]], Method[M, First]]: ...
    @overload
    def __call__(
        self, first: type[First], second: type[Second], /
    ) -> Callable[[Method[M, First | Second]], Method[M, First | Second]]: ...
    @overload
    def __call__(
        self, first: type[First], second: type[Second], third: type[Third], /
    ) -> Callable[[Method[M, First | Second | Third]], Method[M, First | Second | Third]]: ...
    @overload
    def __call__(
        self, first: type[First], second: type[Second], third: type[Third], fourth: type[Fourth], /
    ) -> Callable[
        [Method[M, First | Second | Third | Fourth]], Method[M, First | Second | Third | Fourth]
    ]: ...
    @overload
    def __call__(
        self,
        first: type[object],
        second: type[object],
        third: type[object],
        fourth: type[object],
        fifth: type[object],
        /,
        *more: type[object],
    ) -> Callable[[F], F]: ...
    def __call__(self, *kinds: type[object]) -> Callable[[F], F]:
        def mark(method: F) -> F:
            setattr(method, self._name, kinds)
            return method

        return mark

    def table(self, owner: type) -> Table:
        """Return kind -> method of the methods that a class declares itself."""
        methods = vars(owner).values()
        return {kind: method for method in methods for kind in getattr(method, self._name, ())}


handles: _Mark = _Mark("handles")
"""Declare that a method of a :class:`MachineBase` handles events of these kinds."""

performs: _Mark = _Mark("performs")
"""Declare that a method of a :class:`Performer` carries out actions of these kinds."""


class Turn(Generic[ActionT]):
    """The event that is being handled, as a machine and its parts see it.

    Attributes:
        actions: what is to be done after it, in order.
        now: its time.
    """

    def __init__(self) -> None:
        self.actions: list[ActionT] = []
        self.now: float = 0.0


def _give_method(owner: type, name: str, method: Callable[..., object]) -> None:
    """Give a class a method, unless it has one of its own by this name."""
    if name not in vars(owner):
        setattr(owner, name, method)


def _copy(method: Callable[..., object]) -> FunctionType:
    """Return a method that is the same, with code of its own.

    Python keeps in the code of a function where the attributes of its objects are. Code that several classes
    share finds them anew each time, which is many times as dear.
    """
    assert isinstance(method, FunctionType)
    code = method.__code__.replace()
    return FunctionType(code, method.__globals__, method.__name__, None, method.__closure__)


class MachineBase(Turn[ActionT], Generic[EventT, ActionT]):
    """A machine whose methods say with :data:`handles` which events they take.

    The table from kind of event to method is made once for each class. A method takes the event, and appends
    what is to be done to ``actions``; the time is ``now``.
    """

    noun: ClassVar[str] = "a machine"
    """What it is, for messages."""

    gathered: ClassVar[frozenset[type[object]]] = frozenset()
    """Kinds of events of which :meth:`handle_run` takes several that have come at one time."""

    _methods: ClassVar[Table] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._methods = cls._methods | handles.table(cls)
        _give_method(cls, "handle", _copy(cls.handle))

    def __init__(self) -> None:
        super().__init__()
        # A look at the class is several times as dear as one at the object, and comes with every event.
        self._method_of = self._methods
        self._settles = type(self).settle is not MachineBase.settle

    @classmethod
    def event_kinds(cls) -> frozenset[type[object]]:
        """Return the kinds of events that it takes."""
        return frozenset(cls._methods)

    def handle(self, event: EventT, now: float) -> list[ActionT]:
        """Take one event; see :class:`Machine`."""
        try:
            method = self._method_of[type(event)]
        except KeyError:
            raise IllegalEvent(f"{type(event).__name__} is no event of {self.noun}") from None
        self.now = now
        method(self, event)
        if self._settles:
            self.settle()
        actions = self.actions
        self.actions: list[ActionT] = []
        return actions

    def handle_run(self, events: Sequence[EventT], now: float, refuse: OnIllegal) -> list[ActionT]:
        """Take several events of one kind in order, and do once what follows from them.

        Args:
            events: at least one, of a kind among ``gathered``.
            now: their time.
            refuse: told of those that are impossible now, which change nothing; the others are taken.
        """
        self.now: float = now
        self._take_run(events, refuse)
        self.settle()
        actions = self.actions
        self.actions = []
        return actions

    def _take_run(self, events: Sequence[EventT], refuse: OnIllegal) -> None:
        method = self._method_of[type(events[0])]
        for place, event in enumerate(events):
            try:
                method(self, event)
            except IllegalEvent as error:
                refuse(place, error)

    def settle(self) -> None:
        """Do what follows from any event; called after the method that has handled it."""


class ComposedMachine(MachineBase[EventT, ActionT]):
    """A machine of several parts: they share a state, which has the time and takes the actions.

    Args:
        turn: that state.
    """

    def __init__(self, turn: Turn[ActionT]) -> None:
        super().__init__()
        self._turn = turn

    def handle(self, event: EventT, now: float) -> list[ActionT]:
        """Take one event; see :class:`Machine`."""
        try:
            method = self._method_of[type(event)]
        except KeyError:
            raise IllegalEvent(f"{type(event).__name__} is no event of {self.noun}") from None
        turn = self._turn
        turn.now = now
        method(self, event)
        if self._settles:
            self.settle()
        actions, turn.actions = turn.actions, []
        return actions

    def handle_run(self, events: Sequence[EventT], now: float, refuse: OnIllegal) -> list[ActionT]:
        """Take several events of one kind; see :meth:`MachineBase.handle_run`."""
        turn = self._turn
        turn.now = now
        self._take_run(events, refuse)
        self.settle()
        actions, turn.actions = turn.actions, []
        return actions


def _performing(methods: Table) -> Callable[[object, object], None]:
    def perform(shell: object, action: object) -> None:
        """Carry out one action."""
        methods[type(action)](shell, action)

    return perform


class Performer(Generic[ActionT]):
    """A shell whose methods say with :data:`performs` which actions of a machine they carry out."""

    _performers: ClassVar[Table] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._performers = cls._performers | performs.table(cls)
        _give_method(cls, "perform", _performing(cls._performers))

    @classmethod
    def action_kinds(cls) -> frozenset[type[object]]:
        """Return the kinds of actions that it carries out."""
        return frozenset(cls._performers)

    def perform(self, action: ActionT) -> None:
        """Carry out one action."""
        self._performers[type(action)](self, action)

    def performers(self) -> dict[type[object], Callable[[Any], None]]:
        """Return kind of action -> what carries it out: for a loop that saves a call of :meth:`perform`."""
        return {kind: MethodType(method, self) for kind, method in self._performers.items()}
