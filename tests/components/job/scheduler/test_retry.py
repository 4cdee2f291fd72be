"""What is tried again, when and where (SCH-2), and what is lost."""

import pytest

from gspc_trio.components.job.scheduler.interface import (
    AttemptEnded,
    CancelTasks,
    ResourcesLost,
    ResourcesUp,
    Restored,
    RetryTask,
    Stop,
    Stopped,
    TaskDone,
)
from gspc_trio.components.rm.messages import Lapsed, Recall
from gspc_trio.components.worker.messages import Submit
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, Reason, Requirement, Shape, TaskError, TaskOptions
from gspc_trio.policies.retry import Retry
from tests.components.job.scheduler.support import (
    BOOM,
    CANCELLED,
    FAILED,
    FINISHED,
    GANG,
    JOB,
    READY,
    RUNNING,
    SUBMITTED,
    World,
    bad,
    cancel,
    changed,
    core,
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
)

TWICE = TaskOptions(attempts=2)
ONCE_ONLY = TaskOptions(may_rerun=False)
GONE = TaskError("lost", "process 17 was killed")
REFUSED = TaskError("refused", "r1.core1 still works for job j0")


def test_a_failed_task_is_not_tried_again_unless_it_says_so() -> None:
    world = World()
    world(ready(1))
    world(grant(1))
    assert world(finished(1, bad(1)), 2.0) == [
        done(1, FAILED, bad(1), 1),
        changed(2.0, 1, FAILED, 1, 1, "ValueError: boom"),
    ]


def test_only_the_last_failed_tasks_are_kept_where_there_is_a_limit() -> None:
    world = World(failed_max=2)
    world(ready(1))
    world(grant(1))
    world(finished(1, bad(1)))
    for task_id in (2, 3):
        world(ready(task_id))
        world(finished(1, bad(task_id)))
    assert [world.scheduler.state_of(task_id) for task_id in (1, 2, 3)] == [None, FAILED, FAILED]
    assert world.scheduler.status()[FAILED] == world.scheduler.ended == 3
    with pytest.raises(IllegalEvent, match="task 1 has not failed"):
        world(RetryTask(1))
    assert world.do(RetryTask(2)) == [submit(1, (2, 2))]
    assert world.scheduler.status()[FAILED] == 2


def test_a_failed_task_is_tried_again_after_a_pause() -> None:
    world = World(cores=1)
    world(ready(1, options=TWICE))
    world(grant(1))
    assert world(finished(1, bad(1)), 2.0) == [changed(2.0, 1, READY, 1, 0, "ValueError: boom")]
    assert world.scheduler.deadline() == 2.1
    assert "tried again in 0.1 s, after 1 failures" in world.scheduler.explain(1)
    assert world(Tick(), 2.05) == []
    assert world(Tick(), 2.1) == [submit(1, (1, 2), options=TWICE), changed(2.1, 1, RUNNING, 2, 1)]
    assert world.scheduler.deadline() is None
    assert world.do(finished(1, bad(1, 2)), 3.0) == [done(1, FAILED, bad(1, 2), 1)]


def test_what_an_attempt_has_printed_is_told_before_the_next_one() -> None:
    world = World(cores=1)
    world(ready(1, options=TWICE))
    world(grant(1))
    spoke = Outcome(1, 1, Reason.FAILED, error=BOOM, stderr=b"careful")
    told = AttemptEnded(spoke, "work", 1, "r1.core1", 2.0)
    assert world(finished(1, spoke), 2.0) == [told, changed(2.0, 1, READY, 1, 0, "ValueError: boom")]


def test_of_a_traced_job_each_attempt_that_had_begun_is_told_of() -> None:
    world = World(cores=2, tracing=True)

    def told(event: object, now: float) -> list[tuple[Reason, int, str, float]]:
        ended = [action for action in world(event, now) if isinstance(action, AttemptEnded)]
        return [(one.outcome.reason, one.outcome.attempt, one.resource_id, one.ran_s) for one in ended]

    world(ready(1, 2, 3, options=TaskOptions(attempts=2)))
    world(grant(1))
    assert told(finished(1, bad(1)), 2.0) == [(Reason.FAILED, 1, "r1.core1", 2.0)]
    refused = Outcome(2, 1, Reason.RETURNED, error=TaskError("refused", "it does not fit"))
    assert told(finished(1, refused), 2.5) == [], "it had not begun"
    world(Tick(), 3.0)
    world(grant(2), 3.0)
    at = world.scheduler._state.by_resource["r1.core2"].head()
    assert at is not None
    lost = told(Lapsed(JOB, (grant(2).grant_id,), "gone"), 5.0)
    assert lost == [(Reason.LOST, at.attempt, "r1.core2", 2.0)], "those that waited behind it had not begun"


