"""The invariants of a scheduler's state."""

from __future__ import annotations

from gspc_trio.components.job.scheduler import behind
from gspc_trio.components.job.scheduler.grants import priority_of
from gspc_trio.components.job.scheduler.run_times import TRIED_SHARE
from gspc_trio.components.job.scheduler.state import (
    SHAPES_MAX,
    AskedBack,
    Held,
    SchedulerState,
    ShapeQueue,
    TaskPlace,
)
from gspc_trio.components.job.scheduler.ties import waits
from gspc_trio.core.ids import host_name


def check_state(state: SchedulerState) -> None:
    """Assert every invariant."""
    assert not any((state.actions, state.again, state.touched, state.turned, state.filled)), (
        "an event was left unfinished"
    )
    _check_tasks(state)
    for held in state.grants.values():
        _check_grant(state, held)
    for queue in state.queues.values():
        _check_queue(state, queue)
    host, its_resources = state.of_host
    known = {name for name in state.known if host_name(name) == host}
    assert not host or its_resources == known, "a host has other resources than it is thought to have"
    _check_sums(state)
    _check_variants(state)
    behind.check(state)


def _check_tasks(state: SchedulerState) -> None:
    assert state.tasks.keys().isdisjoint(state.failed), "a task is both live and failed"
    for task_id, entry in state.tasks.items():
        assert entry.task.task_id == task_id, "a task is filed under another id"
        assert state.queues.get(entry.queue.shape) is entry.queue, "a live task has no queue"
        in_waiting = entry in entry.queue.waiting
        in_elsewhere = entry.queue.elsewhere.get(task_id) is entry
        in_sent = entry.held is not None and entry.held.sent.get(task_id) is entry
        assert in_waiting == (entry.place is TaskPlace.WAITING), "waiting tasks and their queue disagree"
        assert in_elsewhere == (entry.place is TaskPlace.ELSEWHERE), (
            "those for elsewhere and their queue disagree"
        )
        assert in_sent == (entry.place is TaskPlace.SENT), "submitted tasks and their grant disagree"
        assert (entry.held is not None) == in_sent, "a task that is not submitted has a grant"
        assert len(entry.lost_at) <= entry.losses, "a host was charged with a loss that does not count"
        timed = entry.place in (TaskPlace.DELAYED, TaskPlace.ELSEWHERE)
        assert timed == (entry.timer != 0), "a delayed task has no timer, or another one has"
        assert in_sent or entry.asked is AskedBack.NO, "a task that is not submitted was asked back"
    numbers = {number for _, number, whose in state.timers if whose.timer == number}
    wanted = {entry.timer for entry in state.tasks.values() if entry.timer}
    wanted |= {held.timer for held in state.grants.values() if held.timer}
    assert numbers == wanted, "a timer is missing or left over"


def _check_grant(state: SchedulerState, held: Held) -> None:
    queue = held.queue
    assert queue.grants.get(held.grant_id) is held, "a grant is not in its queue"
    assert state.queues.get(queue.shape) is queue, "a grant belongs to a queue that is gone"
    assert held.grant_id <= state.seen, "a grant is newer than the newest seen"
    assert not (held.lost and held.sent), "a grant that lost a resource has tasks"
    assert held.up or not held.sent, "tasks are submitted to a resource that is not up"
    assert held.sent or not held.leaving, "a recalled grant without tasks was kept"
    assert held.head() is held.announced, "the running task was not announced"
    assert len(held.sent) == 1 or not any(entry.alone for entry in held.sent.values()), "a task is not alone"
    sent = held.sent.values()
    for at in {entry.task.shape.at for entry in sent} - {""}:
        assert held.resource_id.startswith(f"{at}/"), f"a task that is bound to {at} is at {held.resource_id}"
    stuck = [it for it in sent if it.asked is AskedBack.NO and not (it.begun or waits(it))]
    number = len(stuck) - (held.head() in stuck) if held.slow else 0
    assert held.stuck == number, "tasks behind a slow one are miscounted"
    assert held.level == (len(held.sent) if held.usable else -1), "a grant stands on the wrong level"
    if held.level >= 0:
        assert held in queue.levels.by_count[held.level], "a grant is not on its level"


