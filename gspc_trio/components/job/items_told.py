"""Records of the calls of a range: of each as if it had been a task of its own (pure).

A range says which of its calls have ended, and when it began and ended itself. A call has the number behind
that of the call before it, the first one that behind the task's, and an even part of the range's time.
"""

from __future__ import annotations

from collections.abc import Sequence

from gspc_trio.components.job.scheduler.interface import EndedItems
from gspc_trio.core.ids import JobId, TaskId
from gspc_trio.core.task import TaskState
from gspc_trio.records.columns import columns_of
from gspc_trio.records.facts import FactColumns, TaskChanged, TaskFlow


def records_of(job: JobId, ended: EndedItems, now: float) -> list[TaskChanged | FactColumns]:
    """Return the records of calls that have ended; ``now`` is the time on the clock of the job."""
    done, name, errors = ended.done, ended.name, ended.errors
    first, each_s, began_s = done.task_id + 1, ended.each_s, done.outcome.started_s
    numbers: Sequence[TaskId] = list(range(first, first + ended.count))
    flow = columns_of(TaskFlow, {"at_s": ended.ready_s, "job": job, "name": name}, {"task_id": numbers})
    same = {"at_s": ended.ready_s, "job": job, "state": TaskState.READY, "name": name}
    told: list[TaskChanged | FactColumns] = [*flow, *columns_of(TaskChanged, same, {"task_id": numbers})]
    there = {"at_s": now, "job": job, "attempt": done.tries, "name": name, "resource_id": done.resource_id}
    if errors:
        numbers = [number for place, number in enumerate(numbers) if place not in errors]
    if numbers:
        same = {**there, "state": TaskState.FINISHED, "duration_s": each_s}
        each: dict[str, Sequence[object]] = {"task_id": numbers}
        if began_s:
            began_s -= first * each_s
            each["started_s"] = [began_s + number * each_s for number in numbers]
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


def records_of_cancelled(job: JobId, name: str, numbers: Sequence[TaskId], now: float) -> list[FactColumns]:
    """Return the records of calls that were cancelled before they were in a range.

    Args:
        job: whose they are.
        name: of the function.
        numbers: those that they have from now on, at least one.
        now: the time on the clock of the job.
    """
    same = {"at_s": now, "job": job, "state": TaskState.CANCELLED, "name": name}
    return columns_of(TaskChanged, same, {"task_id": numbers})
