"""Nets: a workflow is written down as a Petri net with coloured tokens (GSPC19 2.6).

>>> net = Net("squares")
>>> numbers, squares = net.input("numbers"), net.output("squares")
>>> _ = net.transition("square", lambda number: number * number, {"number": numbers}, squares)
"""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias, Unpack

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.core.code import Output
from gspc_trio.core.html import facts_table
from gspc_trio.core.similar import did_you_mean, most_similar
from gspc_trio.core.staging import Stage
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Shape, TaskOptions, TaskVariants
from gspc_trio.workflow.arcs import (
    ANSWERS,
    NAMED,
    InputArc,
    OutputArc,
    Place,
    PlaceLike,
    Sources,
    Targets,
    WorkflowError,
    input_arcs,
    named_in,
    output_arcs,
    place_name,
    places_in,
)
from gspc_trio.workflow.calls import (
    FunctionCall,
    KeyFunction,
    Run,
    call_of_condition,
    call_of_run,
    call_of_size,
    check_run,
)
from gspc_trio.workflow.settings import TaskSettings, task_settings, task_variants, whole_number
from gspc_trio.workflow.stage import ports_last, stage_of
from gspc_trio.workflow.tokens import Feed, FindReferences, Values

INLINE_FIRINGS_MAX = 5_000_000
"""How often inline transitions may fire without anything else between, before they are an endless loop: some
ten seconds of work.
"""

Key: TypeAlias = "str | KeyFunction"
Match: TypeAlias = "Key | Mapping[str, Key]"


class Subnet(Struct, frozen=True, eq=False):
    """A net that runs by itself in each firing of a transition: an activity.

    It begins with the tokens that the transition takes, and ends when nothing is left to do in it; all tokens
    of the places of its outputs come to the places behind the transition then. When a task in it fails, its
    other tasks are cancelled, and all of it has failed.

    Attributes:
        net: of which each activity has its own tokens.
        inputs: for each input arc of the transition the place that gets its token; "": none does.
        outputs: for each output of the transition the place whose tokens it gives.
        split: for each output, what makes several tokens of the value of one; None: it is one.
        answers: pairs of an input arc and an output: the first token of this one answers who has asked with
            that of the arc.
    """

    net: Net
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    split: tuple[Callable[[object], Iterable[object]] | None, ...]
    answers: tuple[tuple[int, int], ...] = ()


class Transition(Struct, frozen=True, eq=False):
    """A transition as the engine reads it; made by :meth:`Net.transition`.

    Attributes:
        name: unique in its net.
        run: a callable, a Program, a SourceFile or Variants of them; None passes tokens on.
        inputs: input and read arcs, those passed by position first.
        parameters: names of the arguments that are passed by keyword.
        outputs: what becomes of the value that ``run`` returns.
        output_arcs: where the tokens go.
        condition: what has to hold for the tokens, or None.
        keys: for each input arc, the key by which its tokens are matched, or None.
        priority: of several transitions that can fire, one of the highest does.
        inline_call: how the engine itself calls ``run``; None for a task.
        is_inline: whether the engine fires it itself.
        shape: what its tasks need.
        options: what its tasks state about themselves.
        stage: their files and ranges, or None.
        in_flight: how many of its tasks may have begun and not ended; None for any number.
        is_direct: whether ``inline_call`` returns a sequence with the value of each output.
        group: returns the group that a task belongs to, of the tokens it takes; None if it belongs to none.
        ends_groups: index of the output whose value names groups whose tasks end here; -1 for none.
        ordered: whether the results of its tasks keep their order.
        subnet: the net of its activities; None: it has none. With it, there is nothing else to run.
        variants: what tasks of each of the Variants need, with numbers from 0; None: there is one way only.
        size: how the Variants tell the size of a task's input; None: they do not.
    """

    name: str
    run: Run | None
    inputs: tuple[InputArc, ...]
    parameters: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    output_arcs: tuple[OutputArc, ...] = ()
    condition: FunctionCall | None = None
    keys: tuple[KeyFunction | None, ...] = ()
    priority: int = 0
    inline_call: FunctionCall | None = None
    is_inline: bool = False
    shape: Shape = CORE
    options: TaskOptions = DEFAULT_OPTIONS
    stage: Stage | None = None
    in_flight: int | None = None
    is_direct: bool = False
    group: FunctionCall | None = None
    ends_groups: int = -1
    ordered: bool = False
    subnet: Subnet | None = None
    variants: TaskVariants | None = None
    size: FunctionCall | None = None

    @property
    def code_outputs(self) -> tuple[Output, ...]:
        """What becomes of the value that ``run`` returns: the outputs that are no files."""
        return self.outputs if self.stage is None else self.outputs[: len(self.outputs) - self.stage.ports]


