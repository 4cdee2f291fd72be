"""Jobs some of whose tasks are ranges: one computes many tokens of a transition.

How many are in one is decided by :mod:`~gspc_trio.components.job.ranges`, as for maps; the engine takes the
tokens off their places and puts the results onto others (:mod:`~gspc_trio.workflow.bulk.token_ranges`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from attrs import define, field
from msgspec.structs import replace

from gspc_trio.components.job.engine_wrapper import Engine
from gspc_trio.components.job.item_values import (
    ENCODED,
    ITEM_BYTES_MAX,
    PLAIN,
    can_share,
    open_answer,
    open_results,
    packed,
    together_max,
)
from gspc_trio.components.job.machine import JobMachine
from gspc_trio.components.job.ranges import (
    CoresKnown,
    Event,
    ItemsAdded,
    RangeCancelled,
    RangeEnded,
    RangeLost,
    Ranges,
    RunItems,
)
from gspc_trio.components.job.scheduler.interface import EndedItems, RetryTask, TaskDone, TasksReady
from gspc_trio.compute.code import code_of_items
from gspc_trio.core.ids import TaskId
from gspc_trio.core.machine import Tick, handles
from gspc_trio.core.task import Outcome, Reason, Task, TaskError, TaskState
from gspc_trio.protocol.values import LONG_BYTES
from gspc_trio.workflow.bulk.stock import Opened, PackedStock, Stock
from gspc_trio.workflow.bulk.token_ranges import RangedTransition, TokenRanges
from gspc_trio.workflow.engine import WorkflowEngine

SAMPLES = 8
"""So many values of each kind are looked at to know how long they are."""


class _Source:
    """A transition whose tokens are taken in ranges, and the machine that cuts them."""

    def __init__(self, ranged: RangedTransition, code_id: int) -> None:
        self.ranged: RangedTransition = ranged
        self.name: str = ranged.name
        self.code_id: int = code_id
        self.cutting: Ranges = Ranges(1)
        self.told: int = 0
        description = ranged.running.description
        self.shape = description.shape
        self.options = replace(description.options, loss_attempts=1)


class RangeTasks:
    """The tasks of ranges of one job.

    Args:
        engine: whose tokens they take.
        tokens: takes them.
        codes: transition -> number of the code that calls its function with each of many values.
        tells_each: whether it says of each item how it has ended.

    Attributes:
        engine, tokens: see above.
        under: tasks under way, those of single items, too.
        extra: what is to be added to the numbers of tasks, so that items are counted.
        told: items of ranges that have ended, of which nobody was told yet.
    """

    def __init__(
        self,
        engine: WorkflowEngine,
        tokens: TokenRanges,
        codes: Mapping[str, int],
        tells_each: bool = False,
    ) -> None:
        self.engine: WorkflowEngine = engine
        self.tokens: TokenRanges = tokens
        self.under: dict[TaskId, tuple[_Source, RunItems]] = {}
        self.extra: Counter[TaskState] = Counter()
        self.told: list[EndedItems] = []
        self._tells_each = tells_each
        self._ready_s: dict[TaskId, float] = {}  # of ranges whose items are told of
        self._sources = [_Source(one, codes[name]) for name, one in self.tokens.transitions.items()]
        self._ready: list[Task] = []

    @property
    def known(self) -> int:
        """Items that have come so far."""
        return sum(one.ranged.known for one in self._sources)

    def deadline(self) -> float | None:
        """Return when it wants to be looked at."""
        return min(
            (due for one in self._sources if (due := one.cutting.deadline()) is not None), default=None
        )

    def ready(self, number_of: Callable[[str], int], now: float) -> Sequence[Task]:
        """Return the tasks that are to run.

        Args:
            number_of: resource class -> how many resources are known.
            now: the time.
        """
        for source in self._sources:
            cores = number_of(source.shape.requirements[0].resource_class)
            if cores > source.cutting.cores:
                self._tell(source, CoresKnown(cores), now)
            known = source.ranged.known
            if known > source.told:
                begin, source.told = source.told, known
                self._tell(source, ItemsAdded(begin, known, self._together_max(source)), now)
            due = source.cutting.deadline()
            if due is not None and now >= due:
                self._tell(source, Tick(), now)
        ready, self._ready = self._ready, []
        return ready

    def _together_max(self, source: _Source) -> int:
        """Return how many of the items that have come may be in a range."""
        encode = self.engine.codec.encode
        sizes = [len(encode(token)) for token in source.ranged.source.samples(SAMPLES)]
        bytes_each = sum(sizes) // max(1, len(sizes))
        return 1 if bytes_each > ITEM_BYTES_MAX else together_max(bytes_each)

    def _tell(self, source: _Source, event: Event, now: float) -> None:
        for action in source.cutting.handle(event, now):
            assert isinstance(action, RunItems), "nothing is dropped"
            self._run(source, action, now)

    def _run(self, source: _Source, run: RunItems, now: float) -> None:
        """Make a task of some items."""
        tokens, ranged, count = self.tokens, source.ranged, run.end - run.begin
        is_new = run.begin == ranged.taken
        if count == 1:
            task_id = tokens.take_one(source.name) if is_new else tokens.alone(source.name, run.begin)
            task = self.engine.extract(task_id)
        else:
            tells = self._tells_each
            task_id = tokens.take(source.name, count) if is_new else tokens.new_id(count if tells else 0)
            if tells:
                self._ready_s[task_id] = now
            task = Task(
                task_id,
                f"{source.name} x {count}",
                source.code_id,
                self._arguments(source, run),
                source.shape,
                source.options,
                self.engine.plan.distances[source.name],
                items=count if tells else 0,
            )
        self.under[task_id] = source, run
        self._ready.append(task)

    def _arguments(self, source: _Source, run: RunItems) -> tuple[bytes, bytes]:
        values, are_encoded = self.tokens.column(source.name, run.begin, run.end)
        if not (are_encoded or can_share(values)):
            values, are_encoded = list(map(self.engine.codec.dumps, values)), True
        if type(values) is not range:
            values = list(values)
        return ENCODED if are_encoded else PLAIN, packed(values)

    def finished(self, done: TaskDone, now: float) -> list[TaskDone]:
        """A task has finished; return those of its items that have failed."""
        source, run = self.under.pop(done.task_id)
        outcome = done.outcome
        apart = bool(outcome.stdout or outcome.stderr)
        if run.end - run.begin == 1:
            self.engine.inject(done.task_id, outcome.values)
            computed, failed = 1, list[TaskDone]()
            apart = apart or len(outcome.values[0][0]) > LONG_BYTES
        else:
            computed, failed = self._take_in(source, run, done)
        self._tell(source, RangeEnded(run.number, computed, outcome.duration_s, apart), now)
        return failed

    def _take_in(self, source: _Source, run: RunItems, done: TaskDone) -> tuple[int, list[TaskDone]]:
        """Put the results of a range onto the place behind; return how many items it has computed."""
        computed, failed, found = open_answer(done.outcome.values[0][0])
        self.extra[TaskState.FINISHED] += computed - failed - 1
        ready_s = self._ready_s.pop(done.task_id, None)
        if ready_s is not None and computed:
            why = {place: TaskError(*it) for place, it in open_results(found)[2].items()} if failed else {}
            self.told.append(EndedItems(done, source.name, computed, why, ready_s))
        if not failed:
            if computed:
                results: Stock = PackedStock(computed, lambda: open_results(found)[:2])
                self.tokens.finish(source.name, run.begin, run.begin + computed, results)
            return computed, []
        values, encoded, errors = open_results(found)
        told: list[TaskDone] = []
        first = 0
        for number in (*sorted(errors), computed):
            if first < number:
                part = values[first:number]
                there = {one - first: data for one, data in encoded.items() if first <= one < number}
                results = PackedStock(number - first, partial(_opened, part, there))
                self.tokens.finish(source.name, run.begin + first, run.begin + number, results)
            if number in errors:
                told.append(self._failed(source, run.begin + number, TaskError(*errors[number]), done))
            first = number + 1
        return computed, told

    def _failed(self, source: _Source, number: int, error: TaskError, done: TaskDone) -> TaskDone:
        """Make an item that has failed a task of its own, which has failed."""
        task_id = self.tokens.alone(source.name, number)
        self.engine.extract(task_id)
        outcome = Outcome(task_id, 1, Reason.FAILED, error=error, started_s=done.outcome.started_s)
        return TaskDone(task_id, TaskState.FAILED, outcome, source.name, done.resource_id)

    def lost(self, done: TaskDone, now: float) -> bool:
        """A task has failed; return whether that is all: its items are tried again."""
        source, run = self.under.pop(done.task_id)
        self._ready_s.pop(done.task_id, None)
        is_range = run.end - run.begin > 1
        if is_range:
            self.extra[TaskState.FAILED] -= 1
        self._tell(source, RangeLost(run.number), now)
        return is_range

    def cancelled(self, done: TaskDone, now: float) -> bool:
        """A task was cancelled, and with it its items; return whether it was that of a range."""
        source, run = self.under.pop(done.task_id)
        self._ready_s.pop(done.task_id, None)
        count = run.end - run.begin
        if count > 1:
            self.extra[TaskState.CANCELLED] += count - 1
            self.tokens.cancel(source.name, run.begin, run.end)
        self._tell(source, RangeCancelled(run.number), now)
        return count > 1

    def count(self, counts: dict[TaskState, int]) -> None:
        """Count items instead of tasks."""
        for state, number in self.extra.items():
            counts[state] = counts.get(state, 0) + number
        unknown = {task.task_id for task in self._ready}  # those of a job that is stopped
        more = sum(run.end - run.begin - 1 for one, (_, run) in self.under.items() if one not in unknown)
        more += sum(one.cutting.waiting + one.ranged.known - one.told for one in self._sources)
        counts[TaskState.READY] = counts.get(TaskState.READY, 0) + more

    def check(self) -> None:
        """Assert that all that is taken is part of one task, and that nothing waits which nobody knows of."""
        for source in self._sources:
            cutting = source.cutting
            cutting.check()
            under = [run for one, run in self.under.values() if one is source]
            assert len(under) == cutting.tasks, f"{source.name}: tasks are counted wrongly"
            in_ranges = sum(run.end - run.begin for run in under if run.end - run.begin > 1)
            there = source.ranged.open + len(source.ranged.source)
            assert there - (source.ranged.known - source.told) == in_ranges + cutting.waiting, (
                f"{source.name}: an item is nowhere, or twice"
            )


def _opened(values: list[object], encoded: dict[int, bytes]) -> Opened:
    return values, encoded


@define(eq=False)
class RangedJobMachine(JobMachine):
    """A job some of whose tasks are ranges.

    Attributes:
        ranges: those tasks.
    """

    ranges: RangeTasks = field(kw_only=True)

    def __attrs_post_init__(self) -> None:
        self._injects = False
        self.count_more: Callable[[dict[TaskState, int]], None] | None = self.ranges.count

    @handles(RetryTask)
    def _retry(self, event: RetryTask) -> None:
        """Hand a failed task out again; the scheduler has not known of one that was part of a range."""
        engine, task_id = self.engine, event.task_id
        activity = self.ranges.engine.activities.get(task_id)
        is_unknown = self.scheduler.state_of(task_id) is None
        if self._stop is None and is_unknown and activity is not None and activity.state is TaskState.FAILED:
            engine.restore(task_id)
            task = engine.extract(task_id)
            self.failures[:] = [failure for failure in self.failures if failure.task_id != task_id]
            self.ranges.extra[TaskState.FAILED] -= 1
            self.actions.extend(self.scheduler.handle(TasksReady((task,)), self.now))
            return
        super()._retry(event)

    def _done(self, done: TaskDone) -> list[TaskDone]:
        """Tell the engine how a task ended; return the items of a range that have failed."""
        ranges = self.ranges
        is_range = done.task_id in ranges.under
        if done.state is TaskState.FINISHED:
            if not is_range:
                self.engine.inject(done.task_id, done.outcome.values)
                return []
            failed = ranges.finished(done, self.now)
            self.actions.extend(ranges.told)
            ranges.told.clear()
            for one in failed:
                super()._done(one)
            return failed
        if is_range:
            is_cancelled = done.state is TaskState.CANCELLED
            if (ranges.cancelled if is_cancelled else ranges.lost)(done, self.now):
                return []
        return super()._done(done)

    def _pull(self, room_min: int) -> tuple[Task, ...]:
        tasks = super()._pull(room_min)
        if self._stop is not None:
            return tasks
        return (*tasks, *self.ranges.ready(self.scheduler.number_of, self.now))

    def deadline(self) -> float | None:
        """Return when it wants to be told of the time."""
        is_taking = self._begun and self._stop is None
        found = super().deadline(), self.ranges.deadline() if is_taking else None
        return min((due for due in found if due is not None), default=None)

    def check(self) -> None:
        """Assert what a job does, and that each item of a range is in one place."""
        super().check()
        self.ranges.check()


def machine_for(
    engine: Engine, code: Callable[[int], bytes], tells_each: bool = False
) -> tuple[Callable[..., JobMachine], Callable[[int], bytes]]:
    """Return what makes the machine of a job, and its code table.

    Its tokens are taken in ranges where that makes no difference; an engine that is wrapped has others that
    look at each task.

    Args:
        engine: of the job, which has not begun.
        code: returns an entry of the code table, encoded.
        tells_each: whether its machine says of each item of a range how it has ended.
    """
    if type(engine) is not WorkflowEngine:
        return JobMachine, code
    encoded: dict[int, bytes] = {}
    codes: dict[str, int] = {}

    def find_code(name: str) -> bool:
        """Give what calls the function of a transition with each of many values a number."""
        number = len(engine.code_table) + len(encoded)
        of_items = code_of_items(code(engine.plan.code_ids[name]))
        if of_items is None:
            return False
        encoded[number], codes[name] = of_items, number
        return True

    ranges = TokenRanges(engine, find_code)
    if not ranges.transitions:
        return JobMachine, code
    engine.ranges = ranges
    return partial(
        RangedJobMachine, ranges=RangeTasks(engine, ranges, codes, tells_each)
    ), lambda number: encoded.get(number) or code(number)
