"""Items of an executor that are computed in ranges: what its loop does with them, in its own thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec.structs import replace

from gspc_trio.components.job.item_values import ENCODED, errors_in, open_answer
from gspc_trio.components.job.item_values import packed as pack
from gspc_trio.components.job.ranges import (
    Event,
    RangeCancelled,
    RangeEnded,
    RangeLost,
    Ranges,
    RunItems,
    Stop,
)
from gspc_trio.core.task import Shape, TaskError, TaskOptions, TaskState
from gspc_trio.protocol.values import LONG_BYTES, dumps
from gspc_trio.workflow.failures import ExecutorBroken

if TYPE_CHECKING:
    from gspc_trio.components.job.scheduler.interface import TaskDone
    from gspc_trio.executor.call_table import CallTable
    from gspc_trio.executor.told import ToldItems

Found: TypeAlias = bytes | memoryview | BaseException | list[Any]
"""What became of some items: a result or the results of a range, encoded; an error; or futures."""


class Looking(Protocol):
    """The executor's loop, as far as items need it."""

    def stir(self) -> None:
        """Look at all maps."""
        ...


class ItemsOwner(Protocol):
    """What items of an executor have in common.

    Attributes:
        table: its calls.
        active: those that have items without an end.
        extra: what is to be added to the numbers of tasks, so that items are counted.
        told: tells of each item as of a task, if its job has records or spans; else None.
    """

    table: CallTable[Any]
    active: dict[Items, None]
    extra: Counter[TaskState]
    told: ToldItems | None

    @property
    def loop(self) -> Looking:
        """Of the executor."""
        ...


class Part:
    """A task that computes items.

    Args:
        items: whose they are.
        run: which.

    Attributes:
        count: of them, without those that were cancelled before.
        ended: how its task has ended.
        ready_s: since when that is ready, on the clock of the job; known if its items are told of each.
        task_id: of the task.
    """

    __slots__ = ("begin", "count", "end", "ended", "items", "number", "ready_s", "task_id")

    def __init__(self, items: Items, run: RunItems) -> None:
        self.items: Items = items
        self.number: int = run.number
        self.begin: int = run.begin
        self.end: int = run.end
        self.count: int = run.end - run.begin
        self.ended: TaskDone | None = None
        self.ready_s: float = 0.0
        self.task_id: int = 0

    @property
    def untold(self) -> int:
        """Number of its items of which nothing is told as long as it does not finish."""
        return self.count if self.count > 1 else 0

    def give(self, done: int, found: Found) -> int:
        """Pass on what became of the first items that were computed; return how many have ended by that."""
        self.items.put_found(self.begin, self.begin + done, found)
        return done

    def finish(self, data: bytes) -> None:
        """It has computed items, all or the first ones."""
        items, ended = self.items, self.ended
        assert ended is not None
        outcome = ended.outcome
        apart = bool(outcome.stdout or outcome.stderr)
        if self.count == 1:
            done = 1
            apart = apart or len(data) > LONG_BYTES
            found: Found = data
        else:
            done, failed, found = open_answer(data)
            items.maps.extra[TaskState.FINISHED] += done - failed - 1
            items.maps.extra[TaskState.FAILED] += failed
            if items.maps.told is not None and done:
                self.tell_of_each(done, errors_in(found) if failed else {})
        if done:
            done = self.give(done, found)
        self.tell(RangeEnded(self.number, done, outcome.duration_s, apart), done)

    def tell_of_each(self, done: int, errors: Mapping[int, TaskError]) -> None:
        """Have the first ``done`` of its items told of, each as a task of its own.

        Args:
            done: so many have ended.
            errors: place among them -> why it has failed.
        """
        told, ended = self.items.maps.told, self.ended
        if told is not None and ended is not None and done and self.count > 1:
            told.ended(ended, self.items.name, done, errors, self.ready_s)

    def tell(self, event: Event, ended: int) -> None:
        """Have the machine told, by which so many items have ended."""
        self.items.note_ended(ended)
        self.items.tell(event)

    def fail(self, error: BaseException) -> None:
        """It has none."""
        items = self.items
        if isinstance(error, ExecutorBroken):
            items.end(error)
            return
        ended = 0
        if self.count == 1:
            ended = self.give(1, error)
        else:
            items.maps.extra[TaskState.FAILED] -= 1
        self.tell(RangeLost(self.number), ended)

    def give_up(self) -> None:
        """It was cancelled."""
        self.items.maps.extra[TaskState.CANCELLED] += self.count - 1
        self.items.note_cancelled(self.untold)
        self.tell(RangeCancelled(self.number), self.give(self.count, CancelledError()))


