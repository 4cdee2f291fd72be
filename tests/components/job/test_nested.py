"""Tasks that tasks start: who waits for them, who lends a core, and what ends with whom."""

from __future__ import annotations

from gspc_trio.components.job.nested import (
    DEPTH_PRIORITY,
    STARVED_S,
    CancelNestedTasks,
    NestedDone,
    NestedOver,
    NestedTasks,
    RunNested,
    TaskSaid,
    TaskSilent,
    TaskSpeaks,
    TellTask,
)
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.rts.messages import Lend
from gspc_trio.core.machine import Tick
from gspc_trio.core.nested import (
    CALL_FIRST,
    LENT_MAX,
    CancelNested,
    ForgetNested,
    NestedBroken,
    NestedDepth,
    NestedEnded,
    StartNested,
    TaskWaits,
)
from gspc_trio.core.task import LastAttempt, Outcome, Reason, TaskError, TaskState
from gspc_trio.workflow.graph import TaskGraph


class Bench:
    """The machine and its graph; each call returns the actions."""

    def __init__(self) -> None:
        self.graph = TaskGraph()
        self.machine = NestedTasks("j1", self.graph)

    def give(self, event: object) -> list[object]:
        actions = self.machine.handle(event, 0.0)  # type: ignore[arg-type]
        self.machine.check()
        self.graph.check()
        return list(actions)

    def speaks(self, session: int = 1, resource_id: str = "r1.core0", nested: int = 0) -> list[object]:
        return self.give(TaskSpeaks(session, resource_id, nested))

    def start(self, number: int, *arguments: bytes | int, session: int = 1) -> list[object]:
        return self.give(TaskSaid(session, StartNested(number, "f", CALL_FIRST, (b"f", *arguments))))

    def waits(self, waits: bool, session: int = 1) -> list[object]:
        return self.give(TaskSaid(session, TaskWaits(waits)))

    def ends(self, task_id: int, value: bytes = b"v") -> list[object]:
        """The scheduler has the task, and it finishes."""
        while (ready := self.graph.next()) is not None:
            self.graph.extract(ready)
        self.graph.inject(task_id, ((value,),))
        outcome = Outcome(task_id, 1, Reason.FINISHED, ((value,),))
        return self.give(NestedDone(TaskDone(task_id, TaskState.FINISHED, outcome)))

    def fails(self, task_id: int, error: TaskError, last: LastAttempt) -> list[object]:
        while (ready := self.graph.next()) is not None:
            self.graph.extract(ready)
        self.graph.fail(task_id, error)
        outcome = Outcome(task_id, 1, Reason.FAILED, error=error)
        return self.give(NestedDone(TaskDone(task_id, TaskState.FAILED, outcome), last))


ERROR = TaskError("ValueError", "no")


def test_a_task_starts_another_one_and_hears_what_it_returned() -> None:
    bench = Bench()
    assert bench.speaks() == [TellTask(1, NestedDepth(0))]
    assert bench.start(1) == [RunNested()]
    assert bench.ends(1) == [TellTask(1, NestedEnded(1, b"v"))]


def test_the_deepest_come_first() -> None:
    bench = Bench()
    bench.speaks()
    bench.start(1)
    assert bench.speaks(2, "r1.core1", nested=1) == [TellTask(2, NestedDepth(1))]
    bench.start(1, session=2)
    assert [bench.graph.extract(task_id).options.priority for task_id in (1, 2)] == [
        DEPTH_PRIORITY,
        2 * DEPTH_PRIORITY,
    ]


def test_cores_are_lent_as_often_as_tasks_wait() -> None:
    bench = Bench()
    bench.speaks()
    bench.speaks(2, "r1.core0+1")
    assert bench.waits(True) == [Lend("j1", "r1.core0", 1)]
    assert bench.waits(True, session=2) == [Lend("j1", "r1.core0", 2)]
    assert bench.machine.lent == [Lend("j1", "r1.core0", 2)]
    assert bench.waits(True, session=2) == []
    assert bench.waits(False, session=1) == [Lend("j1", "r1.core0", 1)]
    assert bench.give(TaskSilent(2)) == [Lend("j1", "r1.core0", 0)]
    assert bench.machine.lent == []


