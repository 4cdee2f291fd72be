"""Connections of a transition: do they fit its ports and the places around, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from gspc_trio.core.similar import did_you_mean
from gspc_trio.workflow.formats.format import Problem
from gspc_trio.workflow.formats.xpnet.description import Connection, NetPlace, NetTransition, Port
from gspc_trio.workflow.formats.xpnet.scopes import Structures
from gspc_trio.workflow.formats.xpnet.types import LIST, SET, ULONG, ValueType, difference, fits
from gspc_trio.workflow.formats.xpnet.vocabulary import Spot

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
