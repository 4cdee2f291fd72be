"""Work ahead: how much goes to which grant, and what is taken back."""

from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    ResourcesLost,
    ResourcesUp,
    TasksReady,
)
from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import Lapsed, Recall
from gspc_trio.components.worker.messages import Begun, Cancel, Submission, Submit, TakeBack
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Reason, Shape, TaskOptions
from tests.components.job.scheduler.support import (
    CANCELLED,
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
    ok,
    ready,
    release,
    submit,
    take_back,
    task,
)

ONCE_ONLY = TaskOptions(may_rerun=False)
STAGED = TaskOptions(stage_in=True, stage_out=True)


def pairs(*task_ids: int) -> list[tuple[int, int]]:
    return [(task_id, 1) for task_id in task_ids]


def sizes(actions: list[object]) -> dict[str, int]:
    """Number of tasks submitted to each resource."""
    counts: dict[str, int] = {}
    for action in actions:
        if isinstance(action, Submit):
            counts[action.resources[0]] = counts.get(action.resources[0], 0) + len(action.submissions)
    return counts


def test_an_unknown_code_is_sent_one_by_one_and_then_more_and_more() -> None:
    world = World(cores=1)
    world(ready(*range(1, 101)))
    sent = [sizes(world.do(grant(1)))]
    following = 1
    for _ in range(5):
        number = sent[-1][core(1)]
        outcomes = [ok(n, duration_s=1e-6) for n in range(following, following + number)]
        following += number
        sent.append(sizes(world.do(finished(1, *outcomes))))
    assert [n[core(1)] for n in sent] == [1, 2, 6, 18, 54, 19]


def test_work_ahead_is_about_two_milliseconds() -> None:
    world = World(cores=1)
    world.measured(1e-4)
    actions = world.do(ready(*range(1, 101)))
    assert sizes(actions) == {core(1): 20}
    assert actions[1:] == [demand(80, 1)]


def test_a_worker_is_filled_by_the_half() -> None:
    world = World(cores=1)
    world.measured(1e-4)
    world(ready(*range(1, 101)))
    assert sizes(world.do(finished(1, *(ok(n, duration_s=1e-4) for n in range(1, 10))))) == {}
    assert sizes(world.do(finished(1, *(ok(n, duration_s=1e-4) for n in (10, 11))))) == {core(1): 11}


def test_long_tasks_are_not_sent_ahead() -> None:
    world = World(cores=1)
    world.measured(1.0, tasks=3)
    assert world.do(ready(1, 2)) == [submit(1, (1, 1)), demand(1, 1)]


def test_work_ahead_is_spread_evenly() -> None:
    world = World(cores=3)
    world.measured(grants=3, tasks=1000)
    assert world.do(ready(*range(1, 9))) == [
        submit(1, *pairs(1, 2, 3)),
        submit(2, *pairs(4, 5, 6)),
        submit(3, *pairs(7, 8)),
    ]


def test_work_is_kept_for_grants_that_may_come_soon() -> None:
    world = World(cores=4)
    world.measured()
    world(Recall(JOB, ((1, 1),)))
    world(ready(*range(1, 9)))
    world.now += 1.0
    assert sizes(world.do(grant(2))) == {core(2): 2}
    assert sizes(world.do(grant(3))) == {core(3): 2}
    outcomes = [ok(n, duration_s=1e-6) for n in (1, 2)]
    assert sizes(world.do(finished(2, *outcomes), world.now + 1.0)) == {core(2): 3, core(3): 1}


def test_an_idle_worker_gets_part_of_what_another_one_has() -> None:
    world = World(cores=2)
    world.measured(1e-4)
    world(ready(*range(1, 11)))
    assert world.do(grant(2)) == [take_back(1, *pairs(7, 8, 9, 10))]
    returned = [ended(n, Reason.RETURNED) for n in (7, 8, 9, 10)]
    assert world.do(finished(1, *returned)) == [submit(2, (7, 2), (8, 2), (9, 2), (10, 2))]


def test_what_comes_back_keeps_its_order_before_the_others() -> None:
    world = World(cores=2)
    world.measured(1e-4)
    world(ready(*range(1, 7)))
    world(grant(2))
    returned = finished(1, ended(6, Reason.RETURNED), ended(5, Reason.RETURNED))
    assert world(returned) == [
        changed(world.now, 6, READY, 0, 0, "taken back"),
        changed(world.now, 5, READY, 0, 0, "taken back"),
        submit(2, (6, 2), (5, 2)),
        changed(world.now, 6, RUNNING, 1, 2),
        changed(world.now, 5, SUBMITTED, 1, 2),
    ]
    assert world.scheduler.statistics().taken_back == 2


