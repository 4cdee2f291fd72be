"""Places of an xpnet file: their tokens at the beginning, generators, and the ports of the whole workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gspc_trio.workflow.arcs import Place
from gspc_trio.workflow.calls import SaysAll
from gspc_trio.workflow.formats.format import Problem
from gspc_trio.workflow.formats.xpnet.building import Building
from gspc_trio.workflow.formats.xpnet.connections import TypedPlace, port_types, unknown_name
from gspc_trio.workflow.formats.xpnet.description import Defun, NetBody, NetPlace, Port
from gspc_trio.workflow.formats.xpnet.scopes import Structures, shared_place
from gspc_trio.workflow.formats.xpnet.types import INTEGRAL_RANGES, ValueType
from gspc_trio.workflow.formats.xpnet.vocabulary import TRUE

WAIT_FOR_OUTPUT = "drts.wait_for_output"
"""Property of a workflow that goes on until each output port has a token."""

CHAR_LAST = "\xff"
"""The last char that a generator makes."""


class Exhausted(SaysAll):
    """A generator has made all values of its type."""


def add_places(
    building: Building,
    body: NetBody,
    path: tuple[str, ...],
    outer: Mapping[str, TypedPlace],
    names: Mapping[str, str],
) -> dict[str, TypedPlace]:
    """Add the places of a net; return name -> place.

    Args:
        building: takes them.
        body: the net.
        path: names of the subnets around it.
        outer: virtual place -> the place that it stands for.
        names: place -> another name that it gets.
    """
    structures = Structures(body.structs, body.types, building.report)
    found: dict[str, TypedPlace] = {}
    for place in body.places.values():
        kind = structures.type_of(place.type, place.spot)
        if place.virtual and place.name in outer:
            found[place.name] = TypedPlace(place, kind, outer[place.name].name)
            continue
        if place.virtual:
            building.report(
                place.spot.problem(
                    f"the virtual place {place.name!r} needs a <place-map> where the net is used"
                )
            )
        if shared_place(place.type):
            _check_sink(building, place, body)
        made = _place(building, place, kind, names.get(place.name) or ".".join((*path, place.name)))
        found[place.name] = TypedPlace(place, kind, building.add_place(made, path))
        if place.shared_sink and kind is not None:
            other = building.sinks.setdefault(place.name, found[place.name])
            if other is not found[place.name]:
                building.report(
                    place.spot.problem(
                        f"there are two places with shared_sink named {place.name!r}; the other is in line "
                        f"{other.written.spot.element.line}: rename one"
                    )
                )
    return found


def _place(building: Building, place: NetPlace, kind: ValueType | None, name: str) -> Place:
    initial = [] if kind is None else [building.value(token, kind) for token in place.tokens]
    successor = None
    if place.generator:
        _check_generator(building, place)
        successor = successor_of(kind) if kind is not None else None
        if kind is not None and successor is None:
            building.report(place.spot.problem(f"a generator makes numbers, chars or strings, not {kind}"))
        elif kind is not None:
            initial = [first_value(kind)]
    return Place(name, tuple(initial), may_keep=True, may_lack=True, successor=successor)


def _check_sink(building: Building, place: NetPlace, body: NetBody) -> None:
    sink = body.places.get(shared_place(place.type))
    if sink is None or not (sink.shared_sink or sink.virtual):
        building.report(
            place.spot.problem(
                f'the type {place.type} needs a place {shared_place(place.type)!r} with shared_sink="true" '
                "in this net"
            )
        )


def _check_generator(building: Building, place: NetPlace) -> None:
    if place.tokens:
        building.report(place.spot.problem("a generator makes its tokens itself: remove its <token>"))
    if place.put_token or place.shared_sink or place.virtual:
        building.report(place.spot.problem("a generator is neither virtual nor put_token nor shared_sink"))


def first_value(kind: ValueType) -> object:
    """Return the value that a generator begins with."""
    return "a" if kind.kind in ("char", "string") else 0


def successor_of(kind: ValueType) -> Callable[[object], object] | None:
    """Return what makes the next value of a type, None if generators make none of this type."""
    name = kind.kind
    if name in INTEGRAL_RANGES:
        return partial(_next_number, str(kind), INTEGRAL_RANGES[name][1])
    if name == "bigint":
        return partial(_next_number, name, None)
    return {"char": _next_char, "string": _next_string}.get(name)


def _next_number(kind: str, most: int | None, value: object) -> object:
    assert isinstance(value, int)
    if most is not None and value >= most:
        raise Exhausted(f"the generator has made all values of type {kind}, up to {value}")
    return value + 1


def _next_char(value: object) -> object:
    assert isinstance(value, str)
    if value >= CHAR_LAST:
        raise Exhausted(f"the generator has made all chars, up to {value!r}")
    return chr(ord(value) + 1)


def _next_string(value: object) -> object:
    """Return the word that follows: a, b, ..., z, aa, ab, ..."""
    assert isinstance(value, str)
    kept = value.rstrip("z")
    if not kept:
        return "a" * (len(value) + 1)
    return kept[:-1] + chr(ord(kept[-1]) + 1) + "a" * (len(value) - len(kept))


# The workflow's own ports


def names_of_ports(building: Building, main: Defun, body: NetBody) -> dict[str, str]:
    """Return place -> the name that it gets in the net, for places of ports and those in their way.

    A place gets the name of its port. It has one name, and may have several ports: it is its own, if that is
    the name of a port or tokens are put there, or else that of an input.
    """
    ports: dict[str, list[Port]] = {}
    for port in main.ports.values():
        if port.place in body.places:
            ports.setdefault(port.place, []).append(port)
    names: dict[str, str] = {}
    for place, its in ports.items():
        wanted = [port.name for port in its if port.is_input] or [port.name for port in its]
        is_own = body.places[place].put_token or any(port.name == place for port in its)
        names[place] = place if is_own else min(wanted)
    taken = {name: place for place, name in names.items()}
    for name, one in body.places.items():
        other = main.ports.get(name)
        if one.put_token and other is not None and other.place != name:
            building.report(
                one.spot.problem(
                    f"tokens are put to the place {name!r}, and the port {name!r} in line "
                    f"{other.spot.element.line} is of another place: rename one"
                )
            )
        elif name in taken and taken[name] != name and name not in names:
            names[name] = f"{name}'"
    return names


def add_ports(building: Building, main: Defun, places: Mapping[str, TypedPlace]) -> None:
    """Make the ports of the whole workflow ports of the net."""
    structures = Structures(main.structs, main.types, building.report)
    types = port_types(main.ports.values(), structures)
    for port in main.ports.values():
        place = places.get(port.place)
        if port.direction == "tunnel":
            building.report(port.spot.problem("a whole workflow has nothing around it: no <tunnel>"))
        elif not port.place:
            building.report(place_missing(port))
        elif place is None:
            building.report(unknown_name(port.spot, "place", port.place, places, "the net"))
        elif port.name in types:
            check_port(building, port, types[port.name], place)
            _add_port(building, port, types[port.name], place)
    waits = main.properties.get(WAIT_FOR_OUTPUT, "false").strip() in TRUE
    building.net.until_outputs = waits
    for place in places.values():
        if place.written.put_token and place.type is not None:
            building.made.ports.setdefault(place.name, place.type)
            building.made.inputs[place.name] = place.name
            building.net.replace_place(place.name, is_input=True, is_optional=True, is_open=waits)


def place_missing(port: Port) -> Problem:
    """Return the problem of a port of a net that names no place."""
    return port.spot.problem(f"the port {port.name!r} of a net needs place=, the place that it is of")


def check_port(building: Building, port: Port, kind: ValueType, place: TypedPlace) -> None:
    """See that a port and its place have one type."""
    if place.type is not None and place.type != kind:
        building.report(
            port.spot.problem(f"the port {port.name!r} is {kind}, and its place {port.place!r} {place.type}")
        )


def _add_port(building: Building, port: Port, kind: ValueType, place: TypedPlace) -> None:
    net = building.net
    building.made.ports[port.name] = kind
    if port.is_input:
        building.made.inputs[port.name] = place.name
        optional = bool(place.written.tokens) or place.written.put_token
        net.replace_place(place.name, is_input=True, is_optional=optional)
    if port.is_output:
        building.made.outputs[port.name] = place.name
        net.replace_place(place.name, is_output=True)
