"""What waits for each resource (SCH-4), how long it takes, and which of them would be done first.

A task that states how long it runs is taken for that. All others of a code are taken for what was measured,
which is counted anew when it has changed much; so what waits is never looked at one by one for it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import TypeAlias

from gspc_trio.components.job.scheduler.state import (
    Assigned,
    ClassQueues,
    Held,
    SchedulerState,
    ShapeQueue,
    TaskEntry,
    TaskPlace,
)
from gspc_trio.components.job.scheduler.waiting import Targeted, rank_of, targeted
from gspc_trio.core.ids import ResourceId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Shape, Task
from gspc_trio.records.facts import QueueChanged

CHANGE = 1.25
"""Work in queues is counted anew when a measured time has changed by this factor."""

PATIENCE_S = 0.05
"""A soft-targeted task that says nothing else is taken to need so long to be brought elsewhere."""

VOID_MAX = 64
"""So many void entries of a heap are kept in any case."""


def has_queue(shape: Shape) -> bool:
    """Return whether resources granted for a shape have queues: one, on any host, and no memory with it."""
    needs_more = shape.memory_bytes or shape.memories or shape.requirements[0].features or shape.at
    return len(shape.requirements) == 1 and not needs_more


def resources_up(assigned: Assigned, resources: Iterable[Resource]) -> None:
    """Note what resources are part of."""
    for resource in resources:
        above = dict.fromkeys([resource.resource_id])
        for parent in resource.parents:
            above.update(dict.fromkeys(assigned.within.get(parent, (parent,))))
        assigned.within[resource.resource_id] = tuple(above)


def dissolve(state: SchedulerState, held: Held) -> None:
    """A grant can have no tasks any more: what waits for its resource waits for any again.

    Tasks that have failed somewhere wait for any but that, as before they joined the queue.
    """
    line, assigned = held.line, assigned_of(state)
    if line is None:
        return
    entries = list(line)
    for entry in reversed(entries):
        take_from(entry)
        entry.move(TaskPlace.WAITING)
        if not entry.avoid:
            entry.queue.waiting.put_first(entry)
    state.again.extend(entry for entry in entries if entry.avoid)
    runs = runs_of(entries)
    count(state, held, runs, -1)
    count_shapes(state, runs, -1)
    held.line = None
    members = class_of(assigned, held).members
    del members[held]
    for name in names_of(assigned, held.resource_id):
        del assigned.named[name][held]
        if not assigned.named[name]:
            del assigned.named[name]
    assigned.pending.pop(held, None)
    if line.told:
        state.actions.append(QueueChanged(state.now, state.job, held.resource_id, 0, 0.0))


def names_of(assigned: Assigned, resource_id: ResourceId) -> tuple[ResourceId, ...]:
    """Return a resource and all that it is part of."""
    return assigned.within.get(resource_id, (resource_id,))


def class_of(assigned: Assigned, held: Held) -> ClassQueues:
    """Return the queues of a grant's resource class."""
    return assigned.classes.setdefault(held.queue.resource_class, ClassQueues())


def assigned_of(state: SchedulerState) -> Assigned:
    """Return what is known of queues of resources."""
    assert state.assigned is not None, "tasks wait in no queues of resources"
    return state.assigned


# Work


def run_s(state: SchedulerState, entry: TaskEntry) -> float:
    """Return how long a task is taken to run."""
    seconds = stated_run_s(state, entry.task)
    return code_s(state)(_code_of(entry.task)) if seconds is None else seconds


def stated_run_s(state: SchedulerState, task: Task) -> float | None:
    """Return how long a task says that it runs, or was taken for with its variant; None: it says nothing."""
    if task.variants is not None and (choice := state.choices.get(task.task_id)) is not None:
        return choice.work_s
    seconds = task.options.estimate_s
    if seconds is None:
        seconds = task.shape.estimate_s
    return seconds if seconds is not None and seconds > 0 else None


def _code_of(task: Task) -> tuple[str, int]:
    return task.shape.requirements[0].resource_class, task.code_id


def code_s(state: SchedulerState) -> Callable[[tuple[str, int]], float]:
    """Return what tells how long tasks of a code are taken to run which do not state it."""
    assigned = assigned_of(state)
    known = assigned.runs_s

    def seconds(code: tuple[str, int]) -> float:
        found = known.get(code)
        if found is None:
            found = known[code] = _code_run_s(state, assigned, code)
        return found

    return seconds


def _code_run_s(state: SchedulerState, assigned: Assigned, code: tuple[str, int]) -> float:
    time = state.times.get(code)
    if time is not None and time.samples:
        return assigned.policy.task_s(None, time.average_s, None)
    samples = sum(one.samples for one in state.times.values())
    seconds = sum(one.samples * one.average_s for one in state.times.values())
    return assigned.policy.task_s(None, None, seconds / samples if samples else None)


