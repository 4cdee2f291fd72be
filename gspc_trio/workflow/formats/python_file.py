"""Nets as workflow files in Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from gspc_trio.core.staging import Named
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Requirement
from gspc_trio.workflow.arcs import InputArc, OutputArc, Place
from gspc_trio.workflow.formats.format import Written
from gspc_trio.workflow.net import Net, Transition

HEAD = '''"""A workflow file made by gspc-jobserver convert."""

from gspc_trio import Net{names}
{imports}

def workflow():
    net = Net({net!r})
'''


class _Writer:
    def __init__(self, net: Net) -> None:
        self.net = net
        self.lost: list[str] = []
        self.names: set[str] = set()
        self.imports: set[str] = set()

    def write(self) -> str:
        lines = [line for place in self.net.places.values() for line in self._place(place)]
        for transition in self.net.transitions.values():
            lines += self._transition(transition)
        body = "".join(f"    {line}\n" for line in [*lines, "return net"])
        names = "".join(f", {name}" for name in sorted(self.names - {"Copies", "Forward"}))
        arcs = ", ".join(sorted(self.names & {"Copies", "Forward"}))
        imports = sorted(self.imports)
        if arcs:
            imports.insert(0, f"from gspc_trio.workflow.arcs import {arcs}")
        text = "".join(f"{line}\n" for line in imports)
        return HEAD.format(names=names, imports=text, net=self.net.name) + body

    def _place(self, place: Place) -> Iterator[str]:
        name, values = place.name, self._values(place)
        for attribute, lost in _NOT_WRITTEN_OF_PLACES.items():
            if getattr(place, attribute):
                self.lost.append(f"place {name!r}: {lost}")
        if place.is_input:
            yield f"net.input({name!r}{f', {values}' if place.is_optional else ''})"
            changes = ["is_output"] if place.is_output else []
            changes += ["may_keep"] if place.may_keep else []
            if changes:
                yield f"net.replace_place({name!r}, {', '.join(f'{each}=True' for each in changes)})"
        elif place.is_output and not (place.may_keep or place.initial):
            yield f"net.output({name!r}{', final=True' if place.is_final else ''})"
        else:
            said = {"output": place.is_output, "may_keep": place.may_keep, "stops": place.stops}
            flags = "".join(f", {flag}=True" for flag, is_so in said.items() if is_so)
            yield f"net.place({name!r}{f', {values}' if place.initial else ''}{flags})"

    def _values(self, place: Place) -> str:
        if isinstance(place.initial, range):
            return repr(place.initial)
        if len(place.initial) > 1 and all(value is None for value in place.initial):
            return f"[None] * {len(place.initial)}"
        texts = [self._value(place, value) for value in place.initial]
        return f"[{', '.join(texts)}]"

    def _value(self, place: Place, value: object) -> str:
        if not isinstance(value, Named):
            text = repr(value)
            try:
                if ast.literal_eval(text) == value:
                    return text
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                pass
        self.lost.append(f"place {place.name!r}: the value {str(value)[:60]!r} of a token")
        return "None"

    def _transition(self, transition: Transition) -> Iterator[str]:
        what = f"transition {transition.name!r}"
        for attribute, lost in _NOT_WRITTEN.items():
            if getattr(transition, attribute):
                self.lost.append(f"{what}: {lost}")
        parts = [repr(transition.name), self._function(transition, what)]
        inputs = [(arc, self._source(arc)) for arc in transition.inputs]
        parts.append(_mapping({arc.name: text for arc, text in inputs if arc.consumed}))
        parts.append(f"[{', '.join(self._target(transition, arc) for arc in transition.output_arcs)}]")
        reads = {arc.name: text for arc, text in inputs if not arc.consumed}
        if reads:
            parts.append(f"reads={_mapping(reads)}")
        if transition.priority:
            parts.append(f"priority={transition.priority}")
        if transition.is_inline and transition.run is not None:
            parts.append("inline=True")
        if transition.in_flight is not None and transition.subnet is None:
            parts.append(f"in_flight={transition.in_flight}")
        if not transition.is_inline and transition.subnet is None:
            parts += self._needs(transition, what)
        yield f"net.transition({', '.join(parts)})"

    def _function(self, transition: Transition, what: str) -> str:
        run = transition.run
        if transition.subnet is not None:
            self.lost.append(f"{what}: the net of its activities")
        if run is None:
            return "None"
        module, name = getattr(run, "__module__", ""), getattr(run, "__qualname__", "")
        if module and name.isidentifier() and module not in ("__main__", "builtins"):
            self.imports.add(f"from {module} import {name}")
            return str(name)
        self.lost.append(f"{what}: what it runs")
        return "lambda *values, **named: None"

    def _needs(self, transition: Transition, what: str) -> Iterator[str]:
        shape, options = transition.shape, transition.options
        for option in _OPTIONS:
            value = getattr(options, option)
            if value != getattr(DEFAULT_OPTIONS, option):
                yield f"{option}={value!r}"
        if shape.requirements != CORE.requirements:
            classes = [one.resource_class for one in shape.requirements]
            yield f"requires={classes!r}"
            if tuple(map(Requirement, classes)) != shape.requirements:
                self.lost.append(f"{what}: which resources its tasks prefer")
        if shape.memories:
            yield f"memories={shape.memories!r}"
        for flag in ("wait", "same_host"):
            if getattr(shape, flag):
                yield f"{flag}=True"
        if shape.at:
            yield f"at={shape.at!r}"

    def _source(self, arc: InputArc) -> str:
        if not arc.is_batch:
            return repr(arc.place)
        self.names.add("take")
        if arc.like:
            return f"take({arc.place!r}, as_many_as={arc.like!r})"
        if arc.least == arc.most:
            return f"take({arc.place!r}, {arc.least})"
        return f"take({arc.place!r}, least={arc.least}, most={arc.most})"

    def _target(self, transition: Transition, arc: OutputArc) -> str:
        text = repr(arc.place)
        if arc.each or (arc.output >= 0 and transition.outputs[arc.output][1]):
            self.names.add("each")
            text = f"each({text})"
        if arc.forwarded >= 0:
            name = transition.inputs[arc.forwarded].name
            self.names.add("forward" if arc.part < 0 else "Forward")
            text = f"forward({name!r}, {text})" if arc.part < 0 else f"Forward({name!r}, {text}, {arc.part})"
        elif transition.outputs[arc.output][0] is not None:
            self.lost.append(
                f"transition {transition.name!r}: which part of the result goes to {arc.place!r}"
            )
        if arc.copies > 1:
            self.names.add("Copies")
            text = f"Copies({text}, {arc.copies})"
        return text


_OPTIONS = ("attempts", "loss_attempts", "timeout_s", "may_rerun", "memory_bytes", "estimate_s", "cache")

_NOT_WRITTEN = {
    "condition": "its condition",
    "keys": "the keys by which tokens belong together",
    "stage": "the files and ranges of its tasks",
    "group": "the groups of tasks that end together",
    "ordered": "that its results keep their order",
}


_NOT_WRITTEN_OF_PLACES = {
    "counts": "that the engine counts tokens there",
    "successor": "that the engine makes values there",
    "room": "that it is a stream",
    "is_open": "that it stays open",
}


def _mapping(named: Mapping[str, str]) -> str:
    if all(name.isdigit() for name in named):
        return f"[{', '.join(named.values())}]"
    return f"{{{', '.join(f'{name!r}: {text}' for name, text in named.items())}}}"


def python_of(net: Net) -> Written:
    """Return a net as a workflow file in Python, and what cannot be written of it."""
    writer = _Writer(net)
    text = writer.write()
    return Written(text.encode(errors="surrogatepass"), tuple(writer.lost))
