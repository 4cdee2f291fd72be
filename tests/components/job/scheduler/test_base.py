"""The scheduler's first duties: demand, submit, finished, park, stop (SCH-1, SCH-3)."""

import pytest

from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    ResourcesUp,
    RetryTask,
    Stop,
    Stopped,
    TasksReady,
)
from gspc_trio.components.job.scheduler.state import SHAPES_MAX
from gspc_trio.components.rm.messages import Grant, Recall, Refuse
from gspc_trio.components.worker.messages import Finished
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Outcome, Reason, Requirement, Shape, TaskError, TaskOptions
from tests.components.job.scheduler.support import (
    CANCELLED,
    FAILED,
    FINISHED,
    JOB,
    READY,
    RUNNING,
    SUBMITTED,
    World,
    cancel,
    changed,
    demand,
    done,
    ended,
    finished,
    grant,
    held,
    ok,
    ready,
    release,
    submit,
    task,
)

NODE = Shape((Requirement("node"),))


def test_a_task_goes_through_its_states() -> None:
    world = World()
    assert world(ready(1), 1.0) == [changed(1.0, 1, READY), demand(1)]
    assert world(grant(1), 2.0) == [held(2.0, 1), submit(1, (1, 1)), changed(2.0, 1, RUNNING, 1, 1)]
    assert world(finished(1, ok(1)), 3.0) == [
        done(1, FINISHED, ok(1), 1),
        changed(3.0, 1, FINISHED, 1, 1, duration_s=0.01),
    ]
    assert world(Stop("over"), 4.0) == [release(1), held(4.0, 1, False), Stopped()]


def test_demand_is_not_repeated_for_each_task() -> None:
    world = World()
    assert world.do(ready(1, 2, 3)) == [demand(3)]
    assert world.do(ready(4, 5)) == []
    assert world.do(ready(6)) == [demand(6)]
    assert world.do(grant(1)) == [submit(1, (1, 1))]
    assert world.do(grant(2)) == [submit(2, (2, 1))]


def test_demand_is_withdrawn_when_nothing_waits() -> None:
    world = World()
    world(ready(1, 2, 3))
    assert world.do(CancelTasks((1, 2, 3))) == [
        *(done(n, CANCELLED, Outcome(n, 0, Reason.CANCELLED)) for n in (1, 2, 3)),
        demand(0),
    ]


def test_credit_that_is_used_up_is_asked_for_again() -> None:
    world = World()
    world(ready(1, 2, 3, 4, 5))
    world(ready(6, 7, 8, 9))
    actions = [world.do(grant(number)) for number in (1, 2, 3, 4)]
    assert actions == [[submit(n, (n, 1)), *([demand(8, 1)] if n == 1 else [])] for n in (1, 2, 3, 4)]


def test_a_grant_runs_one_task_after_the_other_without_asking() -> None:
    world = World()
    world(ready(1, 2, 3))
    world(grant(1))
    assert world.do(finished(1, ok(1))) == [done(1, FINISHED, ok(1), 1), submit(1, (2, 1)), demand(1, 1)]


def test_a_grant_without_work_is_kept_for_the_next_task() -> None:
    world = World()
    world(ready(1))
    world(grant(1))
    world(finished(1, ok(1)))
    assert world.do(ready(2)) == [submit(1, (2, 1))]


def test_a_grant_that_nobody_wants_any_more_is_kept_for_the_next_task() -> None:
    world = World()
    world(ready(1))
    world(CancelTasks((1,)))
    assert world(grant(1), 1.0) == [held(1.0, 1)]
    assert world.do(ready(2)) == [submit(1, (2, 1))]


def test_an_idle_grant_goes_back_at_once_when_it_is_recalled() -> None:
    world = World()
    world(grant(1))
    assert world(Recall(JOB, ((1, 1),)), 1.0) == [release(1), held(1.0, 1, False)]
    assert world(Recall(JOB, ((1, 1),)), 1.0) == []