class Items(ABC):
    """Items of one function, each as if it were a task of its own.

    Args:
        maps: those of the executor.
        name: of the function.
        code_ids: number of the function, and of what calls it with each of many items.
        shape, options: what each item needs, and states about itself.
        cores: how many tasks can run at a time.

    Attributes:
        maps: those of the executor.
        cell: number of the notebook's cell that has submitted them; 0: none has.
        is_dropped: whether what has not begun was cancelled, and nothing begins any more.
        machine: decides what is a task.
        name: of the function.
        unheard: items that have ended, of which the machine has not heard yet, without those that were tasks.
    """

    def __init__(
        self,
        maps: ItemsOwner,
        name: str,
        code_ids: tuple[int, int],
        shape: Shape,
        options: TaskOptions,
        cores: int,
    ) -> None:
        self.maps: ItemsOwner = maps
        self.cell: int = 0
        self.is_dropped: bool = False
        self.machine: Ranges = Ranges(cores)
        self.unheard: int = 0
        self.name: str = name
        self._code_ids = code_ids
        self._shape = shape
        self._options = options
        self._range_options = replace(options, loss_attempts=1)
        self._news: deque[Event] = deque()
        self._is_read = False
        self._is_over = False
        self._is_unwanted = False

    @abstractmethod
    def put_found(self, begin: int, end: int, found: Found) -> None:
        """These items have ended."""

    @abstractmethod
    def end(self, error: BaseException) -> None:
        """Nothing more will come."""

    @abstractmethod
    def _arguments(self, part: Part) -> tuple[bytes, list[Sequence[Any]]]:
        """Return the columns of the items of a task, and before them what they are (``item_values``)."""

    def tell(self, event: Event) -> None:
        """Have the machine told this soon; in any thread."""
        self._news.append(event)
        self.maps.loop.stir()

    def note_ended(self, ended: int) -> None:
        """So many items of a task have ended, of which the machine is told next."""
        self.unheard += ended - 1  # the task itself is none any more

    def note_cancelled(self, count: int) -> None:
        """So many items will never run, and have been no tasks; it is told of each."""
        if self.maps.told is not None and count:
            self.maps.told.cancelled(self.name, count)

    def drop(self, is_unwanted: bool) -> None:
        """Cancel what has not begun; and what has, if nobody wants its results."""
        self.is_dropped = True
        self._is_unwanted |= is_unwanted
        self.tell(Stop())

    def look(self, now: float) -> None:
        """Tell the machine what is new, and do what it says."""
        news, machine = self._news, self.machine
        while news and not self._is_over:
            event = news.popleft()
            for action in machine.handle(event, now):
                if isinstance(action, RunItems):
                    self._run(action)
                else:
                    self.maps.extra[TaskState.CANCELLED] += action.end - action.begin
                    self.note_cancelled(action.end - action.begin)
                    self.put_found(action.begin, action.end, CancelledError())
            if isinstance(event, Stop):
                self._cancel()
        self.unheard = 0
        if self._is_read and not (machine.waiting or machine.tasks or news):
            self._is_over = True
            self.maps.active.pop(self, None)

    def _cancel(self) -> None:
        """Cancel the tasks that have not begun, and if nobody wants their results, the others."""
        table = self.maps.table
        parts = [part for part in table.parts.values() if isinstance(part, Part) and part.items is self]
        if not self._is_unwanted:
            assert table.job is not None
            running = table.job.machine.scheduler.is_running
            parts = [part for part in parts if not running(part.task_id)]
        told = set(table.cancel([part.task_id for part in parts]))
        for part in parts:
            if part.task_id not in told:
                part.give_up()

    def _run(self, run: RunItems) -> None:
        part = self._part(run)
        if part is None:
            return
        code_id, of_items = self._code_ids
        kind, columns = self._arguments(part)
        name, options = self.name, self._options
        arguments: list[bytes]
        told, told_items = self.maps.told, 0
        if part.count == 1:
            arguments = [column[0] if kind is ENCODED else dumps(column[0]) for column in columns]
        else:
            arguments = [kind, *map(pack, columns)]
            name, code_id, options = f"{name} x {part.count}", of_items, self._range_options
            if told is not None:
                told_items, part.ready_s = part.count, told.now
        part.task_id = self.maps.table.graph.add(
            name, code_id, arguments, self._shape, options, items=told_items
        )
        self.maps.table.parts[part.task_id] = part

    def _part(self, run: RunItems) -> Part | None:
        """Return what takes the result of a task; None if nobody wants what it would compute."""
        return Part(self, run)
