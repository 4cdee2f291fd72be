"""Tokens of a net that one task computes together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.components.job.item_values import open_answer
from gspc_trio.components.job.machine import Begin, JobEvent
from gspc_trio.components.job.ranged import RangeTasks, machine_for
from gspc_trio.components.job.ranges import FIRST_PATIENCE_S
from gspc_trio.components.job.scheduler.interface import ResourcesUp, Stop, TaskDone, Watched
from gspc_trio.components.job.scheduler.status import ItemCounts
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.worker.messages import Finished, Submission, Submit
from gspc_trio.compute.code import function_code
from gspc_trio.compute.ranges import call_items
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Outcome, Reason, Task, TaskError, TaskState
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.protocol.values import dumps, join, loads
from gspc_trio.records.facts import TaskChanged, TaskCounts
from gspc_trio.records.progress import Progress
from gspc_trio.workflow.bulk.token_ranges import FEW, TokenRanges
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.in_flight import IN_FLIGHT
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import farm
from gspc_trio.workflow.patterns.pipeline import pipeline

SHORT_S = 1e-6


def more(value: int) -> int:
    if value % 13 == 5:
        raise ValueError(f"no {value}")
    return value + 1000


def rows(value: int) -> list[int]:
    return [value]


def row_of(row: list[int]) -> int:
    return row[0]


FUNCTIONS = {"more": more, "rows": rows, "row_of": row_of}


def stages(*names: str) -> Net:
    """Return a net of farms, one behind the other."""
    net = Net("stages")
    places = [
        net.input("items"),
        *(net.place(f"behind {name}") for name in names[:-1]),
        net.output("results"),
    ]
    for number, name in enumerate(names):
        net.transition(name, FUNCTIONS[name], [places[number]], places[number + 1])
    return net


class Work:
    """An engine whose ranges are computed here, one at a time."""

    def __init__(self, net: Net, values: Iterable[object], tells_each: bool = False) -> None:
        self.engine = WorkflowEngine(net, {"items": values}, dumps=dumps, loads=loads, join=join)
        self.engine.ranges = tokens = TokenRanges(self.engine, lambda _: True)
        codes = {name: 100 + self.engine.plan.code_ids[name] for name in tokens.transitions}
        self.ranges = RangeTasks(self.engine, tokens, codes, tells_each)
        self.computed = 0  # in ranges
        self.tasks: list[Task] = []
        self.failed: dict[int, str] = {}
        self.look()

    def look(self) -> None:
        self.tasks += self.ranges.ready(lambda _: 2, 0.0)
        while (task_id := self.engine.next()) is not None:
            self.tasks.append(self.engine.extract(task_id))

    def done(self, task: Task, outcome: Outcome, state: TaskState) -> None:
        """Tell how a task has ended, as the machine of a job does."""
        done = TaskDone(task.task_id, state, outcome, task.name)
        if task.task_id not in self.ranges.under:
            self.engine.inject(task.task_id, outcome.values)
        elif state is TaskState.FINISHED:
            for one in self.ranges.finished(done, 0.0):
                assert one.outcome.error is not None
                self.failed[one.task_id] = one.outcome.error.message
                self.engine.fail(one.task_id, one.outcome.error)
        elif state is TaskState.CANCELLED:
            if not self.ranges.cancelled(done, 0.0):
                self.engine.cancelled(task.task_id)
        elif not self.ranges.lost(done, 0.0):
            assert outcome.error is not None
            self.failed[task.task_id] = outcome.error.message
            self.engine.fail(task.task_id, outcome.error)
        self.look()
        self.check()

    def check(self) -> None:
        self.engine.check()
        self.ranges.check()

    def compute(self, which: int, most: int | None = None) -> None:
        """Run a task; a range ends early, after ``most`` items."""
        task = self.tasks.pop(which % len(self.tasks))
        function = FUNCTIONS[task.name.partition(" ")[0]]
        values: list[bytes] = []
        error = None
        if task.code_id >= 100:
            are_encoded, column = map(loads, task.arguments)
            answer = call_items(function, are_encoded, list(column)[:most])
            values = [dumps(answer)]
            self.computed += open_answer(values[0])[0]
        else:
            try:
                values = [dumps(function(*map(loads, task.arguments)))]
            except ValueError as problem:
                error = TaskError("ValueError", str(problem))
        state = TaskState.FINISHED if error is None else TaskState.FAILED
        reason = Reason.FINISHED if error is None else Reason.FAILED
        self.done(task, Outcome(task.task_id, 1, reason, (tuple(values),), error, duration_s=SHORT_S), state)

    def lose(self, which: int) -> None:
        """Lose a range, as with its process."""
        if ranges := [task for task in self.tasks if task.code_id >= 100]:
            task = ranges[which % len(ranges)]
            self.tasks.remove(task)
            error = TaskError("lost", "its process was killed")
            self.done(task, Outcome(task.task_id, 1, Reason.LOST, error=error), TaskState.FAILED)

    def cancel(self, which: int) -> int:
        """Cancel a task; return how many items it has."""
        task = self.tasks.pop(which % len(self.tasks))
        count = len(loads(task.arguments[1])) if task.code_id >= 100 else 1
        self.done(task, Outcome(task.task_id, 1, Reason.CANCELLED), TaskState.CANCELLED)
        return count

    def finish(self) -> list[object]:
        while self.tasks:
            self.compute(0)
        return sorted(self.engine.outputs()["results"])


def expected(*names: str, count: int) -> list[object]:
    """Return what a plain loop has."""
    values: list[object] = list(range(count))
    for name in names:
        kept = []
        for value in values:
            try:
                kept.append(FUNCTIONS[name](value))
            except ValueError:
                continue
        values = kept
    return sorted(values)


@pytest.mark.parametrize("names", [("more",), ("rows",), ("rows", "row_of"), ("more", "rows", "row_of")])
def test_each_item_has_its_result_or_its_error(names: tuple[str, ...]) -> None:
    work = Work(stages(*names), range(3000))
    assert len(work.tasks) < 100
    assert work.finish() == expected(*names, count=3000)
    failing = [number for number in range(3000) if number % 13 == 5 and "more" in names]
    assert sorted(work.failed.values()) == sorted(f"no {number}" for number in failing)
    counts = work.engine.counts()
    tasks = [3000, *(len(expected(*names[:number], count=3000)) for number in range(1, len(names)))]
    assert counts[TaskState.FAILED] == len(failing)
    assert counts[TaskState.FINISHED] == sum(tasks) - len(failing)
    assert counts[TaskState.READY] == counts[TaskState.SUBMITTED] == 0


def test_an_item_that_has_failed_is_a_task_that_can_be_tried_again() -> None:
    work = Work(stages("more"), range(1000))
    work.finish()
    task_id, message = min(work.failed.items())
    assert message == "no 5"
    assert work.engine.state(task_id) is TaskState.FAILED
    work.engine.restore(task_id)
    assert work.engine.next() == task_id
    task = work.engine.extract(task_id)
    assert loads(task.arguments[0]) == 5
    work.engine.inject(task_id, ((dumps(5),),))
    work.check()
    assert 5 in work.engine.outputs()["results"]


STEPS = st.lists(
    st.tuples(st.sampled_from(("compute", "compute", "early", "lose", "cancel", "dump")), st.integers(0, 40)),
    max_size=40,
)


@given(STEPS, st.sampled_from([("more",), ("rows",), ("rows", "row_of"), ("more", "rows")]), st.booleans())
@settings(max_examples=20)
def test_whatever_happens_each_item_counts_once_and_is_told_of_once(
    steps: list[tuple[str, int]], names: tuple[str, ...], tells_each: bool
) -> None:
    count = 700
    work = Work(stages(*names), range(count), tells_each)
    cancelled = 0
    for what, number in steps:
        if not work.tasks:
            break
        if what == "compute":
            work.compute(number)
        elif what == "early":
            work.compute(number, most=number)
        elif what == "lose":
            work.lose(number)
        elif what == "cancel":
            cancelled += work.cancel(number)
        else:
            state = work.engine.dump()
            again = WorkflowEngine.load(stages(*names), state, dumps=dumps, loads=loads, join=join)
            again.check()
            assert again.dump()["tokens"] == state["tokens"]
            assert len(again.activities) == len(state["activities"])
    results = work.finish()
    assert not Counter(map(repr, results)) - Counter(map(repr, expected(*names, count=count)))
    assert work.engine.counts()[TaskState.CANCELLED] == cancelled
    told = [
        (ended.outcome(place), place in ended.errors)
        for ended in work.ranges.told
        for place in range(ended.count)
    ]
    assert len({outcome.task_id for outcome, _ in told}) == len(told) == (work.computed if tells_each else 0)
    assert all((outcome.reason is Reason.FAILED) is has_failed for outcome, has_failed in told)
    ended = work.engine.counts()
    if len(names) == 1:
        assert len(results) + ended[TaskState.FAILED] + cancelled == count
    if not cancelled:
        assert results == expected(*names, count=count)


def test_a_dump_has_the_items_of_ranges_as_tasks_and_goes_on_anywhere() -> None:
    work = Work(stages("rows", "row_of"), range(2000))
    for _ in range(30):
        work.compute(0)
    assert any(task.code_id >= 100 for task in work.tasks)
    again = WorkflowEngine.load(
        stages("rows", "row_of"), work.engine.dump(), dumps=dumps, loads=loads, join=join
    )
    while (task_id := again.next()) is not None:
        task = again.extract(task_id)
        value = FUNCTIONS[task.name](loads(task.arguments[0]))
        again.inject(task_id, ((dumps(value),),))
        again.check()
    assert sorted(again.outputs()["results"]) == list(range(2000))


@pytest.mark.parametrize(
    "net",
    [
        farm(more, ordered=True),
        farm(more, in_flight=100),
        farm(more, timeout_s=5),
        farm(more, attempts=2),
        farm(more, requires=("core", "core")),
        pipeline(farm(more), farm(rows)),
    ],
)
def test_what_ranges_cannot_do_has_a_task_for_each_item(net: Net) -> None:
    engine = WorkflowEngine(net, {"items": range(1000)}, dumps=dumps, loads=loads, join=join)
    assert not TokenRanges(engine, lambda _: True).transitions


def test_few_items_have_a_task_each() -> None:
    begin = partial(WorkflowEngine, farm(more), dumps=dumps, loads=loads, join=join)
    assert not TokenRanges(begin({"items": range(FEW)}), lambda _: True).transitions
    assert TokenRanges(begin({"items": range(FEW + 1)}), lambda _: True).transitions
    assert not TokenRanges(begin({"items": range(IN_FLIGHT)}), lambda _: False).transitions


def test_a_job_that_is_stopped_waits_for_nothing_of_its_ranges() -> None:
    inputs = {"items": range(100 * FEW)}
    engine = WorkflowEngine(stages("more"), inputs, dumps=dumps, loads=loads, join=join)
    make, _ = machine_for(engine, lambda _: function_code(more))
    machine = make("j1", "job", engine, USUAL.scheduler("j1"))
    assert machine.deadline() is None
    machine.handle(Begin(), 0.0)
    machine.handle(ResourcesUp((Resource("r1.core0", "core"),)), 0.0)
    assert machine.deadline() == FIRST_PATIENCE_S
    machine.handle(Stop("it is enough"), 0.0)
    assert machine.deadline() is None
    machine.check()


def test_who_watches_is_told_of_items_and_not_of_ranges() -> None:
    count = 20 * FEW
    inputs = {"items": range(count)}
    engine = WorkflowEngine(stages("rows"), inputs, dumps=dumps, loads=loads, join=join)
    make, _ = machine_for(engine, lambda _: function_code(rows))
    machine = make("j1", "job", engine, USUAL.scheduler("j1"))
    told, progress = ItemCounts(machine.scheduler.glance, machine), Progress()
    events: list[JobEvent] = [
        Begin(),
        ResourcesUp((Resource("r1.core0", "core"),)),
        Watched(True),
        Grant("j1", CORE, (1, 1), ("r1.core0",)),
    ]
    sums, most = set(), 0
    for number, event in enumerate(events):
        for action in machine.handle(event, 1.0):
            if isinstance(action, Submit):
                events += [Finished("j1", "r1.core0", (computed(one),)) for one in action.submissions]
            elif isinstance(action, TaskChanged | TaskCounts):
                progress.apply(action)
        for record in told.news(1.0, progress.jobs.get("j1")):
            progress.apply(record)
        assert not told.news(1.0, progress.jobs.get("j1")), "it is told once"
        over, live = told.numbers(machine.scheduler.ended, machine.scheduler.live)
        assert over == machine.counts()[TaskState.FINISHED]
        assert number < 3 or over + live == count, "items count, not ranges"
        if number > 2:
            job = progress.jobs["j1"]
            assert {state: n for state, n in job.counts.items() if n} == {
                state: n for state, n in machine.counts().items() if n
            }
            sums.add(job.total)
            most = max(most, len(job.live))
    assert sums == {count}
    assert most < count, "most items are in no task"
    assert progress.jobs["j1"].counts[TaskState.FINISHED] == count


def computed(one: Submission) -> Outcome:
    """Return how a task of the net has ended."""
    arguments = [loads(argument) for argument in one.arguments]
    is_range = len(arguments) > 1
    result = call_items(rows, arguments[0], arguments[1]) if is_range else rows(arguments[0])
    return Outcome(one.task_id, one.attempt, Reason.FINISHED, ((dumps(result),),), duration_s=SHORT_S)
