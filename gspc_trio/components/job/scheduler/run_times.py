"""What is expected of the run times of tasks with variants, what is learned of them, and who tries what."""

from __future__ import annotations

from collections import Counter

from gspc_trio.components.job.scheduler.interface import TRUSTED_SAMPLES, Expected, RunKey, VariantCost
from gspc_trio.components.job.scheduler.state import Choice, SchedulerState, Tally, Trial
from gspc_trio.components.worker.messages import Finished
from gspc_trio.core.ids import host_name
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Reason, Task, TaskVariant

TRIED_SHARE = 0.1
"""At most this share of the tasks of a code try what was measured too seldom."""


def size_of(task: Task) -> int:
    """Return the size of the input of a task: as its code says, else the bytes of its arguments."""
    variants = task.variants
    if variants is not None and variants.size is not None:
        return variants.size
    return sum(map(len, task.arguments))


# Processors -------------------------------------------------------------------------------------------------


def note_resources(state: SchedulerState, resources: tuple[Resource, ...]) -> None:
    """Resources can be reached: note the processors of their hosts, which their nodes name."""
    state.processors.clear()
    for resource in resources:
        if resource.processor:
            state.processor_of[host_name(resource.resource_id)] = resource.processor


def _processors(state: SchedulerState, resource_class: str) -> Counter[str]:
    """Return the processors of a class, each with the number of its resources."""
    found = state.processors.get(resource_class)
    if found is None:
        names = (name for name, its_class in state.known.items() if its_class == resource_class)
        of_host = state.processor_of
        found = state.processors[resource_class] = Counter(of_host.get(host_name(name), "") for name in names)
        if not found:
            found[""] = 1
    return found


# Run times --------------------------------------------------------------------------------------------------


def expected_of(state: SchedulerState, choice: Choice, way: TaskVariant) -> Expected | None:
    """Return how long a variant of a task is expected to run on its class, None if nobody knows.

    With several processors in the class that is the mean over its resources, as far as it is trusted.
    """
    resource_class = way.shape.requirements[0].resource_class
    known: list[tuple[Expected, int]] = []
    for processor, count in _processors(state, resource_class).items():
        key = RunKey(choice.task.name, way.name, resource_class, processor)
        found = state.model.expected(key, choice.size, way.estimate_s)
        if found is not None:
            known.append((found, count))
    if len(known) < 2:
        return known[0][0] if known else None
    trusted = [one for one in known if one[0].samples >= TRUSTED_SAMPLES] or known
    total = sum(count for _, count in trusted)
    best = max((one for one, _ in trusted), key=lambda one: one.samples)
    return Expected(sum(one.seconds * count for one, count in trusted) / total, best.samples, best.basis)


def is_measured(state: SchedulerState, choice: Choice, way: TaskVariant) -> bool:
    """Return whether a variant of a task was measured on its class, with an input of whatever size."""
    resource_class = way.shape.requirements[0].resource_class
    keys = (
        RunKey(choice.task.name, way.name, resource_class, processor)
        for processor in _processors(state, resource_class)
    )
    return any(map(state.model.is_measured, keys))


def learn(state: SchedulerState, event: Finished) -> None:
    """Learn from attempts that have finished, before they are taken in.

    Failures tell nothing, nor does what a compute process runs first: it imports modules for that.
    """
    for outcome in event.outcomes:
        choice = state.choices.get(outcome.task_id)
        entry = state.tasks.get(outcome.task_id)
        if choice is None or choice.way is None or entry is None or entry.held is None:
            continue
        if entry.attempt != outcome.attempt or entry.held.resource_id != event.resource_id:
            continue
        if outcome.reason is not Reason.FINISHED or outcome.first_run:
            continue
        variants = choice.task.variants
        assert variants is not None, "only tasks with variants have a choice"
        way = variants.ways[choice.way]
        processor = state.processor_of.get(host_name(event.resource_id), "")
        key = RunKey(choice.task.name, way.name, way.shape.requirements[0].resource_class, processor)
        state.model.learn(key, choice.size, way.estimate_s, outcome.duration_s)


# Trials -----------------------------------------------------------------------------------------------------


def trial_of(choice: Choice, way: TaskVariant) -> Trial:
    """Return what a task would try with a variant."""
    return choice.task.name, way.name, max(0, choice.size - 1).bit_length()


def may_try(state: SchedulerState, choice: Choice, way: TaskVariant) -> bool:
    """Return whether a task may try a variant that was measured too seldom: no other one tries it, and few
    have tried any."""
    task_id = state.trying.get(trial_of(choice, way))
    if task_id is not None:
        return task_id == choice.task.task_id
    tally = state.tallies.get(choice.task.name) or Tally()
    return tally.trials + 1 <= TRIED_SHARE * tally.tasks


def count_task(state: SchedulerState, task: Task) -> None:
    """There is a task more of a code."""
    state.tallies.setdefault(task.name, Tally()).tasks += 1


def begin_trial(
    state: SchedulerState,
    choice: Choice,
    way: TaskVariant,
    costs: tuple[VariantCost | None, ...],
    number: int,
) -> None:
    """Note whether a task that takes a variant tries it: others are trusted, and this one is not."""
    cost = costs[number]
    if cost is None or not cost.may_try or not any(one is not None and one.is_trusted for one in costs):
        return
    choice.trial = trial_of(choice, way)
    state.trying[choice.trial] = choice.task.task_id
    state.tallies[choice.task.name].trials += 1


def end_trial(state: SchedulerState, choice: Choice, *, has_run: bool) -> None:
    """A task that may have tried something tries it no more; one that never ran there has tried nothing."""
    if choice.trial is None:
        return
    del state.trying[choice.trial]
    choice.trial = None
    if has_run:
        state.look_s = state.now  # the next one may try, or what is known now is better for those that wait
    else:
        state.tallies[choice.task.name].trials -= 1
