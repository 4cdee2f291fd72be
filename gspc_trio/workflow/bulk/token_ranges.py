"""Ranges of tokens that one task computes: those of transitions that run one function of one token.

A place keeps the values as they came. A range takes some of them away at a time; no token is made of any, and
what the tasks return comes to the place behind as it is. An item becomes a task of its own, with its token,
when it has to: it has failed, or it is to run alone.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gspc_trio.core.code import WHOLE, Program, SourceFile, Variants
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import DEFAULT_OPTIONS, TaskState
from gspc_trio.workflow.arcs import ANSWERS
from gspc_trio.workflow.bulk.stock import Column, Stock
from gspc_trio.workflow.in_flight import IN_FLIGHT
from gspc_trio.workflow.marking import StockedPlace
from gspc_trio.workflow.net import Net, Transition
from gspc_trio.workflow.runtime import RunningTransition
from gspc_trio.workflow.state import Activity
from gspc_trio.workflow.tokens import Plain, Token

if TYPE_CHECKING:
    from gspc_trio.workflow.engine import WorkflowEngine

FEW = 256
"""A place that begins with so many tokens, or fewer, has a task for each."""


def _runs_a_function(transition: Transition) -> bool:
    """Whether a transition runs one function, about whose tasks nothing is stated."""
    run = transition.run
    return (
        callable(run)
        and not (transition.is_inline or isinstance(run, Program | SourceFile | Variants))
        and transition.subnet is None
        and transition.variants is None
        and transition.stage is None
        and transition.parameters == ()
        and tuple(transition.outputs) == tuple(WHOLE)
        and transition.options == DEFAULT_OPTIONS
        and len(transition.shape.requirements) == 1
        and transition.shape.estimate_s is None
    )


def _depends_on_nothing(transition: Transition) -> bool:
    """Whether a task of a transition may begin and end at any time, whatever others do."""
    return (
        transition.condition is None
        and not any(transition.keys)
        and transition.group is None
        and transition.ends_groups < 0
        and not transition.ordered
        and transition.in_flight in (None, IN_FLIGHT)
    )


def may_be_ranged(net: Net, transition: Transition) -> bool:
    """Return whether a range of the tokens that a transition takes may be one task."""
    if len(transition.inputs) != 1 or len(transition.output_arcs) != 1:
        return False
    taken, made = transition.inputs[0], transition.output_arcs[0]
    source, target = net.places[taken.place], net.places[made.place]
    counted = {place.counts for place in net.places.values()}
    takers = sum(arc.place == source.name for one in net.transitions.values() for arc in one.inputs)
    return (
        net.seed is None
        and net.references is None
        and ANSWERS not in net.places
        and _runs_a_function(transition)
        and _depends_on_nothing(transition)
        and (taken.least, taken.most, taken.is_batch, taken.consumed, taken.passed)
        == (1, 1, False, True, True)
        and (made.output, made.copies, made.each) == (0, 1, False)
        and takers == 1
        and source.successor is None
        and not (source.stops or target.stops or target.room)
        and not counted & {source.name, target.name}
    )


class _Block:
    """Items that were taken from their place together.

    Attributes:
        begin: number of the first one.
        first_id: the task that the first one would be; those of the others follow.
        stock: their values.
        open: (begin, end) of those that were neither computed nor made tasks of their own.
    """

    __slots__ = ("begin", "first_id", "open", "stock")

    def __init__(self, begin: int, first_id: TaskId, stock: Stock) -> None:
        self.begin: int = begin
        self.first_id: TaskId = first_id
        self.stock: Stock = stock
        self.open: list[tuple[int, int]] = [(begin, begin + len(stock))]

    def close(self, begin: int, end: int) -> None:
        """These items are part of a range no more."""
        for where, (first, last) in enumerate(self.open):
            if first <= begin and end <= last:
                rest = [(first, begin), (end, last)]
                self.open[where : where + 1] = [one for one in rest if one[0] < one[1]]
                return
        raise AssertionError(f"items {begin} to {end} are computed twice")


class RangedTransition:
    """A transition whose tokens are taken in ranges.

    Args:
        running: the transition.
        source: the place from which it takes.
        target: the place to which its results go.

    Attributes:
        running, source, target: see above.
        taken: so many items were taken; they are numbered from 0 in the order in which they came.
    """

    def __init__(self, running: RunningTransition, source: StockedPlace, target: StockedPlace) -> None:
        self.running = running
        self.source = source
        self.target = target
        self.taken: int = 0
        self._begins: list[int] = []
        self._blocks: dict[int, _Block] = {}
        self._cancelled: list[tuple[_Block, int, int]] = []

    @property
    def name(self) -> str:
        """Of the transition."""
        return self.running.description.name

    @property
    def known(self) -> int:
        """So many items have come so far."""
        return self.taken + len(self.source)

    @property
    def open(self) -> int:
        """Items that are taken, and are part of ranges."""
        return sum(end - begin for block in self._blocks.values() for begin, end in block.open)

    @property
    def cancelled(self) -> int:
        """Items that were cancelled as parts of ranges."""
        return sum(end - begin for _, begin, end in self._cancelled)

    def add(self, first_id: TaskId, stock: Stock) -> None:
        """Items were taken from their place."""
        self._blocks[self.taken] = _Block(self.taken, first_id, stock)
        insort(self._begins, self.taken)
        self.taken += len(stock)

    def block(self, number: int) -> _Block:
        """Return the block of an item."""
        return self._blocks[self._begins[bisect_right(self._begins, number) - 1]]

    def close(self, begin: int, end: int) -> None:
        """These items are part of a range no more."""
        block = self.block(begin)
        block.close(begin, end)
        if not block.open:
            self._begins.remove(block.begin)
            del self._blocks[block.begin]

    def cancel(self, begin: int, end: int) -> None:
        """These items of a range were cancelled; they keep the tokens that they took."""
        self._cancelled.append((self.block(begin), begin, end))
        self.close(begin, end)

    def find(self, task_id: TaskId) -> int | None:
        """Return the number of the item in a range that this task would be; None if it is none."""
        for block in self._blocks.values():
            number = block.begin + task_id - block.first_id
            if any(begin <= number < end for begin, end in block.open):
                return number
        return None

    def rows(self) -> Iterator[tuple[TaskId, TaskState, Token]]:
        """Yield the items that are taken as what they would be: tasks."""
        spans = [
            (block, *span, TaskState.SUBMITTED) for block in self._blocks.values() for span in block.open
        ]
        spans += [(*cancelled, TaskState.CANCELLED) for cancelled in self._cancelled]
        for block, begin, end, state in spans:
            for number in range(begin - block.begin, end - block.begin):
                yield block.first_id + number, state, block.stock.token(number)


class TokenRanges:
    """The ranges of an engine: taken from places, given back, finished.

    Args:
        engine: whose tokens they are; nothing of it has begun.
        is_possible: asked whether a transition of this name may have ranges.

    Attributes:
        transitions: those whose tokens are taken in ranges, by name.
    """

    def __init__(self, engine: WorkflowEngine, is_possible: Callable[[str], bool]) -> None:
        self._engine = engine
        self.transitions: dict[str, RangedTransition] = {}
        net, places = engine.net, engine.running.places
        fitting = [one for one in net.transitions.values() if may_be_ranged(net, one)]
        filled = {name for name, place in places.items() if len(place) > FEW}
        while found := [one for one in fitting if one.inputs[0].place in filled]:
            for one in found:
                fitting.remove(one)
                source, target = places[one.inputs[0].place], places[one.output_arcs[0].place]
                if not (isinstance(source, StockedPlace) and isinstance(target, StockedPlace)):
                    continue
                if is_possible(one.name):
                    filled.add(target.description.name)
                    self._begin(engine.running.transitions[one.name], source, target)

    def _begin(self, running: RunningTransition, source: StockedPlace, target: StockedPlace) -> None:
        source.takers.remove(running)
        source.take_in_ranges()
        running.take_no_tokens()
        self.transitions[running.description.name] = RangedTransition(running, source, target)

    def number(self, state: TaskState) -> int:
        """Return how many items that are no tasks are in a state."""
        if state is TaskState.SUBMITTED:
            return sum(one.open for one in self.transitions.values())
        return sum(one.cancelled for one in self.transitions.values()) if state is TaskState.CANCELLED else 0

    def numbers(self) -> dict[str, dict[TaskState, int]]:
        """Return transition -> state -> number of items that are no tasks."""
        both = {
            name: {TaskState.SUBMITTED: ranged.open, TaskState.CANCELLED: ranged.cancelled}
            for name, ranged in self.transitions.items()
        }
        return {name: {state: one for state, one in found.items() if one} for name, found in both.items()}

    def take(self, name: str, count: int) -> TaskId:
        """Take items from their place for a range; return an id for its task, which is none of the net."""
        engine, ranged = self._engine, self.transitions[name]
        stock = ranged.source.take_stock(count, engine.codec)
        task_id = self.new_id()
        ranged.add(task_id + 1, stock)
        engine.last_task_id += count
        ranged.running.fired += count
        engine.change_counts(None, TaskState.SUBMITTED, count)
        return task_id

    def new_id(self, more: int = 0) -> TaskId:
        """Return an id for a task that is none of the net: a range; so many ids behind it are none, too."""
        engine = self._engine
        task_id = engine.last_task_id + 1
        engine.last_task_id += 1 + more
        engine.others += 1 + more
        return task_id

    def take_one(self, name: str) -> TaskId:
        """Take one item from its place; return its task, which is ready."""
        engine, ranged = self._engine, self.transitions[name]
        token = ranged.source.take_stock(1, engine.codec).token(0)
        ranged.taken += 1
        ranged.running.fired += 1
        engine.last_task_id += 1
        engine.change_counts(None, TaskState.READY, 1)
        return self._make_task(ranged, engine.last_task_id, token)

    def _make_task(self, ranged: RangedTransition, task_id: TaskId, token: Token) -> TaskId:
        self._engine.activities[task_id] = Activity(ranged.running, [token])
        if (flight := ranged.running.flight) is not None:
            flight.unended += 1
            flight.out += 1
        return task_id

    def alone(self, name: str, number: int) -> TaskId:
        """Make an item of a range a task of its own; return it, it is ready."""
        ranged = self.transitions[name]
        block = ranged.block(number)
        offset = number - block.begin
        ranged.close(number, number + 1)
        self._engine.change_counts(TaskState.SUBMITTED, TaskState.READY, 1)
        return self._make_task(ranged, block.first_id + offset, block.stock.token(offset))

    def column(self, name: str, begin: int, end: int) -> Column:
        """Return the values of some items as the arguments of a range."""
        block = self.transitions[name].block(begin)
        part = block.stock.part(begin - block.begin, end - block.begin)
        return part.column(self._engine.codec)

    def finish(self, name: str, begin: int, end: int, results: Stock) -> None:
        """Items were computed, and have not failed: put their results onto the place behind."""
        ranged = self.transitions[name]
        ranged.close(begin, end)
        self._engine.change_counts(TaskState.SUBMITTED, TaskState.FINISHED, end - begin)
        ranged.target.put_stock(results)

    def cancel(self, name: str, begin: int, end: int) -> None:
        """Items of a range were cancelled; they keep the tokens that they took."""
        self.transitions[name].cancel(begin, end)
        self._engine.change_counts(TaskState.SUBMITTED, TaskState.CANCELLED, end - begin)

    def find(self, task_id: TaskId) -> tuple[str, int] | None:
        """Return transition and number of the item in a range that this task would be; None: it is none."""
        for name, ranged in self.transitions.items():
            if (number := ranged.find(task_id)) is not None:
                return name, number
        return None

    def marked(self) -> list[str]:
        """Return the transitions that could take tokens."""
        return [name for name, ranged in self.transitions.items() if len(ranged.source)]

    def dump(self) -> list[list[Plain]]:
        """Return the items that are taken as plain data, as if they were tasks."""
        encode = self._engine.codec.encode
        return [
            [task_id, name, str(state), [encode(token)], None]
            for name, ranged in self.transitions.items()
            for task_id, state, token in ranged.rows()
        ]