def test_little_work_is_not_moved() -> None:
    world = World(cores=2)
    world.measured(1e-6)
    world(ready(1, 2, 3))
    assert world.do(grant(2)) == []


def test_work_is_asked_back_once() -> None:
    world = World(cores=3)
    world.measured(1e-3)
    world(ready(1, 2))
    assert world.do(grant(2)) == [take_back(1, (2, 1))]
    assert world.do(grant(3)) == []
    assert world.do(finished(1, ok(1), ok(2))) == [done(1, FINISHED, ok(1), 1), done(2, FINISHED, ok(2), 1)]
    assert world.do(ready(3)) == [submit(1, (3, 1))]


def test_a_lone_task_goes_to_the_idle_worker_that_has_worked_last() -> None:
    world = World(cores=3)
    world.measured(1e-3, grants=3)
    world(ready(1, 2, 3))
    for number, task_id in ((2, 2), (3, 3), (1, 1)):
        world(finished(number, ok(task_id)))
    assert world.do(ready(4)) == [submit(1, (4, 1))]
    assert world.do(ready(5, 6)) == [submit(2, (5, 1)), submit(3, (6, 1))]


def test_no_more_is_asked_back_than_there_are_idle_workers() -> None:
    world = World(cores=4)
    world.measured(1e-3, grants=3)
    world(ready(*range(1, 7)))
    assert world.do(grant(4)) == [take_back(1, (2, 1))]
    assert world.do(finished(2, ok(3))) == [done(3, FINISHED, ok(3), 2)]
    assert world.do(finished(1, ended(2, Reason.RETURNED))) == [submit(4, (2, 2))]


def test_what_was_asked_back_in_vain_keeps_nobody_from_asking_others() -> None:
    world = World(cores=3)
    world.measured(1e-3)
    world(ready(1, 2))
    assert world.do(grant(2)) == [take_back(1, (2, 1))]
    world(finished(1, ok(1)))
    world(ready(3, 4))
    assert world.do(grant(3)) == [take_back(2, (4, 1))]


def test_a_lapse_settles_what_was_asked_back() -> None:
    world = World(cores=1)
    world.measured()
    world(ready(1, 2, 3))
    world(Recall(JOB, ((1, 1),)))
    assert world.do(Lapsed(JOB, ((1, 1),), "gone")) == [demand(3, 1)]


def test_codes_that_finish_together_are_measured_apart() -> None:
    world = World(cores=1)
    world.measured()
    world(TasksReady((task(1), task(2, code_id=2))))
    world(finished(1, ok(1, duration_s=3e-6)))
    world(TasksReady((task(3), task(4))))
    world(finished(1, ok(2, duration_s=7.0), ok(3, duration_s=3e-6), ok(4, duration_s=3e-6)))
    times = {code: time.average_s for (_, code), time in world.scheduler._state.times.items()}
    assert times[2] == 7.0
    assert times[1] < 4e-6


def test_a_recall_takes_back_what_has_not_begun() -> None:
    world = World(cores=1)
    world.measured()
    world(ready(1, 2, 3))
    assert world.do(Recall(JOB, ((1, 1),))) == [take_back(1, (2, 1), (3, 1))]
    assert world.do(finished(1, ended(2, Reason.RETURNED), ended(3, Reason.RETURNED))) == [demand(2, 1)]
    assert world.do(finished(1, ok(1))) == [done(1, FINISHED, ok(1), 1), release(1)]


def test_what_began_before_a_recall_reached_it_is_finished_there() -> None:
    world = World(cores=1)
    world.measured()
    world(ready(1, 2))
    world(Recall(JOB, ((1, 1),)))
    assert world.do(finished(1, ok(1))) == [done(1, FINISHED, ok(1), 1)]
    assert world.scheduler.is_running(2)
    assert world.do(finished(1, ok(2))) == [done(2, FINISHED, ok(2), 1), release(1)]


def test_a_task_that_runs_unexpectedly_long_keeps_no_others_waiting() -> None:
    world = World(cores=1)
    world.measured()
    start = world.now
    world(ready(1, 2, 3))
    assert world.scheduler.deadline() == start + 0.1
    assert world.do(Tick(), start + 0.1) == []
    assert world.scheduler.deadline() == start + 0.1 + 0.1
    assert world.do(Tick(), start + 0.3) == [take_back(1, (2, 1), (3, 1))]
    assert world.scheduler.deadline() is None
    assert world.do(finished(1, ended(2, Reason.RETURNED), ended(3, Reason.RETURNED))) == [demand(2, 1)]
    assert world.do(ready(4)) == []
    assert sizes(world.do(finished(1, ok(1, duration_s=1e-6)))) == {core(1): 3}


