"""Arcs of a net: how they are written, and what they become."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.core.code import Output
from gspc_trio.core.staging import Named


class WorkflowError(ValueError):
    """The description of a workflow is wrong; the message is one line for its author."""


class Place(Struct, frozen=True, eq=False):
    """Where tokens wait, first in, first out.

    Attributes:
        name: unique in its net.
        initial: values of the tokens that are there at the beginning.
        is_input: an input port, filled by the ``values`` a workflow is started with.
        is_optional: an input port that has a default.
        is_output: an output port, read when the workflow has ended.
        is_final: a token here ends the workflow, if the net is transformed with ``terminate``.
        stops: while a token is here, the engine hands out nothing more.
        may_keep: tokens that are left here at the end are all right.
        room: of an output port that is a stream: the place that gets a token back for each one at the port,
            when somebody has taken that off, or at once while nobody takes any off; "": it is no stream. Any
            other place gives room back at once.
        end: of an input port: the place that gets a token when no more come; "": nobody wants to know. One is
            there at the beginning, which says that the port is closed.
        is_open: of an input port: tokens may come until it is closed.
        read_ahead: of an input port: values of an iterator that wait there at most; 0: iterators are read
            before the workflow begins.
        may_lack: it is all right that no token can ever come here.
        counts: name of the place whose tokens this one counts, "" for none: its one token is a number. Tokens
            that tasks have taken count until their results are there.
        successor: of a place that always has one token, what the value is that follows one that is taken.
    """

    name: str
    initial: Sequence[object] = ()
    is_input: bool = False
    is_optional: bool = False
    is_output: bool = False
    is_final: bool = False
    stops: bool = False
    may_keep: bool = False
    room: str = ""
    end: str = ""
    is_open: bool = False
    read_ahead: int = 0
    may_lack: bool = False
    counts: str = ""
    successor: Callable[[object], object] | None = None


PlaceLike: TypeAlias = "Place | str"


class Take(Struct, frozen=True):
    """Several tokens taken as one list; made by :func:`take`."""

    place: PlaceLike
    least: int
    most: int
    as_many_as: str | int | None = None


class Each(Struct, frozen=True):
    """Every element becomes a token; made by :func:`each`."""

    place: PlaceLike


class Forward(Struct, frozen=True):
    """An input token goes on as it is; made by :func:`forward`.

    Attributes:
        name: of the input.
        target: where it goes.
        part: of a token that is several, this one alone; -1: all of it.
        first: of a token that is several, those from this one on.
    """

    name: str | int
    target: PlaceLike | Each
    part: int = -1
    first: int = 0


class Copies(Struct, frozen=True):
    """Several tokens of one value.

    Attributes:
        target: where they go.
        count: how many, 1 or more.
    """

    target: Place | str | Each | Forward
    count: int


class Unpassed(Struct, frozen=True):
    """A control token among inputs by position: what the transition runs does not get it.

    Attributes:
        place: where it is.
    """

    place: PlaceLike


class Respond(Struct, frozen=True):
    """The value goes back to who asked with an input token; made by :func:`respond`.

    Attributes:
        name: of the input.
    """

    name: str | int


ANSWERS = "(answers)"
"""The place that sends answers: a token with which somebody has asked comes there, and then the answer."""

NAMED = "data:"
"""Begins the name of a place that holds published data; every transition that names the data reads it."""

Source: TypeAlias = "Place | str | Take | Named | Unpassed"
Arrow: TypeAlias = "Place | str | Each | Forward | Copies"
Target: TypeAlias = "Arrow | Respond"
Sources: TypeAlias = "Source | Sequence[Source] | Mapping[str, Source]"
Targets: TypeAlias = "Target | Sequence[Target] | Mapping[str, Target | Sequence[Target]]"


def take(
    place: PlaceLike,
    number: int | None = None,
    *,
    least: int = 1,
    most: int | None = None,
    as_many_as: str | int | None = None,
) -> Take:
    """Return an input arc that takes several tokens at once, as one list.

    Args:
        place: the place to take from.
        number: take exactly this many tokens.
        least, most: without ``number``: take as many as there are, within these bounds.
        as_many_as: another input (its name, or position from 0) that takes several tokens: from both places
            the same number is taken, as many as there are on both, within the bounds of the other one. With
            it, nothing else is said.

    Raises:
        WorkflowError: the numbers make no sense.
    """
    if as_many_as is not None:
        if number is not None or most is not None or least != 1:
            raise WorkflowError(
                f"take from {place_name(place)!r}: as_many_as says how many; leave out the rest"
            )
        return Take(place, 1, 1, as_many_as)
    if number is not None:
        least = most = number
    if most is None:
        raise WorkflowError(f"take from {place_name(place)!r}: say how many, or at most how many")
    if not 1 <= least <= most:
        raise WorkflowError(
            f"take from {place_name(place)!r}: {least} to {most} tokens is no range from 1 up"
        )
    return Take(place, least, most)


def each(place: PlaceLike) -> Each:
    """Return an output arc that makes every element of the value a token."""
    return Each(place)


def forward(name: str | int, target: PlaceLike | Each, *, first: int = 0) -> Forward:
    """Return an output arc that passes the token of the input ``name`` on, unchanged.

    Args:
        name: of the input; its position from 0 where inputs have no names.
        target: a place, or ``each(place)`` for all the tokens of a ``take``.
        first: of the tokens of a ``take``, pass on those from this one on, counted from 0.
    """
    return Forward(name, target, first=first)


def place_name(place: PlaceLike) -> str:
    """Return the name of a place given as such or by name."""
    return place.name if isinstance(place, Place) else place


def respond(name: str | int) -> Respond:
    """Return an output arc that sends the value to who has asked with the token of the input ``name``.

    ``Job.ask`` and ``gspc-jobserver ask`` put such tokens. A token that nobody has asked with has no answer.
    Where a token is passed on with ``forward``, it can be answered further on.

    Args:
        name: of the input; its position from 0 where inputs have no names.
    """
    return Respond(name)


class InputArc(Struct, frozen=True):
    """From a place to a transition.

    Attributes:
        name: of the argument; "0", "1", ... for those passed by position.
        place: where the token is.
        least, most: how many are taken together.
        is_batch: whether they are a list, even of one.
        consumed: whether they leave the place; a read arc leaves them there.
        passed: whether what the transition runs gets them.
        like: the name of another input from whose place as many tokens are taken; "": there is none.
    """

    name: str
    place: str
    least: int = 1
    most: int = 1
    is_batch: bool = False
    consumed: bool = True
    passed: bool = True
    like: str = ""

    @property
    def is_file(self) -> bool:
        """Whether it is there for a file alone, and its author has not written it."""
        return self.name.startswith("_" + NAMED)


class OutputArc(Struct, frozen=True):
    """From a transition to a place.

    Attributes:
        place: where the tokens go.
        output: index in the transition's outputs, -1 for a forwarded input.
        forwarded: index of the input arc whose token is passed on, -1 for an output.
        each: whether a forwarded batch falls apart into its tokens.
        part: of a forwarded batch, the token that is passed on alone; -1: all of it.
        copies: so many times all this.
        first: of a forwarded batch, the first token that is passed on.
    """

    place: str
    output: int = -1
    forwarded: int = -1
    each: bool = False
    part: int = -1
    copies: int = 1
    first: int = 0


def places_in(*written: object) -> Iterator[Place]:
    """Return the places that occur in what a user wrote as inputs or outputs."""
    for item in written:
        if isinstance(item, Place):
            yield item
        elif isinstance(item, Take | Each | Unpassed):
            yield from places_in(item.place)
        elif isinstance(item, Forward | Copies):
            yield from places_in(item.target)
        elif isinstance(item, Mapping):
            yield from places_in(*item.values())
        elif isinstance(item, Sequence) and not isinstance(item, str):
            yield from places_in(*item)


def named_in(*written: object) -> Iterator[Named]:
    """Return the published data that occurs in what a user wrote as inputs or files."""
    for item in written:
        if isinstance(item, Named):
            yield item
        elif isinstance(item, Mapping):
            yield from named_in(*item.values())
        elif isinstance(item, Sequence) and not isinstance(item, str):
            yield from named_in(*item)


def input_arcs(
    inputs: Sources, reads: Sources, *, files: Iterable[Named] = ()
) -> tuple[tuple[InputArc, ...], tuple[str, ...]]:
    """Return the arcs, positional ones first, and the names of those passed by keyword.

    Args:
        inputs, reads: as the user wrote them.
        files: published data that its tasks find as files: read, but not passed.

    Raises:
        WorkflowError: a positional read behind named inputs, or a name twice.
    """
    arcs: list[InputArc] = []
    parameters: list[str] = []
    for sources, consumed in ((inputs, True), (reads, False)):
        if isinstance(sources, Mapping):
            for name, source in sources.items():
                passed = not name.startswith("_")
                arcs.append(_input_arc(name, source, consumed, passed))
                if passed:
                    parameters.append(name)
            continue
        listed = [sources] if isinstance(sources, Place | str | Take | Named | Unpassed) else list(sources)
        if listed and len(arcs) != sum(arc.name.isdigit() for arc in arcs):
            raise WorkflowError("inputs have names, so the reads need names too")
        for source in listed:
            arcs.append(_input_arc(str(len(arcs)), source, consumed, True))
    names = [arc.name for arc in arcs]
    for name in names:
        if names.count(name) > 1:
            raise WorkflowError(f"{name!r} is both an input and a read")
    for place in dict.fromkeys(NAMED + named.name for named in files):
        if all(arc.place != place for arc in arcs):
            arcs.append(InputArc(f"_{place}", place, consumed=False, passed=False))
    return tuple(_with_most(arc, arcs) for arc in arcs), tuple(parameters)


def _with_most(arc: InputArc, arcs: Sequence[InputArc]) -> InputArc:
    """Return an arc that takes as many tokens as another one with the bounds of that."""
    if not arc.like:
        return arc
    found = next((other for other in arcs if other.name == arc.like), None)
    if found is None or not found.is_batch or found.like:
        raise WorkflowError(
            f"the input {arc.name!r} takes as many tokens as {arc.like!r}, which must be an input "
            "take(place, ...) that says how many"
        )
    return replace(arc, least=found.least, most=found.most)


def _input_arc(name: str, source: Source, consumed: bool, passed: bool) -> InputArc:
    if isinstance(source, Named):
        return InputArc(name, NAMED + source.name, consumed=False, passed=passed)
    if isinstance(source, Take):
        if not consumed:
            raise WorkflowError(f"the read {name!r} must not take tokens")
        like = "" if source.as_many_as is None else str(source.as_many_as)
        place = place_name(source.place)
        return InputArc(name, place, source.least, source.most, True, True, passed, like)
    if isinstance(source, Unpassed):
        return InputArc(name, place_name(source.place), consumed=consumed, passed=False)
    if not isinstance(source, Place | str):
        raise WorkflowError(
            f"the input {name!r} is {source!r}; it must be a place, its name, take(place, n) or Named(name)"
        )
    return InputArc(name, place_name(source), consumed=consumed, passed=passed)


def output_arcs(
    outputs: Targets, arcs: Sequence[InputArc], has_value: bool
) -> tuple[tuple[OutputArc, ...], tuple[Output, ...]]:
    """Return the arcs and the outputs they stand for.

    Args:
        outputs: as the user wrote them.
        arcs: the inputs, for ``forward``.
        has_value: whether the transition runs something; if not, a plain place gets the only input.

    Raises:
        WorkflowError: a forwarded input that is not there, a target that is none.
    """
    wanted: list[tuple[str | None, Arrow]] = []
    if isinstance(outputs, Mapping):
        for port, targets in outputs.items():
            wanted += [(port, target) for target in _listed(targets)]
    else:
        wanted = [(None, target) for target in _listed(outputs)]
    ports: list[Output] = []
    made: list[OutputArc] = []
    for key, written in wanted:
        copies = written.count if isinstance(written, Copies) else 1
        target = written.target if isinstance(written, Copies) else written
        if not has_value and not isinstance(target, Forward):
            if len(arcs) != 1 or key is not None:
                raise WorkflowError("it runs nothing, so its outputs must be forward(input, place)")
            target = Forward(arcs[0].name, target)
        if isinstance(target, Forward):
            made.append(_forward_arc(target, arcs, copies))
            continue
        if not isinstance(target, Place | str | Each):
            raise WorkflowError(
                f"the output {target!r} is no place, name, each(place) or forward(name, place)"
            )
        is_each = isinstance(target, Each)
        output = (key, is_each)
        if output not in ports:
            ports.append(output)
        made.append(OutputArc(_target_name(target), ports.index(output), copies=copies))
    return tuple(made), tuple(ports)


def _listed(targets: Target | Sequence[Target]) -> Iterator[Arrow]:
    """Yield the arcs that were written; an answer is two of them."""
    listed = [targets] if isinstance(targets, Place | str | Each | Forward | Copies | Respond) else targets
    for target in listed:
        if isinstance(target, Respond):
            yield from (Forward(target.name, ANSWERS), ANSWERS)
        else:
            yield target


def _target_name(target: Place | str | Each) -> str:
    return place_name(target.place if isinstance(target, Each) else target)


def _forward_arc(target: Forward, arcs: Sequence[InputArc], copies: int) -> OutputArc:
    names = [arc.name for arc in arcs]
    name = str(target.name)
    if name not in names:
        raise WorkflowError(
            f"it forwards {name!r}, which is none of its inputs: {', '.join(names) or 'it has none'}"
        )
    index = names.index(name)
    is_each = isinstance(target.target, Each)
    if is_each and not arcs[index].is_batch:
        raise WorkflowError(f"it forwards each of {name!r}, which is one token and no take(place, n)")
    if target.first and not arcs[index].is_batch:
        raise WorkflowError(f"it forwards part of {name!r}, which is one token and no take(place, n)")
    return OutputArc(_target_name(target.target), -1, index, is_each, target.part, copies, target.first)