def learned(state: SchedulerState, code: tuple[str, int]) -> None:
    """Something was measured: what waits is taken for what it is known to take now."""
    assigned = assigned_of(state)
    before, now_s = assigned.runs_s.get(code), state.times[code].average_s
    if before is not None and before <= CHANGE * now_s and now_s <= CHANGE * before:
        return
    assigned.runs_s[code] = now_s
    for other in assigned.runs_s.keys() - state.times.keys():
        del assigned.runs_s[other]
    for queues in assigned.classes.values():
        for held in queues.members:
            note_end(state, held)


def backlog_s(state: SchedulerState, held: Held) -> float:
    """Return how long all takes that is at a worker and in the queue of its resource."""
    line = held.line
    waiting_s = line.work_s(code_s(state)) if line is not None else 0.0
    return waiting_s + left_s(state, held) if held.sent else waiting_s


def left_s(state: SchedulerState, held: Held) -> float:
    """Return how long what is at a worker still takes.

    Short tasks are reported many at a time. That a report of them is late says nothing, unless the patrol has
    found that one of them takes long.
    """
    since_s, work_s = state.now - held.since_s, max(0.0, held.work_s)
    if len(held.sent) > 1 and not held.slow:
        return max(0.0, work_s - since_s)
    return assigned_of(state).policy.left_s(work_s, since_s)


def _free_at_s(state: SchedulerState, held: Held) -> float:
    """Return when a resource has nothing more to do: what is idle comes before all others."""
    if not held.sent and not held.line:
        return -inf
    return state.now + backlog_s(state, held)


def note_end(state: SchedulerState, held: Held) -> None:
    """The work for a resource has changed: note when it would be done."""
    line = held.line
    assert line is not None, "the resource has no queue"
    free_at_s = _free_at_s(state, held)
    if free_at_s == line.free_at_s:
        return
    line.free_at_s = free_at_s
    by_end = class_of(assigned_of(state), held).by_end
    heappush(by_end, (line.free_at_s, line.order, held))
    if len(by_end) > VOID_MAX and len(by_end) > 4 * len(class_of(assigned_of(state), held).members):
        by_end[:] = [one for one in by_end if one[2].line is not None and one[0] == one[2].line.free_at_s]
        heapify(by_end)


def first_free(state: SchedulerState, queues: ClassQueues, trusted: Container[Held] = ()) -> Held:
    """Return the resource that has least to do; the first one of equal ones.

    What takes longer than expected pushes the end back as time passes: it is looked at again when it seems to
    be the first.

    Args:
        state: of the scheduler.
        queues: of its class, which has some.
        trusted: resources of which it is known that what was noted is true.
    """
    by_end = queues.by_end
    while by_end:
        noted_s, order, held = by_end[0]
        line = held.line
        if line is None or line.order != order or line.free_at_s != noted_s:
            heappop(by_end)
            continue
        if held in trusted:
            return held
        actual_s = _free_at_s(state, held)
        if actual_s <= noted_s + 1e-9:
            return held
        line.free_at_s = actual_s
        heapreplace(by_end, (actual_s, order, held))
    raise AssertionError("a class has no resource with a queue")


def put_in(state: SchedulerState, entry: TaskEntry, held: Held, *, first: bool) -> None:
    """Put a task that is in no queue into that of a resource: before all others of its rank, or behind."""
    line, assigned = held.line, assigned_of(state)
    assert line is not None, "the resource has no queue"
    entry.line = held
    waiting = line.kinds[targeted(entry.queue.shape)]
    assigned.counter += 1
    if first:
        entry.number = -assigned.counter
        waiting.put_first(entry)
    else:
        entry.number = assigned.counter
        waiting.row(rank_of(entry.task))[entry.task.task_id] = entry
        waiting.size += 1


def take_from(entry: TaskEntry) -> Held:
    """Take a task out of the queue in which it is, which it joins another one of or leaves for good."""
    held = entry.line
    assert held is not None, "the task is in no queue of a resource"
    assert held.line is not None, "the resource has no queue"
    entry.line = None
    held.line.kinds[targeted(entry.queue.shape)].remove(entry)
    return held


def take_out(state: SchedulerState, entry: TaskEntry) -> None:
    """Take a task out of its resource's queue, and out of what is counted there."""
    held, runs = take_from(entry), runs_of([entry])
    count(state, held, runs, -1)
    count_shapes(state, runs, -1)
    assigned_of(state).pending[held] = None
    state.turned[held.queue] = None


Run: TypeAlias = tuple[ShapeQueue, Task, int]
"""Tasks in a row that count alike: their shape's queue, the first of them, and how many they are."""


def runs_of(entries: Iterable[TaskEntry]) -> list[Run]:
    """Return the runs of tasks that count alike: most are alike."""
    found: list[Run] = []
    queue: ShapeQueue | None = None
    first: Task | None = None
    options, code_id, number = None, 0, 0
    for entry in entries:
        task = entry.task
        if (
            task.options is options
            and task.code_id == code_id
            and entry.queue is queue
            and task.variants is None
        ):
            number += 1
            continue
        if queue is not None and first is not None:
            found.append((queue, first, number))
        queue, first, number = entry.queue, task, 1
        options, code_id = None if task.variants is not None else task.options, task.code_id
    if queue is not None and first is not None:
        found.append((queue, first, number))
    return found


