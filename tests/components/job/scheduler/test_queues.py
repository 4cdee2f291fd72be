"""Queues of resources (SCH-4): which one a task joins, and what an idle resource steals."""

from __future__ import annotations

from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import ResourcesLost, ResourcesUp, Stop, TasksReady
from gspc_trio.components.rm.messages import Grant, Recall
from gspc_trio.components.worker.messages import Submit
from gspc_trio.core.ids import ResourceId, TaskId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape, TaskOptions
from gspc_trio.policies.queues import Queues
from gspc_trio.policies.retry import Retry
from gspc_trio.policies.scheduling import SchedulingPolicy
from gspc_trio.records.facts import QueueChanged
from tests.components.job.scheduler.support import JOB, World, bad, core, finished, grant, ok, task

SOFT = Shape((Requirement("core", (core(1),)),))
HARD = Shape((Requirement("core", (core(1),), hard=True),))
EITHER = Shape((Requirement("core", (core(1), core(2)), hard=True),))


class Queued(World):
    """A scheduler whose resources have queues."""

    def __init__(self, cores: int = 2) -> None:
        super().__init__(0)
        self.scheduler = SchedulingPolicy(assign=Queues()).scheduler(JOB)
        self(ResourcesUp(tuple(Resource(core(n), "core", ("r1.node",)) for n in range(1, cores + 1))))

    def add(self, first: TaskId, *seconds: float, shape: Shape = CORE) -> list[object]:
        """Let tasks get ready that state how long they take."""
        options = [TaskOptions(estimate_s=one) for one in seconds]
        return self(TasksReady(tuple(task(first + n, one, shape) for n, one in enumerate(options))))

    def waiting(self) -> dict[ResourceId, list[TaskId]]:
        """Return what waits for each resource."""
        queues = self.scheduler.queued().items()
        return {name: [one.task_id for one in tasks] for name, (_, tasks) in queues}

    def submitted(self, actions: list[object]) -> dict[ResourceId, list[TaskId]]:
        """Return what was sent where."""
        sent = [action for action in actions if isinstance(action, Submit)]
        return {one.resources[0]: [it.task_id for it in one.submissions] for one in sent}


def test_a_task_joins_the_queue_where_it_ends_first_and_the_first_of_equal_ones() -> None:
    world = Queued()
    world(grant(1))
    world(grant(2))
    sent = world.submitted(world.add(1, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0))
    assert sent == {core(1): [1], core(2): [2]}
    assert world.waiting() == {core(1): [6], core(2): [3, 4, 5]}
    why = world.scheduler.explain(6)
    assert why == (
        "task 6 (work) waits in the queue of r1.core1: 0 are before it; it ends there in about 5 s (4 s of "
        "work before it, 1 s run); behind all that waits for r1.core2, the next best, in 5 s"
    )
    assert world.scheduler.explain(1) == (
        "task 1 (work) runs on r1.core1; it asked for core: any will do, and this one was to end it first, "
        "or had nothing else to do"
    )


def test_an_idle_resource_steals_from_the_tail_as_long_as_the_task_ends_sooner_by_that() -> None:
    world = Queued()
    world(grant(1))
    world.add(1, *[1.0] * 7)
    assert world.waiting() == {core(1): [2, 3, 4, 5, 6, 7]}
    actions = world(grant(2))
    assert world.submitted(actions) == {core(2): [5]}
    assert world.waiting() == {core(1): [2, 3, 4], core(2): [6, 7]}, "4 s and 2 s: one more gains nothing"
    lengths = [(one.resource_id, one.tasks) for one in actions if isinstance(one, QueueChanged)]
    assert lengths == [(core(1), 3), (core(2), 2)]


def test_after_a_stop_nothing_is_said_to_wait() -> None:
    world = Queued()
    world(grant(1))
    world.add(1, 10.0, 1.0, 1.0)
    actions = world(Stop("it is enough"))
    told = [(one.resource_id, one.tasks) for one in actions if isinstance(one, QueueChanged)]
    assert told == [(core(1), 0)]


def test_a_gain_of_half_a_millisecond_is_not_worth_it() -> None:
    world = Queued()
    world(grant(1))
    world.add(1, 0.0004, 10.0)
    world(grant(2))
    assert world.waiting() == {core(1): [2], core(2): []}
    other = Queued()
    other(grant(1))
    other.add(1, 0.0006, 10.0)
    assert other.submitted(other(grant(2))) == {core(2): [2]}


def test_untargeted_tasks_go_first_and_hard_targeted_ones_never() -> None:
    world = Queued(3)
    world(grant(1, shape=HARD))
    world.add(1, 100.0, shape=HARD)
    world.add(2, 1.0, 1.0, shape=HARD)
    world.add(4, 10.0, shape=CORE)
    world.add(5, 1.0, shape=SOFT)
    assert world.waiting() == {core(1): [2, 3, 4, 5]}
    assert world.submitted(world(grant(2))) == {core(2): [4]}
    assert world.submitted(world(grant(3, shape=SOFT))) == {core(3): [5]}
    world(finished(2, ok(4)))
    assert world.waiting() == {core(1): [2, 3], core(2): [], core(3): []}