def _check_queue(state: SchedulerState, queue: ShapeQueue) -> None:
    assert queue.tasks or queue.grants, "a queue without tasks and grants was kept"
    assert queue.sent == sum(len(held.sent) for held in queue.grants.values()), "submitted tasks"
    assert queue.levels.size == sum(held.usable for held in queue.grants.values()), "usable grants"
    assert all(queue.levels.by_count.values()), "an empty level was kept"
    assert queue.stuck == sum(held.stuck for held in queue.grants.values()), "tasks behind slow ones"
    awaited = sum(
        entry.asked is AskedBack.AWAITED for held in queue.grants.values() for entry in held.sent.values()
    )
    assert queue.awaited == awaited, "tasks asked back are miscounted"
    wanted = state.look_ahead.credit(queue.wanted) if queue.live and state.stopping is None else 0
    assert not state.look_ahead.worth_telling(queue.told, wanted), "the RM was not told"
    if wanted and queue.unserved and len(state.queues) > 1:
        assert queue.told_priority == priority_of(state, queue), "the RM was not told of a priority"
    queue.waiting.check()
    assert queue.live != (state.dormant.get(queue.shape) is queue), "a dormant queue is live"
    if queue.waiting and state.stopping is None:
        idle = queue.levels.by_count.get(0)
        assert not idle, "a task waits while a grant that could run it is idle"


def _check_sums(state: SchedulerState) -> None:
    assert set(state.grants) == {grant_id for queue in state.queues.values() for grant_id in queue.grants}
    delayed = sum(one.place in (TaskPlace.DELAYED, TaskPlace.BEHIND) for one in state.tasks.values())
    assert delayed == sum(queue.delayed for queue in state.queues.values()), "delayed tasks are miscounted"
    assert sum(queue.tasks for queue in state.queues.values()) == len(state.tasks), "tasks are miscounted"
    assert len(state.queues) - len(state.dormant) <= SHAPES_MAX, "too many shapes are live"
    live_idle = any(queue.live and not queue.tasks for queue in state.queues.values())
    assert not (state.dormant and live_idle), "a shape waits while another needs nothing"
    for held in state.by_resource.values():
        assert state.grants.get(held.grant_id) is held, "a resource has an old grant"
    if state.stopping is not None:
        for entry in state.tasks.values():
            goes_on = state.draining and entry.held
            behind_one = waits(entry)  # with which it ends
            assert entry.cancelling or goes_on or behind_one, "a task goes on after Stop"
        assert all(held.sent for held in state.grants.values()), "a stopping job keeps an idle grant"
        assert state.stopped or state.tasks or state.grants, "Stopped was not said"
    if state.plans is not None:
        state.plans.check(state, {host_name(name) for name in state.evacuated})


def _check_variants(state: SchedulerState) -> None:
    """Assert that each task with variants goes one of its ways, and that this way's class has its work."""
    live = {task_id for task_id, entry in state.tasks.items() if entry.task.variants is not None}
    assert live <= state.choices.keys() <= live | state.failed.keys(), "choices and tasks differ"
    work_s: dict[str, float] = {}
    for task_id, choice in state.choices.items():
        assert (choice.way is not None) == (task_id in live), "a task has no way, or one that has ended has"
        if choice.way is None:
            continue
        task, variants = state.tasks[task_id].task, choice.task.variants
        assert variants is not None, "a task without variants has a choice"
        way = variants.ways[choice.way]
        its_class = way.shape.requirements[0].resource_class
        assert task.code_id == way.code_id, "a task has the code of another variant"
        assert task.arguments == way.leading + choice.task.arguments, "a task has other arguments"
        assert state.tasks[task_id].queue.resource_class == its_class, "a task waits for another class"
        assert choice.way not in choice.refused, "a task goes a way that was refused"
        work_s[its_class] = work_s.get(its_class, 0.0) + choice.work_s
        assert choice.trial is None or state.trying.get(choice.trial) == task_id, "two tasks try the same"
    trials = {task_id for task_id, choice in state.choices.items() if choice.trial is not None}
    assert sorted(state.trying.values()) == sorted(trials), "what is tried, and who tries it, differ"
    for tally in state.tallies.values():
        assert 0 <= tally.trials <= TRIED_SHARE * tally.tasks, "too many tasks try a variant"
    for its_class in work_s.keys() | state.variant_work.keys():
        work = state.variant_work.get(its_class)
        there = sum(
            entry.task.variants is not None and entry.queue.resource_class == its_class
            for entry in state.tasks.values()
        )
        assert (work.tasks if work else 0) == there, "tasks with variants are miscounted"
        assert abs((work.seconds if work else 0.0) - work_s.get(its_class, 0.0)) < 1e-3, "work is missummed"
