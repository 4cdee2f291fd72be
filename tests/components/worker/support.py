"""Submissions, outcomes and a driver for the tests of the worker's machine."""

from __future__ import annotations

from typing import Any

from gspc_trio.components.worker.events import Assign, AttemptKey, Compute, WorkerIdle
from gspc_trio.components.worker.machine import Worker
from gspc_trio.components.worker.messages import Finished, Submission, Submit
from gspc_trio.components.worker.phases import TRANSITIONS, AttemptPhase
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, TaskError, TaskOptions
from gspc_trio.records.facts import WorkerChanged
from tests.components.support import TransitionsSeen

R = "r1.core0"
GRANT = (1, 1)
IN = TaskOptions(stage_in=True)
OUT = TaskOptions(stage_out=True)
BOTH = TaskOptions(stage_in=True, stage_out=True)


def sub(task_id: int, options: TaskOptions | None = None) -> Submission:
    return Submission(task_id, 1, 7, (), options or TaskOptions())


def submit(*submissions: Submission, job: str = "j1", grant: tuple[int, int] = GRANT, **more: Any) -> Submit:
    return Submit(job, grant, more.pop("resources", (R,)), submissions, **more)


def ok(task_id: int) -> Outcome:
    return Outcome(task_id, 1, Reason.FINISHED, ((b"v",),))


def ended(task_id: int, verdict: Any, duration_s: float = 0.0) -> Outcome:
    outcome: Outcome = verdict.outcome_of(sub(task_id), duration_s)
    return outcome


def with_reason(task_id: int, reason: Reason, kind: str, message: str, duration_s: float = 0.0) -> Outcome:
    return Outcome(task_id, 1, reason, error=TaskError(kind, message), duration_s=duration_s)


def finished(*outcomes: Outcome) -> Finished:
    return Finished("j1", R, outcomes)


def compute(*submissions: Submission) -> Compute:
    return Compute(R, "j1", submissions)


def busy(at_s: float = 0.0) -> WorkerChanged:
    return WorkerChanged(at_s, R, "busy", "j1")


def idle(at_s: float = 0.0) -> list[Any]:
    return [WorkerChanged(at_s, R, "idle"), WorkerIdle(R)]


class Bench:
    """A worker under test: checks its invariants after each event."""

    def __init__(self) -> None:
        self.worker = Worker(Resource(R, "core"))
        self.phases = TransitionsSeen(TRANSITIONS, AttemptPhase.ENDED)

    def __call__(self, event: Any, now: float = 0.0) -> list[Any]:
        before = self.all_phases()
        actions = self.worker.handle(event, now)
        self.worker.check()
        self.phases.compare(before, self.all_phases())
        return actions

    def all_phases(self) -> dict[AttemptKey, AttemptPhase | None]:
        keys = [(task_id, 1) for task_id in range(1, 20)]
        return {key: self.worker.status(key) for key in keys}

    def give(self, *submissions: Submission, fate: bool = True, **more: Any) -> list[Any]:
        return self(Assign(submit(*submissions, **more), fate))


def lost(task_id: int, detail: str, duration_s: float = 0.0) -> Outcome:
    return with_reason(task_id, Reason.LOST, "lost", detail, duration_s)
