"""Which losses count: a host where nothing has finished yet takes one of a task's at most."""

from __future__ import annotations

import pytest

from gspc_trio.components.job.scheduler.interface import ResourcesUp, TaskDone
from gspc_trio.components.rm.messages import Grant, Release
from gspc_trio.components.worker.messages import Finished, Submission, Submit
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Outcome, Reason, TaskError, TaskOptions
from gspc_trio.policies.retry import Retry
from tests.components.job.scheduler.support import (
    FAILED,
    JOB,
    READY,
    World,
    changed,
    demand,
    ended,
    ok,
    ready,
)

TWICE = TaskOptions(loss_attempts=2)
GONE = TaskError("lost", "killed by SIGILL")


def world_of(*names: str) -> World:
    world = World(cores=0)
    world(ResourcesUp(tuple(Resource(name, "core") for name in names)))
    return world


def grant(number: int, name: str) -> Grant:
    return Grant(JOB, CORE, (1, number), (name,))


def submit(number: int, name: str, task: int, attempt: int, options: TaskOptions = DEFAULT_OPTIONS) -> Submit:
    return Submit(JOB, (1, number), (name,), (Submission(task, attempt, 1, (), options),), "core")


def lost(name: str, task: int, attempt: int) -> Finished:
    return Finished(JOB, name, (ended(task, Reason.LOST, attempt, GONE),))


def failed(name: str, task: int, attempt: int, times: str) -> list[object]:
    error = TaskError("lost", f"task {task} was lost {times}, the last time: {GONE.message}")
    return [TaskDone(task, FAILED, Outcome(task, attempt, Reason.LOST, error=error), "work", name)]


DOUBTED = "lost on r2, where none has finished yet: killed by SIGILL"


def test_a_host_where_nothing_has_finished_takes_one_loss_of_a_task() -> None:
    world = world_of("r1.core0", "r2.core0")
    world(ready(1, options=TWICE))
    world(grant(1, "r2.core0"))
    again = changed(10.0, 1, READY, 1, 0, "lost: killed by SIGILL")
    assert world(lost("r2.core0", 1, 1), 10.0) == [again, demand(1, 1)]
    assert world.scheduler.deadline() == 10.01, "its grant rests"
    assert world.do(Tick(), 15.0) == [submit(1, "r2.core0", 1, 2, TWICE), demand(0, 1)], "nobody else came"
    assert world(lost("r2.core0", 1, 2), 20.0) == [changed(20.0, 1, READY, 2, 0, DOUBTED), demand(1, 1)]
    assert world.do(grant(2, "r1.core0"), 20.1) == [submit(2, "r1.core0", 1, 3, TWICE)]
    assert world.do(lost("r1.core0", 1, 3), 21.0) == failed("r1.core0", 1, 3, "2 times")


def test_it_gives_its_grant_back_when_that_goes_on() -> None:
    world = World(cores=0, retry=Retry(refusals_max=1))
    world(ResourcesUp(tuple(Resource(name, "core") for name in ("r1.core0", "r2.core0"))))
    world(ready(1))
    world(grant(1, "r2.core0"))
    world(lost("r2.core0", 1, 1), 10.0)
    world(Tick(), 15.0)
    assert world.do(lost("r2.core0", 1, 2), 20.0) == [Release(JOB, (1, 1)), demand(1, 1)]


def test_where_tasks_have_finished_each_loss_counts() -> None:
    world = world_of("r1.core0", "r2.core0")
    world(ready(1))
    world(grant(1, "r2.core0"))
    world(Finished(JOB, "r2.core0", (ok(1),)))
    world(ready(2, options=TWICE))
    world(lost("r2.core0", 2, 1), 10.0)
    assert world.do(Tick(), 15.0) == [submit(1, "r2.core0", 2, 2, TWICE), demand(0, 1)]
    assert world.do(lost("r2.core0", 2, 2), 20.0) == failed("r2.core0", 2, 2, "2 times")


