"""A net that is being built from an xpnet file: its names, its expressions, and what is wrong so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec import Struct, field, structs

from gspc_trio.workflow.arcs import Place
from gspc_trio.workflow.calls import FunctionCall
from gspc_trio.workflow.formats.format import FormatError, Problem, Problems
from gspc_trio.workflow.formats.xpnet.compiling import ExpressionError, compile_value
from gspc_trio.workflow.formats.xpnet.connections import TypedPlace
from gspc_trio.workflow.formats.xpnet.description import Text
from gspc_trio.workflow.formats.xpnet.grammar import parse_expression
from gspc_trio.workflow.formats.xpnet.tree import Expression, Made, PathReference, TextStart, levels
from gspc_trio.workflow.formats.xpnet.types import ValueType
from gspc_trio.workflow.formats.xpnet.values import Shared, is_of, type_of
from gspc_trio.workflow.formats.xpnet.vocabulary import Spot
from gspc_trio.workflow.net import Net, Transition
from gspc_trio.workflow.tokens import CountedValue

MadeT = TypeVar("MadeT")

FIRINGS_MAX = 2**62
"""Expressions may fire for ever: a file says nothing of how often."""


class Lowered(Struct, eq=False):
    """A net, and what is known of it besides.

    Attributes:
        net: runs.
        ports: name of an input or output port -> its type.
        inputs: name of an input port -> the place of the net that it is; ports of one place share it.
        outputs: the same of the output ports.
        groups: (``place`` or ``transition``, name) -> names of the subnets around it.
        notes: what will not do what it seems to.
        answers: port that is asked -> type of the answers.
        layers: where a memory layer is first needed; nothing if none is.
    """

    net: Net
    ports: dict[str, ValueType] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    groups: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    notes: list[Problem] = field(default_factory=list)
    answers: dict[str, ValueType] = field(default_factory=dict)
    layers: list[Problem] = field(default_factory=list)


class Building:
    """A net that is being built.

    Args:
        name: of the net.

    Attributes:
        made: the net, and what is known of it.
        net: the same net.
        problems: what is wrong so far.
        sinks: name of a place with shared_sink, as written -> the place.
    """

    def __init__(self, name: str) -> None:
        self.made: Lowered = Lowered(Net(name, inline_firings_max=FIRINGS_MAX))
        self.net: Net = self.made.net
        self.problems: Problems = Problems()
        self.sinks: dict[str, TypedPlace] = {}
        self._shared: list[tuple[str, Problem]] = []

    def inside(self, name: str) -> Building:
        """Return what builds the net of an activity; what is wrong with it is noted here."""
        inner = Building(name)
        inner.problems = self.problems
        inner.made.groups, inner.made.notes = self.made.groups, self.made.notes
        inner.made.layers = self.made.layers
        return inner

    def check_sinks(self) -> None:
        """See that each expression that shares a value names a place that takes it in the end."""
        for name, problem in self._shared:
            if name not in self.sinks:
                self.report(problem)
        if self.sinks:
            self.net.references = SharedValues(
                {name: (one.name, one.type) for name, one in self.sinks.items()}
            )

    def report(self, problem: Problem) -> None:
        """Note a problem."""
        self.problems.append(problem)

    def note(self, problem: Problem) -> None:
        """Note what is no error, but does not do what it seems to."""
        self.made.notes.append(problem)

    def needs_layer(self, spot: Spot) -> None:
        """Note that tasks copy from or to a memory layer."""
        if not self.made.layers:
            told = spot.problem(
                f"<{spot.tag}> needs a memory layer: say --iml FILE (gspc-iml start makes one)"
            )
            self.made.layers.append(told)
            self.note(told)

    def add_place(self, place: Place, path: tuple[str, ...]) -> str:
        """Add a place of a net that is inside these subnets; return the name that it gets."""
        name = place.name
        while ("place", name) in self.made.groups or name in self.net.places:
            name += "'"
        self.made.groups["place", name] = path
        self.net.places[name] = structs.replace(place, name=name)
        return name

    def add_transition(self, transition: Transition, path: tuple[str, ...]) -> None:
        """Add a transition of a net that is inside these subnets."""
        name = transition.name
        while ("transition", name) in self.made.groups:
            name += "'"
        self.made.groups["transition", name] = path
        self.net.transitions[name] = structs.replace(transition, name=name)

    # Expressions

    def parsed(self, text: Text) -> Expression | None:
        """Return the tree of an expression, None if it is badly written."""
        element = text.spot.element
        start = TextStart(text.spot.source.path, element.text_line, element.text_column)
        try:
            expression = parse_expression(text.text, start)
            for part in expression.parts:
                for _, node in levels(part):
                    if isinstance(node, Made) and node.kind == "shared":
                        message = f'there is no place {node.names[0]!r} with shared_sink="true"'
                        self._shared.append((node.names[0], expression.source.problem(node.begin, message)))
            return expression
        except FormatError as error:
            for problem in error.problems:
                self.report(problem)
            return None

    def caught(self, make: Callable[[Expression], MadeT], expression: Expression) -> MadeT | None:
        """Return what is made of an expression, None if its types do not fit."""
        try:
            return make(expression)
        except FormatError as error:
            for problem in error.problems:
                self.report(problem)
            return None

    def compiled(self, text: Text, make: Callable[[Expression], MadeT]) -> MadeT | None:
        """Return what is made of an expression, None if something is wrong with it."""
        expression = self.parsed(text)
        return None if expression is None else self.caught(make, expression)

    def value(self, text: Text, kind: ValueType) -> object:
        """Return the value of an expression without names; None also where something is wrong with it."""
        function = self.compiled(text, partial(compile_value, inputs={}, wanted=kind))
        if function is None:
            return None
        try:
            return function()
        except ExpressionError as error:
            element = text.spot.element
            self.report(
                text.spot.source.problem(
                    f"{error.expression}: {error.reason}", element.text_line, element.text_column
                )
            )
            return None


class SharedValues:
    """Finds shared values in values of tokens, and says where they come when no token has them any more.

    Args:
        sinks: name of a place as written -> name and type of the place of the net.
    """

    def __init__(self, sinks: Mapping[str, tuple[str, ValueType | None]]) -> None:
        self._sinks = sinks

    def __call__(self, value: object) -> list[CountedValue]:
        found: list[CountedValue] = []
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, Shared):
                if one.place in self._sinks:
                    place, kind = self._sinks[one.place]
                    problem = "" if kind is None or is_of(one.value, kind) else self._problem(one)
                    found.append(CountedValue(one, place, one.value, problem))
                waiting.append(one.value)
            elif isinstance(one, dict):
                waiting += one.values()
            elif isinstance(one, tuple):
                waiting += one
        return found

    def _problem(self, shared: Shared) -> str:
        place, kind = self._sinks[shared.place]
        return f"it is of type {type_of(shared.value)}, and the place {place!r} takes {kind}"


def names_in(expression: Expression) -> set[str]:
    """Return the names that an expression reads or writes."""
    return {
        node.path[0]
        for part in expression.parts
        for _, node in levels(part)
        if isinstance(node, PathReference)
    }


def all_of(calls: Sequence[FunctionCall]) -> FunctionCall | None:
    """Return one call for several conditions that have to hold together."""
    if len(calls) < 2:
        return calls[0] if calls else None
    order = tuple(sorted({index for call in calls for index in call.order}))
    positions = [(call.function, tuple(order.index(index) for index in call.order)) for call in calls]

    def hold(*values: object) -> bool:
        return all(function(*[values[at] for at in places]) for function, places in positions)

    return FunctionCall(hold, order)