def test_a_failed_task_is_tried_again_on_another_resource() -> None:
    world = World(cores=2)
    world(ready(1, options=TWICE))
    world(grant(1))
    world(finished(1, bad(1)), 2.0)
    assert world.do(Tick(), 2.1) == [demand(1, 1)]
    assert world.scheduler.explain(1) == "task 1 (work) waits for another core than r1.core1"
    assert world.do(grant(2)) == [submit(2, (1, 2), options=TWICE)]


def test_a_task_that_failed_everywhere_avoids_only_where_it_failed_last() -> None:
    options = TaskOptions(attempts=9)
    world = World(cores=2)
    world(ready(1, options=options))
    for number in (1, 2):
        world(grant(number))
        world(Tick(), number - 0.5)
        world(finished(number, bad(1, number)), float(number))
    assert world.do(Tick(), 2.2) == [submit(1, (1, 3), options=options)]


def test_no_task_waits_for_ever_for_another_resource() -> None:
    world = World(cores=2)
    world(ready(1, options=TWICE))
    world(grant(1))
    world(finished(1, bad(1)), 2.0)
    world(Tick(), 2.1)
    assert world.scheduler.deadline() == 3.1
    assert world.do(Tick(), 3.1) == [submit(1, (1, 2), options=TWICE), demand(0, 1)]


def test_others_are_not_kept_waiting_by_a_task_that_waits_for_another_resource() -> None:
    world = World(cores=2)
    world(ready(1, options=TWICE))
    world(grant(1))
    world(finished(1, bad(1)), 2.0)
    world(Tick(), 2.1)
    assert world.do(ready(2)) == [submit(1, (2, 1))]


def test_a_delayed_task_can_be_cancelled() -> None:
    world = World()
    world(ready(1, options=TWICE))
    world(grant(1))
    world(finished(1, bad(1)), 2.0)
    assert world.do(CancelTasks((1,))) == [done(1, CANCELLED, Outcome(1, 1, Reason.CANCELLED))]
    assert world.scheduler.deadline() is None
    assert world(Tick(), 99.0) == []


def test_a_lost_task_waits_for_another_resource_if_there_may_be_one() -> None:
    world = World(cores=2)
    world(ready(1))
    world(grant(1))
    assert world.do(finished(1, ended(1, Reason.LOST, error=GONE)), 2.0) == [demand(1, 1)]
    assert world.do(Tick(), 3.0) == [submit(1, (1, 2)), demand(0, 1)]


def test_a_task_that_is_bound_to_a_resource_does_not_wait_for_another() -> None:
    world = World(cores=2)
    bound = Shape((Requirement("core", ("r1.core1",), hard=True),))
    world(ready(1, shape=bound))
    world(grant(1, shape=bound))
    assert world.do(finished(1, ended(1, Reason.LOST, error=GONE)), 2.0) == [submit(1, (1, 2))]


def test_a_worker_that_has_taken_tasks_again_may_refuse_as_often_as_before() -> None:
    world = World(cores=1, retry=Retry(refusals_max=1))
    world(ready(1))
    world(grant(1))
    world(finished(1, ended(1, Reason.RETURNED, 1, REFUSED)), 1.0)
    world(Tick(), 1.01)
    world(finished(1, ok(1, 2)))
    world(ready(2))
    assert world.do(finished(1, ended(2, Reason.RETURNED, 1, REFUSED))) == [demand(1, 1)]


def test_a_cancelled_task_that_failed_can_be_retried_and_cancelled_again() -> None:
    world = World(cores=1)
    world(ready(1))
    world(grant(1))
    world(CancelTasks((1,)))
    world(finished(1, bad(1)))
    assert world.do(RetryTask(1)) == [submit(1, (1, 2))]
    assert world.do(CancelTasks((1,))) == [cancel(1, (1, 2))]


