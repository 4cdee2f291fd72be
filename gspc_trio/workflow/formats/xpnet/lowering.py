"""From the description of an xpnet file to a net that the engine runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

from msgspec import structs

from gspc_trio.core.code import Variants
from gspc_trio.core.task import (
    CORE,
    DEFAULT_OPTIONS,
    Requirement,
    Shape,
    TaskOptions,
    TaskVariant,
    TaskVariants,
)
from gspc_trio.workflow.arcs import ANSWERS, InputArc, OutputArc, Place
from gspc_trio.workflow.calls import FunctionCall, Run
from gspc_trio.workflow.formats.format import FormatError, Problem
from gspc_trio.workflow.formats.xpnet.building import Building, Lowered, all_of, names_in
from gspc_trio.workflow.formats.xpnet.compiling import compile_condition, compile_results, compile_value
from gspc_trio.workflow.formats.xpnet.connections import (
    COUNT,
    TransitionConnections,
    TypedPlace,
    connections_of,
    direct,
    elements,
    ending_groups,
    outputs_of,
    port_types,
    unknown_name,
)
from gspc_trio.workflow.formats.xpnet.description import (
    Connection,
    Defun,
    Module,
    Modules,
    NetBody,
    NetPlace,
    NetTransition,
    Text,
)
from gspc_trio.workflow.formats.xpnet.module_tasks import ModuleLanguages, ModuleMaking
from gspc_trio.workflow.formats.xpnet.places import (
    add_places,
    add_ports,
    check_port,
    names_of_ports,
    place_missing,
)
from gspc_trio.workflow.formats.xpnet.scopes import Structures
from gspc_trio.workflow.formats.xpnet.types import ValueType
from gspc_trio.workflow.in_flight import IN_FLIGHT
from gspc_trio.workflow.net import Subnet, Transition

Path = tuple[str, ...]
"""Names of the subnets around something, the outermost first."""


def lowered(name: str, main: Defun, problems: Sequence[Problem], languages: ModuleLanguages) -> Lowered:
    """Return the net of a whole workflow.

    Args:
        name: of the net.
        main: what the file describes.
        problems: what is wrong with it already.
        languages: what there is for modules.

    Raises:
        FormatError: all that is wrong.
    """
    lowering = Lowering(Building(name), languages)
    if main.body is not None and not isinstance(main.body, NetBody):
        main = _in_a_net(name, main)
    if isinstance(main.body, NetBody):
        lowering.whole(main, main.body)
    lowering.building.check_sinks()
    if problems or lowering.building.problems:
        raise FormatError([*problems, *lowering.building.problems])
    return lowering.building.made


class Lowering:
    """Makes a net of a description; notes what is wrong and goes on.

    Attributes:
        building: the net.
        languages: what there is for modules.
    """

    def __init__(self, building: Building, languages: ModuleLanguages) -> None:
        self.building = building
        self.languages = languages
        self.report: Callable[[Problem], None] = building.report

    def whole(self, main: Defun, body: NetBody) -> None:
        """Add the net of a whole workflow, with its ports."""
        places = add_places(self.building, body, (), {}, names_of_ports(self.building, main, body))
        add_ports(self.building, main, places)
        self._transitions(body, places, ())

    def _transitions(self, body: NetBody, places: Mapping[str, TypedPlace], path: Path) -> None:
        for transition in body.transitions.values():
            structures = Structures(transition.function.structs, transition.function.types, self.report)
            types = port_types(transition.function.ports.values(), structures)
            connections = connections_of(transition, types, places, self.report)
            is_known = len(types) == len(transition.function.ports)
            if not is_known and not isinstance(transition.function.body, NetBody):
                continue  # that is told; what else there would be to tell comes of it
            self._transition(transition, connections, places, path)

    def _transition(
        self,
        transition: NetTransition,
        connections: TransitionConnections,
        places: Mapping[str, TypedPlace],
        path: Path,
    ) -> None:
        body = transition.function.body
        if isinstance(body, NetBody):
            self._no_memory(transition.function)
            self._subnet(transition, connections, places, path)
        elif transition.place_maps:
            self.report(
                transition.place_maps[0].spot.problem("a <place-map> is for transitions that are nets")
            )
        elif isinstance(body, Text):
            self._no_memory(transition.function)
            self._expression(transition, body, connections, places, path)
        elif isinstance(body, Module):
            self._task(transition, [body], connections, places, path)
        elif isinstance(body, Modules):
            self._task(transition, body.preferred, connections, places, path)

    def _no_memory(self, function: Defun) -> None:
        spots = [one.spot for one in function.buffers] + [one.spot for one in function.transfers]
        for spot in spots:
            self.report(spot.problem(f"<{spot.tag}> is for functions that are modules"))

    def _can_fire(
        self, transition: NetTransition, connections: TransitionConnections, is_net: bool = False
    ) -> bool:
        """Return whether a transition gets what it needs to fire; note or report why not."""
        name = transition.name
        if connections.unconnected:
            why = f"transition {name!r} never fires: its port {connections.unconnected[0]!r} is not connected"
            self.building.note(transition.spot.problem(why))
            return False
        if any(one.kind in ("in", "inout") for one in connections.inputs.values()):
            return True
        if connections.inputs and (transition.conditions or transition.function.conditions):
            return True  # it fires until its conditions do not hold any more
        if connections.inputs:
            self.report(
                transition.spot.problem(
                    f"transition {name!r} only looks at tokens and takes none, so it would fire for ever: "
                    "connect one of its ports by <connect-in>, or give it a <condition>"
                )
            )
        elif not is_net:
            why = f"transition {name!r} never fires: it has no input port"
            self.building.note(transition.spot.problem(why))
        return False

    # Subnets

    def _subnet(
        self,
        transition: NetTransition,
        connections: TransitionConnections,
        places: Mapping[str, TypedPlace],
        path: Path,
    ) -> None:
        """Add a net in place of a transition, unfolded or as one of activities."""
        body = transition.function.body
        assert isinstance(body, NetBody)
        if transition.place_maps and transition.priority is not None:
            self.report(
                transition.place_maps[0].spot.problem(
                    "a <place-map> needs a net that is unfolded, and a priority forbids that: remove one"
                )
            )
        path = (*path, transition.name)
        is_unfolded = transition.place_maps or (transition.inline and transition.priority is None)
        if not is_unfolded:
            self._activity(transition, body, connections, places, path)
            return
        for one in connections.responses:
            self.report(
                one.spot.problem(
                    "the net of this transition is unfolded, and nobody answers for all of it: connect the "
                    "response of a transition in it"
                )
            )
        mapped = self._mapped(transition, body, places)
        inner = add_places(self.building, body, path, mapped, {})
        self._unfolded(transition, connections, places, inner, path)
        self._transitions(body, inner, path)

    def _unfolded(
        self,
        transition: NetTransition,
        connections: TransitionConnections,
        places: Mapping[str, TypedPlace],
        inner: Mapping[str, TypedPlace],
        path: Path,
    ) -> None:
        """Add a transition for all inputs of a net, and one for all its outputs."""
        name, function = ".".join(path), transition.function
        taken = self._inner_places(function, "in", connections.types, inner)
        given = self._inner_places(function, "out", connections.types, inner)
        if self._can_fire(transition, connections, is_net=True):
            arcs = self._arcs(connections, places)
            taking = Transition(
                name=f"{name} (in)",
                run=None,
                inputs=arcs,
                output_arcs=tuple(
                    OutputArc(taken[arc.name], -1, index)
                    for index, arc in enumerate(arcs)
                    if arc.name in taken
                ),
                condition=self._condition(transition, connections, arcs),
                is_inline=True,
            )
            self.building.add_transition(taking, path)
        used = [one for one in connections.outputs if one.port in given]
        if used:
            names = list(dict.fromkeys(one.port for one in (*used, *connections.eureka)))
            arcs = tuple(InputArc(port, given[port]) for port in names if port in given)
            outputs, output_arcs = outputs_of(used, names, places)
            ends_groups = ending_groups(connections, names)
            giving = direct(f"{name} (out)", arcs, _same, outputs, output_arcs, ends_groups=ends_groups)
            self.building.add_transition(giving, path)

    def _activity(
        self,
        transition: NetTransition,
        body: NetBody,
        connections: TransitionConnections,
        places: Mapping[str, TypedPlace],
        path: Path,
    ) -> None:
        """Add a transition each firing of which is an activity: the net runs with places of its own."""
        name = ".".join(path)
        building = self.building.inside(name)
        inside = Lowering(building, self.languages)
        inner = add_places(building, body, path, {}, {})
        taken = self._inner_places(transition.function, "in", connections.types, inner)
        given = self._inner_places(transition.function, "out", connections.types, inner)
        inside._transitions(body, inner, path)
        building.check_sinks()
        arcs = self._arcs(connections, places)
        condition = self._condition(transition, connections, arcs)
        used = [one for one in connections.outputs if one.port in given]
        others = [one.port for one in (*connections.eureka, *connections.responses) if one.port in given]
        names = list(dict.fromkeys([*(one.port for one in used), *others]))
        outputs, output_arcs = outputs_of(used, names, places)
        subnet = Subnet(
            building.net,
            tuple(taken.get(arc.name, "") for arc in arcs),
            tuple(given[one.name] for one in outputs),
            tuple(None if one.elements is None else partial(elements, kind=one.elements) for one in outputs),
            self._answers(connections, arcs, names),
        )
        if not self._can_fire(transition, connections):
            return
        self.building.add_transition(
            Transition(
                name=name,
                run=None,
                inputs=arcs,
                outputs=tuple((one.name, one.elements is not None) for one in outputs),
                output_arcs=output_arcs,
                condition=condition,
                priority=transition.priority or 0,
                in_flight=IN_FLIGHT,
                ends_groups=ending_groups(connections, names),
                subnet=subnet,
            ),
            path[:-1],
        )

    def _mapped(
        self, transition: NetTransition, body: NetBody, places: Mapping[str, TypedPlace]
    ) -> dict[str, TypedPlace]:
        """Return virtual place -> the place around that it is."""
        virtual = {place.name for place in body.places.values() if place.virtual}
        tunnels = {
            port.name: port.place or port.name
            for port in transition.function.ports.values()
            if port.direction == "tunnel"
        }
        mapped: dict[str, TypedPlace] = {}
        for one in transition.place_maps:
            name = tunnels.get(one.virtual, one.virtual)
            if name not in virtual:
                self.report(unknown_name(one.spot, "virtual place", name, sorted(virtual), "the inner net"))
            elif one.real not in places:
                self.report(unknown_name(one.spot, "place", one.real, places, "the net"))
            elif name in mapped:
                self.report(one.spot.problem(f"the virtual place {name!r} is mapped twice"))
            else:
                mapped[name] = places[one.real]
        return mapped

    def _inner_places(
        self,
        function: Defun,
        direction: str,
        types: Mapping[str, ValueType],
        inner: Mapping[str, TypedPlace],
    ) -> dict[str, str]:
        """Return port -> place of the net that is built, for the ports of a subnet."""
        found = {}
        for port in function.ports.values():
            if not (port.is_input if direction == "in" else port.is_output):
                continue
            if not port.place:
                self.report(place_missing(port))
            elif port.place not in inner:
                self.report(unknown_name(port.spot, "place", port.place, inner, "the net of this function"))
            elif port.name in types:
                check_port(self.building, port, types[port.name], inner[port.place])
                found[port.name] = inner[port.place].name
        return found

    def _arcs(
        self, connections: TransitionConnections, places: Mapping[str, TypedPlace]
    ) -> tuple[InputArc, ...]:
        arcs = []
        for port, connection in connections.inputs.items():
            if port not in connections.types:
                continue
            name = places[connection.place].name
            if connection.kind == COUNT:
                name = self._counter_of(name)
            consumed = connection.kind in ("in", "inout")
            arcs.append(InputArc(port, name, consumed=consumed))
        return tuple(arcs)

    def _counter_of(self, place: str) -> str:
        """Return the place that has the number of tokens of another one; add it if it is not there."""
        name = f"number of {place}"
        if name not in self.building.net.places:
            self.building.net.places[name] = Place(name, may_keep=True, counts=place)
            self.building.made.groups["place", name] = self.building.made.groups.get(("place", place), ())
        return name

    def _condition(
        self, transition: NetTransition, connections: TransitionConnections, arcs: Sequence[InputArc]
    ) -> FunctionCall | None:
        """Return what all conditions of a transition and of its function say together."""
        calls: list[FunctionCall] = []
        names = [arc.name for arc in arcs]
        types = _input_types(transition, connections, arcs)
        for text in (*transition.function.conditions, *transition.conditions):
            expression = self.building.parsed(text)
            if expression is None:
                continue
            used = names_in(expression)
            inputs = {name: kind for name, kind in types.items() if name in used}
            function = self.building.caught(partial(compile_condition, inputs=inputs), expression)
            if function is not None and inputs.keys() <= set(names):
                calls.append(FunctionCall(function, tuple(names.index(name) for name in inputs)))
        return all_of(calls)

    def _expression(
        self,
        transition: NetTransition,
        body: Text,
        connections: TransitionConnections,
        places: Mapping[str, TypedPlace],
        path: Path,
    ) -> None:
        arcs = self._arcs(connections, places)
        condition = self._condition(transition, connections, arcs)
        wanted = dict.fromkeys(
            connection.port
            for connection in (*connections.outputs, *connections.eureka, *connections.responses)
        )
        results = {name: connections.types[name] for name in wanted if name in connections.types}
        inputs = _input_types(transition, connections, arcs)
        results_of = self.building.compiled(body, partial(compile_results, inputs=inputs, results=results))
        if results_of is None or not self._can_fire(transition, connections):
            return
        outputs, output_arcs = outputs_of(connections.outputs, list(results), places)
        output_arcs += self._responses(connections, arcs, list(results))
        self.building.add_transition(
            direct(
                ".".join((*path, transition.name)),
                arcs,
                results_of,
                outputs,
                output_arcs,
                condition=condition,
                priority=transition.priority or 0,
                ends_groups=ending_groups(connections, list(results)),
            ),
            path,
        )

    def _responses(
        self, connections: TransitionConnections, arcs: Sequence[InputArc], names: Sequence[str]
    ) -> tuple[OutputArc, ...]:
        """Return the arcs that answer who has asked with a token: that token goes first, then the answer."""
        made: list[OutputArc] = []
        for arc, output in self._answers(connections, arcs, names):
            made += (OutputArc(ANSWERS, -1, arc), OutputArc(ANSWERS, output))
            self.building.net.places.setdefault(ANSWERS, Place(ANSWERS, may_keep=True))
        return tuple(made)

    def _answers(
        self, connections: TransitionConnections, arcs: Sequence[InputArc], names: Sequence[str]
    ) -> tuple[tuple[int, int], ...]:
        """Return for each response the input that asks, and which of the results answers it."""
        made = []
        inputs = [arc.name for arc in arcs]
        for one in connections.responses:
            if one.place not in inputs or one.port not in names:
                self.report(
                    one.spot.problem(
                        f"a response goes to who has put the token of a connected input port; {one.place!r} "
                        "is none"
                    )
                )
                continue
            index = inputs.index(one.place)
            made.append((index, names.index(one.port)))
            self.building.made.answers[arcs[index].place] = connections.types[one.port]
        return tuple(made)

    # Modules

    def _task(
        self,
        transition: NetTransition,
        modules: Sequence[Module],
        connections: TransitionConnections,
        places: Mapping[str, TypedPlace],
        path: Path,
    ) -> None:
        """Add a transition whose tasks run a module: the first one for whose target there is a resource."""
        arcs = self._arcs(connections, places)
        condition = self._condition(transition, connections, arcs)
        names = list(
            dict.fromkeys(
                one.port for one in (*connections.outputs, *connections.eureka, *connections.responses)
            )
        )
        outputs, output_arcs = outputs_of(connections.outputs, names, places)
        output_arcs += self._responses(connections, arcs, names)
        splitting = {one.name: one.elements for one in outputs if one.elements is not None}
        inputs = [arc.name for arc in arcs]
        runs: dict[str, object] = {}
        for module in modules:
            making = ModuleMaking(
                module, transition.function, connections.types, inputs, self.languages, self.report
            )
            run = making.made(splitting)
            if run is not None:
                runs[module.target] = run
        for transfer in transition.function.transfers[:1]:
            self.building.needs_layer(transfer.spot)
        group = self._group(transition, modules, connections, arcs)
        if len(runs) < len(modules) or not self._can_fire(transition, connections):
            return
        shapes = [_shape(transition, module) for module in modules]
        ways = [TaskVariant(name, number, shapes[number]) for number, name in enumerate(runs)]
        is_one = len(modules) == 1
        self.building.add_transition(
            Transition(
                name=".".join((*path, transition.name)),
                run=cast("Run", next(iter(runs.values()))) if is_one else Variants.by_order(**runs),
                inputs=arcs,
                outputs=tuple((output.name, output.elements is not None) for output in outputs),
                output_arcs=output_arcs,
                condition=condition,
                priority=transition.priority or 0,
                shape=shapes[0],
                options=_options(transition.function),
                group=group,
                ends_groups=ending_groups(connections, names),
                variants=None if is_one else TaskVariants(tuple(ways), in_order=True),
            ),
            path,
        )

    def _group(
        self,
        transition: NetTransition,
        modules: Sequence[Module],
        connections: TransitionConnections,
        arcs: Sequence[InputArc],
    ) -> FunctionCall | None:
        """Return what says to which group a task belongs, None if to none."""
        module = modules[0]
        text = None if module.eureka_group is None else module.eureka_group.text
        for other in modules[1:]:
            if (None if other.eureka_group is None else other.eureka_group.text) != text:
                why = "the modules of all targets are one task: give them the same eureka-group"
                self.report(other.spot.problem(why))
        if module.eureka_group is None:
            return None
        inputs = _input_types(transition, connections, arcs)
        function = self.building.compiled(module.eureka_group, partial(compile_value, inputs=inputs))
        return None if function is None else FunctionCall(function, tuple(range(len(arcs))))


def _shape(transition: NetTransition, module: Module) -> Shape:
    """Return the resources that a task of a module needs: one of each class that is named.

    It runs on that of its target, if it has one.
    """
    named = (module.target, *transition.function.requires, *transition.requires)
    classes = dict.fromkeys(name for name in named if name)
    if not classes:
        return CORE
    return Shape(tuple(Requirement(name) for name in classes), same_host=len(classes) > 1)


def _options(function: Defun) -> TaskOptions:
    """Return what tasks of a module say of themselves: what they store is no part of a result to be kept."""
    return structs.replace(DEFAULT_OPTIONS, cache=False) if function.transfers else DEFAULT_OPTIONS


def _input_types(
    transition: NetTransition, connections: TransitionConnections, arcs: Sequence[InputArc]
) -> dict[str, ValueType]:
    """Return the types of the inputs: those of the arcs first, in their order."""
    names = [arc.name for arc in arcs]
    names += [
        port.name for port in transition.function.ports.values() if port.is_input and port.name not in names
    ]
    return {name: connections.types[name] for name in names if name in connections.types}


def _in_a_net(name: str, main: Defun) -> Defun:
    """Return a function with a net whose only transition is a function that is none itself."""
    spot = main.spot
    ports = {port.name: structs.replace(port, place=port.name) for port in main.ports.values()}
    places = {
        port.name: NetPlace(port.name, port.type, (), False, False, False, False, port.spot)
        for port in main.ports.values()
    }
    connections = tuple(
        Connection(port.direction, port.name, port.name, port.spot) for port in main.ports.values()
    )
    transition = NetTransition(
        main.name or name, main, connections, (), (), None, False, (), frozenset(), {}, spot
    )
    body = NetBody(places, {transition.name: transition}, main.structs, main.types, spot)
    return Defun(main.name, ports, body, (), (), main.structs, (), (), main.properties, main.types, spot)


def _same(*values: object) -> Sequence[object]:
    return values
