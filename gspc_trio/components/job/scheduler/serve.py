"""The sending of tasks under grants: which go at once, which are sent ahead, and which are taken back.

A round trip to a worker takes some tenths of a millisecond. A worker that had only one short task at a time
would be idle for most of its time, so more are sent before the first has ended. That has a price: what is at
one worker cannot run on another. So a grant gets about 2 ms of measured work, and never more than its share
of all tasks in hand. What was sent too early is asked back when a worker runs dry, or when the task before it
takes long.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from gspc_trio.components.job.scheduler.ending import fitting_share, is_misplaced
from gspc_trio.components.job.scheduler.interface import CodeTime
from gspc_trio.components.job.scheduler.resource_queues import look_again
from gspc_trio.components.job.scheduler.state import (
    AVOIDING_SEEN,
    AskedBack,
    Held,
    SchedulerState,
    ShapeQueue,
    TaskEntry,
    TaskPlace,
)
from gspc_trio.components.job.scheduler.tasks import move
from gspc_trio.components.job.scheduler.ties import waits
from gspc_trio.components.job.scheduler.waiting import rank_of
from gspc_trio.components.worker.messages import Submission, Submit, TakeBack
from gspc_trio.core.task import TaskState
from gspc_trio.records.columns import COLUMNS_MIN, columns_of
from gspc_trio.records.facts import TaskChanged

if TYPE_CHECKING:
    from gspc_trio.components.job.scheduler.plans import Plans

TRIES = 8
"""Equal candidates that are looked at before a search is given up."""

VICTIMS_MAX = 64
"""Workers from which tasks are taken back in one event."""

UNMEASURED = CodeTime()
"""Of a code of which nothing is known."""

_SENT = TaskPlace.SENT
_SUBMITTED = TaskState.SUBMITTED
_RUNNING = TaskState.RUNNING


def serve(state: SchedulerState, queue: ShapeQueue) -> None:
    """Submit what can be submitted, and see to it that no worker idles while another has much to do."""
    if state.restricted and state.aside:
        _bring_from_aside(state, queue)
    # The grant with the fewest tasks is filled next. So no worker gets its second task while another one has
    # none, and in the end all have about the same number.
    while queue.waiting.size or queue.elsewhere:
        by_count = queue.levels.by_count
        if not by_count:
            return
        level = min(by_count)
        below_s = _goes_ahead_below_s(state, queue, level) if level else inf
        if not below_s:
            return
        share = _share(state, queue)
        if level >= share:
            if state.patrol_s is None:  # should the grants that this is kept for not come, it is sent then
                state.patrol_s = state.now + state.work_ahead.patrol_s
            return
        if not level and _give_one_each(state, queue):
            continue
        group = by_count[level]
        if level:  # two are enough: the others of this level have about as much work
            candidates = [held for held in islice(group, 2) if held.work_s < below_s]
        elif queue.unserved >= len(group):
            candidates = list(islice(group, TRIES))
        else:  # the one that worked last: its process has loaded the code, and its host may have the data
            candidates = list(islice(reversed(group), TRIES))
        filled = False
        for held in candidates:
            if not fill(state, held, share):
                continue
            filled = True
            if level or queue.elsewhere or not queue.waiting.size:
                break  # else the next one that has none, which is as good as the first one was
        if not filled:
            return
    if state.plans is None or not state.plans.overtakes:  # else see ``behind``
        take_back_for_idle(state, queue, len(queue.levels.by_count.get(0, ())), queue.awaited)


def _give_one_each(state: SchedulerState, queue: ShapeQueue) -> bool:
    """Send one task to each idle grant, as long as they get no more: the next ones are of one code, which
    takes long or was never measured. Return whether any was sent.

    It does what :func:`fill` does, which finds out anew for each grant what all of these have in common.
    """
    if state.restricted or state.ends or state.plans is not None or queue.elsewhere:
        return False
    row, idle = queue.waiting.first_row(), queue.levels.by_count[0]
    assert row is not None
    first = next(iter(row.values()))
    code_id, times = first.task.code_id, state.times
    time = times.get((queue.resource_class, code_id), UNMEASURED)
    cost_s, now, job, resource_class = time.average_s, state.now, state.job, queue.resource_class
    if first.staged or state.work_ahead.depth(time.samples, cost_s, False)[1] > 1:
        return False
    actions, by_count = state.actions, queue.levels.by_count
    busy = by_count.setdefault(1, OrderedDict())
    number = before = state.attempts
    ways = idle if queue.unserved >= len(idle) else reversed(idle)  # as in :func:`serve`
    for held in list(islice(ways, len(row))):
        entry = next(iter(row.values()))
        task = entry.task
        if task.code_id != code_id or entry.staged:
            break
        task_id = task.task_id
        del row[task_id]
        attempt = entry.attempt = entry.attempt + 1
        entry.move(_SENT)
        entry.held, entry.cost_s = held, cost_s
        if entry.begun or entry.unsent or entry.timer:
            entry.begun, entry.unsent, entry.timer = False, False, 0
        entry.number = number = number + 1
        held.sent[task_id] = held.announced = entry
        held.work_s, held.since_s, held.slow = cost_s, now, False
        del idle[held]
        busy[held] = None
        held.level = 1
        submission = Submission(task_id, attempt, code_id, task.arguments, task.options)
        actions.append(Submit(job, held.grant_id, held.resources, (submission,), resource_class))
        if state.recording:
            _tell_sent(state, held, [entry])
        if state.dependents is not None:
            state.filled[held] = None
    for level in (0, 1):
        if not by_count[level]:
            del by_count[level]
    state.attempts = number
    queue.sent += number - before
    queue.waiting.size -= number - before
    return number > before


def _bring_from_aside(state: SchedulerState, queue: ShapeQueue) -> None:
    """Let idle grants have tasks that wait for others than restricted hosts, though by another shape.

    They were asked for before these tasks were put aside.
    """
    for held in list(queue.levels.by_count.get(0, ())):
        for other in [state.queues[shape] for shape in state.aside if shape in state.queues]:
            entry = other.waiting.first()
            if entry is None or other is queue or state.look_ahead.shape_of(entry.task) != queue.shape:
                continue
            if held.resource_id not in entry.avoid and not is_misplaced(state, entry, held.resource_id):
                move(state, entry, queue.shape)
                if fill(state, held, 1, entry):
                    break


def _goes_ahead_below_s(state: SchedulerState, queue: ShapeQueue, level: int) -> float:
    """Return with how little work in hand a grant with ``level`` tasks may get the next one, 0 for none.

    Mostly the answer is none. To find that out here costs less than to try, which is done after each report.
    It is half of what is sent ahead: a worker is filled up when half of its work is done, so that one message
    carries many tasks. With the whole of it each report would be followed by a message with a single task.
    """
    if queue.elsewhere:
        return inf  # which task is next differs from grant to grant
    entry = queue.waiting.first()
    assert entry is not None
    if entry.alone:
        return 0.0
    time = state.times.get((queue.resource_class, entry.task.code_id), UNMEASURED)
    at_least, at_most = state.work_ahead.depth(time.samples, time.average_s, entry.staged)
    if level >= at_most:
        return 0.0
    return inf if level < at_least else state.work_ahead.ahead_s / 2


def _share(state: SchedulerState, queue: ShapeQueue) -> int:
    """Return how many tasks each grant gets.

    At the beginning of a job grants come one after the other. The first ones must not take all tasks, which
    would have to be asked back when the others come. So grants that were asked for count as well, for a short
    while after the last one came, and no more of them than there are resources of the class.
    """
    width = queue.levels.size
    if queue.told and state.now - queue.changed_s <= state.work_ahead.settle_s:
        width = max(width, min(width + queue.told, state.class_sizes.get(queue.resource_class, 0)))
    return -(-(queue.unserved + queue.sent) // width)


def fill(state: SchedulerState, held: Held, share: int, wanted: TaskEntry | None = None) -> bool:
    """Submit tasks to a grant, the wanted one first, until it has its share or work; return if any was."""
    if state.ends or state.restricted:
        share = fitting_share(state, held, share)
    queue, sent, waiting, elsewhere = held.queue, held.sent, held.queue.waiting, held.queue.elsewhere
    row = waiting.first_row()
    count, work_s, ahead_s = len(sent), held.work_s, state.work_ahead.ahead_s
    enough_s = ahead_s / 2  # for the first one: who has more than half has enough; then it is filled up
    first = held.head()
    if first is not None and first.alone:
        return False
    submissions: list[Submission] = []
    code_id, at_least, at_most, cost_s = -1, 1, 1, 0.0
    ahead_max = state.work_ahead.beside_long(first.staged) if first is not None and held.slow else inf
    while count < share:
        source = row = row or waiting.first_row()
        entry = None if row is None else next(iter(row.values()))
        if wanted is not None:
            source = row = waiting.row(rank_of(wanted.task))
            entry = wanted
        elif elsewhere and (avoiding := _pick(state, elsewhere.values(), held, entry)) is not None:
            source, entry = elsewhere, avoiding
        if source is None or entry is None:
            break
        task = entry.task
        if task.code_id != code_id:
            code_id = task.code_id
            time = state.times.get((queue.resource_class, code_id), UNMEASURED)
            cost_s = time.average_s  # of what was never measured nothing is sent ahead: it may take hours
            at_least, at_most = state.work_ahead.depth(time.samples, cost_s, entry.staged)
        is_enough = count >= min(at_most, ahead_max) or (count >= at_least and work_s >= enough_s)
        if is_enough and wanted is None:
            break
        if count and entry.alone:
            break
        task_id = task.task_id
        del source[task_id]
        if source is row:
            waiting.size -= 1
        attempt = entry.attempt = entry.attempt + 1
        entry.move(_SENT)
        entry.held = held
        entry.cost_s = cost_s
        if entry.begun or entry.unsent or entry.timer:  # to look costs a fifth of what to set does
            entry.begun, entry.unsent, entry.timer = False, False, 0
        entry.number = state.attempts = state.attempts + 1
        sent[task_id] = entry
        submissions.append(Submission(task_id, attempt, code_id, task.arguments, task.options))
        count += 1
        work_s += cost_s
        enough_s = ahead_s
        if entry.alone:
            break
    if not submissions:
        return False
    submitted(state, held, first, submissions, work_s)
    return True


def submitted(
    state: SchedulerState,
    held: Held,
    first: TaskEntry | None,
    submissions: list[Submission],
    work_s: float,
) -> None:
    """Send tasks that have been put under a grant.

    Args:
        state: of the scheduler.
        held: the grant.
        first: what ran there before, None for nothing.
        submissions: the tasks, the last ones under it.
        work_s: of all that is there now.
    """
    queue = held.queue
    held.work_s = work_s
    queue.sent += len(submissions)
    queue.levels.place(held)
    sent = tuple(submissions)
    if state.plans is not None:
        if state.plans.knows_readers:
            sent = state.plans.with_readers(sent, held.resource_id)
        if state.plans.ahead_max > 1:
            sent = state.plans.wishes.with_ranks(sent)
    state.actions.append(Submit(state.job, held.grant_id, held.resources, sent, queue.resource_class))
    if state.recording:
        before = len(held.sent) - len(submissions)
        _tell_sent(state, held, list(islice(held.sent.values(), before, None)))
    if first is None:
        held.announced, held.since_s = held.head(), state.now
        held.slow = _is_slow(state, held)
    count_stuck(state, held)
    if state.dependents is not None:
        state.filled[held] = None
    if len(held.sent) > 1 and state.patrol_s is None:
        state.patrol_s = state.now + state.work_ahead.patrol_s


def _tell_sent(state: SchedulerState, held: Held, entries: list[TaskEntry]) -> None:
    """Record that tasks were submitted, many of them in columns; the first one of a grant runs."""
    now, job, resource_id = state.now, state.job, held.resource_id
    entries = [entry for entry in entries if not entry.task.items]
    if not entries:
        return
    singly = entries if len(entries) < COLUMNS_MIN else entries[: held.head() is entries[0]]
    for entry in singly:
        its_state = _RUNNING if held.head() is entry else _SUBMITTED
        task = entry.task
        state.actions.append(
            TaskChanged(now, job, task.task_id, its_state, entry.tries, task.name, resource_id)
        )
    entries = entries[len(singly) :]
    if not entries:
        return
    same = {"at_s": now, "job": job, "state": _SUBMITTED, "resource_id": resource_id}
    each: dict[str, Sequence[object]] = {
        "task_id": [entry.task.task_id for entry in entries],
        "attempt": [entry.attempt - entry.given_back for entry in entries],
        "name": [entry.task.name for entry in entries],
    }
    state.actions += columns_of(TaskChanged, same, each)


def _is_slow(state: SchedulerState, held: Held) -> bool:
    """Whether the task that now runs, and stages data, is known to take long."""
    head = held.head()
    if head is None or not head.staged:
        return False
    time = state.times.get((held.queue.resource_class, head.task.code_id), UNMEASURED)
    return state.work_ahead.takes_long(time.average_s)


def count_stuck(state: SchedulerState, held: Held) -> None:
    """Count the tasks of a grant that had better be elsewhere: behind a slow one, and not begun."""
    stuck = 0
    if held.slow:
        behind = islice(held.sent.values(), 1, None)
        stuck = sum(not entry.begun and entry.asked is AskedBack.NO and not waits(entry) for entry in behind)
    if stuck != held.stuck:
        held.queue.stuck += stuck - held.stuck
        held.stuck = stuck
        state.turned[held.queue] = None


def _pick(
    state: SchedulerState, candidates: Iterable[TaskEntry], held: Held, other: TaskEntry | None
) -> TaskEntry | None:
    """Return the first of a few candidates that does not avoid the grant's resource, unless ``other`` has
    a lower rank than it.
    """
    resource_id = held.resource_id
    for entry in islice(candidates, AVOIDING_SEEN):
        if state.restricted and is_misplaced(state, entry, resource_id):
            continue
        if resource_id not in entry.avoid and (other is None or rank_of(entry.task) <= rank_of(other.task)):
            return entry
    return None


def follow_head(state: SchedulerState, held: Held) -> None:
    """Note which task runs on a grant after some have ended there."""
    if not held.sent:
        if held.announced is not None:
            held.announced, held.since_s, held.work_s = None, state.now, 0.0
            held.blocked = held.slow = False
        return
    head = held.head()
    assert head is not None
    if head is held.announced:
        return
    held.announced, held.since_s = head, state.now
    held.blocked, held.slow = False, _is_slow(state, held)
    if len(held.sent) > 1 and state.patrol_s is None:
        state.patrol_s = state.now + state.work_ahead.patrol_s
    if head.asked is AskedBack.AWAITED:
        head.asked = AskedBack.BEGUN
        head.queue.awaited -= 1
    if state.recording and not (head.task.items or waits(head)):
        state.actions.append(record_of(state, head))


def record_of(state: SchedulerState, entry: TaskEntry) -> TaskChanged:
    """Return where a live task is."""
    task, held = entry.task, entry.held
    if held is None:
        return TaskChanged(state.now, state.job, task.task_id, TaskState.READY, entry.tries, task.name)
    runs = held.head() is entry
    at_s, its_state = (held.since_s, _RUNNING) if runs else (state.now, _SUBMITTED)
    return TaskChanged(at_s, state.job, task.task_id, its_state, entry.tries, task.name, held.resource_id)


def take_back(
    state: SchedulerState, held: Held, number: int, *, movable: bool = False, all_tied: bool = False
) -> int:
    """Ask the last ``number`` tasks of a grant back that have not begun; return how many were asked.

    What takes the result of another one comes back with that, and not alone: nobody else can run it.

    Args:
        state: of the scheduler.
        held: the grant.
        number: of tasks.
        movable: if each resource has a queue, only those that may run on any.
        all_tied: also what takes the result of the one that runs.
    """
    entries = [
        entry
        for entry in held.sent.values()
        if entry.asked is AskedBack.NO and not (entry.begun or entry.cancelling)
    ]
    if held.tied and not all_tied:
        entries = [entry for entry in entries if not waits(entry)]
    if movable and state.assigned is not None:
        hard = {entry.task.task_id for entry in entries if entry.task.shape.requirements[0].hard}
        entries = [entry for entry in entries if entry is held.head() or entry.task.task_id not in hard]
    if entries and entries[0] is held.head():
        del entries[0]
    entries = entries[max(0, len(entries) - number) :]
    if not entries:
        return 0
    number = len(entries)
    if held.tied and not all_tied:
        entries = [*_with_tied(entries)]
    ask_back(state, held, entries)
    return number


def ask_back(state: SchedulerState, held: Held, entries: Sequence[TaskEntry]) -> None:
    """Ask these tasks of a grant back."""
    for entry in entries:
        entry.asked = AskedBack.AWAITED
    held.queue.awaited += len(entries)
    attempts = tuple((entry.task.task_id, entry.attempt) for entry in entries)
    state.actions.append(TakeBack(state.job, held.resource_id, attempts))
    count_stuck(state, held)


def _with_tied(entries: Iterable[TaskEntry]) -> Iterator[TaskEntry]:
    """Yield each of the tasks, and after it those behind it that wait for its result there."""
    for entry in entries:
        following: TaskEntry | None = entry
        while following is not None and following.held is entry.held:
            if following is entry or not (following.cancelling or following.asked is not AskedBack.NO):
                yield following
            following = None if following.tie is None else following.tie.behind


def take_back_for_idle(state: SchedulerState, queue: ShapeQueue, idle: int, awaited: int) -> None:
    """Nothing waits and ``idle`` grants are empty: take their share from those of a shape that have most.

    Tasks come back through the queue and not from worker to worker: only the worker knows which have begun.
    """
    by_count = queue.levels.by_count
    if not idle or max(by_count, default=0) < 2:
        return
    missing = idle - awaited  # each task that was asked back already will occupy one
    victims = VICTIMS_MAX
    for level in sorted(by_count, reverse=True):
        if level < 2:
            return
        for held in by_count[level]:
            if missing <= 0 or victims == 0:
                return
            victims -= 1
            if len(held.sent) - held.tied < 2:
                continue
            if held.slow:
                missing -= take_back(state, held, missing, movable=True)
            elif state.work_ahead.worth_taking_back(held.work_s):
                missing -= take_back(state, held, max(1, (level - 1) * idle // (idle + 1)), movable=True)


def _have_wishes(plans: Plans, held: Held) -> bool:
    """Whether all tasks behind the first one of a grant have wishes: :mod:`behind` looks after them."""
    return all(plans.wishes.wish_of(task_id) is not None for task_id in islice(held.sent, 1, None))


def patrol(state: SchedulerState) -> None:
    """Take back what waits behind a task that has run since the last patrol.

    Averages say nothing of a single task, so one that takes long holds up those that were sent ahead behind
    it. What it overlaps with stays: to fetch data for the next task takes as long beside any task.
    """
    if state.patrol_s is None or state.now < state.patrol_s:
        return
    state.patrol_s = None
    for queue in state.queues.values():
        if queue.waiting or queue.elsewhere:
            state.turned[queue] = None
    if state.assigned is not None:
        look_again(state)
    if state.plans is not None:
        idle = [held for held in state.grants.values() if not held.sent]
        first = int(state.now / state.work_ahead.patrol_s) % max(1, len(idle))  # each has its turn
        state.touched.update(dict.fromkeys((idle + idle)[first : first + TRIES]))
    for held in state.grants.values():
        head = held.head()
        if head is None or len(held.sent) < 2:
            continue
        watched = (head.task.task_id, head.attempt)
        if held.watched == watched:
            kept = state.work_ahead.beside_long(head.staged)
            if state.plans is not None and state.plans.overtakes and _have_wishes(state.plans, held):
                kept = max(kept, 1 + state.plans.ahead_max)
            held.slow, held.blocked = True, kept == 1
            state.touched[held] = None
            take_back(state, held, len(held.sent) - kept)
        held.watched = watched
        if not held.slow:
            state.patrol_s = state.now + state.work_ahead.patrol_s
