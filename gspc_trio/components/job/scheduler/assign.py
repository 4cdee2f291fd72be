"""Queues of resources (SCH-4): a ready task joins the one where it ends first, and idle resources steal.

A grant for one resource, without memory, has a queue as long as tasks may be sent on it. Tasks of all shapes
that fit the resource wait there. What was sent has left the queue: it is at the worker, which has begun with
it or may do so at any time. It comes back only if the worker says that it has not begun with it
(:func:`~gspc_trio.components.job.scheduler.serve.take_back`), and then joins a queue anew.

A task that may run on some resources only is never stolen. Would it join a queue at once, it would wait there
while another of these resources comes and idles. So it waits for its shape until one of them can have it,
unless there is but one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapreplace
from itertools import chain, islice
from math import inf

from gspc_trio.components.job.scheduler.ending import is_misplaced, put_aside, stated_s
from gspc_trio.components.job.scheduler.interface import CodeTime
from gspc_trio.components.job.scheduler.resource_queues import (
    assigned_of,
    backlog_s,
    class_of,
    count,
    count_shapes,
    dissolve,
    first_free,
    has_queue,
    is_near,
    left_s,
    names_of,
    note_end,
    put_in,
    run_s,
    runs_of,
    take_from,
    take_out,
    tell_length,
    transfer_s,
)
from gspc_trio.components.job.scheduler.serve import submitted, take_back_for_idle
from gspc_trio.components.job.scheduler.state import (
    AVOIDING_SEEN,
    Assigned,
    ClassQueues,
    Held,
    Row,
    SchedulerState,
    ShapeQueue,
    TaskEntry,
    TaskPlace,
)
from gspc_trio.components.job.scheduler.waiting import (
    ResourceQueue,
    Targeted,
    rank_of,
    targeted,
)
from gspc_trio.components.worker.messages import Submission
from gspc_trio.core.ids import ResourceId, host_name

NEAR_SEEN = 64
"""So many soft-targeted tasks of a queue are looked at for some that want to be where a thief is."""

_UNMEASURED = CodeTime()
_SENT, _QUEUED, _WAITING = TaskPlace.SENT, TaskPlace.QUEUED, TaskPlace.WAITING


# What is there


def changed(state: SchedulerState, held: Held) -> None:
    """Something has happened to a grant: it has a queue if tasks may be sent on it, and may get some now."""
    assigned = assigned_of(state)
    usable = held.up and not (held.lost or held.leaving or held.timer) and state.stopping is None
    if held.line is None:
        if not usable or not has_queue(held.queue.shape):
            return
        assigned.counter += 1
        held.line = ResourceQueue(assigned.counter)
        class_of(assigned, held).members[held] = None
        for name in names_of(assigned, held.resource_id):
            assigned.named.setdefault(name, {})[held] = None
        _turn_waiting(state, assigned, held)
    elif not usable:
        dissolve(state, held)
        return
    note_end(state, held)
    assigned.pending[held] = None
    state.turned[held.queue] = None


def _turn_waiting(state: SchedulerState, assigned: Assigned, held: Held) -> None:
    """A resource has got a queue, whatever it was asked for: look at what waits that may join it.

    While a class has queues nothing waits for it but what may run on certain resources only.
    """
    names = names_of(assigned, held.resource_id)
    is_first = len(class_of(assigned, held).members) == 1
    for queue in state.queues.values():
        if queue.resource_class == held.queue.resource_class and (queue.waiting.size or queue.elsewhere):
            wanted = queue.shape.requirements[0].preferences
            if is_first or any(name in names for name in wanted):
                state.turned[queue] = None


# Which queue


def serve(state: SchedulerState, queue: ShapeQueue) -> None:
    """Let what waits for a shape join queues, send what workers can have, and let idle resources steal."""
    assigned = assigned_of(state)
    if (queue.waiting.size or queue.elsewhere) and has_queue(queue.shape):
        _join_all(state, assigned, queue)
    while assigned.pending:
        held = assigned.pending.popitem()[0]
        _fill(state, held)
        if held.usable and not held.sent and held.line is not None:
            _steal(state, held)
            if held.line:
                _fill(state, held)
            elif not held.sent:
                _have_taken_back(state, held)
        if held.line is not None:
            note_end(state, held)
        tell_length(state, held)


def _join_all(state: SchedulerState, assigned: Assigned, queue: ShapeQueue) -> None:
    queues = assigned.classes.get(queue.resource_class)
    if queues is None or not queues.members:
        return
    kind = targeted(queue.shape)
    names = queue.shape.requirements[0].preferences
    if kind is Targeted.HARD and not (len(names) == 1 and state.known.get(names[0]) == queue.resource_class):
        if queue.waiting.size:
            for name in names:
                assigned.hard.setdefault(name, {})[queue] = None
                assigned.pending.update(dict.fromkeys(assigned.named.get(name, ())))
        return
    if kind is Targeted.NOT and not (state.ends or state.restricted):
        _join_by_end(state, queue, queues)
    for entry in [*queue.elsewhere.values(), *queue.waiting]:
        avoided = entry.avoid if entry.place is TaskPlace.ELSEWHERE else frozenset()
        held = _where(state, entry, queues, avoided)
        if held is not None:
            _join(state, entry, held)
        elif (state.ends or state.restricted) and not avoided:
            _put_aside(state, entry, queues)


def _join_by_end(state: SchedulerState, queue: ShapeQueue, queues: ClassQueues) -> None:
    """Let tasks that may run anywhere join the queues where they end first."""
    assigned, by_end = assigned_of(state), queues.by_end
    counter, now, options, code_id, seconds = assigned.counter, state.now, None, None, 0.0
    while (row := queue.waiting.first_row()) is not None:
        rank = rank_of(next(iter(row.values())).task)
        rows: dict[Held, tuple[ResourceQueue[TaskEntry], Row, list[TaskEntry]]] = {}
        for task_id, entry in row.items():
            task = entry.task
            if task.options is not options or task.code_id != code_id or task.variants is not None:
                options, code_id, seconds = task.options, task.code_id, run_s(state, entry)
            noted_s, order, held = by_end[0]
            found = rows.get(held)
            if found is None or found[0].free_at_s != noted_s or found[0].order != order:
                held = first_free(state, queues, rows)
                found = rows.get(held)
            if found is None:
                line = held.line
                assert line is not None, "the resource has no queue"
                found = rows[held] = line, line.kinds[Targeted.NOT].row(rank), []
            line, into, joined = found
            free_at_s = line.free_at_s
            line.free_at_s = free_at_s = (free_at_s if free_at_s > now else now) + seconds
            heapreplace(by_end, (free_at_s, line.order, held))
            counter += 1
            entry.line, entry.place, entry.number = held, _QUEUED, counter
            into[task_id] = entry
            if entry.attempt:
                entry.number = -counter
                into.move_to_end(task_id, last=False)
            joined.append(entry)
        queue.waiting.size -= len(row)
        row.clear()
        for held, (line, _, joined) in rows.items():
            line.kinds[Targeted.NOT].size += len(joined)
            runs = runs_of(joined)
            count(state, held, runs, 1)
            count_shapes(state, runs, 1)
            assigned.pending[held] = None
    assigned.counter = counter


def _where(
    state: SchedulerState, entry: TaskEntry, queues: ClassQueues, avoided: frozenset[ResourceId]
) -> Held | None:
    """Return whose queue a task joins: where it ends first, the first one of equal ones."""
    assigned, shape = assigned_of(state), entry.queue.shape
    found: Held | None = None
    found_s = inf
    first = first_free(state, queues) if not (avoided or state.ends or state.restricted) else None
    near: Iterable[Held] = queues.members
    if targeted(shape) is Targeted.HARD or first is not None:
        names = shape.requirements[0].preferences
        near = dict.fromkeys(chain.from_iterable(assigned.named.get(name, ()) for name in names))
    if first is not None and targeted(shape) is not Targeted.HARD:
        near = [*near, first]
    for held in near:
        if held.queue.resource_class != entry.queue.resource_class or held.line is None:
            continue
        if held.resource_id in avoided or not _stays(state, entry, held):
            continue
        ends_s = backlog_s(state, held) + transfer_s(assigned, entry, held)
        if found is None or found.line is None or (ends_s, held.line.order) < (found_s, found.line.order):
            found, found_s = held, ends_s
    return found


def _stays(state: SchedulerState, entry: TaskEntry, held: Held) -> bool:
    """Return whether a host stays long enough for a task, and is not the wrong one for it."""
    if state.restricted and is_misplaced(state, entry, held.resource_id):
        return False
    if not state.ends:
        return True
    left_s = state.ends.get(host_name(held.resource_id), inf) - state.now
    return left_s > 0 and (stated_s(entry.task) or 0.0) <= left_s


def _put_aside(state: SchedulerState, entry: TaskEntry, queues: ClassQueues) -> None:
    """No host stays long enough for a task, or all are the wrong ones: it waits for others."""
    if entry.place is not _WAITING or any(_stays(state, entry, held) for held in queues.members):
        return
    put_aside(state, entry)


def _join(state: SchedulerState, entry: TaskEntry, held: Held) -> None:
    """Put a task that waits for a shape into the queue of a resource, at its end if it is new."""
    queue = entry.queue
    if entry.place is _WAITING:
        queue.waiting.remove(entry)
    else:
        del queue.elsewhere[entry.task.task_id]
        entry.timer = 0
    entry.move(_QUEUED)
    put_in(state, entry, held, first=entry.attempt > 0)
    runs = runs_of([entry])
    count(state, held, runs, 1)
    count_shapes(state, runs, 1)
    note_end(state, held)
    assigned_of(state).pending[held] = None


# What is sent


def _fill(state: SchedulerState, held: Held) -> None:
    """Send from the queue of a resource what its worker can have; it leaves the queue by that."""
    line, sent = held.line, held.sent
    first = held.head()
    if line is None or not held.usable or (first is not None and first.alone):
        return
    work_s, ahead_s = held.work_s, state.work_ahead.ahead_s
    enough_s = ahead_s / 2  # as in :mod:`serve`
    ahead_max = state.work_ahead.beside_long(first.staged) if first is not None and held.slow else inf
    added: list[TaskEntry] = []
    taken: list[TaskEntry] = []
    code_id, options, at_least, at_most, cost_s = -1, None, 1, 1, 0.0
    untargeted, softly, hard = line.kinds
    in_row = not (assigned_of(state).hard or softly.size or hard.size or state.ends or state.restricted)
    row: Row | None = None
    while True:
        row = (row or untargeted.first_row()) if in_row else None
        entry = next(iter(row.values())) if row else None if in_row else _next(state, held, line)
        if entry is None:
            break
        task, number = entry.task, len(sent)
        if task.code_id != code_id or task.options is not options or task.variants is not None:
            code_id, options, cost_s = task.code_id, task.options, run_s(state, entry)
            time = state.times.get((held.queue.resource_class, code_id), _UNMEASURED)
            at_least, at_most = state.work_ahead.depth(time.samples, time.average_s, entry.staged)
        if number >= min(at_most, ahead_max) or (number >= at_least and work_s >= enough_s):
            break
        if number and entry.alone:
            break
        if (state.ends or state.restricted) and not _begins_in_time(state, entry, held, work_s):
            break
        if row is not None:
            del row[task.task_id]
            entry.line = None
            untargeted.size -= 1
            taken.append(entry)
        elif entry.line is not None:
            take_from(entry)
            taken.append(entry)
        else:
            _leave_shape(state, entry)
        added.append(entry)
        entry.cost_s = cost_s
        sent[task.task_id] = entry
        work_s += cost_s
        enough_s = ahead_s
        if entry.alone:
            break
    if taken:
        runs = runs_of(taken)
        count(state, held, runs, -1)
        count_shapes(state, runs, -1)
    if added:
        submitted(state, held, first, _sent(state, held, added), work_s)


def _sent(state: SchedulerState, held: Held, added: list[TaskEntry]) -> list[Submission]:
    """Note that tasks have been put under a grant, with whose shape they count now; return them as sent."""
    submissions: list[Submission] = []
    queue, attempts = held.queue, state.attempts
    for entry in added:
        task = entry.task
        attempt = entry.attempt = entry.attempt + 1
        entry.move(_SENT)
        entry.held, entry.queue = held, queue
        if entry.begun or entry.unsent or entry.timer:
            entry.begun, entry.unsent, entry.timer = False, False, 0
        entry.number = attempts = attempts + 1
        submissions.append(Submission(task.task_id, attempt, task.code_id, task.arguments, task.options))
    state.attempts = attempts
    return submissions


def _next(state: SchedulerState, held: Held, line: ResourceQueue[TaskEntry]) -> TaskEntry | None:
    """Return the task that is to be sent next to a resource.

    One that may run there and on a few others, but nowhere else, goes before those of its priority.
    """
    assigned = assigned_of(state)
    found = line.first()
    if not assigned.hard:
        return found
    for name in names_of(assigned, held.resource_id):
        shapes = assigned.hard.get(name, {})
        for queue in list(shapes):
            if not queue.waiting.size and not queue.elsewhere:
                del shapes[queue]
                continue
            if queue.resource_class != held.queue.resource_class:
                continue
            avoiding = (one for one in queue.elsewhere.values() if held.resource_id not in one.avoid)
            first = queue.waiting.first() or next(islice(avoiding, 1), None)
            if first is None or not _stays(state, first, held):
                continue
            if found is None or _goes_before(first, found):
                found = first
        if not shapes:
            assigned.hard.pop(name, None)
    return found


def _goes_before(first: TaskEntry, other: TaskEntry) -> bool:
    rank, its = rank_of(first.task), rank_of(other.task)
    return rank < its or (rank == its and other.line is not None)


def _begins_in_time(state: SchedulerState, entry: TaskEntry, held: Held, work_s: float) -> bool:
    """Return whether a task's host stays as long as what is before it there, and it, take.

    One that takes longer than the host stays looks for another one.
    """
    left_s = state.ends.get(host_name(held.resource_id), inf) - state.now
    if not _stays(state, entry, held):
        if entry.line is not None:
            take_out(state, entry)
            entry.move(_WAITING)
            entry.queue.waiting.put_first(entry)
        return False
    return not held.sent or work_s + (stated_s(entry.task) or 0.0) <= left_s


def _leave_shape(state: SchedulerState, entry: TaskEntry) -> None:
    """Take a task that is in no resource's queue out of where it waits."""
    if entry.place is _WAITING:
        entry.queue.waiting.remove(entry)
    else:
        del entry.queue.elsewhere[entry.task.task_id]
    state.turned[entry.queue] = None


