"""Hosts that end: a task goes only where the time that it states is left."""

from __future__ import annotations

import pytest

from gspc_trio.components.job.scheduler.ending import LOOKED_AT_MAX, fitting_share
from gspc_trio.components.job.scheduler.interface import ResourcesLost, ResourcesUp, TasksReady
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed
from gspc_trio.components.worker.messages import Finished
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Requirement, Shape, TaskOptions
from tests.components.job.scheduler.support import (
    JOB,
    World,
    bad,
    core,
    demand,
    finished,
    grant,
    ok,
    ready,
    release,
    submit,
    task,
)

SHORT, LONG = TaskOptions(timeout_s=5.0), TaskOptions(timeout_s=60.0)


def only(*names: str) -> Shape:
    """What a task waits for that has been put aside."""
    return Shape((Requirement("core", names, hard=True),), wait=True)


def ending(until_s: float, cores: int = 1) -> World:
    """A scheduler whose only host ends then."""
    world = World(cores=0)
    world(ResourcesUp(tuple(Resource(core(n), "core") for n in range(1, cores + 1)), until_s))
    return world


def test_a_task_that_fits_runs_there() -> None:
    world = ending(10.0)
    assert world.do(ready(1, options=SHORT)) == [demand(1)]
    assert world.do(grant(1)) == [submit(1, (1, 1), options=SHORT)]


def test_only_the_first_of_many_tasks_are_looked_at_for_one_grant() -> None:
    count = 3 * LOOKED_AT_MAX
    world = ending(100.0)
    world.do(TasksReady(tuple(task(number) for number in range(1, count + 1))))
    world.do(grant(1))
    (held,) = world.scheduler._state.grants.values()
    assert fitting_share(world.scheduler._state, held, count) == len(held.sent) + LOOKED_AT_MAX


def test_a_task_that_takes_longer_waits_for_a_host_that_stays() -> None:
    world = ending(10.0)
    world.do(ready(1, options=LONG))
    nowhere = only("a host that stays for 60 s")
    assert world.do(grant(1)) == [Demand(JOB, nowhere, 1, (1, 1))]
    assert world.scheduler.explain(1).startswith(
        "task 1 (work) waits for core (only a host that stays for 60 s): it is the next"
    )


def test_it_goes_to_another_host_when_there_is_one() -> None:
    world = ending(10.0)
    world.do(ready(1, options=LONG))
    world.do(grant(1))
    fresh = (Resource("r2.node", "node"), Resource("r2.core1", "core", ("r2.node",)))
    world.do(ResourcesUp(fresh))
    # It has tried the grant that it has, which does not fit, and asks for the new host.
    queues = {queue.shape: len(queue.waiting) for queue in world.scheduler._state.queues.values()}
    assert queues[only("r2.node")] == 1


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_task_that_comes_back_waits_for_the_hosts_that_stay_by_then(attempts: int) -> None:
    """It was lost on the one host that stayed long enough, and another one does so now."""
    world = ending(10.0)
    options = TaskOptions(timeout_s=60.0, attempts=attempts)
    world.do(ready(1, options=options))
    world.do(grant(1))
    world.do(ResourcesUp((Resource("r2.node", "node"), Resource("r2.core1", "core", ("r2.node",)))))
    world.do(Grant(JOB, only("r2.node"), (1, 2), ("r2.core1",)))
    if attempts > 1:
        world.do(Finished(JOB, "r2.core1", (bad(1),)))
    here = (Resource("r1.core1", "core"),)
    world.do(ResourcesUp(here, 1000.0))
    world.do(ResourcesLost(("r2.node", "r2.core1"), "host lost"))
    world.do(Lapsed(JOB, ((1, 2),), "host lost"))
    actions = world.do(Tick(), 20.0)
    assert world.scheduler.explain(1).startswith("task 1 (work) runs on r1.core1"), actions


def test_what_fits_goes_ahead_of_what_does_not() -> None:
    world = ending(10.0)
    world.do(TasksReady((task(1, LONG), task(2, SHORT))))
    acts = world.do(grant(1))
    assert submit(1, (2, 1), options=SHORT) in acts
    assert Demand(JOB, only("a host that stays for 60 s"), 1, (1, 1)) in acts


def test_the_longest_task_that_fits_goes_first() -> None:
    world = ending(10.0)
    medium = TaskOptions(timeout_s=8.0)
    world.do(TasksReady((task(1, SHORT), task(2, medium), task(3, LONG), task(4, medium))))
    assert submit(1, (2, 1), options=medium) in world.do(grant(1))
    acts = world.do(finished(1, ok(2)), 5.0)  # 5 s are left
    assert submit(1, (1, 1), options=SHORT) in acts


