"""The job's machine: whole action lists, and random graphs on hosts that fail, against what must come out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job.machine import (
    READY_MAX,
    REPLACED_MIN,
    Begin,
    Close,
    JobEnded,
    JobMachine,
    Look,
)
from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    ResourcesUp,
    Stop,
    Stopped,
    TaskDone,
)
from gspc_trio.components.rm.messages import Demand, Grant, Recall, Release
from gspc_trio.components.worker.messages import Cancel, Finished, Submission, Submit, TakeBack
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import (
    CORE,
    DEFAULT_OPTIONS,
    Outcome,
    Reason,
    Requirement,
    Shape,
    TaskError,
    TaskOptions,
    TaskState,
)
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.records.facts import GrantChanged, JobChanged, TaskChanged, TaskCounts
from gspc_trio.records.progress import FAILURES_MAX, Progress
from gspc_trio.workflow.graph import Ref, TaskGraph

CORE0 = Resource("r1.core0", "core")
GPU = Shape((Requirement("gpu"),))
BOOM = TaskError("ValueError", "boom")
RECORDS = (TaskChanged, TaskCounts, GrantChanged)


class Bench:
    """An open-ended job over a task graph, with a manager and one core played by the test."""

    def __init__(self, keep_going: bool = False) -> None:
        self.graph = TaskGraph()
        scheduler = USUAL.scheduler("j1")
        self.machine = JobMachine("j1", "job", self.graph, scheduler, keep_going, open_ended=True)
        self.do(Begin())
        self.do(ResourcesUp((CORE0,)))

    def add(self, *arguments: Any, options: TaskOptions = DEFAULT_OPTIONS) -> int:
        return self.graph.add("work", 1, arguments, CORE, options)

    def do(self, event: Any) -> list[Any]:
        """Handle an event; return the actions that are no records of tasks and grants."""
        actions = self.machine.handle(event, 0.0)
        self.machine.check()
        return [action for action in actions if not isinstance(action, RECORDS)]


def grant(number: int = 1) -> Grant:
    return Grant("j1", CORE, (1, number), ("r1.core0",))


def demand(credit: int, seen: int = 0) -> Demand:
    return Demand("j1", CORE, credit, (1, seen) if seen else (0, 0))


def submit(*submissions: Submission) -> Submit:
    return Submit("j1", (1, 1), ("r1.core0",), submissions, "core")


def ok(task_id: int, value: bytes = b"\x01", attempt: int = 1) -> Outcome:
    return Outcome(task_id, attempt, Reason.FINISHED, ((value,),), duration_s=0.01)


def bad(task_id: int, attempt: int = 1) -> Outcome:
    return Outcome(task_id, attempt, Reason.FAILED, error=BOOM)


def finished(*outcomes: Outcome) -> Finished:
    return Finished("j1", "r1.core0", outcomes)


def done(task_id: int, state: TaskState, outcome: Outcome, at: str = "r1.core0") -> TaskDone:
    return TaskDone(task_id, state, outcome, "work", at)


def test_a_result_makes_its_dependent_ready_in_the_same_step() -> None:
    bench = Bench()
    first = bench.add(b"\x01")
    second = bench.add(Ref(first))
    assert bench.do(Look()) == [demand(1)]
    assert bench.do(grant()) == [submit(Submission(first, 1, 1, (b"\x01",), DEFAULT_OPTIONS))]
    outcome = ok(first, b"\x07")
    assert bench.do(finished(outcome)) == [
        done(first, TaskState.FINISHED, outcome),
        submit(Submission(second, 1, 1, (b"\x07",), DEFAULT_OPTIONS)),
    ]
    last = ok(second)
    assert bench.do(finished(last)) == [done(second, TaskState.FINISHED, last)]
    assert bench.do(Close()) == [
        Release("j1", (1, 1)),
        Stopped(),
        JobChanged(0.0, "j1", "finished", "job", ""),
        JobEnded("finished"),
    ]


def test_sent_tasks_are_replaced_by_the_hundred_while_many_wait() -> None:
    bench = Bench()
    bench.do(ResourcesUp(tuple(Resource(f"r1.core{number}", "core") for number in range(1, REPLACED_MIN))))
    scheduler, handle = bench.machine.scheduler, bench.machine.handle
    for _ in range(READY_MAX + REPLACED_MIN + 1):
        bench.add()
    bench.do(Look())
    assert scheduler.unsent == READY_MAX
    for number in range(1, REPLACED_MIN):
        handle(Grant("j1", CORE, (1, number), (f"r1.core{number}",)), 0.0)
        assert scheduler.unsent == READY_MAX - number
    handle(Grant("j1", CORE, (1, REPLACED_MIN), ("r1.core0",)), 0.0)
    assert scheduler.unsent == READY_MAX
    long = Outcome(REPLACED_MIN, 1, Reason.FINISHED, ((b"",),), duration_s=60.0)
    handle(Finished("j1", "r1.core0", (long,)), 0.0)
    assert (scheduler.unsent, scheduler.live) == (READY_MAX - 1, READY_MAX + REPLACED_MIN - 1)
    bench.do(Look())
    assert (scheduler.unsent, scheduler.live) == (READY_MAX, READY_MAX + REPLACED_MIN)
    bench.machine.check()


def test_tasks_that_reports_had_sent_are_replaced_when_half_of_them_are_gone() -> None:
    bench = Bench()
    bench.machine.ready_max = 4
    for _ in range(10):
        bench.add()
    bench.do(Look())
    bench.do(grant())
    scheduler, unsent = bench.machine.scheduler, []
    for task_id in range(1, 11):
        unsent.append(scheduler.unsent)
        bench.do(finished(Outcome(task_id, 1, Reason.FINISHED, ((b"",),), duration_s=60.0)))
    assert unsent == [3, 4, 3, 4, 3, 4, 3, 2, 1, 0]
    assert scheduler.live == 0


def test_a_report_to_which_nothing_is_sent_has_the_engine_asked_at_once() -> None:
    bench = Bench()
    bench.machine.ready_max = 4
    first = bench.add()
    for _ in range(3):
        bench.graph.add("work", 1, (), GPU, DEFAULT_OPTIONS)
    second = bench.add()
    bench.do(Look())
    bench.do(grant())
    assert bench.machine.scheduler.state_of(second) is None
    actions = bench.do(finished(ok(first)))
    assert [one.submissions[0].task_id for one in actions if isinstance(one, Submit)] == [second]


def test_a_failure_takes_its_dependents_with_it_and_stops_the_job() -> None:
    bench = Bench()
    first = bench.add(b"\x01")
    second = bench.add(Ref(first))
    third = bench.add(Ref(second))
    bench.do(Look())
    bench.do(grant())
    outcome = bad(first)
    actions = bench.do(finished(outcome))
    ends = [action for action in actions if isinstance(action, TaskDone)]
    assert ends[0] == done(first, TaskState.FAILED, outcome)
    assert [(end.task_id, end.state) for end in ends[1:]] == [
        (second, TaskState.FAILED),
        (third, TaskState.FAILED),
    ]
    error = ends[2].outcome.error
    assert error is not None
    assert "it depends on task" in error.message
    assert actions[-1] == JobEnded("failed", "a task failed")
    assert bench.machine.counts()[TaskState.FAILED] == 3


def test_dependents_of_a_failure_are_recorded_and_counted_once() -> None:
    bench = Bench(keep_going=True)
    first = bench.add(b"\x01")
    dependents = [bench.add(Ref(first)) for _ in range(FAILURES_MAX + 5)]
    watched = Progress()
    machine = bench.machine

    def tell(event: Any) -> list[Any]:
        actions = machine.handle(event, 0.0)
        for action in actions:
            if isinstance(action, RECORDS):
                watched.apply(action)
        return actions

    tell(Look())
    tell(grant())
    told = [
        action for action in tell(finished(bad(first))) if getattr(action, "state", None) is TaskState.FAILED
    ]
    records = [record for record in told if isinstance(record, TaskChanged)]
    assert [record.task_id for record in records] == [first, *dependents]
    assert records[1].attempt == 0
    assert "it depends on task" in records[1].detail
    assert machine.counts()[TaskState.FAILED] == len(records)
    assert watched.jobs["j1"].counts == machine.counts()
    assert first in watched.jobs["j1"].failures  # many dependents do not hide the cause
    late = Progress()
    for record in machine.scheduler.glance(0.0, 5):
        late.apply(record)
    assert late.jobs["j1"].counts == machine.counts()
    assert late.jobs["j1"].failures == watched.jobs["j1"].failures
    machine.check()


def test_with_keep_going_what_does_not_depend_on_a_failure_goes_on() -> None:
    bench = Bench(keep_going=True)
    first, other = bench.add(b"\x01"), bench.add(b"\x02")
    bench.do(Look())
    bench.do(grant())
    assert bench.do(finished(bad(first)))[:2] == [
        done(first, TaskState.FAILED, bad(first)),
        submit(Submission(other, 1, 1, (b"\x02",), DEFAULT_OPTIONS)),
    ]
    bench.do(finished(ok(other)))
    assert bench.do(Close())[-1] == JobEnded("failed", "some tasks failed")


def test_a_stop_cancels_what_runs_and_tells_the_engine() -> None:
    bench = Bench()
    first, second = bench.add(b"\x01"), bench.add(b"\x02")
    bench.do(Look())
    bench.do(grant())
    actions = bench.do(Stop("enough"))
    assert Cancel("j1", "r1.core0", tuple((t, 1) for t in (first, second)[: _sent(actions)])) in actions
    outcomes = tuple(Outcome(t, 1, Reason.CANCELLED) for t in (first, second)[: _sent(actions)])
    assert bench.do(finished(*outcomes))[-1] == JobEnded("stopped", "enough")
    assert bench.machine.counts()[TaskState.CANCELLED] == 2


def _sent(actions: list[Any]) -> int:
    (cancel,) = (action for action in actions if isinstance(action, Cancel))
    return len(cancel.attempts)


def test_a_cancelled_task_ends_those_that_need_it() -> None:
    bench = Bench(keep_going=True)
    first = bench.add(b"\x01")
    second = bench.add(Ref(first))
    bench.do(Look())
    actions = bench.do(CancelTasks((first,)))
    ends = [(action.task_id, action.state) for action in actions if isinstance(action, TaskDone)]
    assert ends == [(first, TaskState.CANCELLED), (second, TaskState.FAILED)]


@given(st.data())
@pytest.mark.parametrize("keep_going", [False, True])
def test_random_graphs_end_as_a_plain_walk_says(keep_going: bool, data: st.DataObject) -> None:
    """One core; attempts end as drawn; grants come, are recalled and come again."""
    bench = Bench(keep_going)
    number = data.draw(st.integers(1, 12))
    fails = data.draw(st.sets(st.integers(1, number), max_size=2))
    needs: dict[int, list[int]] = {}
    for task_id in range(1, number + 1):
        needs[task_id] = data.draw(st.lists(st.integers(1, task_id - 1), max_size=3)) if task_id > 1 else []
        assert bench.add(*map(Ref, needs[task_id])) == task_id
    runs: list[int] = []
    ends: dict[int, TaskState] = {}
    actions = bench.do(Look()) + bench.do(Close())
    queue: list[Submission] = []
    grants, granted, recalls = 1, False, number
    for _ in range(40 * number):
        for action in actions:
            if isinstance(action, Submit):
                queue += action.submissions
            elif isinstance(action, Release):
                granted = False
            elif isinstance(action, TaskDone):
                assert action.task_id not in ends, "a task ended twice"
                ends[action.task_id] = action.state
        back = {key for a in actions if isinstance(a, Cancel | TakeBack) for key in a.attempts}
        if bench.machine.ended is not None:
            break
        taken = [s for s in queue if (s.task_id, s.attempt) in back]
        if taken:
            queue = [s for s in queue if s not in taken]
            cancelled = any(isinstance(action, Cancel) for action in actions)
            reason = Reason.CANCELLED if cancelled else Reason.RETURNED
            actions = bench.do(finished(*(Outcome(s.task_id, s.attempt, reason) for s in taken)))
        elif not granted:
            actions, granted = bench.do(grant(grants)), True
            grants += 1
        elif queue and (recalls == 0 or data.draw(st.booleans())):
            head = queue.pop(0)
            runs.append(head.task_id)
            outcome = bad if head.task_id in fails else ok
            actions = bench.do(finished(outcome(head.task_id, attempt=head.attempt)))
        else:
            recalls -= 1
            actions = bench.do(Recall("j1", (1, grants - 1)))
    hurt = set(fails)
    for task_id in range(1, number + 1):
        if hurt.intersection(needs[task_id]):
            hurt.add(task_id)
    assert set(ends) == set(needs), "a task was lost"
    assert len(runs) == len(set(runs)), "a task that ended ran again"
    assert not (set(runs) & hurt) - fails, "a task ran without what it needs"
    if keep_going or not fails:
        assert {t for t, state in ends.items() if state is TaskState.FINISHED} == set(needs) - hurt
    assert bench.machine.ended is not None
    assert bench.machine.ended.state == ("failed" if fails else "finished")