def test_a_lost_task_is_tried_again_at_once_elsewhere() -> None:
    world = World(cores=2)
    world(ready(1))
    world(grant(1))
    world(grant(2))
    assert world(finished(1, ended(1, Reason.LOST, error=GONE)), 2.0) == [
        changed(2.0, 1, READY, 1, 0, "lost: process 17 was killed"),
        submit(2, (1, 2)),
        changed(2.0, 1, RUNNING, 2, 2),
    ]


def test_a_task_that_is_lost_too_often_has_failed() -> None:
    world = World(cores=1)
    world(ready(1))
    world(grant(1))
    for attempt in (1, 2):
        assert world.do(finished(1, ended(1, Reason.LOST, attempt, GONE))) == [submit(1, (1, attempt + 1))]
    lost = TaskError("lost", "task 1 was lost 3 times, the last time: process 17 was killed")
    assert world.do(finished(1, ended(1, Reason.LOST, 3, GONE))) == [
        done(1, FAILED, ended(1, Reason.LOST, 3, lost), 1)
    ]


def test_failures_and_losses_are_counted_apart() -> None:
    world = World(cores=1)
    world(ready(1, options=TWICE))
    world(grant(1))
    world(finished(1, ended(1, Reason.LOST, 1, GONE)))
    world(finished(1, ended(1, Reason.LOST, 2, GONE)))
    world(finished(1, bad(1, 3)))
    assert world.scheduler.state_of(1) is READY


def test_a_task_that_may_not_run_again_fails_as_unknown_when_it_is_lost() -> None:
    world = World()
    world(ready(1, options=ONCE_ONLY))
    world(grant(1))
    unknown = TaskError("unknown", "it may have run, and must not run again: process 17 was killed")
    assert world.do(finished(1, ended(1, Reason.LOST, error=GONE))) == [
        done(1, FAILED, ended(1, Reason.LOST, error=unknown), 1)
    ]


def test_a_task_that_somebody_else_ended_is_lost() -> None:
    world = World()
    world(ready(1, options=ONCE_ONLY))
    world(grant(1))
    unknown = TaskError("unknown", "it may have run, and must not run again: process 17 was killed")
    assert world.do(finished(1, ended(1, Reason.CANCELLED, error=GONE))) == [
        done(1, FAILED, ended(1, Reason.LOST, error=unknown), 1)
    ]


def test_a_task_that_may_not_run_again_runs_again_when_it_had_not_begun() -> None:
    world = World()
    world(ready(1, options=ONCE_ONLY))
    world(grant(1))
    assert world.do(finished(1, ended(1, Reason.RETURNED))) == [submit(1, (1, 2), options=ONCE_ONLY)]


def test_only_the_running_task_pays_for_a_lapsed_grant() -> None:
    world = World(cores=2)
    world.measured()
    world(ready(1, 2, 3, options=TaskOptions(loss_attempts=1)))
    lost = TaskError("lost", "task 1 was lost once, the last time: r1.core1 was removed")
    assert world(Lapsed(JOB, ((1, 1), (9, 9)), "r1.core1 was removed"), 5.0) == [
        done(1, FAILED, ended(1, Reason.LOST, error=lost), 1),
        changed(5.0, 1, FAILED, 1, 1, f"lost: {lost.message}"),
        changed(5.0, 2, READY, 0, 0, "returned: r1.core1 was removed"),
        changed(5.0, 3, READY, 0, 0, "returned: r1.core1 was removed"),
        held(5.0, 1, False),
        demand(2, 1),
    ]
    assert world.do(finished(1, ok(2), ok(3))) == []
    assert world.scheduler.statistics().stale == 2


def test_what_is_on_a_lost_resource_runs_elsewhere_and_its_grant_rests_until_the_manager_speaks() -> None:
    world = World(cores=2)
    world(ready(1, 2))
    world(grant(1))
    world(grant(2))
    assert world(ResourcesLost(("r1.core1",), "host h: gone"), 5.0) == [
        changed(5.0, 1, READY, 1, 0, "lost: r1.core1: host h: gone"),
        demand(1, 2),
    ]
    outcome = ok(2, duration_s=1.0)
    assert world.do(finished(2, outcome)) == [done(2, FINISHED, outcome, 2), submit(2, (1, 2)), demand(0, 2)]
    assert world.do(ready(3)) == [demand(1, 2)]
    assert world(Lapsed(JOB, ((1, 1),), "gone"), 6.0) == [held(6.0, 1, False)]