@pytest.mark.parametrize("others", [(), ("r2.core1",), ("r1.node",)])
def test_where_there_is_no_other_host_for_the_task_each_loss_counts(others: tuple[str, ...]) -> None:
    world = World(cores=0)
    names = ("r2.core0", *others)
    world(ResourcesUp(tuple(Resource(name, name.strip("r12.").rstrip("01")) for name in names)))
    world(ready(1, options=TWICE))
    world(grant(1, "r2.core0"))
    world(lost("r2.core0", 1, 1), 10.0)
    world(Tick(), 15.0)
    assert world.do(lost("r2.core0", 1, 2), 20.0) == failed("r2.core0", 1, 2, "2 times")


def test_a_task_that_kills_its_process_wherever_it_runs_fails_after_its_losses() -> None:
    world = world_of("r1.core0", "r2.core0", "r3.core0")
    world(ready(1))
    for number in (1, 2, 3):
        world(grant(number, f"r{number}.core0"))
        actions = world.do(lost(f"r{number}.core0", 1, number), float(number))
    assert actions == failed("r3.core0", 1, 3, "3 times")


def test_it_is_no_other_resource_of_that_host_that_the_task_waits_for() -> None:
    world = world_of("r1.core0", "r2.core0", "r2.core1")
    world(ready(1))
    world(grant(1, "r2.core0"))
    world(lost("r2.core0", 1, 1), 10.0)
    assert world.scheduler.explain(1) == "task 1 (work) waits for another core than r2.core0, r2.core1"
    assert world.do(grant(2, "r2.core1"), 10.1) == [demand(1, 2)]
    assert world.do(grant(3, "r1.core0"), 10.2) == [submit(3, "r1.core0", 1, 2)]


def test_what_else_that_host_has_does_not_count_as_avoided() -> None:
    world = World(cores=0)
    world(ResourcesUp((*(Resource(f"r{n}.node", "node") for n in (1, 2)), Resource("r1.core0", "core"))))
    world(ResourcesUp((Resource("r2.core0", "core"),)))
    world(ready(1))
    world(grant(1, "r2.core0"))
    world(lost("r2.core0", 1, 1), 10.0)
    assert world.do(Tick(), 10.9) == [], "its grant has rested, and another host may come"
    assert world.do(grant(2, "r1.core0"), 10.95) == [submit(2, "r1.core0", 1, 2)]


def test_after_losses_that_do_not_count_a_task_waits_longer_and_longer_for_another_host() -> None:
    """The other host may be busy for long; a task fails neither on this one nor for it."""
    world = World(cores=0, retry=Retry(refusals_max=99, refusal_delay_s=1e-5))
    world(ResourcesUp(tuple(Resource(name, "core") for name in ("r1.core0", "r2.core0"))))
    world(ready(1, options=TWICE))
    world(grant(1, "r2.core0"))
    world(lost("r2.core0", 1, 1), 100.0)
    pauses = []
    for attempt in range(2, 12):
        assert submit(1, "r2.core0", 1, attempt, TWICE) in world.do(Tick(), 100.0 * attempt - 10.0)
        assert world.do(lost("r2.core0", 1, attempt), 100.0 * attempt) == [demand(1, 1)]
        world(Tick(), 100.0 * attempt + 0.9)  # the grant has rested
        pauses.append(round((world.scheduler.deadline() or 0.0) - 100.0 * attempt, 3))
    assert pauses == [1.0, 1.0, 1.0, 1.0, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]
    assert world.do(grant(2, "r1.core0")) == [submit(2, "r1.core0", 1, 12, TWICE)]
    assert world.do(lost("r1.core0", 1, 12), 1300.0) == failed("r1.core0", 1, 12, "2 times")


def test_a_task_that_may_not_run_again_fails_there_too() -> None:
    world = world_of("r1.core0", "r2.core0")
    world(ready(1, options=TaskOptions(may_rerun=False)))
    world(grant(1, "r2.core0"))
    why = "it may have run, and must not run again: killed by SIGILL"
    unknown = Outcome(1, 1, Reason.LOST, error=TaskError("unknown", why))
    assert world.do(lost("r2.core0", 1, 1), 1.0) == [TaskDone(1, FAILED, unknown, "work", "r2.core0")]
