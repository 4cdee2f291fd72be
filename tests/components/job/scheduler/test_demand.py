"""What a scheduler says of its tasks that wait, to whoever asks batch systems for hosts."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from gspc_trio.components.job.scheduler import demand as demand_module
from gspc_trio.components.job.scheduler.interface import Stop, TasksReady
from gspc_trio.core.demand import DemandWanted, EndedTasks, GroupRefused, RunningGroup, TaskDemand, TaskGroup
from gspc_trio.core.machine import Tick
from gspc_trio.core.task import Requirement, Shape, TaskOptions
from tests.components.job.scheduler.support import (
    FAILED,
    GANG,
    JOB,
    World,
    finished,
    grant,
    ok,
    ready,
    task,
)

LIMITED, ESTIMATED = TaskOptions(timeout_s=60.0), TaskOptions(estimate_s=30.0)
BOTH = TaskOptions(timeout_s=60.0, estimate_s=30.0)
NODE = Shape((Requirement("node"), Requirement("node")))


def told(world: World, now: float) -> list[Any]:
    """Let time pass; return what was said of demand meanwhile."""
    said = []
    while (due := world.scheduler.deadline()) is not None and due <= now:
        said += [one for one in world(Tick(), max(world.now, due)) if isinstance(one, TaskDemand)]
    world.now = now
    return said


def test_nothing_is_said_unless_somebody_wants_it() -> None:
    world = World()
    world(ready(1, 2))
    assert told(world, 10.0) == []
    world(DemandWanted(wanted=True))
    assert told(world, 10.0) == [TaskDemand(JOB, (TaskGroup(600.0, count=2),))]
    world(DemandWanted(wanted=False))
    world(ready(3))
    assert told(world, 20.0) == []


def test_tasks_that_are_alike_are_one_group() -> None:
    world = World()
    world(DemandWanted(wanted=True))
    world(ready(1, options=LIMITED))
    world(ready(2, options=BOTH))
    world(ready(3, options=ESTIMATED))
    world(ready(4, 5, shape=GANG))
    world(ready(6, shape=NODE))
    groups = (
        TaskGroup(30.0),
        TaskGroup(60.0, count=2),
        TaskGroup(600.0, cores=0, nodes=2),
        TaskGroup(600.0, cores=2, count=2),
    )
    assert told(world, 0.0) == [TaskDemand(JOB, groups)]


def test_it_is_said_when_it_changes_and_at_most_once_a_second() -> None:
    world = World()
    world(DemandWanted(wanted=True))
    world(ready(1))
    assert len(told(world, 0.0)) == 1
    for number in range(2, 50):
        world(ready(number), number / 100)
    assert told(world, 0.99) == []
    assert told(world, 1.0) == [TaskDemand(JOB, (TaskGroup(600.0, count=49),))]
    assert told(world, 100.0) == []
    assert world.scheduler.deadline() is None, "nobody looks while nothing happens"


def test_what_runs_is_said_with_its_host_and_the_rest_of_its_time() -> None:
    world = World()
    world(DemandWanted(wanted=True))
    world(ready(1, 2, 3, options=LIMITED))
    world(grant(1))
    world(grant(2), 5.0)
    (said,) = told(world, 5.0)
    assert said == TaskDemand(JOB, (TaskGroup(60.0),), (RunningGroup("r1", 56.0), RunningGroup("r1", 61.0)))
    world(finished(1, ok(1)))
    world(finished(2, ok(2)))
    world(finished(1, ok(3)))
    assert told(world, 10.0) == [TaskDemand(JOB, ended=(EndedTasks("r1", 3),))]


def test_who_begins_to_hear_it_hears_also_that_nothing_is_needed() -> None:
    world = World()
    for now in (0.0, 0.5):
        world(DemandWanted(wanted=True), now)
        assert told(world, now) == [TaskDemand(JOB)]
        assert told(world, now + 0.1) == []
        world(DemandWanted(wanted=False), now + 0.2)


def test_a_stopping_job_needs_nothing() -> None:
    world = World()
    world(DemandWanted(wanted=True))
    world(ready(1))
    told(world, 0.0)
    world(Stop("enough"))
    assert told(world, 5.0) == [TaskDemand(JOB)]


def test_a_run_time_system_that_is_back_hears_it_again() -> None:
    world = World()
    world(ready(1))
    for now in (0.0, 0.5):
        world(DemandWanted(wanted=True), now)
        assert told(world, now) == [TaskDemand(JOB, (TaskGroup(600.0),))]


def test_tasks_of_a_refused_group_fail_and_others_do_not() -> None:
    world = World()
    world(DemandWanted(wanted=True))
    world(ready(1, 2, options=LIMITED))
    world(ready(3))
    world(grant(1))
    ends = [
        one
        for one in world.do(GroupRefused(TaskGroup(60.0, count=2), "it is too long"))
        if hasattr(one, "state")
    ]
    assert [(one.task_id, one.state, str(one.outcome.error.message)) for one in ends] == [
        (2, FAILED, "it is too long")
    ], "the first one runs already, where it fits"
    assert world.scheduler.live == 2


def test_very_many_kinds_of_tasks_are_rounded_to_few_groups() -> None:
    world = World()
    world(DemandWanted(wanted=True))
    many = [task(number, TaskOptions(timeout_s=1.0 + number / 100)) for number in range(1, 3000)]
    world(TasksReady(tuple(many)))
    (said,) = told(world, 0.0)
    assert len(said.groups) <= demand_module.GROUPS_MAX
    assert sum(group.count for group in said.groups) == 2999
    assert said.groups[-1].walltime_s >= 30.99
    world(GroupRefused(said.groups[-1], "too long"))
    assert world.scheduler.live == 2999 - said.groups[-1].count


def test_tasks_that_may_go_on_for_ever_are_taken_for_very_long_ones() -> None:
    world = World()
    world(DemandWanted(wanted=True))
    world(ready(1, 2, options=TaskOptions(timeout_s=math.inf)))
    world(grant(1))
    (said,) = told(world, 0.0)
    assert said.groups == (TaskGroup(demand_module.WALLTIME_MAX_S),)
    assert [one.rest_s for one in said.running] == [demand_module.WALLTIME_MAX_S]
    assert msgspec.convert(msgspec.to_builtins(said), TaskDemand) == said
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(TaskGroup(math.inf)), type=TaskGroup)


def test_very_many_tasks_are_looked_at_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand_module, "PAUSE_PER_TASK_S", 0.01)
    world = World()
    world(DemandWanted(wanted=True))
    world(ready(*range(1, 301)))
    assert len(told(world, 0.0)) == 1
    world(ready(301), 0.5)
    assert told(world, 2.99) == []
    assert len(told(world, 3.0)) == 1