def test_a_grant_whose_resource_was_lost_and_is_back_is_given_back() -> None:
    world = World(cores=1)
    world(ready(1))
    world(grant(1))
    world(ResourcesLost(("r1.core1",), "connection lost"))
    assert world.do(ResourcesUp((Resource("r1.core1", "core"),))) == [release(1)]
    assert world.do(grant(2, 1)) == [submit(2, (1, 2), at=1)]
    assert world.do(ResourcesUp((Resource("r1.core1", "core"),))) == []


def test_losses_while_stopping_end_the_job() -> None:
    world = World(cores=2)
    world(ready(1, 2))
    world(grant(1))
    world(grant(2))
    world(Stop("enough"))
    outcome = ended(1, Reason.CANCELLED)
    assert world.do(ResourcesLost(("r1.core1",), "gone")) == [done(1, CANCELLED, outcome, 1), release(1)]
    outcome = ended(2, Reason.CANCELLED)
    assert world.do(Lapsed(JOB, ((1, 2),), "gone")) == [done(2, CANCELLED, outcome, 2), Stopped()]


def test_what_fate_returns_uses_up_nothing_and_in_the_end_runs_alone() -> None:
    world = World(cores=1, retry=Retry(returns_free=1))
    world.measured()
    fate = TaskError("fate", "another task failed")
    world(ready(1, 2, 3))
    assert world.do(finished(1, bad(1), ended(2, Reason.RETURNED, 1, fate))) == [
        done(1, FAILED, bad(1), 1),
        demand(1, 1),
    ]
    assert world.do(finished(1, ok(3))) == [done(3, FINISHED, ok(3), 1), submit(1, (2, 2)), demand(0, 1)]
    assert world.do(ready(4)) == [demand(1, 1)]


def test_what_lacks_data_that_is_being_made_again_waits_for_as_long_as_that_takes() -> None:
    world = World(cores=1, retry=Retry(returns_max=3, longest_delay_s=0.4))
    lacking = TaskError("awaited", "data d1 was lost")
    world(ready(1))
    world(grant(1))
    for attempt, delay_s in enumerate((0.1, 0.2, 0.4, 0.4, 0.4), 1):
        begun_s = world.now
        assert world(finished(1, ended(1, Reason.RETURNED, attempt, lacking))) == [
            changed(begun_s, 1, READY, 0, 0, "waits: data d1 was lost")
        ]
        times = f"{attempt} times without data that is being made again"
        assert f"tried again in {delay_s} s, after {times}" in world.scheduler.explain(1)
        assert world.do(Tick(), begun_s + 0.9 * delay_s) == []
        assert world.do(Tick(), begun_s + delay_s) == [submit(1, (1, attempt + 1))]
    assert world.do(Restored()) == []
    assert world.do(finished(1, ended(1, Reason.RETURNED, 6, lacking))) == []
    assert world.do(Restored()) == [submit(1, (1, 7))]
    assert world.do(finished(1, ok(1, 7))) == [done(1, FINISHED, ok(1, 7), 1, given_back=6)]
    assert world.scheduler.deadline() is None


def test_what_workers_keep_giving_back_fails_in_the_end() -> None:
    world = World(cores=1, retry=Retry(returns_free=1, returns_max=3))
    world(ready(1))
    world(grant(1))
    world(finished(1, ended(1, Reason.RETURNED, 1)))
    assert world.do(finished(1, ended(1, Reason.RETURNED, 2)), 1.0) == []
    world(Tick(), 1.1)
    message = "workers gave it back 3 times, the last time: its worker gave it back"
    outcome = ended(1, Reason.RETURNED, 3, TaskError("refused", message))
    assert world.do(finished(1, ended(1, Reason.RETURNED, 3))) == [done(1, FAILED, outcome, 1, given_back=2)]