class Net:
    """A net under construction.

    Args:
        name: for people.
        inline_firings_max: how often inline transitions that nothing but their conditions can stop may fire
            without a task or a result in between; after that they are taken for an endless loop.

    Attributes:
        name, inline_firings_max: see above.
        endless_advice: what to do when inline transitions fire for ever; "": what the author of a net can do.
        places: name -> place.
        transitions: name -> transition.
        seed: of several transitions that can fire, and of their tokens, some are drawn; None: what has come
            first is taken.
        references: finds in values what is counted, and comes to a place when its last token is gone.
        until_outputs: while an input port is open, the workflow ends as soon as each output port has a token.

    Raises:
        WorkflowError: ``inline_firings_max`` is not 2 or more.
    """

    def __init__(self, name: str, *, inline_firings_max: int = INLINE_FIRINGS_MAX) -> None:
        if not inline_firings_max >= 2:
            raise WorkflowError(f"inline_firings_max must be at least 2, not {inline_firings_max!r}")
        self.name = name
        self.inline_firings_max = inline_firings_max
        self.endless_advice = ""
        self.places: dict[str, Place] = {}
        self.transitions: dict[str, Transition] = {}
        self.seed: int | None = None
        self.until_outputs = False
        self.references: FindReferences | None = None

    def __repr__(self) -> str:
        return f"<Net {self.name}: {len(self.places)} places, {len(self.transitions)} transitions>"

    def _repr_html_(self) -> str:
        return facts_table(repr(self), inputs=self.inputs, outputs=self.outputs, transitions=self.transitions)

    @property
    def all_transitions(self) -> Iterator[Transition]:
        """The transitions of the net, and of those of its activities."""
        for transition in self.transitions.values():
            yield transition
            if transition.subnet is not None:
                yield from transition.subnet.net.all_transitions

    @property
    def inputs(self) -> list[str]:
        """The names of the input ports."""
        return [place.name for place in self.places.values() if place.is_input]

    @property
    def outputs(self) -> list[str]:
        """The names of the output ports."""
        return [place.name for place in self.places.values() if place.is_output]

    def place(
        self,
        name: str,
        initial: Iterable[object] = (),
        *,
        output: bool = False,
        may_keep: bool = False,
        stops: bool = False,
    ) -> Place:
        """Add a place and return it.

        Args:
            name: unique among the net's places.
            initial: values of the tokens there at the beginning.
            output: it is an output port.
            may_keep: tokens left there at the end are all right.
            stops: while a token is there, the engine hands out nothing more.

        Raises:
            WorkflowError: the name is taken, or ``initial`` is no list of values.
        """
        return self._add(
            Place(name, token_values(name, initial), is_output=output, may_keep=may_keep, stops=stops)
        )

    def input(
        self,
        name: str,
        default: Iterable[object] | None = None,
        *,
        is_open: bool = False,
        read_ahead: int = 0,
        end: PlaceLike = "",
    ) -> Place:
        """Add an input port: a place filled by the values that the workflow is started with.

        Args:
            name: unique among the net's places.
            default: values of the tokens if none are given; without it, and not open, they must be given.
            is_open: more tokens may come while the workflow runs; it does not end before the port is closed.
            read_ahead: so many values of an iterator wait there at most: it is read while the workflow runs.
                With 0 it is read before the workflow begins.
            end: place that gets a token when the port is closed; it has one at the beginning.

        Raises:
            WorkflowError: the name is taken, or ``default`` is no list of values.
        """
        initial = token_values(name, default or ())
        optional = default is not None or is_open
        place = Place(name, initial, is_input=True, is_optional=optional)
        return self._add(replace(place, is_open=is_open, read_ahead=read_ahead, end=place_name(end)))

    def output(self, name: str, *, final: bool = False, room: PlaceLike = "") -> Place:
        """Add an output port: a place whose tokens are results.

        Args:
            name: unique among the net's places.
            final: a token there ends the workflow (see ``terminate``).
            room: place of tokens that stand for room at the port. It is a stream then: whoever reads it takes
                its tokens off. For each token that comes, one comes to this place: while somebody reads,
                when that token is taken off, and otherwise at once.

        Raises:
            WorkflowError: the name is taken.
        """
        return self._add(Place(name, is_output=True, is_final=final, room=place_name(room)))

    def _add(self, place: Place) -> Place:
        if place.name in self.places:
            raise WorkflowError(f"net {self.name!r} has two places named {place.name!r}")
        self.places[place.name] = place
        return place

    def transition(
        self,
        name: str,
        run: Run | None = None,
        inputs: Sources = (),
        outputs: Targets = (),
        *,
        reads: Sources = (),
        condition: Callable[..., object] | None = None,
        match: Match | None = None,
        priority: int = 0,
        inline: bool = False,
        in_flight: int | None = None,
        ordered: bool = False,
        **settings: Unpack[TaskSettings],
    ) -> Transition:
        """Add a transition and return it.

        Args:
            name: unique among the net's transitions.
            run: function, Program, SourceFile or Variants that a task runs; None passes the input on, inline.
            inputs: places it takes one token from each (``take(place, n)``: several), ``Named(name)``. With
                names, tokens are passed by keyword, those that begin with ``_`` not at all; else by position.
            outputs: places that get the returned value; a mapping gives each place the value that the
                returned mapping has under that key; ``each(place)`` makes every element a token,
                ``forward(input, place)`` passes an input on.
            reads: places it looks at one token of, which stays there.
            condition: called with the tokens of those inputs and reads whose names it has; they are taken
                together only if it is true. It must depend on nothing else.
            match: key by which tokens of the inputs and reads belong together (a key of a mapping, or a
                function); a mapping gives one for some of them. It saves trying all combinations.
            priority: of transitions that can fire, and of tasks that wait, one of the highest is the next.
            inline: the engine itself calls ``run``: for short functions that only steer.
            in_flight: so many of its tasks at most have begun and not ended; the tokens of others wait.
            ordered: results come to the places behind it in the order in which its tasks began.
            settings: what its tasks need and state, see :class:`TaskSettings`.

        Raises:
            WorkflowError: it makes no sense; the message says why.
        """
        with _blamed(name):
            self._check_new(name, inputs, reads, outputs)
            arcs, parameters = input_arcs(inputs, reads, files=named_in(settings.get("stage_in")))
            made, ports = ports_last(*output_arcs(outputs, arcs, run is not None), settings)
            is_inline = inline or run is None
            self._check_arcs(arcs, is_inline, condition is not None)
            check_run(run, arcs)
            shape, options = task_settings(settings, 0 if is_inline else priority)
            transition = self.transitions[name] = Transition(
                name=name,
                run=run,
                inputs=arcs,
                parameters=parameters,
                outputs=ports,
                output_arcs=made,
                condition=call_of_condition(condition, arcs) if condition is not None else None,
                keys=_keys(match, arcs),
                priority=priority,
                inline_call=call_of_run(run, arcs) if inline and run is not None else None,
                is_inline=is_inline,
                shape=shape,
                options=options,
                stage=stage_of(settings, arcs, ports, is_inline),
                in_flight=_in_flight(in_flight, is_inline),
                ordered=ordered and not is_inline,
                variants=task_variants(run, settings),
                size=call_of_size(run, arcs),
            )
        self._add_named(made, inputs, reads, settings.get("stage_in"))
        return transition

    def _add_named(self, made: Iterable[OutputArc], *written: object) -> None:
        if any(arc.place == ANSWERS for arc in made):
            self.places.setdefault(ANSWERS, Place(ANSWERS, may_keep=True))
        for named in named_in(*written):
            place = NAMED + named.name
            self.places.setdefault(place, Place(place, (named,), may_keep=True))

    def _check_arcs(self, arcs: Sequence[InputArc], is_inline: bool, has_condition: bool) -> None:
        if has_condition and any(arc.like for arc in arcs):
            raise WorkflowError("as_many_as does not go with a condition")
        if is_inline and any(arc.place.startswith(NAMED) for arc in arcs):
            raise WorkflowError("only tasks see published data; leave inline out")
        if not any(arc.consumed for arc in arcs):
            raise WorkflowError("it takes no token, so it could fire for ever")
        taken = {arc.place for arc in arcs if arc.consumed}
        for arc in arcs:
            if not arc.consumed and arc.place in taken:
                raise WorkflowError(f"it both takes from and reads place {arc.place!r}")

    def _check_new(self, name: str, *written: object) -> None:
        if name in self.transitions:
            raise WorkflowError("the name is taken")
        for place in places_in(*written):
            if self.places.get(place.name) is not place:
                raise WorkflowError(f"place {place.name!r} belongs to another net")
        for named in named_in(*written):
            found = self.places.get(NAMED + named.name)
            if found is not None and tuple(found.initial) != (named,):
                raise WorkflowError(f"the place {found.name!r} is that of published data: rename it")

    def copy(self, name: str | None = None) -> Net:
        """Return a net with the same places and transitions, to which others can be added."""
        net = Net(name or self.name, inline_firings_max=self.inline_firings_max)
        net.endless_advice = self.endless_advice
        net.seed, net.until_outputs, net.references = self.seed, self.until_outputs, self.references
        net.places = dict(self.places)
        net.transitions = dict(self.transitions)
        return net

    def replace_place(self, place: PlaceLike, **changes: object) -> Place:
        """Change attributes of a place (all but its name) and return the new one.

        Raises:
            WorkflowError: there is no such place.
        """
        old = self.places.get(place_name(place))
        if old is None:
            raise WorkflowError(f"net {self.name!r} has no place {place_name(place)!r}")
        self.places[old.name] = replace(old, **changes)
        return self.places[old.name]

    def check(self) -> None:
        """See that every arc has its place, every place can get a token, and somebody wants what comes there.

        Raises:
            WorkflowError: not so.
        """
        filled = {
            place.name
            for place in self.places.values()
            if place.initial or place.is_input or place.counts or place.may_lack
        }
        for transition in self.transitions.values():
            filled.update(arc.place for arc in transition.output_arcs)
            places = [arc.place for arc in transition.inputs] + [arc.place for arc in transition.output_arcs]
            for name in places:
                if name not in self.places:
                    known = ", ".join(self.places) or "none"
                    meant = did_you_mean(name, self.places)
                    raise WorkflowError(
                        f"transition {transition.name!r}: there is no place {name!r}; "
                        f"there are: {known}{meant}"
                    )
        for transition in self.transitions.values():
            for taken in transition.inputs:
                if taken.place not in filled:
                    raise WorkflowError(
                        f"transition {transition.name!r} takes from place {taken.place!r}, where no token "
                        "can come: no input port, no initial token, no transition that puts one there"
                    )
        self._check_used()

    def _check_used(self) -> None:
        """See that tokens go where somebody takes or reads them, or where they may be left."""
        used = {arc.place for transition in self.transitions.values() for arc in transition.inputs}
        fed = {
            arc.place: transition
            for transition in self.transitions.values()
            for arc in transition.output_arcs
        }
        for place in self.places.values():
            name = place.name
            if name in used or place.is_output or place.may_keep or place.stops:
                continue
            if place.is_input:
                raise WorkflowError(
                    f"no transition takes or reads the tokens of the input port {name!r}: add one, or "
                    "remove the port"
                )
            if name in fed:
                what = f"transition {fed[name].name!r} puts tokens on place {name!r}"
            elif place.initial:
                what = f"there are tokens on place {name!r} at the beginning"
            else:
                continue
            raise WorkflowError(
                f"{what}, but no transition takes or reads tokens there, and it is no output port"
                f"{self._port_meant(name, fed)}; if tokens may be left there, use "
                f"net.place({name!r}, may_keep=True)"
            )

    def _port_meant(self, name: str, fed: Mapping[str, object]) -> str:
        """Return a question for the output port that was meant by a place that nobody looks at, or ""."""
        empty = [port for port in self.outputs if port not in fed]
        found = most_similar(name, empty) or most_similar(name, self.outputs)
        if found is None and len(empty) == 1:
            found = empty[0]
        if found is None:
            return ""
        state = "which gets no tokens" if found in empty else "which gets others"
        return f" (did you mean the output port {found!r}, {state}?)"


