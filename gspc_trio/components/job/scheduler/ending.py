"""Hosts where not every task is to run: they end, or something slows tasks with files or remote data down.

To a host that ends a task goes only if the time that it states is left there.

Of the tasks that fit, the longest goes first (SWF-6): a shorter one may still find room later. Where the
time is not left, the task waits for hosts that stay longer, in a queue of its own. It goes back when there is
another host. Nothing of this is done while no host has an end.

A host may be restricted: an anomaly slows those tasks down that use data in some ways. These wait for other
hosts in the same manner, if there are any for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import inf

from attrs import evolve
from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import ResourcesUp
from gspc_trio.components.job.scheduler.state import (
    Held,
    SchedulerState,
    ShapeQueue,
    TaskEntry,
)
from gspc_trio.components.job.scheduler.tasks import move
from gspc_trio.components.job.scheduler.waiting import rank_of
from gspc_trio.core.ids import ResourceId, host_name
from gspc_trio.core.staging import PLAN_MARK
from gspc_trio.core.task import DataUse, Requirement, Shape, Task

LOOKED_AT_MAX = 256
"""Tasks of a queue among which the longest one is looked for, and that a grant gets at a time."""

SHORT_S = 0.01
"""The order does not matter for tasks that state nothing and take less."""


def stated_s(task: Task) -> float | None:
    """Return how long a task takes at most, or is expected to, as it says itself."""
    for seconds in (task.options.timeout_s, task.options.estimate_s, task.shape.estimate_s):
        if seconds is not None and seconds > 0:
            return seconds
    return None


def note_end(state: SchedulerState, event: ResourcesUp) -> None:
    """Resources are there, or said again: note when their hosts end, and look at what waits for such news."""
    news = any(resource.resource_id not in state.known for resource in event.resources)
    for host in {host_name(resource.resource_id) for resource in event.resources}:
        if event.until_s is not None:
            news = news or state.ends.get(host) != event.until_s
            state.ends[host] = event.until_s
        elif state.ends.pop(host, None) is not None:
            news = True
    if news and state.aside:
        bring_back(state)


def forget_ends(state: SchedulerState, lost: Iterable[ResourceId]) -> None:
    """Resources are no longer known: forget the ends of hosts of which nothing else is."""
    gone = (state.ends.keys() | state.restricted.keys()) & set(map(host_name, lost))
    for host in gone - set(map(host_name, state.known)) if gone else ():
        state.ends.pop(host, None)
        state.restricted.pop(host, None)


def bring_back(state: SchedulerState) -> None:
    """Let tasks that were put aside wait with the others of their shape again."""
    for queue in [queue for queue in state.queues.values() if queue.shape in state.aside]:
        for entry in [*queue.elsewhere.values(), *queue.waiting]:
            move(state, entry, state.look_ahead.shape_of(entry.task))
    state.aside.clear()


def fitting_share(state: SchedulerState, held: Held, share: int) -> int:
    """Return how many tasks a grant may have, at most ``share``, if its host has an end or is restricted.

    The longest task that fits is made the next; what comes after it and takes longer than the host stays is
    put aside, and so is what the host is the wrong one for.
    """
    if host_name(held.resource_id) in state.restricted:
        share = _put_misplaced_aside(state, held, share)
    until_s = min(state.ends.get(host_name(name), inf) for name in held.resources)
    if until_s == inf:
        return share
    left_s = until_s - state.now
    begins_s = sum(time_s for _, time_s in _with_times(held.sent.values()))
    _bring_longest(state, held.queue, left_s - begins_s)
    misfits, count, queue = list[TaskEntry](), len(held.sent), held.queue
    share = min(share, count + LOOKED_AT_MAX)  # its share may be all tasks of the job, of which it gets few
    for entry, time_s in _with_times(chain(queue.elsewhere.values(), queue.waiting)):
        if count >= share:
            break
        if time_s > left_s or left_s <= 0:
            misfits.append(entry)
        elif begins_s + time_s > left_s:
            break
        else:
            begins_s += time_s
            count += 1
    for entry in misfits:
        put_aside(state, entry)
    return count


def put_aside(state: SchedulerState, entry: TaskEntry) -> None:
    """Let a task wait for hosts that stay long enough, and are not the wrong ones for it."""
    shape = staying(state, entry)
    if shape != entry.queue.shape:
        state.aside.add(shape)
        move(state, entry, shape)


def _with_times(entries: Iterable[TaskEntry]) -> Iterator[tuple[TaskEntry, float]]:
    """Yield entries with the seconds that their tasks state; most share options and shape, looked at once."""
    options = shape = None
    time_s = 0.0
    for entry in entries:
        task = entry.task
        if task.options is not options or task.shape is not shape:
            options, shape, time_s = task.options, task.shape, stated_s(task) or 0.0
        yield entry, time_s


def _bring_longest(state: SchedulerState, queue: ShapeQueue, left_s: float) -> None:
    """Make the longest task that fits the next of a queue, of those of its rank.

    It may come from another queue that differs in its estimate only: its tasks need the same resources.
    """
    first = queue.waiting.first()
    if first is None:
        return
    measured = state.times.get((queue.resource_class, first.task.code_id))
    if measured is not None and measured.average_s < SHORT_S and stated_s(first.task) is None:
        return
    rank, longest, longest_s = rank_of(first.task), first, 0.0
    queues = (one for one in state.queues.values() if one is not queue and _is_like(one.shape, queue.shape))
    for one in (queue, *queues) if len(state.queues) > 1 else (queue,):
        following = one.waiting.first()
        if following is not None and rank_of(following.task) == rank:
            for entry, time_s in _with_times(islice(one.waiting.row(rank).values(), LOOKED_AT_MAX)):
                if longest_s < time_s <= left_s:
                    longest, longest_s = entry, time_s
    if longest.queue is not queue:
        move(state, longest, queue.shape)
    if longest is not first:
        queue.waiting.row(rank).move_to_end(longest.task.task_id, last=False)


def _is_like(shape: Shape, other: Shape) -> bool:
    """Whether tasks of two shapes need the same, for however long."""
    return replace(shape, estimate_s=other.estimate_s) == other


def staying(state: SchedulerState, entry: TaskEntry) -> Shape:
    """Return the shape for a task: it asks only for hosts that stay so long, and are not the wrong ones."""
    shape, time_s = entry.queue.shape, stated_s(entry.task) or 0.0
    hosts = {host for host in map(host_name, state.known) if state.now + time_s <= state.ends.get(host, inf)}
    hosts -= {host for host in state.restricted if is_slowed(state, entry, host)}
    return replace(
        shape, requirements=tuple(_only(state, one, hosts, time_s) for one in shape.requirements), wait=True
    )


def _only(state: SchedulerState, wish: Requirement, hosts: set[str], time_s: float) -> Requirement:
    named = [name for name in wish.preferences if host_name(name) in hosts]
    others: list[ResourceId] = []
    if not wish.hard:
        whole = {host for host in hosts if f"{host}.node" in state.known}
        others += [f"{host}.node" for host in sorted(whole)]
        others += [
            name
            for name, resource_class in state.known.items()
            if resource_class == wish.resource_class and host_name(name) in hosts - whole
        ]
    found = tuple(dict.fromkeys([*named, *others])) or (f"a host that stays for {time_s:g} s",)
    return evolve(wish, preferences=found, hard=True, patience_s=None)


# Restricted hosts


def is_misplaced(state: SchedulerState, entry: TaskEntry, resource_id: ResourceId) -> bool:
    """Return whether a resource is on the wrong host for a task, and it can run on another one."""
    host = host_name(resource_id)
    if host not in state.restricted or not is_slowed(state, entry, host):
        return False
    first = entry.task.shape.requirements[0]
    if first.hard:
        others: Iterable[str] = map(host_name, first.preferences)
    else:
        classes = state.known.items()
        others = (host_name(name) for name, its_class in classes if its_class == first.resource_class)
    return any(not is_slowed(state, entry, other) for other in others)


def is_slowed(state: SchedulerState, entry: TaskEntry, host: str) -> bool:
    """Return whether a host is restricted for what a task does with data there."""
    restriction = state.restricted.get(host)
    if restriction is None or not entry.staged:
        return False
    has_files = any(argument[:2] == PLAN_MARK for argument in entry.task.arguments)
    if has_files and DataUse.FILES in restriction.uses:
        return True
    if DataUse.REMOTE not in restriction.uses:
        return False
    return has_files or entry.task.options.stage_out or not _has_inputs(state, entry, host)


def _has_inputs(state: SchedulerState, entry: TaskEntry, host: str) -> bool:
    """Return whether a host has what a task takes, or most of it if no more is known."""
    known = None if state.plans is None else state.plans.known.get(entry.task.task_id)
    if known is not None:
        inputs = known.task.inputs
        return bool(inputs) and all(host in data.hosts for data in inputs)
    preferences = entry.task.shape.requirements[0].preferences
    return bool(preferences) and host_name(preferences[0]) == host


def _put_misplaced_aside(state: SchedulerState, held: Held, share: int) -> int:
    """Let tasks for which the host of a grant is the wrong one wait for others; return the grant's share.

    No more of them are looked at than are needed to find what it may have.
    """
    queue, name = held.queue, held.resource_id
    room = min(share - len(held.sent), LOOKED_AT_MAX)
    misplaced: list[TaskEntry] = []
    for entry in queue.waiting:
        if room <= 0:
            break
        if is_misplaced(state, entry, name):
            misplaced.append(entry)
        else:
            room -= 1
    for entry in misplaced:
        put_aside(state, entry)
    return min(share, len(held.sent) + LOOKED_AT_MAX)


def why_not(state: SchedulerState, entry: TaskEntry) -> str:
    """Return on which hosts a task is not to run for now and why, "" if there are none."""
    known = state.restricted.items()
    told = [one.reason for host, one in known if is_misplaced(state, entry, f"{host}.")]
    return f"; not there for now: {', '.join(told)}" if told else ""
