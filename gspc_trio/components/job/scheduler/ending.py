"""Hosts that end at a known time: a task goes only where the time that it states is left.

Of the tasks that fit, the longest goes first (SWF-6): a shorter one may still find room later. Where the
time is not left, the task waits for hosts that stay longer, in a queue of its own. It goes back when there is
another host. Nothing of this is done while no host has an end.
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
from gspc_trio.core.task import Requirement, Shape, Task

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
    gone = state.ends.keys() & set(map(host_name, lost))
    for host in gone - set(map(host_name, state.known)) if gone else ():
        del state.ends[host]


def bring_back(state: SchedulerState) -> None:
    """Let tasks that were put aside wait with the others of their shape again."""
    for queue in [queue for queue in state.queues.values() if queue.shape in state.aside]:
        for entry in [*queue.elsewhere.values(), *queue.waiting]:
            move(state, entry, state.look_ahead.shape_of(entry.task))
    state.aside.clear()


def fitting_share(state: SchedulerState, held: Held, share: int) -> int:
    """Return how many tasks a grant may have, at most ``share``, if its host has an end.

    The longest task that fits is made the next; what comes after it and takes longer than the host stays is
    put aside.
    """
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
        shape = staying(state, queue.shape, stated_s(entry.task) or 0.0)
        state.aside.add(shape)
        move(state, entry, shape)
    return count


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


def staying(state: SchedulerState, shape: Shape, time_s: float) -> Shape:
    """Return the shape for a task of so many seconds: it asks only for hosts that stay so long."""
    hosts = {host for host in map(host_name, state.known) if state.now + time_s <= state.ends.get(host, inf)}
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