@contextmanager
def _blamed(name: str) -> Iterator[None]:
    """Name the transition in errors of the block."""
    try:
        yield
    except WorkflowError as error:
        raise WorkflowError(f"transition {name!r}: {error}") from None


def _in_flight(number: int | None, is_inline: bool) -> int | None:
    if number is None:
        return None
    if is_inline:
        raise WorkflowError("in_flight is for tasks; an inline transition has none")
    return whole_number("in_flight", number, 1)


def token_values(name: str, values: Iterable[object]) -> Sequence[object]:
    """Return the tokens of a place; a range stays one, so that very many numbers need no room.

    Raises:
        WorkflowError: not a list of values, but one text, mapping or other thing.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise WorkflowError(
            f"place {name!r} needs a list of tokens, not {values!r}; for one token write [value]"
        )
    return values if isinstance(values, range) else tuple(values)


def input_values(
    net: Net, values: Mapping[str, Values], *, complete: bool = True
) -> dict[str, Sequence[object]]:
    """Return the tokens of each input port that ``values`` names.

    Args:
        net: the workflow.
        values: input port -> values of its tokens.
        complete: whether every port without a default has to be there.

    Raises:
        WorkflowError: a port that is not there or not named, or values that are no list.
    """
    known = ", ".join(net.inputs) or "none"
    for name in values:
        if name not in net.inputs:
            meant = did_you_mean(name, net.inputs)
            raise WorkflowError(
                f"net {net.name!r} has no input port {name!r}; its input ports are: {known}{meant}"
            )
    for name in net.inputs if complete else ():
        if name not in values and not net.places[name].is_optional:
            raise WorkflowError(f"net {net.name!r} needs values for its input port {name!r}")
    return {name: _port_values(net.places[name], tokens) for name, tokens in values.items()}


def _port_values(place: Place, values: Values) -> Sequence[object]:
    """Return the values of an input port: an iterator stays one where it can be read later."""
    if place.read_ahead and isinstance(values, Iterator | AsyncIterator):
        return Feed(values)
    if isinstance(values, Feed):
        return values
    if isinstance(values, AsyncIterator):
        raise WorkflowError(f"place {place.name!r} takes no asynchronous iterator: give it read_ahead=")
    return token_values(place.name, values)


def _keys(match: Match | None, arcs: Sequence[InputArc]) -> tuple[KeyFunction | None, ...]:
    if match is None:
        return ()
    names = [arc.name for arc in arcs]
    wanted: Mapping[str, Key] = match if isinstance(match, Mapping) else dict.fromkeys(names, match)
    for name in wanted:
        if name not in names:
            raise WorkflowError(f"it matches {name!r}; its inputs are: {', '.join(names)}")
    if len(wanted) < 2 or any(arc.is_batch for arc in arcs):
        raise WorkflowError("match joins single tokens of two or more inputs")
    return tuple(_key(wanted[name]) if name in wanted else None for name in names)


def _key(key: Key) -> KeyFunction:
    return operator.itemgetter(key) if isinstance(key, str) else key