def count(state: SchedulerState, held: Held, runs: Iterable[Run], sign: int) -> None:
    """Count tasks that have come into a resource's queue (1), or have gone from it (-1)."""
    line, queues = held.line, class_of(assigned_of(state), held)
    assert line is not None, "the resource has no queue"
    for _, task, number in runs:
        seconds = stated_run_s(state, task)
        if seconds is None:
            code = _code_of(task)
            line.counts[code] = line.counts.get(code, 0) + sign * number
            if not line.counts[code]:
                del line.counts[code]
        else:
            line.stated_s = max(0.0, line.stated_s + sign * number * seconds)
        queues.queued += sign * number
    if not line:
        line.stated_s = 0.0


def count_shapes(state: SchedulerState, runs: Iterable[Run], sign: int) -> None:
    """Count tasks of each shape that have come into the queues of resources (1), or left them (-1)."""
    for queue, task, number in runs:
        priority = task.options.priority
        queue.queued += sign * number
        queue.urgent[priority] = queue.urgent.get(priority, 0) + sign * number
        if not queue.urgent[priority]:
            del queue.urgent[priority]
        state.turned[queue] = None


def transfer_s(assigned: Assigned, entry: TaskEntry, held: Held) -> float:
    """Return how long it takes to bring a task to a resource: nothing, if it is to be there or anywhere."""
    first = entry.task.shape.requirements[0]
    if not first.preferences or is_near(assigned, entry, held):
        return 0.0
    return PATIENCE_S if first.patience_s is None else first.patience_s


def is_near(assigned: Assigned, entry: TaskEntry, held: Held) -> bool:
    """Return whether a task names a resource, or one that it is part of."""
    names = names_of(assigned, held.resource_id)
    return any(name in names for name in entry.task.shape.requirements[0].preferences)


def tell_length(state: SchedulerState, held: Held) -> None:
    """Record how much waits for a resource, while somebody reads such records, and if it has changed."""
    line = held.line
    if not state.recording or line is None or line.told == len(line):
        return
    line.told = len(line)
    state.actions.append(
        QueueChanged(state.now, state.job, held.resource_id, len(line), backlog_s(state, held))
    )


def tell_lengths(state: SchedulerState) -> None:
    """From now on such records are read, or not: tell what there is, or that nobody knows any more."""
    for queues in assigned_of(state).classes.values():
        for held in queues.members:
            line = held.line
            assert line is not None, "a grant among those with queues has none"
            if line.told and not state.recording:
                state.actions.append(QueueChanged(state.now, state.job, held.resource_id, 0, 0.0))
            line.told = 0
            tell_length(state, held)


def look_again(state: SchedulerState) -> None:
    """Time has passed: idle resources look anew at what waits for others."""
    assigned = assigned_of(state)
    for queues in assigned.classes.values():
        if queues.queued:
            for held in queues.members:
                if not held.sent and not held.line:
                    assigned.pending[held] = state.turned[held.queue] = None


# Invariants


def check_queues(state: SchedulerState) -> None:
    """Assert that each task is in one queue at most, where it may be, and that what is counted is true."""
    assigned = assigned_of(state)
    assert not assigned.pending, "what could be sent was not looked at"
    found: dict[int, Held] = {}
    shapes: dict[ShapeQueue, list[int]] = {}
    for its_class, queues in assigned.classes.items():
        queued = 0
        for held in queues.members:
            line = held.line
            assert state.grants.get(held.grant_id) is held, "a queue without a grant"
            assert line is not None, "a grant among those with queues has none"
            assert held.queue.resource_class == its_class, "a queue is in another class"
            assert held.usable or (held.blocked and held.sent), "a queue that nothing leaves"
            queued += len(line)
            for kind in Targeted:
                line.kinds[kind].check()
                for entry in line.kinds[kind]:
                    task_id = entry.task.task_id
                    assert task_id not in found, f"task {task_id} is in two queues"
                    found[task_id] = held
                    assert targeted(entry.queue.shape) is kind, "a task is held to be targeted otherwise"
                    assert has_queue(entry.task.shape), "a task needs more than the resources with queues"
                    assert kind is not Targeted.HARD or is_near(assigned, entry, held), "a task is elsewhere"
                    shapes.setdefault(entry.queue, []).append(entry.task.options.priority)
            work_s = sum(run_s(state, entry) for entry in line)
            assert abs(work_s - line.work_s(code_s(state))) < 1e-6 * max(1.0, work_s), "work is missummed"
        assert queued == queues.queued, "queued tasks are miscounted"
    for task_id, entry in state.tasks.items():
        assert found.get(task_id) is entry.line, "a task and its queue disagree"
        is_queued = entry.place is TaskPlace.QUEUED
        assert (entry.line is not None) == is_queued, "a task is in a queue and elsewhere"
    for queue in state.queues.values():
        priorities = shapes.get(queue, [])
        assert len(priorities) == queue.queued, "queued tasks of a shape are miscounted"
        assert queue.urgent == {one: priorities.count(one) for one in priorities}, "priorities are miscounted"