def test_a_recalled_grant_goes_back_when_its_running_task_has_ended() -> None:
    world = World()
    world(ready(1, 2))
    world(grant(1))
    assert world.do(Recall(JOB, ((1, 1),))) == []
    assert world.do(finished(1, ok(1))) == [done(1, FINISHED, ok(1), 1), release(1)]
    assert world.scheduler.state_of(2) is READY


def test_each_shape_has_its_own_queue() -> None:
    world = World()
    assert world.do(ready(1, shape=NODE)) == [demand(1, shape=NODE)]
    assert world.do(ready(2)) == [demand(1)]
    assert world.do(grant(1)) == [submit(1, (2, 1))]
    assert world.scheduler.state_of(1) is READY


def test_a_refused_shape_fails_what_waits_for_it_and_nothing_else() -> None:
    world = World()
    world(ready(1, 2, shape=NODE))
    world(ready(3))
    error = TaskError("refused", "there is no node")
    outcomes = [Outcome(n, 0, Reason.FAILED, error=error) for n in (1, 2)]
    assert world(Refuse(JOB, NODE, "there is no node"), 1.0) == [
        demand(0, shape=NODE),
        done(1, FAILED, outcomes[0]),
        changed(1.0, 1, FAILED, detail="refused: there is no node"),
        done(2, FAILED, outcomes[1]),
        changed(1.0, 2, FAILED, detail="refused: there is no node"),
    ]
    assert world.do(Refuse(JOB, NODE, "there is no node")) == []
    assert world.scheduler.state_of(3) is READY


def test_a_refusal_spares_what_is_at_work() -> None:
    world = World()
    world(ready(1, 2))
    world(grant(1))
    world(Refuse(JOB, CORE, "no more"))
    assert world.scheduler.is_running(1)
    assert world.scheduler.state_of(2) is FAILED


def test_outcomes_of_unknown_tasks_and_old_attempts_are_dropped() -> None:
    world = World()
    world(ready(1))
    world(grant(1))
    assert world(finished(1, ok(7), ok(1, 2), ended(1, Reason.RETURNED, 3))) == []
    assert world.scheduler.statistics().stale == 3
    world(finished(1, ok(1)))
    assert world(finished(1, ok(1))) == []
    assert world.scheduler.status()[FINISHED] == 1


def test_only_the_first_submission_of_a_grant_runs() -> None:
    world = World()
    world.measured()
    assert world(ready(1, 2, 3)) == [
        *(changed(world.now, n, READY) for n in (1, 2, 3)),
        submit(1, (1, 1), (2, 1), (3, 1)),
        changed(world.now, 1, RUNNING, 1, 1),
        changed(world.now, 2, SUBMITTED, 1, 1),
        changed(world.now, 3, SUBMITTED, 1, 1),
    ]
    assert world(finished(1, ok(1, duration_s=0.0))) == [
        done(1, FINISHED, ok(1, duration_s=0.0), 1),
        changed(world.now, 1, FINISHED, 1, 1),
        changed(world.now, 2, RUNNING, 1, 1),
    ]
    assert [world.scheduler.is_running(n) for n in (1, 2, 3)] == [False, True, False]


def test_status_counts_each_task_in_one_state() -> None:
    world = World()
    world(ready(1, 2, 3, 4, 5))
    for number in (1, 2, 3):
        world(grant(number))
    world(finished(1, ok(1)))
    world(CancelTasks((5,)))
    world(finished(2, Outcome(2, 1, Reason.FAILED)))
    assert world.scheduler.status() == {
        READY: 0,
        SUBMITTED: 0,
        RUNNING: 2,
        FINISHED: 1,
        FAILED: 1,
        CANCELLED: 1,
    }
    assert world.scheduler.live == 2


