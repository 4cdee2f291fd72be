"""The sending of tasks before they are ready: behind the one whose result they take, to the same worker.

A link of a chain would cost a round trip. So a task that waits for one task alone, which is the last that a
worker has, goes to that worker, too: the compute process has the result at hand. Those behind it follow, up
to the work that is sent ahead anyway.
"""

from __future__ import annotations

from gspc_trio.components.job.scheduler.serve import UNMEASURED, submitted
from gspc_trio.components.job.scheduler.state import (
    AskedBack,
    Held,
    SchedulerState,
    TaskEntry,
    TaskPlace,
)
from gspc_trio.components.job.scheduler.ties import waits
from gspc_trio.components.job.scheduler.waiting import Tie, rank_of
from gspc_trio.components.worker.messages import Submission
from gspc_trio.core.task import Task, TaskState
from gspc_trio.records.facts import TaskChanged


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
