"""A recorded run: the fold of a file of records that reports are written from."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field
from msgspec import Struct

from gspc_trio.core.ids import JobId, ResourceId, TaskId
from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.records.facts import (
    JobChanged,
    Record,
    ResourceChanged,
    StreamOpened,
    TaskChanged,
    TaskFlow,
    WorkerChanged,
)

TaskKey = tuple[JobId, TaskId]


class NoTasks(ValueError):
    """The records tell of no task; the message says what they tell."""


class RecordedAttempt(Struct, frozen=True):
    """One attempt of a task that was at a worker; times are seconds since 1970, 0 where there is none.

    Attributes:
        number: of the attempt, from 1.
        resource_id: of its worker.
        state: how it ended: finished, failed, cancelled, or ready for one that was followed by another.
        ready_s: since when the task waited for a resource.
        sent_s: when it was sent to the worker.
        in_s, in_end_s: stage-in.
        begin_s, end_s: compute.
        out_s, out_end_s: stage-out.
        over_s: when its end was reported.
        detail: why it failed.
        output: the end of what it printed, of one that failed.
    """

    job: JobId
    task_id: TaskId
    name: str
    number: int
    resource_id: ResourceId
    state: TaskState
    ready_s: float
    sent_s: float
    in_s: float
    in_end_s: float
    begin_s: float
    end_s: float
    out_s: float
    out_end_s: float
    over_s: float
    detail: str
    output: str

    @property
    def compute_s(self) -> float:
        """Seconds of compute."""
        return self.end_s - self.begin_s

    @property
    def waited_s(self) -> float:
        """Seconds from ready to begun."""
        return max(0.0, (self.in_s or self.begin_s or self.over_s) - self.ready_s) if self.ready_s else 0.0


@define
class RecordedJob:
    """What the records say of one job."""

    job: JobId
    name: str = ""
    state: str = "running"
    detail: str = ""
    begin_s: float = 0.0
    end_s: float = 0.0
    tasks: int = 0
    counts: dict[TaskState, int] = field(factory=dict)


@define
class RecordedResource:
    """A resource, from when to when it was there; ``removed_s`` is None while it is there."""

    resource_id: ResourceId
    resource_class: str
    host: str
    added_s: float
    removed_s: float | None = None


@define
class RecordedRun:
    """A run, folded from its records; times are seconds since 1970.

    Attributes:
        attempts: in the order of their ends.
        flows: what each task takes, and from which others.
        moved: (from host, to host) -> (bytes, seconds, transfers) of data that workers fetched.
    """

    begin_s: float = 0.0
    end_s: float = 0.0
    version: str = ""
    jobs: dict[JobId, RecordedJob] = field(factory=dict)
    attempts: list[RecordedAttempt] = field(factory=list)
    flows: dict[TaskKey, TaskFlow] = field(factory=dict)
    resources: dict[ResourceId, RecordedResource] = field(factory=dict)
    lost: list[WorkerChanged] = field(factory=list)
    moved: dict[tuple[str, str], tuple[int, float, int]] = field(factory=dict)
    offset_s: float = 0.0
    _states: dict[TaskKey, TaskState] = field(factory=dict)
    _ready_s: dict[TaskKey, float] = field(factory=dict)
    _sent: dict[TaskKey, tuple[float, ResourceId, int]] = field(factory=dict)

    def take(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, StreamOpened):
            self.offset_s, self.version = record.wall_offset_s, record.version
            return
        at_s = record.at_s + self.offset_s
        self.begin_s = min(self.begin_s or at_s, at_s)
        self.end_s = max(self.end_s, at_s)
        match record:
            case TaskChanged():
                self._task(record, at_s)
            case TaskFlow():
                self.flows[record.job, record.task_id] = record
            case JobChanged():
                job = self._job(record.job, at_s)
                job.name, job.state = record.name or job.name, record.state
                job.detail, job.end_s = record.detail, at_s
            case ResourceChanged(state="added"):
                self.resources[record.resource_id] = RecordedResource(
                    record.resource_id, record.resource_class, record.host, at_s
                )
            case ResourceChanged():
                if record.resource_id in self.resources:
                    self.resources[record.resource_id].removed_s = at_s
            case WorkerChanged(state="lost"):
                self.lost.append(record)
            case _:
                pass

    def host(self, resource_id: ResourceId) -> str:
        """Return the name of the host of a resource, as far as it is known."""
        known = self.resources.get(resource_id)
        return (known.host if known is not None else "") or resource_id.partition(".")[0]

    def _job(self, job_id: JobId, at_s: float) -> RecordedJob:
        job = self.jobs.get(job_id)
        if job is None:
            job = self.jobs[job_id] = RecordedJob(job_id, begin_s=at_s, end_s=at_s)
        return job

    def _task(self, record: TaskChanged, at_s: float) -> None:
        key = record.job, record.task_id
        job = self._job(record.job, at_s)
        job.end_s = at_s
        before = self._states.pop(key, None)
        if before is None:
            job.tasks += 1
        else:
            job.counts[before] -= 1
        job.counts[record.state] = job.counts.get(record.state, 0) + 1
        if record.state is not TaskState.FINISHED:
            self._states[key] = record.state
        sent_s, resource_id, number = self._sent.pop(key, (0.0, "", 0))
        if record.state in (TaskState.SUBMITTED, TaskState.RUNNING):
            self._sent[key] = sent_s or at_s, record.resource_id, record.attempt
            return
        resource_id = record.resource_id or resource_id
        was_there = record.started_s or any(record.staged_s) or record.state in FINAL_STATES
        counts = record.attempt >= number  # else it came back before it had begun, for another worker
        if resource_id and (was_there or (sent_s and record.detail and counts)):
            self._keep(record, resource_id, sent_s, at_s)
        if record.state is TaskState.READY:
            self._ready_s[key] = at_s
        else:
            self._ready_s.pop(key, None)

    def _keep(self, record: TaskChanged, resource_id: ResourceId, sent_s: float, at_s: float) -> None:
        in_s, in_end_s, out_s, out_end_s = record.staged_s or (0.0, 0.0, 0.0, 0.0)
        attempt = RecordedAttempt(
            record.job, record.task_id, record.name, record.attempt, resource_id, record.state,
            self._ready_s.get((record.job, record.task_id), 0.0), sent_s, in_s, in_end_s, record.started_s,
            record.started_s + record.duration_s, out_s, out_end_s, at_s, record.detail, record.output,
        )  # fmt: skip
        self.attempts.append(attempt)
        for source, size_bytes, seconds in record.moved:
            key = source, self.host(resource_id)
            moved = self.moved.get(key, (0, 0.0, 0))
            self.moved[key] = moved[0] + size_bytes, moved[1] + seconds, moved[2] + 1


def recorded_run(records: Iterable[Record]) -> RecordedRun:
    """Return the run that records tell of.

    Raises:
        NoTasks: they tell of no task.
    """
    run = RecordedRun()
    for record in records:
        run.take(record)
    if not any(job.tasks for job in run.jobs.values()):
        raise NoTasks("these records tell of no task")
    return run


def critical_path(run: RecordedRun, job: JobId) -> list[RecordedAttempt]:
    """Return the chain of tasks that the end of a job waited for, first one first.

    It ends with the task that finished last; before each comes, of the tasks whose results it takes, the
    one that finished last. Without a known token flow it is the last task alone.
    """
    finished = {
        attempt.task_id: attempt
        for attempt in run.attempts
        if attempt.job == job and attempt.state is TaskState.FINISHED
    }
    if not finished:
        return []
    last: RecordedAttempt | None = max(finished.values(), key=lambda it: it.over_s)
    chain: list[RecordedAttempt] = []
    while last is not None:
        chain.append(finished.pop(last.task_id))
        flow = run.flows.get((job, last.task_id))
        parents = [finished[parent] for parent in (flow.parents if flow else ()) if parent in finished]
        last = max(parents, key=lambda it: it.over_s, default=None)
    return chain[::-1]
