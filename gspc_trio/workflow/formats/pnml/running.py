"""A net of PNML as a workflow: its transitions fire in the engine, or are tasks."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence

from gspc_trio.core.similar import did_you_mean
from gspc_trio.workflow.arcs import Copies, Forward, Place, Source, Take, WorkflowError, take
from gspc_trio.workflow.definition import SettingError, Workflow
from gspc_trio.workflow.formats.format import (
    ForeignWorkflow,
    FormatError,
    Function,
    Problem,
    Problems,
    ReadOptions,
    split_pairs,
)
from gspc_trio.workflow.formats.format import Source as FileSource
from gspc_trio.workflow.formats.pnml.model import PnmlArc, PnmlNet, PnmlNode, own_names
from gspc_trio.workflow.formats.pnml.reader import TOKENS_MAX
from gspc_trio.workflow.formats.pnml.tasks import needs_of
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.tokens import Outputs

FIRINGS = "(firings)"
"""Place from which each transition takes a token, when only so many may fire."""

PLACES_SHOWN_MAX = 20
"""So many places are listed where one is not there."""


class PnmlWorkflow(ForeignWorkflow):
    """A net of PNML that can run.

    Attributes:
        source: the net as it was read.
        names: id of a place -> its name in the running net.
    """

    def __init__(self, source: PnmlNet, net: Net, names: Mapping[str, str], notes: Sequence[Problem]) -> None:
        self.source = source
        self.names = names
        self._known = set(names.values())
        transitions = own_names(source.transitions.values())
        groups = {("place", names[node.id]): source.group(node) for node in source.places.values()}
        for node in source.transitions.values():
            groups["transition", transitions[node.id]] = source.group(node)
        while groups and len({group[:1] for group in groups.values()}) == 1 and all(groups.values()):
            groups = {key: group[1:] for key, group in groups.items()}  # a page of all is no subnet
        groups = {key: group for key, group in groups.items() if group}
        super().__init__(net, notes=notes, groups=groups, hidden=[FIRINGS])

    def workflow(self, settings: Sequence[str] = ()) -> Workflow:
        """Return the workflow with more tokens on some places, ``PLACE=NUMBER`` each.

        Raises:
            SettingError: there is no such place, or the number is none.
        """
        added: dict[str, int] = {}
        for port, text in split_pairs(settings):
            name = port if port in self._known else self.names.get(port, "")
            if not name:
                known = sorted(self._known)
                more = f" and {len(known) - PLACES_SHOWN_MAX} more" if len(known) > PLACES_SHOWN_MAX else ""
                there = ", ".join(known[:PLACES_SHOWN_MAX]) + more or "none"
                meant = did_you_mean(port, known)
                raise SettingError(f"there is no place {port!r}; the places are: {there}{meant}")
            number = _number(port, text)
            added[name] = added.get(name, 0) + number
        net = self.net
        if added:
            net = net.copy()
            for name, number in added.items():
                net.replace_place(name, initial=(*net.places[name].initial, *[None] * number))
        return Workflow(net, {}, self.report)

    def parse_value(self, port: str, text: str, /) -> None:
        """Return the token that a text stands for: tokens carry nothing, and one is written 1."""
        if text.strip() != "1":
            raise SettingError(
                f"a token for {port!r} is written 1, not {text!r}: tokens of PNML have no values"
            )

    def show_value(self, _port: str, value: object, /) -> str:
        """Return what a token carries, as people read it."""
        return str(value)

    def plain_value(self, _port: str, value: object, /) -> object:
        """Return what a token carries."""
        return value

    def show_outputs(self, outputs: Outputs) -> Iterable[str]:
        """Return the final marking: how many tokens each place has, those that have some."""
        marked = [f"{name}: {len(values)}" for name, values in outputs.items() if values]
        return marked or ["no place has tokens"]

    def plain_outputs(self, outputs: Outputs) -> Mapping[str, object]:
        """Return the final marking: place -> number of tokens."""
        return {name: len(values) for name, values in outputs.items()}


def _number(port: str, text: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 20 and int(text) <= TOKENS_MAX):
        raise SettingError(
            f"{port}={text}: a number of tokens from 0 to {TOKENS_MAX:,} is needed, such as {port}=1"
        )
    return int(text)


class _Lowering:
    """Makes a net that the engine runs from one of PNML."""

    def __init__(self, source: PnmlNet, file: FileSource, options: ReadOptions) -> None:
        self.source, self.file, self.options = source, file, options
        self.problems = Problems()
        self.names = own_names(source.places.values())
        self.net = Net(source.name or source.id)
        self.net.endless_advice = "give --firings N, how often transitions fire at most, all together"
        self.taken: dict[str, dict[str, int]] = {}
        self.put: dict[str, dict[str, int]] = {}
        for arc in source.arcs:
            self._note(arc)
        self.functions = dict(options.tasks or {})

    def _note(self, arc: PnmlArc) -> None:
        """Unite arcs between the same two nodes."""
        if arc.source in self.source.places:
            weights, place = self.taken.setdefault(arc.target, {}), arc.source
        else:
            weights, place = self.put.setdefault(arc.source, {}), arc.target
        weights[place] = weights.get(place, 0) + arc.weight

    def wrong(self, node: PnmlNode, message: str) -> None:
        self.problems.append(self.file.problem(message, node.line, node.column))

    def lower(self) -> Net:
        fed = {place for weights in self.put.values() for place in weights}
        for node in self.source.places.values():
            tokens = (None,) * node.tokens
            outside = not tokens and node.id not in fed
            name = self.names[node.id]
            self.net.places[name] = Place(
                name, tokens, is_input=outside, is_optional=outside, is_output=True, may_keep=True
            )
        if self.options.firings is not None:
            self.net.place(FIRINGS, range(self.options.firings), may_keep=True)
        elif self.options.explored and self.source.transitions.keys() - self.taken.keys():
            self.net.place(FIRINGS, [None], may_keep=True)
        names = own_names(self.source.transitions.values())
        for node in self.source.transitions.values():
            self._transition(node, names[node.id])
        self._check_tasks(names)
        return self.net

    def _check_tasks(self, names: Mapping[str, str]) -> None:
        known = {*names, *names.values(), *(node.name for node in self.source.transitions.values())}
        if self.options.tasks is not None and not known & self.functions.keys():
            offered = ", ".join(sorted(self.functions)) or "none"
            self.problems.append(
                self.file.problem(
                    f"--tasks: no function has the name or id of a transition; functions: {offered}; "
                    f"transitions: {', '.join(list(names.values())[:20])}"
                )
            )

    def _function(self, node: PnmlNode) -> Function | None:
        found = self.functions.get(node.id)
        return self.functions.get(node.name) if found is None else found

    def _transition(self, node: PnmlNode, name: str) -> None:
        taken, put = self.taken.get(node.id, {}), self.put.get(node.id, {})
        is_source = not taken
        if is_source and self.options.firings is None and not self.options.explored:
            self.wrong(
                node,
                f"transition {name!r} takes no tokens, so it can fire for ever: give --firings N, how often "
                "transitions fire at most, all together",
            )
            return
        inputs: dict[str, Source] = {
            f"_{place}": _from(self.names[place], weight) for place, weight in taken.items()
        }
        if self.options.firings is not None or is_source:
            inputs[f"_{FIRINGS}"] = FIRINGS
        function = self._function(node)
        try:
            needs = needs_of(node)
            if function is None:
                if needs is not None and self.options.tasks is not None:
                    raise WorkflowError(
                        f"transition {name!r} has tasks, and --tasks has no function of its name or id"
                    )
                self._inline(node, name, inputs, put)
            else:
                self._task(name, function, taken, inputs, put)
                if needs is not None:
                    self.net.transitions[name] = needs.given_to(self.net.transitions[name])
        except WorkflowError as error:
            self.wrong(node, str(error))

    def _inline(self, node: PnmlNode, name: str, inputs: dict[str, Source], put: Mapping[str, int]) -> None:
        first = next(iter(inputs))
        part = 0 if isinstance(inputs[first], Take) else -1
        outputs = [Copies(Forward(first, self.names[place], part), weight) for place, weight in put.items()]
        if self.options.firings is None and not self.taken.get(node.id):
            outputs.append(Copies(Forward(first, FIRINGS, part), 1))  # it may fire as often as it is tried
        self.net.transition(name, None, inputs, outputs)

    def _task(
        self,
        name: str,
        function: Function,
        taken: Mapping[str, int],
        inputs: dict[str, Source],
        put: Mapping[str, int],
    ) -> None:
        by_name = {self.source.places[place].name: place for place in taken}
        for parameter in inspect.signature(function).parameters.values():
            place = parameter.name if parameter.name in taken else by_name.get(parameter.name)
            if place is not None:
                inputs[parameter.name] = inputs.pop(f"_{place}")
            elif parameter.default is parameter.empty and parameter.kind in (
                parameter.POSITIONAL_OR_KEYWORD,
                parameter.POSITIONAL_ONLY,
                parameter.KEYWORD_ONLY,
            ):
                there = ", ".join(self.names[place] for place in taken)
                raise WorkflowError(
                    f"transition {name!r}: its function asks for {parameter.name!r}, and it takes from "
                    f"{there or 'no place'}"
                )
        outputs = [Copies(self.names[place], weight) for place, weight in put.items()]
        self.net.transition(name, function, inputs, outputs)


def _from(place: str, weight: int) -> Source:
    return place if weight == 1 else take(place, weight)


def running_workflow(
    source: PnmlNet, file: FileSource, options: ReadOptions, notes: Sequence[Problem]
) -> PnmlWorkflow:
    """Return the workflow of a net.

    Raises:
        FormatError: transitions without input would fire for ever, or functions do not fit.
    """
    lowering = _Lowering(source, file, options)
    net = lowering.lower()
    if lowering.problems:
        raise FormatError(lowering.problems)
    return PnmlWorkflow(source, net, lowering.names, notes)