def test_what_waits_joins_the_queue_of_a_resource_that_was_granted_for_others() -> None:
    world = Queued(3)
    world.add(1, 1.0, 1.0, 1.0)
    world.add(4, 1.0, shape=SOFT)
    world.add(5, 1.0, shape=HARD)
    world.add(6, 1.0, shape=EITHER)
    world(grant(3))
    assert world.waiting() == {core(3): [2, 3, 4]}, "that of no other is there"
    assert world.submitted(world(grant(1))) == {core(1): [6]}, "it may run on two"
    assert world.waiting() == {core(1): [5], core(3): [2, 3, 4]}
    world.scheduler.check()


def test_one_that_may_run_on_two_resources_waits_for_the_first_that_can_have_it() -> None:
    world = Queued()
    world(grant(1, shape=EITHER))
    world.add(1, 5.0, 5.0, 5.0, shape=EITHER)
    assert world.waiting() == {core(1): []}
    assert world.submitted(world(grant(2))) == {core(2): [2]}
    assert world.submitted(world(finished(2, ok(2)))) == {core(2): [3]}


def test_what_was_sent_is_at_the_worker_and_is_not_stolen() -> None:
    world = Queued()
    world(grant(1))
    world.add(1, 50.0)
    assert world.submitted(world(grant(2))) == {}
    assert world.waiting() == {core(1): [], core(2): []}


def test_what_waits_for_a_resource_that_is_recalled_or_lost_joins_other_queues() -> None:
    world = Queued(3)
    for number in (1, 2, 3):
        world(grant(number))
    world.add(1, *[1.0] * 9)
    world(Recall(JOB, ((1, 1),)))
    assert world.waiting() == {core(2): [5, 8, 4], core(3): [6, 9, 7]}
    world(ResourcesLost((core(2),), "its host is gone"))
    assert core(2) not in world.waiting()
    assert sorted(world.waiting()[core(3)]) == [2, 4, 5, 6, 7, 8, 9], "2 ran there"


def test_a_task_that_failed_waits_for_another_resource_when_the_queue_it_had_joined_dissolves() -> None:
    world = Queued(3)
    world.scheduler = SchedulingPolicy(assign=Queues(), retry=Retry(first_delay_s=0.0)).scheduler(JOB)
    world(ResourcesUp(tuple(Resource(core(n), "core", ("r1.node",)) for n in (1, 2, 3))))
    world(grant(1))
    world(grant(2))
    twice = TaskOptions(estimate_s=1.0, attempts=2)
    tasks = TasksReady((task(1, twice), task(2, twice)))
    assert world.submitted(world(tasks)) == {core(1): [1], core(2): [2]}
    world(finished(1, bad(1)))
    assert world.waiting() == {core(1): [], core(2): [1]}
    world(Recall(JOB, ((1, 2),)))
    assert world.waiting() == {core(1): []}
    assert world.submitted(world(finished(2, ok(2)))) == {}, (
        "not on core 1 again: core 3 may still be granted"
    )
    assert world.submitted(world(grant(3, shape=replace(CORE, estimate_s=1.0)))) == {core(3): [1]}


def test_a_task_that_is_bound_to_a_run_time_system_joins_no_queue_and_runs_there() -> None:
    world = Queued(cores=0)
    world(ResourcesUp((Resource("here/r1.core1", "core"), Resource("there/r1.core1", "core"))))
    world(Grant(JOB, CORE, (1, 1), ("there/r1.core1",)))
    bound = Shape((Requirement("core"),), at="here", estimate_s=1.0)
    assert world.submitted(world.add(1, 1.0, 1.0, shape=bound)) == {}
    assert world.waiting() == {"there/r1.core1": []}
    sent = world.submitted(world(Grant(JOB, bound, (1, 2), ("here/r1.core1",))))
    assert sent == {"here/r1.core1": [1]}


def test_a_late_report_of_short_tasks_tells_nothing_until_one_of_them_is_found_to_take_long() -> None:
    world = Queued()
    world.measured(1e-4, tasks=100)
    world(TasksReady(tuple(task(number) for number in range(1, 101))))
    begun_s = world.now
    assert len(world.waiting()[core(1)]) == 80, "the others, about 2 ms of work, are at the worker"
    world(Tick(), begun_s + 0.08)
    assert "(0.0079 s of work before it" in world.scheduler.explain(100), "a report is late, as all may be"
    for late_s in (0.11, 0.22):
        world(Tick(), begun_s + late_s)
    found = "(0.228 s of work before it"
    assert found in world.scheduler.explain(100), (
        "the first one takes long; it is taken to take as long again"
    )


def test_what_was_never_measured_is_taken_for_half_a_second_and_counted_anew_when_it_was() -> None:
    world = Queued()
    world(grant(1))
    world(TasksReady((task(1), task(2), task(3))))
    assert "ends there in about 1.5 s" in world.scheduler.explain(3)
    world(finished(1, ok(1, duration_s=3.0)))
    assert "ends there in about 6 s" in world.scheduler.explain(3)
