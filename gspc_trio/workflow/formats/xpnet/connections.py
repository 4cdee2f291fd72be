"""Connections of a transition: do they fit its ports and the places around, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from gspc_trio.core.similar import did_you_mean
from gspc_trio.workflow.arcs import InputArc, OutputArc
from gspc_trio.workflow.calls import FunctionCall
from gspc_trio.workflow.formats.format import Problem
from gspc_trio.workflow.formats.xpnet.description import Connection, NetPlace, NetTransition, Port
from gspc_trio.workflow.formats.xpnet.scopes import Structures
from gspc_trio.workflow.formats.xpnet.types import ANY, LIST, SET, ULONG, ValueType, difference, fits
from gspc_trio.workflow.formats.xpnet.values import BadXpnetValue, XpnetValue, is_of, type_of
from gspc_trio.workflow.formats.xpnet.vocabulary import Spot
from gspc_trio.workflow.net import Transition

COUNT = "number-of-tokens"

INPUTS = frozenset({"in", "inout", "read", COUNT})
"""Kinds of connections by which a port gets a value."""

OUTPUTS = frozenset({"out", "inout", "out-many"})
"""Kinds of connections by which a value comes to a place."""


class TypedPlace(Struct, frozen=True, eq=False):
    """A place, and where it is in the net that is built.

    Attributes:
        written: as the file has it.
        type: of its tokens, None if it has no type that is known.
        name: of the place of the net that is built.
    """

    written: NetPlace
    type: ValueType | None
    name: str


class TransitionConnections(Struct, frozen=True, eq=False):
    """How a transition is connected.

    Attributes:
        types: port -> type, of the ports whose type is known.
        inputs: port -> its one connection that brings a value.
        outputs: connections that take values to places, in the order of the file.
        eureka, responses: the connections of these kinds.
        unconnected: input ports without a connection: the transition never fires.
    """

    types: Mapping[str, ValueType]
    inputs: Mapping[str, Connection]
    outputs: tuple[Connection, ...]
    eureka: tuple[Connection, ...]
    responses: tuple[Connection, ...]
    unconnected: tuple[str, ...]


def port_types(ports: Iterable[Port], structures: Structures) -> dict[str, ValueType]:
    """Return port -> type; types that are not known are reported and left out."""
    found = ((port.name, structures.type_of(port.type, port.spot)) for port in ports)
    return {name: kind for name, kind in found if kind is not None}


def connections_of(
    transition: NetTransition,
    types: Mapping[str, ValueType],
    places: Mapping[str, TypedPlace],
    report: Callable[[Problem], None],
) -> TransitionConnections:
    """Return how a transition is connected; report what does not fit."""
    ports = transition.function.ports
    inputs: dict[str, Connection] = {}
    outputs: list[Connection] = []
    eureka: list[Connection] = []
    responses: list[Connection] = []
    for connection in transition.connections:
        port = ports.get(connection.port)
        if port is None:
            report(
                unknown_name(
                    connection.spot, "port", connection.port, ports, f"transition {transition.name!r}"
                )
            )
            continue
        if not _direction_fits(connection, port, report):
            continue
        kind = types.get(port.name)
        if connection.kind == "eureka":
            _expect(connection, kind, SET, report)
            eureka.append(connection)
            continue
        if connection.kind == "response":
            if connection.place not in ports:
                report(unknown_name(connection.spot, "port", connection.place, ports, "the transition"))
            responses.append(connection)
            continue
        if not _place_fits(connection, kind, places, report):
            continue
        if connection.kind in INPUTS:
            other = inputs.setdefault(port.name, connection)
            if other is not connection:
                line = other.spot.element.line
                report(
                    connection.spot.problem(f"the port {port.name!r} gets a value already, in line {line}")
                )
        if connection.kind in OUTPUTS:
            outputs.append(connection)
    unconnected = tuple(port.name for port in ports.values() if port.is_input and port.name not in inputs)
    return TransitionConnections(types, inputs, tuple(outputs), tuple(eureka), tuple(responses), unconnected)


def _direction_fits(connection: Connection, port: Port, report: Callable[[Problem], None]) -> bool:
    kind = connection.kind
    if kind == "inout":
        fitting = port.direction == "inout"
    else:
        fitting = port.is_input if kind in INPUTS else port.is_output
    if not fitting:
        report(
            connection.spot.problem(
                f"<connect-{kind}> does not fit the port {port.name!r}, which is <{port.direction}> "
                f"(line {port.spot.element.line})"
            )
        )
    return fitting


def _place_fits(
    connection: Connection,
    kind: ValueType | None,
    places: Mapping[str, TypedPlace],
    report: Callable[[Problem], None],
) -> bool:
    place = places.get(connection.place)
    if place is None:
        report(unknown_name(connection.spot, "place", connection.place, places, "the net"))
        return False
    if connection.kind == COUNT:
        _expect(connection, kind, ULONG, report)
        return True
    if connection.kind == "out-many":
        _expect(connection, kind, LIST, report)
    elif kind is not None and place.type is not None and not fits(kind, place.type):
        report(
            connection.spot.problem(
                f"the port {connection.port!r} and the place {connection.place!r} have different types: "
                f"{difference(kind, place.type)}"
            )
        )
    if place.written.generator and connection.kind != "in":
        report(
            connection.spot.problem(
                f"{connection.place!r} is a generator: only <connect-in> takes from it, and nothing else"
            )
        )
    return True


def _expect(
    connection: Connection, kind: ValueType | None, wanted: ValueType, report: Callable[[Problem], None]
) -> None:
    if kind is not None and not fits(kind, wanted):
        report(
            connection.spot.problem(
                f"<connect-{connection.kind}> needs a port of type {wanted}; {connection.port!r} is {kind}"
            )
        )


def unknown_name(spot: Spot, what: str, name: str, known: Iterable[str], where: str) -> Problem:
    """Return the problem of a name that is not there."""
    known = list(known)
    there = ", ".join(known) or "none"
    return spot.problem(f"{where} has no {what} {name!r}{did_you_mean(name, known)}; there are: {there}")


class OutputPort(Struct, frozen=True):
    """One output of a transition.

    Attributes:
        name: of the port.
        position: of its value among the results.
        elements: of a list that falls apart, the type that its elements must have; None: it does not.
    """

    name: str
    position: int
    elements: ValueType | None = None


def outputs_of(
    connections: Sequence[Connection], names: Sequence[str], places: Mapping[str, TypedPlace]
) -> tuple[tuple[OutputPort, ...], tuple[OutputArc, ...]]:
    """Return the outputs for some results, and their arcs; a list that falls apart has its own."""
    outputs = [OutputPort(name, position) for position, name in enumerate(names)]
    arcs = []
    for connection in connections:
        if connection.port not in names:
            continue
        place = places[connection.place]
        is_many = connection.kind == "out-many"
        elements = (place.type or ANY) if is_many else None
        output = OutputPort(connection.port, names.index(connection.port), elements)
        if output not in outputs:
            outputs.append(output)
        arcs.append(OutputArc(place.name, outputs.index(output)))
    return tuple(outputs), tuple(arcs)


def direct(
    name: str,
    arcs: tuple[InputArc, ...],
    function: Callable[..., Sequence[object]],
    outputs: tuple[OutputPort, ...],
    output_arcs: tuple[OutputArc, ...],
    *,
    condition: FunctionCall | None = None,
    priority: int = 0,
    ends_groups: int = -1,
) -> Transition:
    """Return a transition that the engine fires itself; its function returns the results."""
    if any(output.elements is not None for output in outputs):
        function = _split(function, outputs)
    return Transition(
        name=name,
        run=function,
        inputs=arcs,
        outputs=tuple((output.name, output.elements is not None) for output in outputs),
        output_arcs=output_arcs,
        condition=condition,
        priority=priority,
        inline_call=FunctionCall(function, tuple(range(len(arcs)))),
        is_inline=True,
        is_direct=True,
        ends_groups=ends_groups,
    )


def _split(
    function: Callable[..., Sequence[object]], outputs: Sequence[OutputPort]
) -> Callable[..., Sequence[object]]:
    """Return what returns the value of each output, lists checked for their elements."""

    def call(*values: object) -> list[object]:
        found = function(*values)
        return [
            found[one.position] if one.elements is None else elements(found[one.position], one.elements)
            for one in outputs
        ]

    return call


def elements(values: XpnetValue, kind: ValueType) -> XpnetValue:
    """Return a list whose elements are to be tokens of a type.

    Raises:
        BadXpnetValue: one is of another type.
    """
    for number, value in enumerate(values, 1):
        if not is_of(value, kind):
            there = type_of(value)
            raise BadXpnetValue(f"element {number} of the list is of type {there}, and {kind} is needed")
    return values


def ending_groups(connections: TransitionConnections, results: Sequence[str]) -> int:
    """Return which of the results names groups of tasks that end; -1 if none does."""
    named = [one.port for one in connections.eureka if one.port in results]
    return results.index(named[0]) if named else -1
