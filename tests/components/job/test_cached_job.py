"""A job with a cache: what is looked up, what a result of it does, and how such tasks end otherwise."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job.machine import Begin, Close, JobEnded, JobMachine, Look, LookedUp, LookUpTasks
from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    ResourcesUp,
    Stop,
    Stopped,
    TaskDone,
    Watched,
)
from gspc_trio.components.rm.messages import Demand, Grant
from gspc_trio.components.worker.messages import Finished, Submission, Submit
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Outcome, Reason, TaskOptions, TaskState
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.records.facts import GrantChanged, JobChanged, TaskChanged
from gspc_trio.workflow.graph import Ref, TaskGraph

UNCACHED = TaskOptions(cache=False)


class Bench:
    """An open-ended job with a cache, over a task graph."""

    def __init__(self) -> None:
        self.graph = TaskGraph()
        scheduler = USUAL.scheduler("j1")
        self.machine = JobMachine("j1", "job", self.graph, scheduler, open_ended=True, cached=True)
        self.do(Begin())
        self.do(ResourcesUp((Resource("r1.core0", "core"),)))

    def add(self, *arguments: Any, options: TaskOptions = DEFAULT_OPTIONS) -> int:
        return self.graph.add("work", 1, arguments, CORE, options)

    def do(self, event: Any) -> list[Any]:
        """Handle an event; return the actions that are no records."""
        actions = self.machine.handle(event, 0.0)
        self.machine.check()
        return [action for action in actions if not isinstance(action, TaskChanged | GrantChanged)]

    def ids(self, actions: list[Any]) -> list[int]:
        (look_up,) = [action for action in actions if isinstance(action, LookUpTasks)]
        return [task.task_id for task in look_up.tasks]


def kept(task_id: int, value: bytes = b"\x07") -> Outcome:
    return Outcome(task_id, 0, Reason.FINISHED, ((value,),))


def demand(credit: int) -> Demand:
    return Demand("j1", CORE, credit, (0, 0))


def test_a_result_of_the_cache_is_one_like_others_and_takes_no_resource() -> None:
    bench = Bench()
    first = bench.add(b"\x01")
    second = bench.add(Ref(first))
    assert bench.ids(bench.do(Look())) == [first]
    assert bench.machine.counts()[TaskState.READY] == 1
    assert "looked up in the cache" in bench.machine.explain(first)
    done, look_up = bench.do(LookedUp((kept(first),)))
    assert done == TaskDone(first, TaskState.FINISHED, kept(first), "work")
    assert [task.arguments for task in look_up.tasks] == [(b"\x07",)]
    assert bench.do(LookedUp((kept(second),))) == [TaskDone(second, TaskState.FINISHED, kept(second), "work")]
    assert bench.machine.counts()[TaskState.FINISHED] == 2
    assert bench.do(Close()) == [
        Stopped(),
        JobChanged(0.0, "j1", "finished", "job", ""),
        JobEnded("finished"),
    ]


def test_what_the_cache_does_not_have_runs() -> None:
    bench = Bench()
    first, second = bench.add(b"\x01"), bench.add(b"\x02")
    assert bench.ids(bench.do(Look())) == [first, second]
    assert bench.do(LookedUp(missed=(second,))) == [demand(1)]
    (submit,) = bench.do(Grant("j1", CORE, (1, 1), ("r1.core0",)))
    assert isinstance(submit, Submit)
    assert [each.task_id for each in submit.submissions] == [second]
    outcome = Outcome(second, 1, Reason.FINISHED, ((b"\x03",),))
    assert TaskDone(second, TaskState.FINISHED, outcome, "work", "r1.core0") in bench.do(
        Finished("j1", "r1.core0", (outcome,))
    )
    assert bench.do(Close()) == []  # the first is still looked up


def test_a_task_that_opts_out_is_not_looked_up() -> None:
    bench = Bench()
    bench.add(b"\x01", options=UNCACHED)
    assert bench.do(Look()) == [demand(1)]
    bench.add(b"\x01", options=UNCACHED)
    second = bench.add(b"\x02")
    assert bench.ids(bench.do(Look())) == [second]


def test_a_task_that_is_cancelled_while_it_is_looked_up_is_so_once() -> None:
    bench = Bench()
    first, second = bench.add(b"\x01"), bench.add(b"\x02")
    bench.do(Look())
    cancelled = Outcome(first, 0, Reason.CANCELLED)
    done = TaskDone(first, TaskState.CANCELLED, cancelled, "work")
    assert [each for each in bench.do(CancelTasks((first,))) if isinstance(each, TaskDone)] == [done]
    actions = bench.do(LookedUp((kept(first), kept(second))))
    assert [each.task_id for each in actions if isinstance(each, TaskDone)] == [second]


def test_a_stopped_job_waits_for_no_answer() -> None:
    bench = Bench()
    bench.add(b"\x01")
    bench.do(Look())
    *_, changed, ended = bench.do(Stop("it was asked to stop"))
    assert changed == JobChanged(0.0, "j1", "stopped", "job", "it was asked to stop")
    assert ended == JobEnded("stopped", "it was asked to stop")
    assert bench.do(LookedUp((kept(1),))) == []


def test_records_say_that_a_result_came_from_the_cache() -> None:
    for watched in (True, False):
        bench = Bench()
        bench.machine.handle(Watched(watched), 0.0)
        first = bench.add(b"\x01")
        bench.do(Look())
        actions = bench.machine.handle(LookedUp((kept(first),)), 0.0)
        record = TaskChanged(0.0, "j1", first, TaskState.FINISHED, 0, "work", "", "from the cache")
        assert (record in actions) is watched
        if not watched:
            (counts,) = bench.machine.scheduler.glance(0.0, 5)
            assert record in getattr(counts, "lately", ())


def test_a_journal_keeps_results_of_the_cache_before_they_are_used() -> None:
    graph = TaskGraph()
    machine = JobMachine("j1", "job", graph, USUAL.scheduler("j1"), journaled=True, cached=True)
    first = graph.add("work", 1, (b"\x01",), CORE, DEFAULT_OPTIONS)
    machine.handle(Begin(), 0.0)
    actions = machine.handle(LookedUp((kept(first),)), 0.0)
    assert TaskDone(first, TaskState.FINISHED, kept(first), "work") in actions
    assert not any(isinstance(action, JobEnded) for action in actions)


@given(st.data())
def test_each_task_ends_once_however_answers_come(data: st.DataObject) -> None:
    """Some tasks are found, some run, some are cancelled, in any order; the job is closed, or stopped."""
    bench = Bench()
    asked: list[int] = []
    ended: Counter[int] = Counter()

    def do(event: Any) -> bool:
        actions = bench.do(event)
        for action in actions:
            if isinstance(action, LookUpTasks):
                asked.extend(task.task_id for task in action.tasks)
            elif isinstance(action, TaskDone):
                ended[action.task_id] += 1
            elif isinstance(action, Submit):
                running.extend(action.submissions)
        return any(isinstance(action, JobEnded) for action in actions)

    running: list[Submission] = []
    added: list[int] = []
    for _ in range(data.draw(st.integers(1, 6))):
        refs = [Ref(name) for name in added if data.draw(st.booleans()) and not ended[name]]
        added.append(bench.add(*refs, options=data.draw(st.sampled_from([DEFAULT_OPTIONS, UNCACHED]))))
    do(Look())
    do(Grant("j1", CORE, (1, 1), ("r1.core0",)))
    if data.draw(st.booleans()):
        do(CancelTasks(tuple(data.draw(st.lists(st.sampled_from(added), unique=True)))))
    has_ended = do(Stop("enough")) if data.draw(st.booleans()) else do(Close())
    while not has_ended and (asked or running):
        if asked and (not running or data.draw(st.booleans())):
            names = [asked.pop(data.draw(st.integers(0, len(asked) - 1))) for _ in range(min(2, len(asked)))]
            found = [name for name in names if data.draw(st.booleans())]
            missed = tuple(name for name in names if name not in found)
            has_ended = do(LookedUp(tuple(map(kept, found)), missed))
        else:
            one = running.pop(0)
            outcome = Outcome(one.task_id, one.attempt, Reason.FINISHED, ((b"\x03",),))
            has_ended = do(Finished("j1", "r1.core0", (outcome,)))
        if not has_ended and not running and bench.machine.scheduler.live:
            do(Grant("j1", CORE, (1, 2 + sum(ended.values())), ("r1.core0",)))
    assert has_ended
    assert all(number == 1 for number in ended.values())
    bench.machine.check()
