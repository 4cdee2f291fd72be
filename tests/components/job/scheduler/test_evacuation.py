"""Hosts that may fail: what runs there runs elsewhere, and uses up no attempt (ASP-9)."""

from __future__ import annotations

import pytest

from gspc_trio.components.job.scheduler.interface import HostEvacuated, ResourcesUp, TaskDone
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.components.worker.messages import Cancel, Finished, Submission, Submit
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Outcome, Reason, TaskError, TaskOptions, TaskState
from tests.components.job.scheduler.support import JOB, World, ended, ok, ready

WHY = "host b is evacuated: anomaly: ioerr"
IO_ERROR = TaskError("OSError", "[Errno 5] Input/output error: 'data'")
THERE = (Resource("r2.core0", "core"),)
ONCE = TaskOptions(may_rerun=False)


def world_of(*names: str, options: TaskOptions = DEFAULT_OPTIONS) -> World:
    """Return a scheduler whose task runs at r2."""
    world = World(cores=0)
    world(ResourcesUp(tuple(Resource(name, "core") for name in names)))
    world(ready(1, options=options))
    world(Grant(JOB, CORE, (1, 1), ("r2.core0",)))
    return world


def submit(number: int, name: str, attempt: int) -> Submit:
    return Submit(JOB, (1, number), (name,), (Submission(1, attempt, 1, (), DEFAULT_OPTIONS),), "core")


def came_back(reason: Reason, error: TaskError | None = None, name: str = "r2.core0", attempt: int = 1):
    return Finished(JOB, name, (ended(1, reason, attempt, error),))


@pytest.mark.parametrize("reason", [Reason.CANCELLED, Reason.LOST, Reason.FAILED])
def test_what_runs_there_is_ended_and_runs_elsewhere_at_no_attempt(reason: Reason) -> None:
    world = world_of("r1.core0", "r2.core0")
    assert world.do(HostEvacuated(THERE, WHY)) == [Cancel(JOB, "r2.core0", ((1, 1),))]
    assert world.do(HostEvacuated(THERE, WHY)) == [], "it was asked to end"
    world(came_back(reason, TaskError("lost", "killed")), 1.0)
    assert world.do(Grant(JOB, CORE, (1, 2), ("r1.core0",)), 1.1) == [submit(2, "r1.core0", 2)]
    out = world.do(came_back(Reason.LOST, TaskError("lost", "killed"), "r1.core0", 2), 2.0)
    assert not any(isinstance(action, TaskDone) for action in out), "it has all of its attempts"


def test_what_finishes_first_has_finished() -> None:
    world = world_of("r1.core0", "r2.core0")
    world(HostEvacuated(THERE, WHY))
    (done,) = [one for one in world.do(Finished(JOB, "r2.core0", (ok(1, 1),))) if isinstance(one, TaskDone)]
    assert done.state is TaskState.FINISHED


@pytest.mark.parametrize(
    ("names", "options"), [(("r2.core0",), DEFAULT_OPTIONS), (("r1.core0", "r2.core0"), ONCE)]
)
def test_what_can_go_nowhere_or_must_not_run_twice_goes_on(
    names: tuple[str, ...], options: TaskOptions
) -> None:
    assert world_of(*names, options=options).do(HostEvacuated(THERE, WHY)) == []


def test_a_grant_that_was_on_its_way_when_its_host_was_evacuated_is_given_back() -> None:
    world = World(cores=0)
    world(ResourcesUp((Resource("r1.core0", "core"), *THERE)))
    world(ready(1))
    world(HostEvacuated(THERE, WHY))
    out = world.do(Grant(JOB, CORE, (1, 1), ("r2.core0",)))
    assert [one for one in out if not isinstance(one, Demand)] == [Release(JOB, (1, 1))]


def test_two_evacuated_hosts_are_none_for_each_other() -> None:
    world = world_of("r1.core0", "r2.core0")
    world(HostEvacuated((Resource("r1.core0", "core"),), WHY))
    assert world.do(HostEvacuated(THERE, WHY)) == []
    world(HostEvacuated((Resource("r1.core0", "core"),)))
    assert world.do(HostEvacuated(THERE, WHY)) == [Cancel(JOB, "r2.core0", ((1, 1),))]


def test_an_io_error_is_the_hosts_fault_for_as_long_as_monitoring_needs_to_see_it() -> None:
    world = world_of("r1.core0", "r2.core0")
    now, attempts = 0.0, 0
    while True:
        attempts += 1
        out = world.do(came_back(Reason.FAILED, IO_ERROR, attempt=attempts), now)
        if done := [action for action in out if isinstance(action, TaskDone)]:
            break
        out = []
        while not any(isinstance(action, Submit) for action in out):
            due_s = world.scheduler.deadline()
            assert due_s is not None
            now = due_s
            out = world.do(Tick(), now)
    assert attempts == 9
    assert now > 20.0
    assert done[0].outcome == Outcome(1, 9, Reason.FAILED, error=IO_ERROR)


def test_an_io_error_where_there_is_no_other_host_is_an_error() -> None:
    out = world_of("r2.core0").do(came_back(Reason.FAILED, IO_ERROR))
    assert any(isinstance(action, TaskDone) for action in out)
