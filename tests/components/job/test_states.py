"""The states of a job: all that are seen are in its table, and all of its table can be seen."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.components.job.machine import TRANSITIONS, Begin, JobEnded, JobMachine, JobState, Look
from gspc_trio.components.job.scheduler.interface import ResourcesUp, Stop
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.worker.messages import Finished, Submit
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Outcome, Reason, TaskError
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import farm

CORE0 = Resource("r1.core0", "core")


def same(item: Any) -> Any:
    return item


class WatchedJob(JobMachine):
    """Notes the states it goes through."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen = [self.state]

    def _move(self, state: JobState) -> None:
        super()._move(state)
        self.seen.append(state)


class Bench:
    """A job of one core whose tasks end as they are told; notes the states it goes through."""

    def __init__(self, net: Net, values: dict[str, list[Any]], ends_with: Reason = Reason.FINISHED) -> None:
        engine = WorkflowEngine(net, values, dumps=dumps, loads=loads)
        self.machine = WatchedJob("j1", "job", engine, USUAL.scheduler("j1"))
        self.ends_with = ends_with
        self.seen = self.machine.seen

    def __call__(self, event: Any) -> list[Any]:
        actions = self.machine.handle(event, 0.0)
        self.machine.check()
        return actions

    def grant(self) -> list[Any]:
        self(ResourcesUp((CORE0,)))
        return self(Grant("j1", CORE, (1, 1), (CORE0.resource_id,)))

    def run(self) -> list[JobState]:
        actions = self(Begin()) + self.grant()
        while submits := [action for action in actions if isinstance(action, Submit)]:
            actions = []
            for submit in submits:
                actions += self(
                    Finished("j1", CORE0.resource_id, tuple(map(self.outcome, submit.submissions)))
                )
        return self.seen

    def outcome(self, submission: Any) -> Outcome:
        error = TaskError("ValueError", "it is wrong") if self.ends_with is Reason.FAILED else None
        values = ((dumps(1),),) if error is None else ()
        return Outcome(submission.task_id, submission.attempt, self.ends_with, values, error)


def test_a_job_that_finishes() -> None:
    assert Bench(farm(same), {"items": [1, 2]}).run() == ["new", "running", "stopping", "finished"]


def test_a_job_whose_task_fails() -> None:
    bench = Bench(farm(same), {"items": [1, 2]}, Reason.FAILED)
    assert bench.run() == ["new", "running", "stopping", "failed"]
    assert bench.machine.ended == JobEnded("failed", "a task failed")


def test_a_job_that_is_stopped() -> None:
    bench = Bench(farm(same), {"items": [1, 2]})
    bench(Begin())
    bench(Stop("enough"))
    bench(Stop("more than enough"))
    assert bench.seen == ["new", "running", "stopping", "stopped"]
    assert bench.machine.ended == JobEnded("stopped", "enough")


def test_a_job_that_is_stopped_before_it_begins() -> None:
    bench = Bench(farm(same), {"items": [1, 2]})
    bench(Stop("never mind"))
    assert bench.machine.ended is None, "an end is told to whoever has begun"
    bench(Begin())
    assert bench.seen == ["new", "stopping", "stopped"]


def test_a_job_begins_once() -> None:
    bench = Bench(farm(same), {"items": [1]})
    bench(Begin())
    with pytest.raises(IllegalEvent):
        bench(Begin())


@pytest.mark.parametrize(("ends_with", "state"), [(Reason.FINISHED, "finished"), (Reason.FAILED, "failed")])
def test_a_job_ends_when_it_may_however_it_ends(ends_with: Reason, state: str) -> None:
    bench, asked, may = Bench(farm(same), {"items": [1, 2]}, ends_with), list[bool](), False

    def may_end(finished: bool) -> bool:
        asked.append(finished)
        return may

    bench.machine.may_end = may_end
    bench.run()
    assert bench.machine.ended is None
    assert set(asked) == {state == "finished"}
    may = True
    assert [action.state for action in bench(Look()) if isinstance(action, JobEnded)] == [state]


def test_a_job_that_is_stopped_while_it_may_not_end_is_stopped() -> None:
    bench, asked = Bench(farm(same), {"items": [1]}), list[bool]()

    def may_end(finished: bool) -> bool:
        asked.append(finished)
        return not finished

    bench.machine.may_end = may_end
    bench.run()
    assert bench.machine.ended is None
    bench(Stop("enough"))
    assert bench.machine.ended == JobEnded("stopped", "enough")
    assert asked[-1] is False


def test_the_table_has_an_entry_for_each_state() -> None:
    assert set(TRANSITIONS) == set(JobState)


def add(left: int, right: int) -> int:
    return left + right


def test_a_job_that_can_go_no_further_has_failed() -> None:
    net = Net("half")
    net.transition("join", add, {"left": net.input("left"), "right": net.input("right")}, net.output("sums"))
    bench = Bench(net, {"left": [1], "right": []})
    assert bench.run() == ["new", "running", "stopping", "failed"]
    assert bench.machine.ended is not None
    assert "the workflow is stuck" in bench.machine.ended.detail