def test_a_core_is_lent_when_nothing_of_what_was_started_runs() -> None:
    """A task may wait in a way that nobody notices."""
    running: set[int] = set()
    graph = TaskGraph()
    machine = NestedTasks("j1", graph, running.__contains__)
    machine.handle(TaskSpeaks(1, "r1.core0"), 0.0)
    assert machine.deadline() is None
    for number in (1, 2):
        machine.handle(TaskSaid(1, StartNested(number, "f", CALL_FIRST, (b"f",))), 5.0)
    assert machine.deadline() == 5.0 + STARVED_S
    running.add(1)
    assert machine.handle(Tick(), 6.0) == []
    assert machine.deadline() == 6.0 + STARVED_S
    running.clear()
    assert machine.handle(Tick(), 7.0) == [Lend("j1", "r1.core0", 1)]
    assert machine.deadline() is None
    machine.check()
    assert machine.handle(TaskSaid(1, TaskWaits(True)), 7.0) == []
    assert machine.handle(TaskSaid(1, TaskWaits(False)), 7.0) == []
    assert machine.handle(TaskSaid(1, CancelNested(1)), 7.0) == [TellTask(1, NestedEnded(1))]
    assert machine.handle(TaskSaid(1, CancelNested(2)), 7.0) == [
        TellTask(1, NestedEnded(2)),
        Lend("j1", "r1.core0", 0),
    ]
    machine.check()


def test_what_a_task_has_started_ends_with_it() -> None:
    bench = Bench()
    bench.speaks()
    for number in (1, 2, 3):
        bench.start(number)
    bench.ends(1)
    bench.start(4)
    assert bench.give(TaskSilent(1)) == [CancelNestedTasks((2, 3))]
    bench.graph.cancelled(2)
    outcome = Outcome(2, 1, Reason.CANCELLED)
    assert bench.give(NestedDone(TaskDone(2, TaskState.CANCELLED, outcome))) == []
    assert 4 not in bench.graph
    assert bench.start(5) == []  # of a task that is silent


def test_a_task_cancels_what_it_has_started() -> None:
    bench = Bench()
    bench.speaks()
    bench.start(1)
    bench.start(2, 1)
    assert bench.give(TaskSaid(1, CancelNested(1))) == [
        TellTask(1, NestedEnded(1)),
        TellTask(1, NestedEnded(2, None, bench.graph.error(2))),
    ]
    assert bench.give(TaskSaid(1, CancelNested(7))) == []


def test_results_are_arguments_of_others_until_they_are_forgotten() -> None:
    bench = Bench()
    bench.speaks()
    bench.start(1)
    bench.ends(1, b"one")
    bench.start(2, 1)
    assert bench.graph.extract(2).arguments == (b"f", b"one")
    bench.give(TaskSaid(1, ForgetNested((1, 9))))
    assert bench.start(3, 1) == [
        TellTask(
            1,
            NestedEnded(
                3,
                error=TaskError("refused", "task 'f' refers to task 0, which is not there or has gone"),
            ),
        )
    ]


def test_a_failure_is_told_also_through_others() -> None:
    bench = Bench()
    bench.speaks()
    bench.start(1)
    last = LastAttempt("f", 1, "beta", b"out", b"err")
    assert bench.fails(1, ERROR, last) == [TellTask(1, NestedEnded(1, error=ERROR, last=last))]
    assert bench.start(2, 1) == [TellTask(1, NestedEnded(2, error=ERROR))]


def test_one_too_many_that_waits_is_told_so() -> None:
    bench = Bench()
    for session in range(1, LENT_MAX + 2):
        bench.speaks(session)
        bench.start(1, session=session)
    for session in range(1, LENT_MAX + 1):
        bench.waits(True, session=session)
    (told,) = bench.waits(True, session=LENT_MAX + 1)
    assert isinstance(told, TellTask)
    assert isinstance(told.word, NestedBroken)
    assert told.word.reason.startswith("64 tasks wait for nested tasks on r1.core0 (LENT_MAX)")
    assert bench.waits(False, session=LENT_MAX + 1) == []


def test_all_are_told_when_nested_tasks_cannot_be_run() -> None:
    bench = Bench()
    bench.speaks()
    bench.start(1)
    assert bench.give(NestedOver("it was stopped")) == [TellTask(1, NestedBroken("it was stopped"))]
    assert bench.start(2) == []
    assert bench.speaks(2) == [TellTask(2, NestedDepth(0)), TellTask(2, NestedBroken("it was stopped"))]


def test_a_number_that_comes_twice_ends_the_conversation() -> None:
    bench = Bench()
    bench.speaks()
    bench.start(1)
    (told,) = bench.start(1)
    assert isinstance(told, TellTask)
    assert isinstance(told.word, NestedBroken)
