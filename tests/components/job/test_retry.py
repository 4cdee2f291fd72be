"""A failed task that gets a new attempt on request, while its job goes on."""

from __future__ import annotations

from typing import Any

from gspc_trio.components.job.machine import Begin, Close, JobEnded, JobMachine
from gspc_trio.components.job.scheduler.interface import ResourcesUp, RetryTask, Stop
from gspc_trio.components.rm.messages import Grant
from gspc_trio.components.worker.messages import Finished, Submit
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Outcome, Reason, TaskError, TaskState
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.patterns.farm import farm


def same(item: Any) -> Any:
    return item


class Bench:
    """A job of one core that keeps going; each submit is answered as told."""

    def __init__(self, items: int, open_ended: bool = False) -> None:
        self.engine = WorkflowEngine(farm(same), {"items": list(range(items))}, dumps=dumps, loads=loads)
        self.machine = JobMachine("j1", "job", self.engine, USUAL.scheduler("j1"), True, open_ended)
        self.actions: list[Any] = []
        self(ResourcesUp((Resource("r1.core0", "core"),)))
        self(Begin())
        self(Grant("j1", CORE, (1, 1), ("r1.core0",)))

    def __call__(self, event: Any) -> list[Any]:
        actions = self.machine.handle(event, 0.0)
        self.machine.check()
        self.actions += actions
        return actions

    def end_all(self, fails: set[int] = frozenset()) -> None:  # type: ignore[assignment]
        while submits := [action for action in self.actions if isinstance(action, Submit)]:
            self.actions = []
            for submit in submits:
                for submission in submit.submissions:
                    bad = submission.task_id in fails
                    error = TaskError("ValueError", "wrong") if bad else None
                    reason = Reason.FAILED if bad else Reason.FINISHED
                    values = () if bad else ((dumps(submission.task_id),),)
                    outcome = Outcome(submission.task_id, submission.attempt, reason, values, error)
                    self(Finished("j1", "r1.core0", (outcome,)))


def test_a_failed_task_is_run_again_and_the_job_finishes() -> None:
    bench = Bench(3, open_ended=True)
    bench.end_all(fails={2})
    assert bench.machine.counts()[TaskState.FAILED] == 1
    bench(RetryTask(2))
    bench.end_all()
    bench(Close())
    assert bench.machine.ended == JobEnded("finished")
    assert bench.engine.outputs() == {"results": [1, 3, 2]}
    assert bench.machine.failures == []


def test_a_wish_that_makes_no_sense_is_dropped() -> None:
    bench = Bench(2, open_ended=True)
    assert bench(RetryTask(99)) == []
    assert bench(RetryTask(1)) == []
    bench.end_all(fails={1})
    bench(Stop("enough"))
    assert bench(RetryTask(1)) == []
