"""What people may ask a job server about its tasks and its workflow: plain data, made only when asked for."""

from __future__ import annotations

import reprlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gspc_trio.components.worker.messages import AttemptStatus, GetAttempt
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import Outcome
from gspc_trio.protocol.values import loads
from gspc_trio.records.facts import TaskChanged
from gspc_trio.records.progress import JobProgress

if TYPE_CHECKING:
    from gspc_trio.components.job.shell.handle import Job

OUTPUTS_KEPT_MAX = 200
"""Last tasks of which what they printed is kept."""

INPUTS_SHOWN_MAX = 20
"""Arguments of a task that are shown."""

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 300
_brief.maxlist = _brief.maxtuple = _brief.maxdict = 20


class PrintedOutput:
    """What the last tasks printed that printed anything."""

    def __init__(self) -> None:
        self._printed: OrderedDict[TaskId, tuple[bytes, bytes]] = OrderedDict()

    def keep(self, outcome: Outcome) -> None:
        """Keep what an attempt printed, in place of what an earlier one did."""
        self._printed.pop(outcome.task_id, None)
        self._printed[outcome.task_id] = (outcome.stdout, outcome.stderr)
        if len(self._printed) > OUTPUTS_KEPT_MAX:
            self._printed.popitem(last=False)

    def of(self, task_id: TaskId) -> tuple[str, str]:
        """Return standard output and standard error of a task, "" if nothing is known."""
        out, err = self._printed.get(task_id, (b"", b""))
        return _decoded(out), _decoded(err)


def describe_task(job: Job, task_id: TaskId) -> dict[str, Any]:
    """Return everything that is still known of a task.

    ``task_id``, ``name``, ``state``, ``attempt``, ``resource_id``, ``host``, ``detail``, ``started_s``,
    ``duration_s``, ``why`` (what it waits for, or where it runs), ``shape``, ``inputs`` (texts), ``stdout``,
    ``stderr``, ``error``, ``traceback``. Of tasks that finished long ago little is kept.
    """
    scheduler, progress = job.machine.scheduler, job.records.progress.jobs.get(job.job_id)
    data: dict[str, Any] = {"task_id": task_id, "why": scheduler.explain(task_id)}
    record = _last_word(progress, task_id) if progress is not None else None
    if record is not None:
        data |= _row(job, record)
    task = scheduler.task(task_id)
    if task is not None:
        data |= {"name": task.name, "shape": str(task.shape)}
        data["inputs"] = [_text(argument) for argument in task.arguments[:INPUTS_SHOWN_MAX]]
    data["stdout"], data["stderr"] = job.printed.of(task_id)
    for failure in job.machine.failures:
        if failure.task_id == task_id and failure.outcome.error is not None:
            error = failure.outcome.error
            data |= {"error": f"{error.kind}: {error.message}", "traceback": error.traceback}
    return data


async def describe_at_work(job: Job, task_id: TaskId) -> dict[str, Any]:
    """Return :func:`describe_task`; of a task at a worker also what that tells of it now.

    That is ``phase`` (``waiting``, ``stage_in``, ``compute`` or ``stage_out``), ``pid`` (the process that
    computes) and what it has printed so far.
    """
    data = describe_task(job, task_id)
    at_worker = job.machine.scheduler.attempt_of(task_id)
    if at_worker is not None and job.ask_worker is not None:
        resource_id, attempt = at_worker
        told = await job.ask_worker(resource_id, GetAttempt(job.job_id, resource_id, task_id, attempt))
        if isinstance(told, AttemptStatus) and told.phase:
            data |= {"phase": told.phase, "pid": told.pid}
            if told.phase == "compute":
                data["stdout"], data["stderr"] = map(_decoded, (told.stdout, told.stderr))
    return data


def find_tasks(job: Job, text: str, states: tuple[str, ...], limit: int) -> dict[str, Any]:
    """Return ``tasks``, those that are known by name and fit, and ``more``: whether there are others."""
    progress = job.records.progress.jobs.get(job.job_id)
    found: list[dict[str, Any]] = []
    for record in _known(progress) if progress is not None else ():
        if (not states or record.state.value in states) and (not text or _contains(record, text.lower())):
            if len(found) == limit:
                return {"tasks": found, "more": True}
            found.append(_row(job, record))
    return {"tasks": found, "more": False}


def describe_workflow(job: Job) -> dict[str, Any]:
    """Return the net and how far it is; ``places`` and ``transitions`` are empty where there is no net."""
    describe = getattr(job.machine.engine, "describe", None)
    data: dict[str, Any] = describe() if describe is not None else {"places": [], "transitions": []}
    return data | {"name": job.machine.name}


def _known(progress: JobProgress) -> Iterator[TaskChanged]:
    """Yield the last words on tasks, those that matter most first."""
    yield from progress.running.values()
    yield from progress.failures.values()
    yield from (record for name, record in progress.live.items() if name not in progress.running)
    yield from reversed(progress.lately)


def _last_word(progress: JobProgress, task_id: TaskId) -> TaskChanged | None:
    for known in (progress.live, progress.failures):
        if task_id in known:
            return known[task_id]
    return next((record for record in progress.lately if record.task_id == task_id), None)


def _contains(record: TaskChanged, text: str) -> bool:
    words = (str(record.task_id), record.name, record.resource_id, record.detail)
    return any(text in word.lower() for word in words)


def _row(job: Job, record: TaskChanged) -> dict[str, Any]:
    return {
        "task_id": record.task_id,
        "name": record.name,
        "state": record.state.value,
        "attempt": record.attempt,
        "resource_id": record.resource_id,
        "host": job.host_of(record.resource_id),
        "detail": record.detail,
        "at_s": record.at_s,
        "started_s": record.started_s,
        "duration_s": record.duration_s,
    }


def _decoded(printed: bytes) -> str:
    return printed.decode("utf-8", "replace")


def _text(argument: bytes) -> str:
    """Return an argument as people read it; whatever its own code does wrong is no trouble of ours."""
    try:
        return _brief.repr(loads(argument))
    except Exception as error:
        return f"<{len(argument)} bytes that cannot be shown: {type(error).__name__}>"