# Stealing


def _steal(state: SchedulerState, thief: Held) -> None:
    """Let an idle resource take tasks that wait for others, if they end sooner by that.

    Those go first that name no resource, then those that want to be where the thief is, then those that want
    to be elsewhere. Those that may run on some resources only are never taken.
    """
    assigned = assigned_of(state)
    queues = class_of(assigned, thief)
    if not queues.queued or thief.line:
        return
    for kind, near in ((Targeted.NOT, False), (Targeted.SOFTLY, True), (Targeted.SOFTLY, False)):
        victims = [held for held in queues.members if held.line is not None and held.line.kinds[kind].size]
        if not victims:
            continue
        victim = max(victims, key=lambda held: backlog_s(state, held))
        stolen = list(_loot(state, thief, victim, kind, near))
        for entry in reversed(stolen):
            take_from(entry)
            put_in(state, entry, thief, first=False)
        if stolen:
            runs = runs_of(stolen)
            count(state, victim, runs, -1)
            count(state, thief, runs, 1)
            assigned.stolen += len(stolen)
            note_end(state, victim)
            tell_length(state, victim)
            return
    if state.patrol_s is None:  # what takes longer than expected may be worth it then
        state.patrol_s = state.now + state.work_ahead.patrol_s


def _loot(
    state: SchedulerState, thief: Held, victim: Held, kind: Targeted, near: bool
) -> Iterator[TaskEntry]:
    """Yield the tasks that a thief takes from a queue, the last one first."""
    assigned = assigned_of(state)
    assert victim.line is not None, "the resource has no queue"
    own_s, victim_s, skipped = 0.0, backlog_s(state, victim), 0
    for entry in reversed(victim.line.kinds[kind]):
        if skipped >= (NEAR_SEEN if near else AVOIDING_SEEN):
            return
        if (near and not is_near(assigned, entry, thief)) or not _may_have(state, entry, thief):
            skipped += 1
            continue
        its_s = run_s(state, entry)
        moved_s = transfer_s(assigned, entry, thief)
        if not assigned.policy.steals(own_s, moved_s, its_s, victim_s):
            return
        yield entry
        own_s += moved_s + its_s
        victim_s -= its_s


