"""Log lines and alerts, made from records."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import (
    AnomalyChanged,
    BlockChanged,
    JobChanged,
    Record,
    ResourceChanged,
    RifChanged,
    SiteChanged,
    StudyChanged,
    StudyClientChanged,
    TaskChanged,
    WorkerChanged,
)
from gspc_trio.records.progress import Progress
from gspc_trio.tui.text import duration, plural

if TYPE_CHECKING:
    from gspc_trio.tui.facts import JobFacts
    from gspc_trio.tui.model import Model

SLOW_FACTOR = 10
"""A task that runs this many times longer than others is worth an alert."""

SLOW_S_MIN = 30.0
"""But not before it has run this long."""

END_SHOWN_S = 600.0
"""How long it is worth an alert that a job has failed or was stopped."""

STUCK_S_MIN = 10.0
"""Seconds without anything running after which a job with ready tasks is worth an alert."""


class Level(IntEnum):
    """How bad it is."""

    INFO = 0
    GOOD = 1
    WARNING = 2
    ERROR = 3


_HOW_BAD = {"finished": Level.GOOD, "failed": Level.ERROR, "stopped": Level.WARNING}
"""The ends of a job."""


class LogLine(Struct, frozen=True):
    """Something that happened, at a wall-clock time."""

    at_s: float
    level: Level
    source: str
    text: str
    resources: tuple[str, str, int] = ("", "", 0)
    """Of what came or went: the state, the first, and how many."""


def joined(before: LogLine, line: LogLine) -> LogLine | None:
    """Return one line for both if both tell of resources that came, or went, with one host; None if not."""
    state, first, number = before.resources
    if not number or (state, before.source) != (line.resources[0], line.source):
        return None
    number += 1
    last = line.resources[1]
    text = f"{number} resources were {state}: {first} … {last}"
    return LogLine(line.at_s, line.level, line.source, text, (state, first, number))


def line_of(
    record: Record, offset_s: float, before: Progress, *, from_job: bool, end: str = ""
) -> LogLine | None:
    """Return the line for a record, None if it is worth none.

    Args:
        record: what happened.
        offset_s: what to add to its time for wall-clock time.
        before: the fold up to here, without it.
        from_job: it comes from the job's own stream.
        end: how the job had ended before, as any stream told; "" if none did.
    """
    told = None
    if isinstance(record, TaskChanged):
        told = _task(record)
    elif isinstance(record, JobChanged):
        known = before.jobs.get(record.job)
        again = known is not None and known.changed is not None and known.state == record.state
        told = None if again or record.state == end else _job(record, from_job)
    elif isinstance(record, RifChanged):
        told = _rif(record)
    elif isinstance(record, SiteChanged):
        level = Level.WARNING if record.state in ("waiting", "paused") else Level.INFO
        told = level, record.site, f"site {record.site} is {record.state}{_because(record.detail)}"
    elif isinstance(record, BlockChanged):
        told = _block(record, before)
    elif isinstance(record, AnomalyChanged):
        told = _anomaly(record)
    elif isinstance(record, StudyChanged):
        told = _study(record, before)
    elif isinstance(record, StudyClientChanged) and record.state in ("failed", "not submitted"):
        words = f"client {record.client_id} is {record.state}{_because(record.detail)}"
        told = Level.ERROR, record.study, words
    elif isinstance(record, WorkerChanged) and record.state == "lost":
        told = Level.WARNING, record.resource_id, f"its compute process died: {record.detail or 'no reason'}"
    elif isinstance(record, ResourceChanged):
        name, state = record.resource_id, record.state
        if (state == "added") == (name not in before.resources):
            at_s = record.at_s + offset_s
            return LogLine(at_s, Level.INFO, record.host or "?", f"{name} was {state}", (state, name, 1))
    return LogLine(record.at_s + offset_s, *told) if told is not None else None


def _task(record: TaskChanged) -> tuple[Level, str, str] | None:
    where = f" on {record.resource_id}" if record.resource_id else ""
    name = f"task {record.task_id} ({record.name})"
    if record.state is TaskState.FAILED:
        return Level.ERROR, record.job, f"{name} failed{where}: {record.detail}"
    if record.state is TaskState.READY and record.detail:
        return Level.WARNING, record.job, f"{name} is ready again: {record.detail}"
    if record.state is TaskState.CANCELLED:
        return Level.INFO, record.job, f"{name} was cancelled: {record.detail or 'no reason given'}"
    return None


def _job(record: JobChanged, from_job: bool) -> tuple[Level, str, str] | None:
    name = f" ({record.name})" if record.name else ""
    detail = f": {record.detail.splitlines()[0]}" if record.detail else ""
    if record.state == "running":
        return (Level.INFO, record.job, f"job {record.job}{name} began") if not from_job else None
    return (
        _HOW_BAD.get(record.state, Level.ERROR),
        record.job,
        f"job {record.job}{name} {record.state}{detail}",
    )


def _block(record: BlockChanged, before: Progress) -> tuple[Level, str, str] | None:
    known = before.blocks.get(record.block_id)
    if known is not None and known.state == record.state:
        return None
    level = Level.WARNING if record.state == "held" else Level.INFO
    job = f" (batch job {record.batch_id})" if record.batch_id else ""
    words = f"block {record.block_id}{job} is {record.state}{_because(record.detail)}"
    return level, record.site, words


def _study(record: StudyChanged, before: Progress) -> tuple[Level, str, str] | None:
    known = before.studies[record.study].changed if record.study in before.studies else None
    known = known or StudyChanged(record.at_s, record.study, "", 0)
    if record.refusals > known.refusals:
        return Level.WARNING, record.study, f"a connection was refused{_because(record.detail)}"
    if record.stale != known.stale:
        words = f"the states may be old: {record.stale}" if record.stale else "the states are new again"
        return Level.WARNING if record.stale else Level.INFO, record.study, words
    if record.state == known.state:
        return None
    level = Level.WARNING if record.state in ("restarting", "stopping") else Level.INFO
    words = f"{record.state}, server {record.incarnation}{_because(record.detail)}"
    return level, record.study, f"the study is {words}"


def _because(detail: str) -> str:
    return f": {detail}" if detail else ""


def _rif(record: RifChanged) -> tuple[Level, str, str]:
    detail = f": {record.detail}" if record.detail else ""
    level = Level.ERROR if record.state in ("lost", "failed") else Level.INFO
    if record.state in ("away", "quarantined"):
        level = Level.WARNING
    return level, record.host, f"RIF {record.rif_id} is {record.state}{detail}"


def _anomaly(record: AnomalyChanged) -> tuple[Level, str, str]:
    if record.state != "on":
        return Level.INFO, record.host, f"the anomaly is over: {named(record)}"
    return Level.WARNING, record.host, f"an anomaly: {named(record)}{_because(record.detail)}"


def named(record: AnomalyChanged) -> str:
    """Return an anomaly as a few words."""
    return f"{record.kind} by tasks" if record.by_tasks else record.kind


def alerts(model: Model) -> list[tuple[Level, str]]:
    """Return what is wrong now, the worst first."""
    found = [
        *_host_alerts(model),
        *_study_alerts(model),
        *(it for job in model.jobs() for it in _job_alerts(model, job)),
    ]
    if model.link:
        found.append((Level.ERROR, model.link))
    return sorted(found, key=lambda it: -it[0])


def _host_alerts(model: Model) -> Iterator[tuple[Level, str]]:
    for rif in model.rts.rifs.values():
        if rif.state in ("away", "quarantined"):
            yield Level.WARNING, f"{rif.host} ({rif.rif_id}) is {rif.state}: {rif.detail}"
        if rif.state in ("lost", "failed"):
            yield Level.ERROR, f"{rif.host} ({rif.rif_id}) is {rif.state}: {rif.detail or 'no reason given'}"
    for anomaly in model.rts.anomalies.values():
        yield Level.WARNING, f"{anomaly.host} has an anomaly: {named(anomaly)}{_because(anomaly.detail)}"
    for site in model.rts.sites.values():
        if site.state in ("waiting", "paused"):
            yield Level.WARNING, f"site {site.site} is {site.state}{_because(site.detail)}"
    for block in model.rts.blocks.values():
        if block.state == "held":
            yield Level.WARNING, f"the block {block.block_id} is held{_because(block.detail)}"
    for worker in model.rts.workers.values():
        if worker.state == "lost":
            yield Level.WARNING, f"the compute process of {worker.resource_id} died: {worker.detail}"
    for load in model.rts.loads.values():
        if load.memory_total_bytes and load.memory_used_bytes > 0.95 * load.memory_total_bytes:
            share = load.memory_used_bytes / load.memory_total_bytes
            yield Level.WARNING, f"{share:.0%} of the memory of {load.host} is used"


def _study_alerts(model: Model) -> Iterator[tuple[Level, str]]:
    for name, study in model.rts.studies.items():
        counts = study.by_state()
        if failed := counts.get("failed", 0) + counts.get("not submitted", 0):
            yield Level.ERROR, f"{name}: {plural(failed, 'client')} failed"
        changed = study.changed
        if changed is not None and changed.stale:
            yield Level.WARNING, f"{name}: the states may be old: {changed.stale}"
        if changed is not None and changed.incarnation:
            yield Level.WARNING, f"{name}: the server was replaced {plural(changed.incarnation, 'time')}"


def _job_alerts(model: Model, job: JobFacts) -> Iterator[tuple[Level, str]]:
    name = f"{job.job} ({job.name})" if job.name else job.job
    if job.state in ("failed", "stopped") and job.ended_ago_s < END_SHOWN_S:
        yield _HOW_BAD[job.state], f"{name} {job.state}: {job.detail.splitlines()[0] if job.detail else ''}"
    if job.state != "running":
        return
    failed, running = job.counts[TaskState.FAILED], job.counts[TaskState.RUNNING]
    ready, finished = job.counts[TaskState.READY], job.counts[TaskState.FINISHED]
    if failed:
        yield Level.ERROR, f"{name}: {plural(failed, 'task')} failed"
    if ready and not running and job.elapsed_s > STUCK_S_MIN:
        reasons = model.explanations.get(job.job, ())
        why = f": {reasons[0].reason}" if reasons else ""
        yield Level.WARNING, f"{name}: {plural(ready, 'task')} ready and none runs{why}"
    mean_s = job.computed_s / finished if finished else 0.0
    for task in model.longest_running(job.job, 1):
        since_s = model.now_s - model.wall_s(task)
        if since_s > max(SLOW_S_MIN, SLOW_FACTOR * mean_s):
            mean = f", others take {duration(mean_s)}" if finished else ""
            where = f" on {task.resource_id}" if task.resource_id else ""
            yield (
                Level.WARNING,
                f"{name}: task {task.task_id} ({task.name}) has run for {duration(since_s)}{where}{mean}",
            )
