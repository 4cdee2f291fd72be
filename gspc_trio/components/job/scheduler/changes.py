"""Tasks that wait change to another of their variants: one whose resource is idle, or is there at all."""

from __future__ import annotations

from itertools import islice

from gspc_trio.components.job.scheduler.choices import (
    Sums,
    by_way,
    costs_of,
    count_waiting,
    take,
    variants_of,
)
from gspc_trio.components.job.scheduler.interface import VariantCost
from gspc_trio.components.job.scheduler.resource_queues import assigned_of, count, note_end, runs_of
from gspc_trio.components.job.scheduler.run_times import begin_trial, is_measured
from gspc_trio.components.job.scheduler.state import Choice, SchedulerState, ShapeQueue, TaskEntry, TaskPlace
from gspc_trio.components.job.scheduler.tasks import fail, move, withdraw
from gspc_trio.core.task import Outcome, Reason, TaskError

BROUGHT_MAX = 8
"""So many of the first tasks of a queue are looked at for an idle resource of another one."""

LOOKED_AT_MAX = 64
"""So many of the first tasks of each queue are looked at when time has passed."""

LOOK_MAX_S = 1.0
"""It is looked that often at least while tasks with variants are there."""


def bring(state: SchedulerState, queue: ShapeQueue) -> None:
    """Nothing waits for an idle grant: let tasks that wait elsewhere come if they end sooner by that."""
    idle = len(queue.levels.by_count.get(0, ()))
    if not idle or queue.waiting.size or queue.elsewhere:
        return
    for other in list(state.queues.values()):
        if other is queue:
            continue
        for entry in _waiting(state, other, BROUGHT_MAX):
            choice = state.choices.get(entry.task.task_id)
            way = None if choice is None else _way_to(state, choice, queue)
            if choice is None or way is None or choice.way is None:
                continue
            costs = costs_of(state, choice)
            in_order = variants_of(choice).in_order
            if costs[way] is None or not state.variants.moves(costs, choice.way, way, in_order):
                continue
            _change(state, entry, choice, costs, way)
            idle -= 1
            if not idle:
                return


def decide(state: SchedulerState, queue: ShapeQueue) -> None:
    """A grant idles: of the tasks that would go there now, those wait elsewhere that end sooner there."""
    idle = len(queue.levels.by_count.get(0, ()))
    if not idle or not (queue.waiting.size or queue.queued):
        return
    sums: Sums = {}
    for entry in _waiting(state, queue, BROUGHT_MAX):
        if not _take_better(state, entry, sums, may_try=False):
            idle -= 1
            if not idle:
                return


def _take_better(state: SchedulerState, entry: TaskEntry, sums: Sums, *, may_try: bool) -> bool:
    """Let a task that is at no worker take the variant that is best now; return whether that is another one.

    One that stays with what was measured too seldom tries it from now on, so no other one does. Only of what
    was never measured, with no size of the input, more may run at a time: they went there when nothing was
    known.

    Args:
        state: of the scheduler.
        entry: the task.
        sums: of the classes, which are kept up to date.
        may_try: it may take what was measured too seldom.
    """
    choice = state.choices.get(entry.task.task_id)
    if choice is None or choice.way is None:
        return False
    costs, variants = costs_of(state, choice, sums), variants_of(choice)
    best = state.variants.choose(costs, variants.in_order)
    cost = None if best is None else costs[best]
    is_better = cost is not None and (may_try or cost.is_trusted)
    if best is None or not is_better or not state.variants.moves(costs, choice.way, best, variants.in_order):
        way = variants.ways[choice.way]
        if choice.trial is None and not variants.in_order and is_measured(state, choice, way):
            begin_trial(state, choice, way, costs, choice.way)
        return False
    count_waiting(sums, entry.task, -1)
    _change(state, entry, choice, costs, best)
    count_waiting(sums, entry.task, 1)
    return True


def _waiting(state: SchedulerState, queue: ShapeQueue, number: int) -> list[TaskEntry]:
    """Return the first tasks of a shape that are at no worker, about so many; of those that wait in queues
    of resources some of each queue.
    """
    found = list(islice(queue.waiting, number)) if queue.waiting.size else []
    if not queue.queued:
        return found
    members = assigned_of(state).classes[queue.resource_class].members
    of_each = -(-number // len(members))
    for held in members:
        for waiting in held.line.kinds if held.line is not None else ():
            if waiting.size:
                found += [entry for entry in islice(waiting, of_each) if entry.queue is queue]
    return found


def _way_to(state: SchedulerState, choice: Choice, queue: ShapeQueue) -> int | None:
    """Return the variant by which a task would wait in a queue, None if there is none."""
    for number, way in enumerate(variants_of(choice).ways):
        if number != choice.way and way.shape.requirements[0].resource_class == queue.resource_class:
            shape = state.look_ahead.shape_of(by_way(choice.task, way))
            if shape == queue.shape:
                return number
    return None


def look(state: SchedulerState) -> None:
    """Time has passed, or resources have come or gone: let tasks that wait take what is better now."""
    if state.look_s is None or state.now < state.look_s or state.stopping is not None:
        return
    if not any(work.tasks for work in state.variant_work.values()):
        state.look_s = None
        return
    more = False
    sums: Sums = {}
    for queue in list(state.queues.values()):
        changed = 0
        for entry in _waiting(state, queue, LOOKED_AT_MAX):
            changed += _take_better(state, entry, sums, may_try=True)
        more = more or changed >= LOOKED_AT_MAX
    pause_s = state.work_ahead.settle_s if more else 2 * state.look_pause_s
    state.look_pause_s = min(pause_s, LOOK_MAX_S)
    state.look_s = state.now + state.look_pause_s


def refuse_way(state: SchedulerState, entry: TaskEntry, reason: str) -> None:
    """There is no resource for the variant that a task waits for: it takes another one, or has failed."""
    choice = state.choices[entry.task.task_id]
    assert choice.way is not None, "a live task has chosen a variant"
    choice.refused[choice.way] = reason
    costs, variants = costs_of(state, choice), variants_of(choice)
    best = state.variants.choose(costs, variants.in_order)
    if best is not None:
        _change(state, entry, choice, costs, best)
        return
    if len(choice.refused) > 1:
        why = "; ".join(f"{variants.ways[number].name}: {text}" for number, text in choice.refused.items())
        reason = f"none of its variants can run: {why}"
    withdraw(state, entry)
    outcome = Outcome(entry.task.task_id, entry.attempt, Reason.FAILED, error=TaskError("refused", reason))
    fail(state, entry, outcome, "")


def _change(
    state: SchedulerState,
    entry: TaskEntry,
    choice: Choice,
    costs: tuple[VariantCost | None, ...],
    number: int,
) -> None:
    """Let a task that is at no worker wait for another variant."""
    assert entry.place is not TaskPlace.SENT, "only what is at no worker changes"
    held, before = entry.line, entry.queue.shape
    if held is not None:  # while it is known what it is counted for there
        count(state, held, runs_of([entry]), -1)
    entry.task = take(state, choice, costs, number)
    shape = state.look_ahead.shape_of(entry.task)
    if held is not None:
        count(state, held, runs_of([entry]), 1)
        note_end(state, held)
    if shape != before or entry.place not in (TaskPlace.WAITING, TaskPlace.QUEUED):  # else it keeps its place
        move(state, entry, shape)
    entry.alone = entry.alone or not (entry.task.options.may_rerun and entry.queue.single)