def test_a_grant_that_its_worker_refuses_rests_and_is_tried_again() -> None:
    world = World(cores=1)
    world(ready(1))
    world(grant(1))
    refused = finished(1, ended(1, Reason.RETURNED, 1, REFUSED))
    assert world(refused, 1.0) == [changed(1.0, 1, READY, 0, 0, f"refused: {REFUSED.message}"), demand(1, 1)]
    assert "1 are refused" in world.scheduler.explain(1)
    assert world.scheduler.deadline() == 1.01
    assert world.do(Tick(), 1.01) == [submit(1, (1, 2)), demand(0, 1)]


def test_a_grant_that_its_worker_keeps_refusing_goes_back() -> None:
    world = World(cores=1, retry=Retry(refusals_max=1))
    world(ready(1))
    world(grant(1))
    world(finished(1, ended(1, Reason.RETURNED, 1, REFUSED)), 1.0)
    world(Tick(), 1.01)
    assert world.do(finished(1, ended(1, Reason.RETURNED, 2, REFUSED))) == [release(1), demand(1, 1)]


def test_a_resting_grant_can_be_recalled() -> None:
    world = World(cores=1)
    world(ready(1))
    world(grant(1))
    world(finished(1, ended(1, Reason.RETURNED, 1, REFUSED)), 1.0)
    assert world.do(Recall(JOB, ((1, 1),))) == [release(1)]
    assert world.scheduler.deadline() is None


def test_a_cancelled_task_that_is_returned_or_lost_is_cancelled() -> None:
    world = World(cores=2)
    world(ready(1, 2))
    world(grant(1))
    world(grant(2))
    assert world.do(CancelTasks((1, 2))) == [cancel(1, (1, 1)), cancel(2, (2, 1))]
    outcome = ended(1, Reason.CANCELLED)
    assert world.do(finished(1, ended(1, Reason.RETURNED))) == [done(1, CANCELLED, outcome, 1)]
    outcome = ended(2, Reason.CANCELLED)
    assert world.do(finished(2, ended(2, Reason.LOST, error=GONE))) == [done(2, CANCELLED, outcome, 2)]


def test_a_failed_task_gets_new_attempts_on_request() -> None:
    world = World(cores=1)
    world(ready(1, options=TWICE))
    world(grant(1))
    world(finished(1, bad(1)), 1.0)
    world(Tick(), 2.0)
    world(finished(1, bad(1, 2)))
    assert world.scheduler.live == 0
    assert world.do(RetryTask(1)) == [submit(1, (1, 3), options=TWICE)]
    assert world.scheduler.status()[FAILED] == 0
    world(finished(1, bad(1, 3)), 3.0)
    world(Tick(), 4.0)
    assert world.do(finished(1, ok(1, 4))) == [done(1, FINISHED, ok(1, 4), 1)]


def test_a_retry_that_crosses_stop_ends_cancelled() -> None:
    world = World()
    world(ready(1))
    world(grant(1))
    world(finished(1, bad(1)))
    world(Stop("enough"))
    assert world.do(RetryTask(1)) == [done(1, CANCELLED, Outcome(1, 1, Reason.CANCELLED))]


def test_a_failure_without_an_error_says_so() -> None:
    world = World()
    world(ready(1))
    world(grant(1))
    actions = world(finished(1, ended(1, Reason.FAILED)), 1.0)
    assert actions[1] == changed(1.0, 1, FAILED, 1, 1, "unknown: the task failed without saying why")
    assert BOOM.kind not in str(actions)


def test_a_cancelled_task_behind_another_ends_when_their_resource_is_lost() -> None:
    world = World(cores=1)
    world.measured()
    submitted = world.do(ready(1, 2))
    assert [one for action in submitted for one in getattr(action, "submissions", ())], submitted
    assert world.scheduler.state_of(2) is SUBMITTED
    world(CancelTasks((2,)))
    ends = [action for action in world(ResourcesLost((core(1),), "gone")) if isinstance(action, TaskDone)]
    assert [(end.task_id, end.state) for end in ends] == [(2, CANCELLED)]
    assert world.scheduler.state_of(1) is READY


def test_a_grant_that_has_lost_any_part_is_not_used() -> None:
    world = World(cores=3)
    world(ready(1, shape=GANG))
    world(grant(1, 1, 2, shape=GANG))
    assert cancel(1, (1, 1)) in world.do(ResourcesLost((core(2),), "gone"))
    assert not [action for action in world.do(ready(2, shape=GANG)) if isinstance(action, Submit)]
    assert world.scheduler.state_of(2) is READY
