"""Hosts that an anomaly makes wrong for some tasks: these wait for others, if there are any (ASP-9)."""

from __future__ import annotations

import pytest

from gspc_trio.components.job.plan import PlanData
from gspc_trio.components.job.scheduler.interface import HostRestricted, ResourcesUp, TasksReady
from gspc_trio.components.rm.messages import Demand, Grant, Recall, Release
from gspc_trio.components.worker.messages import Finished, Submit, TakeBack
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.staging import PLAN_MARK
from gspc_trio.core.task import (
    CORE,
    DataUse,
    Outcome,
    Reason,
    Requirement,
    Shape,
    Task,
    TaskError,
    TaskOptions,
)
from gspc_trio.policies.queues import Queues
from gspc_trio.policies.scheduling import SchedulingPolicy
from tests.components.job.scheduler.support import JOB, World, core
from tests.components.job.scheduler.test_plans import Knowledge, planned

THERE = (Resource("r2.core0", "core"),)
WHY = "host b gets no new tasks with files: anomaly: copy"
FILES, REMOTE = frozenset({DataUse.FILES}), frozenset({DataUse.REMOTE})
STAGED = TaskOptions(stage_in=True)
AT_B = Shape((Requirement("core", ("r2.core0",)),))


def plain(number: int) -> Task:
    return Task(number, "plain", 1)


def with_files(number: int) -> Task:
    return Task(number, "files", 1, (PLAN_MARK + b"plan",), options=STAGED)


def fetching(number: int, shape: Shape = CORE) -> Task:
    return Task(number, "fetching", 1, shape=shape, options=STAGED)


def grant(number: int, name: str, shape: Shape = CORE) -> Grant:
    return Grant(JOB, shape, (1, number), (name,))


def sent(actions: list[object]) -> list[tuple[int, str]]:
    """Return which tasks were sent where."""
    return [
        (one.task_id, action.resources[0])
        for action in actions
        if isinstance(action, Submit)
        for one in action.submissions
    ]


@pytest.fixture(params=["free", "queues"])
def world(request: pytest.FixtureRequest) -> World:
    """Return a scheduler that knows a core of r1 and one of r2."""
    policy = None if request.param == "free" else SchedulingPolicy(assign=Queues())
    world = World(cores=0, policy=policy)
    world(ResourcesUp((Resource("r1.core0", "core"), *THERE)))
    return world


def asked(actions: list[object]) -> list[tuple[tuple[str, ...], bool, int]]:
    """Return what was asked for: preferences, whether no others will do, and how many."""
    demands = [one for one in actions if isinstance(one, Demand)]
    return [
        (one.shape.requirements[0].preferences, one.shape.requirements[0].hard, one.credit) for one in demands
    ]


def test_a_task_with_files_waits_for_another_host_and_others_run_there(world: World) -> None:
    world(HostRestricted(THERE, FILES, WHY))
    world(TasksReady((with_files(1), plain(2))))
    out = world.do(grant(1, "r2.core0"))
    assert sent(out) == [(2, "r2.core0")]
    assert (("r1.core0",), True, 1) in asked(out)
    assert "not there for now: host b gets no new tasks with files: anomaly: copy" in world.scheduler.explain(
        1
    )
    (aside,) = [one.shape for one in out if isinstance(one, Demand) and one.shape.requirements[0].hard]
    assert sent(world.do(grant(2, "r1.core0", aside))) == [(1, "r1.core0")]


def test_a_task_with_files_that_has_failed_elsewhere_waits_for_a_third_host() -> None:
    world = World(cores=0)
    world(ResourcesUp((Resource("r1.core0", "core"), *THERE, Resource("r3.core0", "core"))))
    task = with_files(1)
    world(TasksReady((Task(1, "files", 1, task.arguments, options=TaskOptions(stage_in=True, attempts=2)),)))
    assert sent(world.do(grant(1, "r1.core0"))) == [(1, "r1.core0")]
    failed = Outcome(1, 1, Reason.FAILED, error=TaskError("ValueError", "boom"))
    world(Finished(JOB, "r1.core0", (failed,)), 1.0)
    world(Tick(), 1.1)
    world(HostRestricted(THERE, FILES, WHY))
    assert sent(world.do(grant(2, "r2.core0"))) == []
    assert sent(world.do(grant(3, "r3.core0"))) == [(1, "r3.core0")]


def test_a_grant_that_was_asked_for_before_is_used_by_what_waits_for_other_hosts() -> None:
    world = World(cores=0)
    world(ResourcesUp((Resource("r1.core0", "core"), *THERE)))
    world(HostRestricted(THERE, FILES, WHY))
    world(TasksReady((with_files(1), with_files(2))))
    assert sent(world.do(grant(1, "r2.core0"))) == []
    assert sent(world.do(grant(2, "r1.core0"))) == [(1, "r1.core0")]


