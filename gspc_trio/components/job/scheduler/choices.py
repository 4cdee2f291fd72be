"""Tasks with variants: which one each takes, and why (SCH-7).

A task goes where it is expected to end first. The work of a class is what the job's tasks there take, and is
shared by the resources of the class that the job can have. While a resource is free, nothing waits there. One
that was asked for and does not come is not free: the wait is at least as long as it has been already.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import TRUSTED_SAMPLES, Basis, VariantCost
from gspc_trio.components.job.scheduler.run_times import (
    begin_trial,
    count_task,
    end_trial,
    expected_of,
    may_try,
    size_of,
)
from gspc_trio.components.job.scheduler.state import Choice, ClassWork, SchedulerState, TaskEntry
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import Outcome, Shape, Task, TaskVariant, TaskVariants

UNKNOWN_S = 0.5
"""A task is taken to run so long as long as nothing was measured."""

LOOK_S = 0.1
"""After a task has chosen a variant, it is looked again so soon whether tasks had better take another one."""


class ClassSum(Struct):
    """Of all queues of a resource class: what is in them, what is held for them and asked for.

    Attributes:
        tasks, waiting: live tasks, and those of them that a further grant would run.
        grants, idle: that are held, and that run nothing.
        told: how many were asked for, and have not come.
        changed_s: when the last one of these was asked for, or came.
    """

    tasks: int = 0
    waiting: int = 0
    grants: int = 0
    idle: int = 0
    told: int = 0
    changed_s: float = -inf


Sums: TypeAlias = dict[str, ClassSum]
"""Sums of the classes that were asked for: there may be thousands of queues, and as many tasks that ask."""


def choose_first(state: SchedulerState, task: Task, sums: Sums) -> Task:
    """Return a task that has become ready, and waits from now on, as it is by the variant that it takes."""
    choice = state.choices[task.task_id] = Choice(task, size_of(task))
    count_task(state, task)
    costs = costs_of(state, choice, sums)
    taken = take(state, choice, costs, _best(state, choice, costs) or 0)
    count_waiting(sums, taken, 1)
    return taken


def count_waiting(sums: Sums, task: Task, count: int) -> None:
    """Note that so many more tasks wait for the class of this one."""
    if (known := sums.get(task.shape.requirements[0].resource_class)) is not None:
        known.tasks += count
        known.waiting += count


def choose_again(state: SchedulerState, entry: TaskEntry) -> None:
    """Let a task that waits nowhere, for it gets another attempt, choose anew."""
    choice = state.choices[entry.task.task_id]
    before = choice.way
    _give_back(state, choice, has_run=True)
    costs = costs_of(state, choice)
    way = _best(state, choice, costs)
    entry.task = take(state, choice, costs, (before or 0) if way is None else way)
    entry.queue = state.queue_for(state.look_ahead.shape_of(entry.task))
    entry.alone = entry.alone or not (entry.task.options.may_rerun and entry.queue.single)


def take(state: SchedulerState, choice: Choice, costs: tuple[VariantCost | None, ...], number: int) -> Task:
    """Note that a task takes this one of its variants from now on, and return it as it is by that."""
    _give_back(state, choice, has_run=False)
    task, variants = choice.task, variants_of(choice)
    way, cost = variants.ways[number], costs[number]
    run_s = cost.run_s if cost is not None else None
    choice.way, choice.costs = number, costs
    if not variants.in_order:
        begin_trial(state, choice, way, costs, number)
    choice.work_s = _mean_s(state, _class_of(way)) if run_s is None else run_s
    work = state.variant_work.setdefault(_class_of(way), ClassWork())
    work.tasks += 1
    work.seconds += choice.work_s
    soon_s = state.now + LOOK_S
    if state.look_s is None:
        state.look_s, state.look_pause_s = state.now + state.work_ahead.settle_s, LOOK_S
    elif soon_s < state.look_s:
        state.look_s, state.look_pause_s = soon_s, LOOK_S
    return by_way(task, way)


def by_way(task: Task, way: TaskVariant) -> Task:
    """Return a task as it is by one of its variants."""
    return replace(
        task,
        name=f"{task.name}[{way.name}]",
        code_id=way.code_id,
        arguments=way.leading + task.arguments,
        shape=way.shape,
    )


def variants_of(choice: Choice) -> TaskVariants:
    """Return the variants of the task of a choice."""
    variants = choice.task.variants
    assert variants is not None, "only tasks with variants have a choice"
    return variants


def _give_back(state: SchedulerState, choice: Choice, *, has_run: bool) -> None:
    if choice.way is None:
        return
    end_trial(state, choice, has_run=has_run)
    work = state.variant_work[_class_of(variants_of(choice).ways[choice.way])]
    work.tasks -= 1
    work.seconds = work.seconds - choice.work_s if work.tasks else 0.0
    choice.way = None


def leave(state: SchedulerState, task_id: TaskId, *, may_return: bool) -> None:
    """A task is none of the live ones any more; it may be tried again on request, or not."""
    _give_back(state, state.choices[task_id], has_run=True)
    if not may_return:
        del state.choices[task_id]


def ended(state: SchedulerState, outcomes: Iterable[Outcome]) -> None:
    """Attempts have ended: forget the choices of tasks that are over with them."""
    for outcome in outcomes:
        task_id = outcome.task_id
        if task_id in state.choices and task_id not in state.tasks and task_id not in state.failed:
            leave(state, task_id, may_return=False)


def note_failure(state: SchedulerState, entry: TaskEntry) -> None:
    """An attempt has failed or was lost: the next one takes another variant, until all have failed."""
    choice = state.choices.get(entry.task.task_id)
    if choice is None or choice.way is None:
        return
    choice.failed |= {choice.way}
    if choice.failed >= _there(state, choice):
        choice.failed = frozenset({choice.way})


def forget_failures(state: SchedulerState, task_id: TaskId) -> None:
    """A task that has failed is tried again on request, by whatever variant."""
    choice = state.choices[task_id]
    choice.failed, choice.refused = frozenset(), {}


def class_came(state: SchedulerState, resource_class: str) -> None:
    """There is a resource more of a class: what was refused for want of it may run there after all."""
    state.look_s = state.now
    if state.class_sizes.get(resource_class, 0):
        return
    for choice in state.choices.values():
        for number, way in enumerate(variants_of(choice).ways):
            if _class_of(way) == resource_class:
                choice.refused.pop(number, None)


# Costs


def costs_of(
    state: SchedulerState, choice: Choice, sums: Sums | None = None
) -> tuple[VariantCost | None, ...]:
    """Return what each variant of a task costs now; None: it was refused, its class is not there, it failed.

    If that is true of all, those that have failed or whose class is not there may be taken.

    Args:
        state: of the scheduler.
        choice: of the task.
        sums: as they are now; those that are missing are added. None: nobody else needs them.
    """
    sums = {} if sums is None else sums
    there = _there(state, choice)
    left = there - choice.failed or there
    ways = enumerate(variants_of(choice).ways)
    return tuple(_cost(state, choice, way, sums) if number in left else None for number, way in ways)


def _there(state: SchedulerState, choice: Choice) -> set[int]:
    """Return the variants that were not refused and whose class is there; if there is none, all that were
    not refused.
    """
    ways = variants_of(choice).ways
    not_refused = {number for number in range(len(ways)) if number not in choice.refused}
    return {number for number in not_refused if _resources(state, ways[number].shape)} or not_refused


def _best(state: SchedulerState, choice: Choice, costs: tuple[VariantCost | None, ...]) -> int | None:
    return state.variants.choose(costs, variants_of(choice).in_order)


def _cost(state: SchedulerState, choice: Choice, way: TaskVariant, sums: Sums) -> VariantCost:
    resource_class = _class_of(way)
    expected = expected_of(state, choice, way)
    is_here = choice.way is not None and _class_of(variants_of(choice).ways[choice.way]) == resource_class
    known = sums.get(resource_class)
    if known is None:
        known = sums[resource_class] = _sum_of(state, resource_class)
    wait_s = _wait_s(state, way.shape, known, int(is_here), choice.work_s if is_here else 0.0)
    if expected is None:
        return VariantCost(wait_s, way.transfer_s, None, 0, may_try(state, choice, way))
    tries = expected.samples < TRUSTED_SAMPLES and may_try(state, choice, way)
    return VariantCost(wait_s, way.transfer_s, expected.seconds, expected.samples, tries, expected.basis)


def _sum_of(state: SchedulerState, resource_class: str) -> ClassSum:
    found = ClassSum()
    for queue in state.queues.values():
        if queue.resource_class == resource_class:
            found.tasks += queue.tasks
            found.waiting += queue.unserved
            found.idle += len(queue.levels.by_count.get(0, ()))
            found.grants += len(queue.grants)
            if queue.told:
                found.told += queue.told
                found.changed_s = max(found.changed_s, queue.changed_s)
    return found


def _wait_s(state: SchedulerState, shape: Shape, known: ClassSum, own: int, own_s: float) -> float:
    """Return how long a task waits for a resource.

    Args:
        state: of the scheduler.
        shape: what it needs.
        known: of its class.
        own: 1 if it is among the tasks that go there already, else 0.
        own_s: what it is taken for there.
    """
    resource_class = shape.requirements[0].resource_class
    there = _resources(state, shape)
    if known.idle > known.waiting - own:
        return 0.0
    late_s = state.now - known.changed_s if known.told and known.grants < there else 0.0
    is_late = late_s > state.work_ahead.settle_s
    if known.tasks - own < there and not is_late:
        return 0.0
    work = state.variant_work.get(resource_class) or ClassWork()
    others = known.tasks - work.tasks
    seconds = max(0.0, work.seconds - own_s) + (others * _mean_s(state, resource_class) if others else 0.0)
    if is_late:
        return max(seconds / max(1, known.grants), late_s)
    return seconds / max(1, there)


def _resources(state: SchedulerState, shape: Shape) -> int:
    """Return for how many tasks of a shape there are resources."""
    classes = [one.resource_class for one in shape.requirements]
    return min(state.class_sizes.get(name, 0) // classes.count(name) for name in classes)


def _mean_s(state: SchedulerState, resource_class: str) -> float:
    """Return how long tasks of a class run, as far as that was measured."""
    times = [time for (name, _), time in state.times.items() if name == resource_class]
    samples = sum(time.samples for time in times)
    return sum(time.average_s * time.samples for time in times) / samples if samples else UNKNOWN_S


def _class_of(way: TaskVariant) -> str:
    return way.shape.requirements[0].resource_class


# For people


def explain(state: SchedulerState, task_id: TaskId) -> str:
    """Return why a task takes its variant, "" if it has none."""
    choice = state.choices.get(task_id)
    if choice is None or choice.way is None:
        return ""
    ways = variants_of(choice).ways
    others = [
        f"{way.name} {_why(state, choice, number)}" for number, way in enumerate(ways) if number != choice.way
    ]
    chosen = f"variant {ways[choice.way].name} {_why(state, choice, choice.way)}"
    return f"; {chosen}" + (f", not {', '.join(others)}" if others else "")


def _why(state: SchedulerState, choice: Choice, number: int) -> str:
    shape = variants_of(choice).ways[number].shape
    if number in choice.refused:
        return f"(refused: {choice.refused[number]})"
    cost = choice.costs[number]
    if cost is None and number in choice.failed:
        return "(its attempt failed)"
    if cost is None or not _resources(state, shape):
        return f"(no {shape})"
    transfer = f"{cost.transfer_s:.3g} s transfer, " if cost.transfer_s else ""
    return f"({cost.wait_s:.3g} s wait, {transfer}{_run(cost)})"


def _run(cost: VariantCost) -> str:
    """Return how long a variant runs, and from what that is known."""
    if cost.run_s is None:
        return "its run time is not known" + (", and is tried" if cost.may_try else "")
    if cost.basis is Basis.STATED:
        return f"{cost.run_s:.3g} s run as stated"
    samples = f"{cost.samples} sample" + ("s" if cost.samples > 1 else "")
    of_other_sizes = " of other sizes" if cost.basis is Basis.LAW else ""
    return f"{cost.run_s:.3g} s run by {samples}{of_other_sizes}"