def test_a_task_that_may_not_run_again_is_sent_alone() -> None:
    world = World(cores=1)
    world.measured()
    world(TasksReady((task(1), task(2, ONCE_ONLY), task(3), task(4))))
    assert world.scheduler.state_of(1) is RUNNING
    assert [world.scheduler.state_of(n) for n in (2, 3, 4)] == [READY] * 3
    assert world.do(finished(1, ok(1, duration_s=0.0))) == [
        done(1, FINISHED, ok(1, duration_s=0.0), 1),
        submit(1, (2, 1), options=ONCE_ONLY),
    ]
    assert world.scheduler.state_of(3) is READY
    assert sizes(world.do(finished(1, ok(2, duration_s=0.0)))) == {core(1): 2}


def test_a_slow_code_does_not_hide_behind_a_fast_one() -> None:
    world = World(cores=1)
    world.measured(1e-6)
    slow = tuple(task(n, code_id=2) for n in range(1, 4))
    world(TasksReady(slow))
    for n in (1, 2, 3):
        world(finished(1, ok(n, duration_s=0.05)))
    world(TasksReady((task(4, code_id=2), *(task(n) for n in range(5, 10)))))
    assert [world.scheduler.state_of(n) for n in (4, 5, 6)] == [RUNNING, SUBMITTED, READY]


def staging(*task_ids: int, cores: int = 1) -> World:
    """Tasks that stage data are there, and one grant; nothing is known of how long they take."""
    world = World(cores=cores)
    world(ready(*task_ids, options=STAGED))
    world(grant(1))
    world(Tick(), world.now + 0.1)
    return world


def test_a_staging_task_is_overlapped_with_three_others_from_the_first_one_on() -> None:
    world = staging(1, 2, 3, 4, 5)
    states = [world.scheduler.state_of(n) for n in range(1, 6)]
    assert states == [RUNNING, SUBMITTED, SUBMITTED, SUBMITTED, READY]
    world(finished(1, ok(1, duration_s=60.0)))
    assert world.scheduler.state_of(5) is SUBMITTED


def test_what_overlaps_stays_however_long_the_running_task_takes() -> None:
    world = staging(*range(1, 9))
    for _ in range(100):
        assert not [one for one in world(Tick(), world.now + 0.1) if isinstance(one, TakeBack)]
    assert sizes(world.do(finished(1, ok(1)))) == {core(1): 1}
    assert world.scheduler.statistics().taken_back == 0


def test_of_short_staging_tasks_only_those_stay_that_overlap_with_a_long_one() -> None:
    world = World(cores=1)
    world(ready(*range(1, 101), options=STAGED))
    world(grant(1))
    while world.scheduler.live:
        entries = list(world.scheduler._state.tasks.values())
        world(finished(1, *(ok(e.task.task_id, duration_s=1e-4) for e in entries if e.held)))
    world(ready(*range(201, 301), options=STAGED))
    sent = [n for n in range(201, 301) if world.scheduler.state_of(n) is not READY]
    assert len(sent) > 10
    world(Tick(), world.now + 0.11)
    actions = world.do(Tick(), world.now + 0.11)
    assert actions[0] == take_back(1, *pairs(*sent[4:]))


def test_what_waits_behind_a_long_task_asks_for_other_resources_and_goes_there() -> None:
    world = staging(1, 2, 3, 4, cores=2)
    world(Tick(), world.now + 0.1)
    assert world.do(Begun(JOB, core(1), 2, 1), world.now + 0.1) == []
    assert world.scheduler._state.queues[CORE].wanted == 2, "3 and 4"
    assert world.do(grant(2)) == [take_back(1, (4, 1)), demand(1, 2)]
    assert world.do(finished(1, ended(4, Reason.RETURNED))) == [submit(2, (4, 2), options=STAGED)]
    assert world.do(Begun(JOB, core(1), 3, 1)) == [demand(0, 2)]


def test_what_has_begun_is_not_asked_back() -> None:
    world = staging(1, 2, 3, 4)
    world(Begun(JOB, core(1), 1, 1))
    world(Begun(JOB, core(1), 2, 1))
    assert world.do(Recall(JOB, ((1, 1),))) == [take_back(1, (3, 1), (4, 1))]


def test_what_was_asked_back_and_has_begun_is_no_longer_awaited() -> None:
    world = staging(1, 2)
    world(Recall(JOB, ((1, 1),)))
    assert world.scheduler._state.queues[CORE].awaited == 1
    world(Begun(JOB, core(1), 2, 1))
    assert world.scheduler._state.queues[CORE].awaited == 0


def test_news_of_what_is_no_longer_there_changes_nothing() -> None:
    world = staging(1, 2)
    assert world(Begun(JOB, core(1), 7, 1)) == world(Begun(JOB, core(1), 2, 9)) == []
    world(finished(1, ok(2)))
    assert world(Begun(JOB, core(1), 2, 1)) == []