def test_a_task_with_files_joins_the_queue_of_another_host_though_that_one_is_idle() -> None:
    world = World(cores=0, policy=SchedulingPolicy(assign=Queues()))
    world(ResourcesUp((Resource("r1.core0", "core"), *THERE)))
    world(HostRestricted(THERE, FILES, WHY))
    world(TasksReady((plain(1),)))
    assert sent(world.do(grant(1, "r1.core0"))) == [(1, "r1.core0")]
    world(grant(2, "r2.core0"))
    assert sent(world.do(TasksReady((with_files(3),)))) == [(3, "r1.core0")]


def test_a_task_with_files_waits_for_another_host_though_it_is_planned_there() -> None:
    knowledge = Knowledge()
    knowledge.inputs = {1: [PlanData(1 << 30, ("r2",), "big")]}
    scheduler = planned(knowledge)
    scheduler.handle(HostRestricted(THERE, FILES, WHY), 0.0)
    (wish,) = asked(scheduler.handle(TasksReady((with_files(1),)), 0.0))
    assert wish == (("r2.node",), False, 1)
    shape = scheduler._state.tasks[1].task.shape
    out = scheduler.handle(Grant(JOB, shape, (1, 1), ("r2.core0",)), 0.0)
    scheduler.check()
    assert (sent(out), asked(out)) == ([], [(("r1.node", "r3.node"), True, 1)])


def test_it_may_run_there_when_the_anomaly_is_over(world: World) -> None:
    world(HostRestricted(THERE, FILES, WHY))
    world(TasksReady((with_files(1),)))
    assert sent(world.do(grant(1, "r2.core0"))) == []
    assert sent(world.do(HostRestricted(THERE))) == [(1, "r2.core0")]
    assert "not there" not in world.scheduler.explain(1)


def test_what_can_run_nowhere_else_runs_there(world: World) -> None:
    world(HostRestricted(THERE, FILES, WHY))
    world(HostRestricted((Resource("r1.core0", "core"),), FILES, WHY))
    world(TasksReady((with_files(1),)))
    assert sent(world.do(grant(1, "r2.core0"))) == [(1, "r2.core0")]


def test_a_task_that_is_bound_to_the_host_runs_there(world: World) -> None:
    only = Shape((Requirement("core", ("r2.core0",), hard=True),))
    world(HostRestricted(THERE, FILES, WHY))
    task = with_files(1)
    world(TasksReady((Task(1, "bound", 1, task.arguments, only, STAGED),)))
    assert sent(world.do(grant(1, "r2.core0", only))) == [(1, "r2.core0")]


def test_remote_data_is_what_lies_on_another_host(world: World) -> None:
    world(HostRestricted(THERE, REMOTE, WHY))
    world(TasksReady((fetching(1, AT_B), fetching(2))))
    assert sent(world.do(grant(1, "r2.core0", AT_B))) == [(1, "r2.core0")], "its data is there"
    assert sent(world.do(grant(2, "r1.core0"))) == [(2, "r1.core0")]


def test_a_task_with_remote_data_waits_for_another_host(world: World) -> None:
    world(HostRestricted(THERE, REMOTE, WHY))
    world(TasksReady((fetching(1),)))
    assert sent(world.do(grant(1, "r2.core0"))) == []


def test_data_in_memory_is_no_file(world: World) -> None:
    world(HostRestricted(THERE, FILES, WHY))
    world(TasksReady((fetching(1),)))
    assert sent(world.do(grant(1, "r2.core0"))) == [(1, "r2.core0")]


def test_what_has_not_begun_there_is_asked_back() -> None:
    world = World(cores=2)
    world(ResourcesUp(THERE))
    world.measured()
    world(TasksReady((with_files(1), with_files(2))))
    name, there = core(1), (Resource(core(1), "core"),)
    assert world.scheduler.explain(2).startswith(f"task 2 (files) is number 1 in the queue of {name}")
    assert world.do(HostRestricted(there, FILES, WHY)) == [TakeBack(JOB, name, ((2, 1),))]
    assert world.do(HostRestricted(there, FILES, WHY)) == [], "it was asked back"


def test_a_grant_of_which_nothing_is_used_goes_back_when_it_is_wanted(world: World) -> None:
    world(HostRestricted(THERE, FILES, WHY))
    world(TasksReady((with_files(1),)))
    world(grant(1, "r2.core0"))
    assert Release(JOB, (1, 1)) in world.do(Recall(JOB, ((1, 1),)))
