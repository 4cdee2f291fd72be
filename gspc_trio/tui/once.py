"""One look at the model, for scripts and logs: as data, and as lines of text."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.components.rm.messages import ClassStatus
from gspc_trio.components.rts.messages import RequestExplanation
from gspc_trio.core.ids import JobId, ResourceId, RifId, TaskId
from gspc_trio.core.task import TaskState
from gspc_trio.records.study import StudyProgress
from gspc_trio.tui.facts import JobFacts
from gspc_trio.tui.model import RTS, Model
from gspc_trio.tui.news import alerts
from gspc_trio.tui.text import count, duration, plural, size

LONGEST_MAX = 10
"""Running tasks that are named of each job."""


class Cores(Struct, frozen=True):
    """Leaves of the trees of resources, and those that are in use."""

    total: int
    in_use: int


class SeenHost(Struct, frozen=True):
    """A host: the state of its RIF, the number of its resources, and when it ends, if somebody knows."""

    host: str
    rif_id: RifId
    state: str
    detail: str
    resources: int
    ends_in_s: float | None


class LoadedHost(SeenHost, frozen=True):
    """A host that has told how busy it is, see :class:`~gspc_trio.records.facts.HostLoad`."""

    load: float
    cpu_share: float
    memory_used_bytes: int
    memory_total_bytes: int


class LongTask(Struct, frozen=True):
    """A task, and for how long it has run."""

    task_id: TaskId
    name: str
    resource_id: ResourceId
    running_s: float


class SeenJob(Struct, frozen=True):
    """A job.

    Attributes:
        tasks: state -> number.
        rate_per_s: tasks that finish in a second.
        left_s: how long it will take, or None.
        held: number of resources that it holds.
        running: tasks that run, those that began first before the others.
        waiting: why its requests wait.
    """

    job: JobId
    name: str
    state: str
    detail: str
    tasks: dict[TaskState, int]
    rate_per_s: float
    left_s: float | None
    elapsed_s: float
    held: int
    running: tuple[LongTask, ...]
    waiting: tuple[RequestExplanation, ...]


class SeenAlert(Struct, frozen=True):
    """Something that wants attention: how bad it is, and a line about it."""

    level: str
    text: str


class SeenStudy(Struct, frozen=True):
    """A study.

    Attributes:
        incarnation: number of its server: so often it was replaced.
        heard_ago_s: seconds since the server has said something; None: it has not yet.
        clients: state -> number.
        jobs, job_limit: how many there are, and the most.
        refusals: connections that were refused.
    """

    study: str
    state: str
    detail: str
    incarnation: int
    heard_ago_s: float | None
    word: str
    clients: dict[str, int]
    jobs: int
    job_limit: int
    refusals: int
    stale: str


class Snapshot(Struct, frozen=True):
    """What ``gspc-top --once --json`` prints.

    Attributes:
        time_s: seconds since 1970.
        classes: class -> its resources.
    """

    time_s: float
    cores: Cores
    classes: dict[str, ClassStatus]
    hosts: tuple[SeenHost, ...]
    jobs: tuple[SeenJob, ...]
    alerts: tuple[SeenAlert, ...]
    studies: tuple[SeenStudy, ...] = ()


def snapshot(model: Model) -> Snapshot:
    """Return what is seen now."""
    return Snapshot(
        model.now_s,
        Cores(model.hierarchy.leaf_total, model.cores_in_use),
        dict(model.classes),
        _hosts(model),
        tuple([_job(model, job) for job in model.jobs()]),
        tuple([SeenAlert(level.name.lower(), text) for level, text in alerts(model)]),
        tuple([_study(model, study) for study in model.rts.studies.values() if study.changed is not None]),
    )


def _study(model: Model, study: StudyProgress) -> SeenStudy:
    changed = study.changed
    assert changed is not None
    heard_ago_s = None
    if changed.heard_at_s is not None:
        heard_ago_s = max(0.0, model.now_s - model.wall_of(RTS, changed.heard_at_s))
    return SeenStudy(
        changed.study,
        changed.state,
        changed.detail,
        changed.incarnation,
        heard_ago_s,
        changed.word,
        study.by_state(),
        len(study.jobs),
        changed.job_limit,
        changed.refusals,
        changed.stale,
    )


def _hosts(model: Model) -> tuple[SeenHost, ...]:
    number: dict[str, int] = {}
    for resource in model.rts.resources.values():
        number[resource.host] = number.get(resource.host, 0) + 1
    hosts = []
    for rif in model.rts.rifs.values():
        known = (rif.host, rif.rif_id, rif.state, rif.detail, number.get(rif.host, 0), model.ends_in_s(rif))
        load = model.rts.loads.get(rif.rif_id)
        if load is None:
            hosts.append(SeenHost(*known))
        else:
            memory = (load.memory_used_bytes, load.memory_total_bytes)
            hosts.append(LoadedHost(*known, load.load, load.cpu_share, *memory))
    return tuple(hosts)


def _job(model: Model, job: JobFacts) -> SeenJob:
    running = [
        LongTask(task.task_id, task.name, task.resource_id, max(0.0, model.now_s - model.wall_s(task)))
        for task in model.longest_running(job.job, LONGEST_MAX)
    ]
    return SeenJob(
        job.job,
        job.name,
        job.state,
        job.detail,
        {state: job.counts[state] for state in TaskState},
        job.rate_per_s,
        job.left_s,
        job.elapsed_s,
        job.held,
        tuple(running),
        model.explanations.get(job.job, ()),
    )


def as_lines(model: Model) -> list[str]:
    """Return the snapshot as text, at most 80 columns where names allow."""
    seen = snapshot(model)
    if seen.studies:
        lines = [line for study in seen.studies for line in _study_lines(study)]
        return lines + ["", *(f"{alert.level}: {alert.text}" for alert in seen.alerts)] * bool(seen.alerts)
    lines = [f"{seen.cores.in_use} of {seen.cores.total} cores in use"]
    if seen.hosts:
        lines += ["", f"{'HOST':<24}{'STATE':<10}{'RESOURCES':>9}{'CPU':>6}{'LOAD':>7}{'MEMORY':>22}"]
        lines += map(_host_line, seen.hosts)
    if seen.classes:
        lines += ["", f"{'CLASS':<12}{'TOTAL':>8}{'FREE':>8}{'HELD':>8}{'BLOCKED':>9}"]
        lines += [
            f"{name:<12}{it.total:>8}{it.free:>8}{it.held:>8}{it.blocked:>9}"
            for name, it in seen.classes.items()
        ]
    head = f"{'JOB':<6}{'NAME':<16}{'STATE':<10}{'READY':>7}{'RUNNING':>8}{'DONE':>7}{'FAILED':>7}"
    lines += ["", f"{head}{'PER S':>7}{'TIME':>8}"]
    for job in seen.jobs:
        ready, running = job.tasks[TaskState.READY], job.tasks[TaskState.RUNNING]
        finished, failed = job.tasks[TaskState.FINISHED], job.tasks[TaskState.FAILED]
        lines.append(
            f"{job.job:<6}{job.name[:15]:<16}{job.state:<10}{count(ready):>7}{count(running):>8}"
            f"{count(finished):>7}{count(failed):>7}{count(job.rate_per_s):>7}{duration(job.elapsed_s):>8}"
        )
        lines += [f"      waits for {it.shape}: {it.reason}" for it in job.waiting]
    if seen.alerts:
        lines += ["", *(f"{alert.level}: {alert.text}" for alert in seen.alerts)]
    return lines


def _study_lines(study: SeenStudy) -> list[str]:
    clients = ", ".join(f"{number} {state}" for state, number in study.clients.items())
    word = f", its last word was {study.word}" if study.word else ""
    ago = f" {duration(study.heard_ago_s)} ago" if study.word else ""
    return [
        f"study {study.study} is {study.state}" + (f": {study.detail}" if study.detail else ""),
        f"server {study.incarnation}{word}{ago}",
        f"clients: {clients or 'none yet'}",
        f"{study.jobs} of at most {plural(study.job_limit, 'job')}, "
        f"{plural(study.refusals, 'refused connection')}",
    ]


def _host_line(host: SeenHost) -> str:
    line = f"{host.host:<24}{host.state:<10}{host.resources:>9}"
    if isinstance(host, LoadedHost):
        memory = f"{size(host.memory_used_bytes)} of {size(host.memory_total_bytes)}"
        line += f"{host.cpu_share:>6.0%}{host.load:>7.1f}{memory:>22}"
    ends = f"  ends in {duration(host.ends_in_s)}" if host.ends_in_s is not None else ""
    return f"{line}{ends}  {host.detail}".rstrip()
