"""Short words for the tests of the scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gspc_trio.components.job.scheduler.interface import Dependents, ResourcesUp, TaskDone, TasksReady
from gspc_trio.components.job.scheduler.machine import Scheduler
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.components.worker.messages import Cancel, Finished, Submission, Submit, TakeBack
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import (
    CORE,
    DEFAULT_OPTIONS,
    Outcome,
    Reason,
    Requirement,
    Shape,
    Task,
    TaskError,
    TaskOptions,
    TaskState,
)
from gspc_trio.policies.retry import Retry
from gspc_trio.policies.scheduling import SchedulingPolicy
from gspc_trio.records.columns import facts_of
from gspc_trio.records.facts import FactColumns, GrantChanged, TaskChanged

JOB = "j1"
GANG = Shape((Requirement("core"), Requirement("core")))
BOOM = TaskError("ValueError", "boom")
READY, SUBMITTED, RUNNING = TaskState.READY, TaskState.SUBMITTED, TaskState.RUNNING
FINISHED, FAILED, CANCELLED = TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED


class World:
    """A scheduler whose invariants are checked after each event."""

    def __init__(
        self,
        cores: int = 4,
        retry: Retry | None = None,
        failed_max: int | None = None,
        *,
        tracing: bool = False,
        policy: SchedulingPolicy | None = None,
        dependents: Dependents | None = None,
    ) -> None:
        self.scheduler: Scheduler = (policy or SchedulingPolicy(retry=retry or Retry())).scheduler(
            JOB, failed_max=failed_max, tracing=tracing, dependents=dependents
        )
        self.now = 0.0
        if cores:
            self(ResourcesUp(tuple(Resource(core(n), "core") for n in range(1, cores + 1))))

    def __call__(self, event: Any, now: float | None = None) -> list[Any]:
        """Handle an event and return all actions, records in columns one by one."""
        if now is not None:
            self.now = now
        actions = self.scheduler.handle(event, self.now)
        self.scheduler.check()
        return singly(actions)

    def do(self, event: Any, now: float | None = None) -> list[Any]:
        """Handle an event and return the actions that are no records."""
        return [action for action in self(event, now) if not isinstance(action, TaskChanged | GrantChanged)]

    def measured(self, seconds: float = 3e-6, tasks: int = 100, grants: int = 1) -> None:
        """Hold so many grants, 1 and up, all of them idle, and know how long code 1 takes."""
        self(TasksReady(tuple(task(10_000 + n) for n in range(tasks))))
        for number in range(1, grants + 1):
            self(grant(number))
        while self.scheduler.live:
            for held in list(self.scheduler._state.grants.values()):
                if held.sent:
                    done = tuple(ok(t, e.attempt, seconds) for t, e in held.sent.items())
                    self(Finished(JOB, held.resource_id, done))
        self(Tick(), self.now + 1.0)


def singly(actions: Iterable[Any]) -> list[Any]:
    """Return actions with the records that are in columns one by one."""
    return [one for it in actions for one in (facts_of(it) if isinstance(it, FactColumns) else [it])]


def core(number: int) -> str:
    return f"r1.core{number}"


def task(task_id: int, options: TaskOptions = DEFAULT_OPTIONS, shape: Shape = CORE, code_id: int = 1) -> Task:
    return Task(task_id, "work", code_id, (), shape, options)


def ready(*task_ids: int, options: TaskOptions = DEFAULT_OPTIONS, shape: Shape = CORE) -> TasksReady:
    return TasksReady(tuple(task(task_id, options, shape) for task_id in task_ids))


def grant(number: int, *cores: int, shape: Shape = CORE) -> Grant:
    return Grant(JOB, shape, (1, number), tuple(core(n) for n in cores or (number,)))


def demand(credit: int, seen: int = 0, shape: Shape = CORE) -> Demand:
    return Demand(JOB, shape, credit, (1, seen) if seen else (0, 0))


def release(number: int) -> Release:
    return Release(JOB, (1, number))


def submit(
    number: int, *attempts: tuple[int, int], at: int = 0, options: TaskOptions = DEFAULT_OPTIONS
) -> Submit:
    """The submit of (task, attempt) pairs under grant ``number``."""
    submissions = tuple(Submission(task_id, attempt, 1, (), options) for task_id, attempt in attempts)
    return Submit(JOB, (1, number), (core(at or number),), submissions, "core")


def take_back(number: int, *attempts: tuple[int, int]) -> TakeBack:
    return TakeBack(JOB, core(number), attempts)


def cancel(number: int, *attempts: tuple[int, int]) -> Cancel:
    return Cancel(JOB, core(number), attempts)


def ok(task_id: int, attempt: int = 1, duration_s: float = 0.01, staged_s: tuple[float, ...] = ()) -> Outcome:
    values = ((b"x",),)
    return Outcome(task_id, attempt, Reason.FINISHED, values, duration_s=duration_s, staged_s=staged_s)


def bad(task_id: int, attempt: int = 1, error: TaskError = BOOM) -> Outcome:
    return Outcome(task_id, attempt, Reason.FAILED, error=error)


def ended(task_id: int, reason: Reason, attempt: int = 1, error: TaskError | None = None) -> Outcome:
    return Outcome(task_id, attempt, reason, error=error)


def finished(number: int, *outcomes: Outcome) -> Finished:
    return Finished(JOB, core(number), outcomes)


def done(task_id: int, state: TaskState, outcome: Outcome, at: int = 0, given_back: int = 0) -> TaskDone:
    return TaskDone(task_id, state, outcome, "work", core(at) if at else "", given_back)


def changed(
    now: float,
    task_id: int,
    state: TaskState,
    attempt: int = 0,
    at: int = 0,
    detail: str = "",
    duration_s: float = 0.0,
) -> TaskChanged:
    where = core(at) if at else ""
    return TaskChanged(now, JOB, task_id, state, attempt, "work", where, detail, 0.0, duration_s)


def held(now: float, number: int, yes: bool = True, *cores: int) -> GrantChanged:
    return GrantChanged(now, JOB, (1, number), tuple(core(n) for n in cores or (number,)), yes)