def test_stop_cancels_everything_and_gives_everything_back() -> None:
    world = World()
    world(ready(1, 2, 3))
    world(grant(1))
    world(grant(2))
    world(finished(2, ok(2)))
    assert world(Stop("enough"), 5.0) == [cancel(1, (1, 1)), cancel(2, (3, 1))]
    assert world(finished(2, ended(3, Reason.CANCELLED)), 6.0) == [
        done(3, CANCELLED, ended(3, Reason.CANCELLED), 2),
        changed(6.0, 3, CANCELLED, 1, 2),
        release(2),
        held(6.0, 2, False),
    ]
    assert world(finished(1, ok(1)), 7.0) == [
        done(1, FINISHED, ok(1), 1),
        changed(7.0, 1, FINISHED, 1, 1, duration_s=0.01),
        release(1),
        held(7.0, 1, False),
        Stopped(),
    ]


def test_stop_cancels_what_waits_and_withdraws_the_demand() -> None:
    world = World()
    world(ready(1))
    assert world(Stop("enough"), 5.0) == [
        done(1, CANCELLED, Outcome(1, 0, Reason.CANCELLED)),
        changed(5.0, 1, CANCELLED, detail="enough"),
        demand(0),
        Stopped(),
    ]
    assert world(Stop("again")) == []


def test_stop_cancels_nothing_twice_and_wants_to_hear_of_no_time() -> None:
    world = World()
    world.measured()
    world(ready(1, 2))
    world(CancelTasks((1,)))
    assert world.scheduler.deadline() is not None
    assert world.do(Stop("enough")) == [cancel(1, (2, 1))]
    assert world.scheduler.deadline() is None


def test_grants_may_come_in_any_order() -> None:
    world = World()
    world(ready(1, 2, 3, 4, 5))
    world(grant(2))
    assert world.do(grant(1)) == [submit(1, (2, 1))]
    assert world.do(CancelTasks((3, 4, 5)))[-1] == demand(0, 2)


def test_a_grant_that_crosses_stop_is_given_back_at_once() -> None:
    world = World()
    world(ready(1))
    world(Stop("enough"))
    assert world(grant(1), 6.0) == [held(6.0, 1), release(1), held(6.0, 1, False)]


def test_tasks_that_become_ready_after_stop_are_cancelled() -> None:
    world = World()
    world(Stop("enough"))
    assert world(ready(1), 6.0) == [
        changed(6.0, 1, READY),
        done(1, CANCELLED, Outcome(1, 0, Reason.CANCELLED)),
        changed(6.0, 1, CANCELLED, detail="enough"),
    ]


def test_a_cancelled_task_ends_as_its_worker_reports() -> None:
    world = World()
    world(ready(1, 2))
    world(grant(1))
    world(grant(2))
    assert world.do(CancelTasks((1, 2, 99))) == [cancel(1, (1, 1)), cancel(2, (2, 1))]
    assert world.do(CancelTasks((1,))) == []
    assert world.do(finished(1, ok(1))) == [done(1, FINISHED, ok(1), 1)]
    assert world.do(finished(2, ended(2, Reason.CANCELLED))) == [
        done(2, CANCELLED, ended(2, Reason.CANCELLED), 2)
    ]


def test_a_cancelled_task_that_fails_is_not_tried_again() -> None:
    world = World()
    world(ready(1, options=TaskOptions(attempts=2)))
    world(grant(1))
    world(CancelTasks((1,)))
    outcome = Outcome(1, 1, Reason.FAILED, error=TaskError("E", "e"))
    assert world.do(finished(1, outcome)) == [done(1, FAILED, outcome, 1)]


def test_a_grant_waits_for_its_resource_to_be_up() -> None:
    world = World(0)
    world(ready(1))
    assert world.do(grant(1)) == [demand(1, 1)]
    assert "cannot be reached" in world.scheduler.explain(1)
    assert world.do(ResourcesUp((Resource("r1.core1", "core"),))) == [submit(1, (1, 1)), demand(0, 1)]


