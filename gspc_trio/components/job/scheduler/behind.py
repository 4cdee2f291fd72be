"""The sending of tasks before they are ready: behind the one whose result they take, to the same worker.

A link of a chain would cost a round trip. So a task that waits for one task alone, which is the last that a
worker has, goes to that worker, too: the compute process has the result at hand. Those behind it follow, up
to the work that is sent ahead anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from gspc_trio.components.job.scheduler.ending import is_misplaced
from gspc_trio.components.job.scheduler.serve import UNMEASURED, ask_back, fill, submitted
from gspc_trio.components.job.scheduler.state import (
    AskedBack,
    Held,
    SchedulerState,
    TaskEntry,
    TaskPlace,
)
from gspc_trio.components.job.scheduler.tasks import move
from gspc_trio.components.job.scheduler.ties import waits
from gspc_trio.components.job.scheduler.waiting import Tie, rank_of
from gspc_trio.components.worker.messages import Submission
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import Task, TaskState
from gspc_trio.records.facts import TaskChanged

TRIES_AHEAD = 3
"""A task is sent ahead so often at most where tasks may overtake each other, and once where they may not."""


def send_behind(state: SchedulerState, held: Held) -> None:
    """Send tasks behind the last one under a grant, each of which takes the result of the one before."""
    enough_s = state.work_ahead.ahead_s / 2  # as in :mod:`serve`
    if held.work_s >= enough_s and len(held.sent) > 1:
        return  # mostly
    if not held.sent or not held.usable or held.slow:
        return
    last, queue = next(reversed(held.sent.values())), held.queue
    if last.alone or last.staged or last.cancelling or last.asked is not AskedBack.NO:
        return
    first = queue.waiting.first()
    rank = None if first is None else rank_of(first.task)
    count, work_s = len(held.sent), held.work_s
    submissions: list[Submission] = []
    code_id, at_least, at_most, cost_s = -1, 1, 1, 0.0
    while True:
        task = _follower(state, last)
        if task is None or not _may_follow(state, task, last, held) or (rank and rank_of(task) > rank):
            break
        if task.code_id != code_id:
            code_id = task.code_id
            time = state.times.get((queue.resource_class, code_id), UNMEASURED)
            cost_s = time.average_s
            at_least, at_most = state.work_ahead.depth(time.samples, cost_s, False)
        if count >= at_most or (count >= at_least and work_s >= enough_s):
            break
        last = _send(state, held, last, task, cost_s, submissions)
        count += 1
        work_s += cost_s
        enough_s = state.work_ahead.ahead_s
    if submissions:
        held.tied += len(submissions)
        submitted(state, held, held.head(), submissions, work_s)


def send_all(state: SchedulerState) -> None:
    """Send tasks behind the last ones of grants that have changed."""
    filled, state.filled = state.filled, {}
    if state.stopping is None and not state.ends:
        for held in filled:
            send_behind(state, held)
    state.filled.clear()


def _follower(state: SchedulerState, entry: TaskEntry) -> Task | None:
    """Return the task that takes the result of another one, and waits for nothing else."""
    behind = None if entry.tie is None else entry.tie.behind
    if behind is not None:
        return behind.task if behind.place is TaskPlace.BEHIND else None
    assert state.dependents is not None, "nobody knows what takes which result"
    return state.dependents.follower(entry.task.task_id)


def _may_follow(state: SchedulerState, task: Task, last: TaskEntry, held: Held) -> bool:
    """Whether a task runs where another one does: it asks for nothing else, and may be one of several."""
    options = task.options
    if task.variants is not None or options.stage_in or options.stage_out or not options.may_rerun:
        return False
    if task.shape is last.task.shape and options is last.task.options:
        return True
    return state.look_ahead.shape_of(task) == held.queue.shape


def _send(
    state: SchedulerState,
    held: Held,
    last: TaskEntry,
    task: Task,
    cost_s: float,
    submissions: list[Submission],
) -> TaskEntry:
    """Put a task under a grant, tied to the one before it."""
    if last.tie is None:
        last.tie = Tie()
    entry = last.tie.behind
    if entry is None:
        entry = _taken(state, held, task)
        last.tie.behind = entry
    else:
        entry.queue.delayed -= 1
        entry.queue = held.queue
    if entry.tie is None:
        entry.tie = Tie()
    entry.tie.before = last
    entry.attempt += 1
    entry.move(TaskPlace.SENT)
    entry.held, entry.cost_s, entry.unsent = held, cost_s, False
    entry.number = state.attempts = state.attempts + 1
    task = entry.task
    held.sent[task.task_id] = entry
    after = (last.task.task_id, last.attempt)
    submissions.append(
        Submission(task.task_id, entry.attempt, task.code_id, task.arguments, task.options, (), "", 0, after)
    )
    return entry


def _taken(state: SchedulerState, held: Held, task: Task) -> TaskEntry:
    """Take in a task that is not ready."""
    assert state.dependents is not None, "nobody knows what takes which result"
    task = state.dependents.extract(task.task_id, 1)
    entry = state.tasks[task.task_id] = TaskEntry(task, held.queue, False)
    if state.recording:
        state.actions.append(TaskChanged(state.now, state.job, task.task_id, TaskState.READY, 0, task.name))
    return entry


def serve_planned(state: SchedulerState, idle: Sequence[Held]) -> None:
    """Send tasks to idle grants on the hosts where they are planned, whatever their grants were asked for.

    Args:
        state: of the scheduler.
        idle: grants on which nothing may be left to run.
    """
    plans = state.plans
    assert plans is not None
    busy = dict.fromkeys(held for held in state.touched if held.sent)
    is_left = False
    for task_id in plans.take_fresh():
        entry = state.tasks.get(task_id)
        for resource_id in () if entry is None else plans.resources_wished(task_id):
            held = state.by_resource.get(resource_id)
            if held is None:
                continue
            if _give_planned(state, held, entry):
                break
            busy[held] = None
        else:
            is_left = True
    behind: list[TaskId] | None = None
    for held in idle:
        if held.sent or not held.usable:
            continue
        for task_id in plans.for_host(state, held.resource_id):
            if _give_planned(state, held, state.tasks[task_id]):
                busy[held] = None
                break
        else:
            if plans.overtakes and behind != []:
                behind = _sent_behind(state) if behind is None else behind
                _take_back_better(state, held, behind)
    is_late = (behind or plans.wishes.waiting) and any(not held.sent for held in idle)
    if state.patrol_s is None and (is_left or is_late):  # what idles may be worth waiting no more by then
        state.patrol_s = state.now + state.work_ahead.patrol_s
    for held in sorted(busy, key=lambda it: it.since_s) if len(busy) > 1 else busy:
        _send_ahead(state, held)


def _send_ahead(state: SchedulerState, held: Held) -> None:
    """Send what waits for a host behind a task that runs there: so its data comes meanwhile.

    Where tasks may not overtake each other it is one, since more would have to wait for what is before them;
    and each is sent ahead at most once: when it has come back it may be better off elsewhere.
    """
    assert state.plans is not None
    head = held.head()
    plans, resource_class = state.plans, held.queue.resource_class
    ahead_max = plans.there.share_of(held.resource_id, resource_class, plans.ahead_max)
    tries_max = 1 if state.plans.ahead_max == 1 else TRIES_AHEAD
    if head is None or head.alone or len(held.sent) > ahead_max:
        return
    if not held.usable or (held.slow and not head.staged):
        return
    for task_id in state.plans.waiting_for(state, held.resource_id):
        entry, count = state.tasks[task_id], len(held.sent)
        if count > ahead_max:
            return
        if entry.attempt < tries_max and not entry.alone and count < _least_ahead(state, held, entry):
            _send_planned(state, held, entry, count + 1)


def _sent_behind(state: SchedulerState) -> list[TaskId]:
    """Return the tasks that wait at workers behind others, and may come back."""
    return [
        task_id
        for held in state.grants.values()
        for task_id, entry in islice(held.sent.items(), 1, None)
        if not (entry.begun or entry.cancelling or entry.tie or entry.asked is not AskedBack.NO)
    ]


def _take_back_better(state: SchedulerState, idle: Held, behind: list[TaskId]) -> None:
    """Ask back the task that gains most if an idle grant takes it from the one that it waits behind."""
    assert state.plans is not None
    task_id = state.plans.sent_better_here(state, idle.resource_id, behind)
    entry = None if task_id is None else state.tasks[task_id]
    if entry is None or entry.held is None or idle.resource_id in entry.avoid:
        return
    behind.remove(entry.task.task_id)
    ask_back(state, entry.held, [entry])


def _least_ahead(state: SchedulerState, held: Held, entry: TaskEntry) -> int:
    """Return how many tasks a grant has in any case, with one that waits for it."""
    time = state.times.get((held.queue.resource_class, entry.task.code_id), UNMEASURED)
    samples, average_s = time.samples, time.average_s
    if entry.task.options.estimate_s is not None:
        samples, average_s = max(1, samples), entry.task.options.estimate_s
    if entry.staged and state.plans is not None and state.plans.ahead_max > 1:
        return 1 + state.plans.ahead_max
    return state.work_ahead.depth(samples, average_s, entry.staged)[0]


def _give_planned(state: SchedulerState, held: Held, entry: TaskEntry | None) -> bool:
    """Send a task that waits to a grant on which nothing runs, if it may run there; return whether it was."""
    return entry is not None and not held.sent and _send_planned(state, held, entry, 1)


def _send_planned(state: SchedulerState, held: Held, entry: TaskEntry, share: int) -> bool:
    """Send a task that waits to a grant, which then has ``share`` tasks; return whether it was sent."""
    assert state.plans is not None
    if state.ends or entry.place is not TaskPlace.WAITING or not held.usable:
        return False
    if state.restricted and is_misplaced(state, entry, held.resource_id):
        return False
    if held.resource_id in entry.avoid or not state.plans.may_use(entry.task, held.queue.shape):
        return False
    if entry.queue is not held.queue:
        move(state, entry, held.queue.shape)
    return fill(state, held, share, entry)


def check(state: SchedulerState) -> None:
    """Assert that tasks that were sent ahead are tied to those before them."""
    for entry in state.tasks.values():
        tie = entry.tie
        if tie is not None and tie.behind is not None:
            tied = tie.behind.tie
            assert tied is not None, "tied in one direction"
            assert tied.before is entry, "tied to another one"
        assert waits(entry) or entry.place is not TaskPlace.BEHIND, "a task waits for nothing"
    for held in state.grants.values():
        tied_here = sum(map(waits, held.sent.values()))
        assert held.tied == tied_here, "tasks that were sent ahead are miscounted"