def _may_have(state: SchedulerState, entry: TaskEntry, thief: Held) -> bool:
    return thief.resource_id not in entry.avoid and _stays(state, entry, thief)


def _have_taken_back(state: SchedulerState, idle: Held) -> None:
    """Nothing waits that an idle resource can have: ask workers for what they have not begun with."""
    of_class = [one for one in state.queues.values() if one.resource_class == idle.queue.resource_class]
    awaited = sum(queue.awaited for queue in of_class)
    idle_count = sum(len(queue.levels.by_count.get(0, ())) for queue in of_class)
    if idle_count > awaited:
        for queue in of_class:
            take_back_for_idle(state, queue, idle_count, awaited)


# For people


def explain(state: SchedulerState, entry: TaskEntry) -> str:
    """Return in which queue a task stands, and why there."""
    held, assigned = entry.line, assigned_of(state)
    assert held is not None, "the task is in no queue of a resource"
    assert held.line is not None, "the resource has no queue"
    before, before_s = 0, 0.0
    for other in held.line:
        if other is entry:
            break
        before += 1
        before_s += run_s(state, other)
    if held.sent:
        before_s += left_s(state, held)
    moved_s, its_s = transfer_s(assigned, entry, held), run_s(state, entry)
    text = f"waits in the queue of {held.resource_id}: {before} are before it; it ends there in about "
    text += f"{before_s + moved_s + its_s:.3g} s ({before_s:.3g} s of work before it"
    text += f", {moved_s:.3g} s transfer" if moved_s else ""
    text += f", {its_s:.3g} s run)"
    others = [one for one in class_of(assigned, held).members if one is not held]
    kind = targeted(entry.queue.shape)
    if kind is Targeted.HARD:
        return f"{text}; it may run nowhere else, so it is not stolen"
    if others:
        ends_s, _, name = min(
            (backlog_s(state, one) + transfer_s(assigned, entry, one) + its_s, number, one.resource_id)
            for number, one in enumerate(others)
        )
        text += f"; behind all that waits for {name}, the next best, in {ends_s:.3g} s"
    return text