def test_too_many_shapes_wait_for_their_turn() -> None:
    world = World()
    shapes = [Shape(memory_bytes=n) for n in range(1, SHAPES_MAX + 3)]
    actions = world.do(TasksReady(tuple(task(n, shape=shape) for n, shape in enumerate(shapes, 1))))
    assert actions == [demand(1, shape=shape) for shape in shapes[:SHAPES_MAX]]
    assert "too many other shapes" in world.scheduler.explain(SHAPES_MAX + 1)
    assert world.do(CancelTasks((5,))) == [
        done(5, CANCELLED, Outcome(5, 0, Reason.CANCELLED)),
        demand(0, shape=shapes[4]),
        demand(1, shape=shapes[SHAPES_MAX]),
    ]


def test_a_shape_without_tasks_gives_its_grants_back_for_one_that_waits() -> None:
    world = World()
    world(grant(1))
    shapes = [Shape(memory_bytes=n) for n in range(1, SHAPES_MAX + 1)]
    actions = world.do(TasksReady(tuple(task(n, shape=shape) for n, shape in enumerate(shapes, 1))))
    asked = [demand(1, 1, shape=shape) for shape in shapes]
    assert actions == [*asked[:-1], release(1), asked[-1]]
    assert world.scheduler.statistics().dormant == 0


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (object(), "is no event of a scheduler"),
        (ready(1), "already"),
        (ready(2, 2), "already"),
        (RetryTask(1), "has not failed"),
        (RetryTask(77), "has not failed"),
        (grant(1), "came twice"),
        (Grant(JOB, CORE, (1, 9), ("a", "b")), "2 resources"),
        (Grant("j2", CORE, (1, 9), ("a",)), "job j2"),
        (Finished("j2", "a", ()), "job j2"),
    ],
)
def test_an_impossible_event_changes_nothing(event: object, words: str) -> None:
    world = World()
    world(ready(1))
    world(grant(1))
    before = world.scheduler.status(), world.scheduler.statistics()
    with pytest.raises(IllegalEvent, match=words):
        world(event)
    world.scheduler.check()
    assert (world.scheduler.status(), world.scheduler.statistics()) == before
    assert world.do(Tick()) == []


def test_explain_says_where_a_task_is() -> None:
    world = World()
    world.measured()
    explain = world.scheduler.explain
    world(ready(1, 2))
    world(ready(3, shape=NODE))
    world(ready(4, shape=NODE))
    any_core = "it asked for core: any will do, and this one had room first"
    assert explain(1) == f"task 1 (work) runs on r1.core1; {any_core}"
    assert explain(2) == f"task 2 (work) is number 1 in the queue of r1.core1; {any_core}"
    assert (
        explain(3) == "task 3 (work) waits for node: it is the next; 0 grants are held, 2 more are asked for"
    )
    assert explain(4).startswith("task 4 (work) waits for node: 1 are before it")
    assert explain(99) == "task 99 has ended or was never ready"
    world(Refuse(JOB, NODE, "no"))
    assert explain(3) == "task 3 has failed; it can be retried"
    world(CancelTasks((1,)))
    assert "runs on r1.core1, and was asked to end; " in explain(1)


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Requirement("core", ("r1.core1",), hard=True), "core (only r1.core1)"),
        (Requirement("core", ("r2.node",)), "core (preferably r2.node), and takes any after 0.05 s"),
        (
            Requirement("core", ("r2.node",), patience_s=3),
            "core (preferably r2.node), and takes any after 3 s",
        ),
        (Requirement("core", features=("ssd",)), "core with ssd: any will do, and this one had room first"),
    ],
)
def test_explain_says_for_what_a_running_task_has_asked(wish: Requirement, why: str) -> None:
    world, shape = World(), Shape((wish,))
    world(ready(1, shape=shape))
    world(grant(1, shape=shape))
    assert world.scheduler.explain(1) == f"task 1 (work) runs on r1.core1; it asked for {why}"
