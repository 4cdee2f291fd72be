"""Records of the calls of a range: of each as if it had been a task of its own (pure).

A range says which of its calls have ended, and when it began and ended itself. A call has the number behind
that of the call before it, the first one that behind the task's, and an even part of the range's time.
"""

from __future__ import annotations

from collections.abc import Sequence

from gspc_trio.components.job.scheduler.interface import EndedItems
from gspc_trio.core.ids import JobId, TaskId
from gspc_trio.core.task import TaskState
from gspc_trio.records.columns import columns_of, runs_of
from gspc_trio.records.facts import FactColumns, TaskChanged, TaskFlow


def records_of(job: JobId, ended: EndedItems, now: float) -> list[TaskChanged | FactColumns]:
    """Return the records of calls that have ended; ``now`` is the time on the clock of the job."""
    done, name, errors = ended.done, ended.name, ended.errors
    first, each_s, began_s = done.task_id + 1, ended.each_s, done.outcome.started_s
    run = {"task_id": (first, 1)}
    flow = runs_of(TaskFlow, {"at_s": ended.ready_s, "job": job, "name": name}, ended.count, run)
    same = {"at_s": ended.ready_s, "job": job, "state": TaskState.READY, "name": name}
    told: list[TaskChanged | FactColumns] = [*flow, *runs_of(TaskChanged, same, ended.count, run)]
    there = {"at_s": now, "job": job, "attempt": done.tries, "name": name, "resource_id": done.resource_id}
    same = {**there, "state": TaskState.FINISHED, "duration_s": each_s}
    if not errors:
        runs = {**run, "started_s": (began_s, each_s)} if began_s else run
        told += runs_of(TaskChanged, same, ended.count, runs)
    elif numbers := [first + place for place in range(ended.count) if place not in errors]:
        each: dict[str, Sequence[object]] = {"task_id": numbers}
        if began_s:
            each["started_s"] = [began_s + (number - first) * each_s for number in numbers]
        told += columns_of(TaskChanged, same, each)
    for place, error in sorted(errors.items()):
        outcome = ended.outcome(place)
        told.append(
            TaskChanged(
                now, job, first + place, TaskState.FAILED, done.tries, name, done.resource_id,
                f"{error.kind}: {error.message}", outcome.started_s, each_s,
            )
        )  # fmt: skip
    return told


def records_of_cancelled(job: JobId, name: str, first: TaskId, count: int, now: float) -> list[FactColumns]:
    """Return the records of calls that were cancelled before they were in a range.

    Args:
        job: whose they are.
        name: of the function.
        first: number that the first one has from now on; those of the others follow.
        count: of them.
        now: the time on the clock of the job.
    """
    same = {"at_s": now, "job": job, "state": TaskState.CANCELLED, "name": name}
    return runs_of(TaskChanged, same, count, {"task_id": (first, 1)})
