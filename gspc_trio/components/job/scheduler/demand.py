"""What a scheduler says of its tasks that wait, to whoever asks batch systems for hosts.

It is said when it has changed, at most once a second, and only while somebody wants to hear it: it costs a
look at each live task.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from gspc_trio.components.job.scheduler.changes import refuse_way
from gspc_trio.components.job.scheduler.state import (
    DEMAND_S,
    DemandTeller,
    RunsUntil,
    SchedulerState,
    TaskPlace,
)
from gspc_trio.components.job.scheduler.tasks import fail, withdraw
from gspc_trio.core.demand import (
    WALLTIME_MAX_S,
    WALLTIME_S,
    DemandWanted,
    EndedTasks,
    GroupRefused,
    RunningGroup,
    TaskDemand,
    TaskGroup,
)
from gspc_trio.core.ids import host_name
from gspc_trio.core.task import Outcome, Reason, Shape, Task, TaskError

PAUSE_PER_TASK_S = 5e-6
"""Very many live tasks are looked at less often: for each so many seconds, of which a look takes 5 %."""

GROUPS_MAX = 512
"""Walltimes of more groups are rounded up until there are no more."""


Need: TypeAlias = tuple[float, int, int]
"""Walltime, cores and nodes of a task."""


def wanted(state: SchedulerState, event: DemandWanted) -> None:
    """Begin, maybe anew, or end to say what tasks need."""
    state.demand = DemandTeller() if event.wanted else None


def tell(state: SchedulerState) -> None:
    """Say what tasks need if it is time, and it is something else than before."""
    teller = state.demand
    if teller is None or teller.due_at is None or teller.due_at > state.now:
        return
    is_first = teller.told_at is None  # who hears it may know something older
    teller.due_at, teller.told_at, teller.is_quiet = None, state.now, True
    teller.pause_s = max(DEMAND_S, len(state.tasks) * PAUSE_PER_TASK_S)
    waiting, running = _counted(state)
    groups, teller.step_s = _few(waiting)
    if is_first or (groups, running) != (teller.groups, teller.running):
        teller.groups, teller.running = groups, running
        runs = tuple(
            RunningGroup(rif_id, min(max(0.0, ends_at - state.now), WALLTIME_MAX_S), cores, nodes, count)
            for (rif_id, ends_at, cores, nodes), count in running.items()
        )
        ended = tuple(EndedTasks(rif_id, count) for rif_id, count in teller.ended.items())
        teller.ended.clear()
        state.actions.append(TaskDemand(state.job, groups, runs, ended))


def check(state: SchedulerState) -> None:
    """Assert that what was said is within limits, and never said twice within a second."""
    teller = state.demand
    if teller is not None:
        assert len(teller.groups) <= GROUPS_MAX, "too many groups were told of"
        assert not teller.is_quiet, "a change would be overlooked"
        if teller.due_at is not None and teller.told_at is not None:
            assert teller.due_at >= teller.told_at + DEMAND_S, "demands are said too often"


def refused(state: SchedulerState, event: GroupRefused) -> None:
    """Tasks of a group can never run: those that wait have failed."""
    error, group = TaskError("refused", event.reason), event.group
    step_s = state.demand.step_s if state.demand is not None else 0.0
    refused_need = group.walltime_s, group.cores, group.nodes
    for entry in [entry for entry in state.tasks.values() if entry.held is None]:
        while entry.place is not TaskPlace.FAILED and _rounded(_need(entry.task), step_s) == refused_need:
            if entry.task.variants is not None:
                refuse_way(state, entry, event.reason)  # the next one may need the same
                continue
            withdraw(state, entry)
            fail(state, entry, Outcome(entry.task.task_id, entry.attempt, Reason.FAILED, error=error), "")


def _need(task: Task) -> Need:
    stated = task.options.timeout_s or task.options.estimate_s or task.shape.estimate_s
    cores, nodes = _width(task.shape)
    return (min(stated or WALLTIME_S, WALLTIME_MAX_S), cores, nodes)


def _width(shape: Shape) -> tuple[int, int]:
    """Return how many cores and whole nodes a task needs; what is part of a node counts as a core."""
    nodes = sum(1 for one in shape.requirements if one.resource_class == "node")
    return len(shape.requirements) - nodes, nodes


def _counted(state: SchedulerState) -> tuple[Counter[Need], Counter[RunsUntil]]:
    """Return how many tasks of each need wait, and what runs where until when."""
    waiting: Counter[Need] = Counter()
    running: Counter[RunsUntil] = Counter()
    needs: dict[
        tuple[int, int], Need
    ] = {}  # most tasks share their shape and options: these are looked at once
    for entry in state.tasks.values() if state.stopping is None else ():
        task = entry.task
        alike = id(task.shape), id(task.options)
        need = needs.get(alike)
        if need is None:
            need = needs[alike] = _need(task)
        if entry.held is None or entry.held.announced is not entry:
            waiting[need] += 1
        else:
            walltime_s, cores, nodes = need
            ends_at = int(entry.held.since_s + walltime_s) + 1
            running[host_name(entry.held.resource_id), ends_at, cores, nodes] += 1
    return waiting, running


def _few(waiting: Counter[Need]) -> tuple[tuple[TaskGroup, ...], float]:
    """Return groups of tasks that wait, the shortest first, and the step to which walltimes are rounded up.

    There are never more than GROUPS_MAX: of more kinds similar ones are taken for one.
    """
    step_s = 0.0
    fewer = waiting
    while len(fewer) > GROUPS_MAX:
        step_s = 2 * step_s or 1.0
        fewer = Counter()
        for need, count in waiting.items():
            fewer[_rounded(need, step_s)] += count
    groups = (TaskGroup(*need, count) for need, count in sorted(fewer.items()))
    return tuple(groups), step_s


def _rounded(need: Need, step_s: float) -> Need:
    walltime_s, cores, nodes = need
    rounded_s = min(-(-walltime_s // step_s) * step_s, WALLTIME_MAX_S) if step_s else walltime_s
    return (rounded_s, cores, nodes)