def test_work_that_was_kept_for_grants_is_sent_when_they_do_not_come() -> None:
    world = World(cores=16)
    world(ready(*range(1, 5), options=STAGED))
    assert sizes(world.do(grant(1))) == {core(1): 1}, "others may follow at once"
    assert world.scheduler.deadline() == world.now + 0.1
    assert sizes(world.do(Tick(), world.now + 0.1)) == {core(1): 3}


def test_a_staged_task_costs_what_its_longest_phase_takes() -> None:
    world = staging(1, 2)
    world(finished(1, ok(1, duration_s=0.5, staged_s=(10.0, 12.0, 12.5, 13.0))))
    assert world.scheduler._state.times["core", 1].average_s == 2.0
    world(finished(1, ok(2, duration_s=0.5, staged_s=(0.0, 0.0, 12.5, 12.6))))
    assert world.scheduler._state.times["core", 1].average_s == 2.0 - 1.5 / 8


def test_a_cancelled_task_is_not_asked_back() -> None:
    world = World(cores=1)
    world.measured()
    world(ready(1, 2, 3))
    assert world.do(CancelTasks((2,))) == [cancel(1, (2, 1))]
    assert world.do(Recall(JOB, ((1, 1),))) == [take_back(1, (3, 1))]
    assert world.do(finished(1, ended(2, Reason.CANCELLED))) == [
        done(2, CANCELLED, ended(2, Reason.CANCELLED), 1)
    ]


def test_a_task_that_was_asked_back_can_be_cancelled() -> None:
    world = World(cores=1)
    world.measured()
    world(ready(1, 2))
    world(Recall(JOB, ((1, 1),)))
    assert world.do(CancelTasks((2,))) == [cancel(1, (2, 1))]
    assert world.do(finished(1, ended(2, Reason.RETURNED))) == [
        done(2, CANCELLED, ended(2, Reason.CANCELLED), 1)
    ]


# Several resources


def gang_submit(number: int, task_id: int, attempt: int = 1) -> Submit:
    cores = (core(1), core(2))
    return Submit(JOB, (1, number), cores, (Submission(task_id, attempt, 1),), "core")


def test_the_other_resources_of_a_co_allocation_are_held() -> None:
    world = World()
    world(ready(1, 2, shape=GANG))
    assert world.do(grant(1, 1, 2, shape=GANG)) == [
        Hold(JOB, (1, 1), (core(2),)),
        gang_submit(1, 1),
    ]


def test_a_task_with_several_resources_is_never_overlapped() -> None:
    world = World()
    world(ready(1, 2, 3, shape=GANG))
    world(grant(1, 1, 2, shape=GANG))
    actions = world.do(finished(1, ok(1, duration_s=1e-6)))
    assert [a for a in actions if isinstance(a, Submit)] == [gang_submit(1, 2)]


def test_losing_any_part_of_a_co_allocation_ends_the_attempt() -> None:
    world = World()
    world(ready(1, shape=GANG))
    world(grant(1, 1, 2, shape=GANG))
    assert world(ResourcesLost((core(2),), "gone"), 5.0) == [
        Cancel(JOB, core(1), ((1, 1),)),
        changed(5.0, 1, READY, 1, 0, f"lost: {core(2)}: gone"),
        demand(1, 1, GANG),
    ]
    assert world.do(finished(1, ended(1, Reason.CANCELLED))) == []
    assert world.do(Lapsed(JOB, ((1, 1),), "gone")) == []
    assert world.do(grant(2, 3, 4, shape=GANG))[1].resources == (core(3), core(4))


def test_a_co_allocation_is_held_only_when_all_of_it_is_up() -> None:
    world = World(cores=1)
    assert world.do(grant(1, 1, 2, shape=GANG)) == []
    assert world.do(ResourcesUp((Resource(core(2), "core"),))) == [Hold(JOB, (1, 1), (core(2),))]


def test_a_failed_task_with_several_resources_leaves_its_grant_to_the_next() -> None:
    world = World()
    world(ready(1, 2, shape=GANG))
    world(grant(1, 1, 2, shape=GANG))
    assert gang_submit(1, 2) in world.do(finished(1, bad(1)))


def test_estimates_share_queues() -> None:
    world = World()
    options = [TaskOptions(estimate_s=seconds) for seconds in (3.0, 4.0, 5.0)]
    actions = world.do(TasksReady(tuple(task(n, option) for n, option in enumerate(options, 1))))
    assert actions == [demand(2, shape=Shape(estimate_s=4.0)), demand(1, shape=Shape(estimate_s=8.0))]
