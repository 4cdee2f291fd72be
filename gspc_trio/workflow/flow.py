"""Token flow: which tasks have made what a task takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.ids import TaskId
from gspc_trio.workflow.runtime import RunningTransition
from gspc_trio.workflow.search import Binding
from gspc_trio.workflow.tokens import Batch, Token

PARENTS_MAX = 10_000
"""So many tasks are named as parents of one: a token may stand for the results of millions."""

Makers: TypeAlias = tuple[TaskId, ...]


class Flow(Struct, frozen=True):
    """What a task takes, and from which others.

    Attributes:
        parents: the tasks whose results are among its arguments, perhaps after inline transitions; of a task
            without arguments, those on which it waits.
        inputs, outputs: paths of its files.
    """

    parents: Makers = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def moved(token: Token) -> Token:
    """Return a token for another place, with the tasks that have made it."""
    copy = token.copy()
    if hasattr(token, "makers"):
        copy.makers = token.makers
    return copy


def parents_of(transition: RunningTransition, binding: Binding) -> Makers:
    """Return the tasks that have made what a task of this transition takes."""
    arcs = transition.description.inputs
    passed = [token for token, arc in zip(binding, arcs, strict=True) if arc.passed]
    return _united(passed or binding)


def note_result(
    transition: RunningTransition, maker: TaskId, binding: Binding, outputs: Sequence[Sequence[object]]
) -> None:
    """Note of the tokens that a task has just put onto places that it has made them.

    Args:
        transition, binding: of the task.
        maker: the task.
        outputs: the tokens of each output.
    """
    counts = [len(tokens) for tokens in outputs]
    for token, _ in _newest(transition, binding, counts):
        token.makers = (maker,)


def fire_noting(transition: RunningTransition, binding: Binding) -> None:
    """Fire an inline transition, and note of the tokens that it makes who has made what it took.

    What is forwarded has the makers it had. A token that is put back where it came from, such as a count, has
    none, and is not counted as one that was taken.
    """
    outputs = transition.compute(binding)
    transition.consume(binding)
    transition.produce_values(binding, outputs)
    transition.release(binding)
    if transition.on_groups is not None:
        transition.on_groups(outputs[transition.description.ends_groups][0])
    counts = [len(tokens) for tokens in outputs]
    arcs = transition.description.inputs
    kept = {bound.place for bound in transition.bounds} & {target.place for target in transition.targets}
    taken = [
        token
        for token, bound, arc in zip(binding, transition.bounds, arcs, strict=True)
        if arc.passed and bound.place not in kept
    ]
    makers: Makers | None = None
    for token, forwarded in _newest(transition, binding, counts):
        if forwarded is not None:
            token.makers = _united([forwarded])
        else:
            makers = _united(taken) if makers is None else makers
            token.makers = makers
    for place in kept:
        for token in islice(reversed(place), 1):
            token.makers = ()


def _newest(
    transition: RunningTransition, binding: Binding, counts: Sequence[int]
) -> Iterator[tuple[Token, Token | None]]:
    """Yield the tokens that have just come, and those that they are copies of, if they were forwarded."""
    ends: dict[int, Iterator[Token]] = {}
    for target in reversed(transition.targets):  # the newest tokens of a place are its last
        place = ends.setdefault(id(target.place), reversed(target.place))
        if target.output >= 0:
            for token in islice(place, counts[target.output]):
                yield token, None
            continue
        forwarded = binding[target.forwarded]
        parts = forwarded.value.tokens[target.first :] if type(forwarded.value) is Batch else (forwarded,)
        if target.part >= 0 and len(parts) > target.part:
            forwarded = parts[target.part]
        for copied in reversed(parts) if target.each else (forwarded,):
            for token in islice(place, 1):
                yield token, copied


def _united(tokens: Iterable[Token]) -> Makers:
    """Return the makers of all these tokens, each once."""
    found: dict[TaskId, None] = {}
    for token in tokens:
        parts = token.value.tokens if type(token.value) is Batch else (token,)
        for part in parts:
            found.update(dict.fromkeys(getattr(part, "makers", ())))
            if len(found) >= PARENTS_MAX:
                return tuple(islice(found, PARENTS_MAX))
    return tuple(found)