def test_the_longest_task_may_have_another_estimate_than_the_grant() -> None:
    world = ending(10.0)
    two, eight = Shape(estimate_s=2.0), Shape(estimate_s=8.0)
    short, longer = TaskOptions(estimate_s=2.0), TaskOptions(estimate_s=7.0)
    world.do(TasksReady((task(1, short, two), task(2, longer, eight))))
    assert submit(1, (2, 1), options=longer) in world.do(grant(1, shape=two))
    acts = world.do(finished(1, ok(2)), 7.0)
    assert submit(1, (1, 1), options=short) in acts
    queues = {queue.shape: len(queue.waiting) for queue in world.scheduler._state.queues.values()}
    assert not any(queues.values())


def test_a_task_of_a_higher_priority_goes_before_a_longer_one() -> None:
    world = ending(100.0)
    urgent = TaskOptions(timeout_s=5.0, priority=1)
    world.do(TasksReady((task(1, LONG), task(2, urgent))))
    assert submit(1, (2, 1), options=urgent) in world.do(grant(1))


def test_tasks_that_say_nothing_run_anywhere_until_the_host_ends() -> None:
    world = ending(10.0)
    world.do(ready(1))
    assert world.do(grant(1), 9.0) == [submit(1, (1, 1))]


def test_the_time_left_counts_when_a_task_would_begin() -> None:
    world = ending(10.0)
    world.do(TasksReady((task(1, SHORT), task(2, SHORT))))
    world.do(grant(1), 1.0)
    acts = world.do(finished(1, ok(1)), 6.0)
    assert Demand(JOB, only("a host that stays for 5 s"), 1, (1, 1)) in acts


def test_what_is_sent_ahead_still_fits_after_what_runs() -> None:
    world = World(cores=0)
    world(ResourcesUp((Resource(core(1), "core"),)))
    world.measured()
    world(ResourcesUp((Resource(core(1), "core"),), 16.0))  # 15 s are left, three times 5
    world.do(ready(*range(1, 6), options=SHORT))
    held = next(iter(world.scheduler._state.grants.values()))
    assert sorted(held.sent) == [1, 2, 3]


def test_preferences_are_kept_as_far_as_their_hosts_stay() -> None:
    world = ending(10.0)
    world(ResourcesUp((Resource("r2.node", "node"), Resource("r2.core1", "core", ("r2.node",)))))
    liked = Shape((Requirement("core", ("r1.core1", "r2.core1")),))
    world.do(TasksReady((task(1, LONG, liked),)))
    acts = world.do(grant(1, shape=liked))
    assert Demand(JOB, only("r2.core1", "r2.node"), 1, (1, 1)) in acts


def test_a_grant_that_nothing_fits_goes_back_when_it_is_wanted() -> None:
    from gspc_trio.components.rm.messages import Recall

    world = ending(10.0)
    world.do(ready(1, options=LONG))
    world.do(grant(1))
    assert world.do(Recall(JOB, ((1, 1),))) == [release(1)]


def test_a_grant_elsewhere_than_where_its_tasks_have_to_run_is_illegal() -> None:
    """There they would be put aside for the host that they name, which is what they wait for already."""
    world = World(cores=0)
    world(ResourcesUp((Resource("r1.core0", "core"),), 10.0))
    world(ResourcesUp((Resource("r2.core0", "core"),)))
    world.do(ready(1, options=LONG, shape=only("r2")))
    with pytest.raises(IllegalEvent, match=r"of r1.core0 is not what core \(only r2\) asks for"):
        world.scheduler.handle(Grant(JOB, only("r2"), (1, 1), ("r1.core0",)), 0.0)
    assert world.do(Grant(JOB, only("r2"), (1, 1), ("r2.core0",)))


def test_no_host_with_an_end_changes_nothing() -> None:
    world = World(cores=1)
    world.do(ready(1, options=LONG))
    assert world.do(grant(1)) == [submit(1, (1, 1), options=LONG)]
    assert not world.scheduler._state.aside


def test_the_end_of_a_host_is_forgotten_when_nothing_of_it_is_left() -> None:
    world = ending(10.0, cores=2)
    world(ResourcesLost((core(1),), "removed"))
    assert world.scheduler._state.ends == {"r1": 10.0}
    world(ResourcesLost((core(2),), "removed"))
    assert world.scheduler._state.ends == {}
