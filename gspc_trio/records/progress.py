"""Progress of jobs and resources: a fold of the record stream.

A progress bar, a status command and the terminal interface read it; who watches late gets
:meth:`Progress.snapshot` first and then has what the others have. It grows with what is live, not with what
has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from msgspec import Struct, field

from gspc_trio.core.ids import GrantId, JobId, ResourceId, RifId, TaskId
from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.records.facts import (
    AnomalyChanged,
    BlockChanged,
    GrantChanged,
    HostLoad,
    JobChanged,
    LocalityChanged,
    QueueChanged,
    Record,
    ResourceChanged,
    RifChanged,
    SiteChanged,
    StreamOpened,
    StudyChanged,
    StudyClientChanged,
    StudyJobChanged,
    StudyRecord,
    TaskChanged,
    TaskCounts,
    TaskFlow,
    WorkerChanged,
)
from gspc_trio.records.study import StudyProgress

FAILURES_MAX = 20
"""Last failures that are kept of a job."""

LATELY_MAX = 50
"""Last tasks that finished that are kept of a job."""

RECENT_SECONDS = 10
"""Seconds, of those in which tasks finished, over which the rate is taken."""

ENDED_JOBS_MAX = 100
"""Last jobs that are kept after their end."""

_READY, _RUNNING = TaskState.READY, TaskState.RUNNING
_FINISHED, _FAILED = TaskState.FINISHED, TaskState.FAILED


def _lately() -> deque[TaskChanged]:
    return deque(maxlen=LATELY_MAX)


def _no_counts() -> dict[TaskState, int]:
    return dict.fromkeys(TaskState, 0)


def keep_failure(failures: dict[TaskId, TaskChanged], record: TaskChanged) -> None:
    """Note a failure among the last ones; one without an attempt only if there is room.

    Many tasks may fail at once through one that they need; that one is what people want to see.
    """
    failures.pop(record.task_id, None)
    if record.attempt == 0 and len(failures) >= FAILURES_MAX:
        return
    failures[record.task_id] = record
    if len(failures) > FAILURES_MAX:
        del failures[next(iter(failures))]


class JobProgress(Struct):
    """How far one job is.

    Attributes:
        job: its id.
        first_s, last_s: times of its first and its last record.
        changed: the last word on the job itself, or None.
        counts: state -> number of tasks.
        live: the last word on each task that has not ended.
        running: those of them that run.
        failures: of the tasks that failed last, oldest first.
        held: what it holds.
        queues: resource -> how much waits for it, where anything does.
        computed_s: seconds of compute of its finished tasks.
        retried: attempts that were followed by another one.
        moved_bytes: what workers fetched from other hosts for finished tasks.
        recent: second -> number of tasks finished in it, the last ones.
        lately: of tasks that finished last, oldest first.
    """

    job: JobId
    first_s: float
    last_s: float
    changed: JobChanged | None = None
    counts: dict[TaskState, int] = field(default_factory=_no_counts)
    live: dict[TaskId, TaskChanged] = field(default_factory=dict)
    running: dict[TaskId, TaskChanged] = field(default_factory=dict)
    failures: dict[TaskId, TaskChanged] = field(default_factory=dict)
    held: dict[GrantId, GrantChanged] = field(default_factory=dict)
    queues: dict[ResourceId, QueueChanged] = field(default_factory=dict)
    computed_s: float = 0.0
    retried: int = 0
    moved_bytes: int = 0
    recent: dict[int, int] = field(default_factory=dict)
    lately: deque[TaskChanged] = field(default_factory=_lately)

    @property
    def state(self) -> str:
        """``running``, ``finished``, ``failed`` or ``stopped``."""
        return self.changed.state if self.changed is not None else "running"

    @property
    def detail(self) -> str:
        """Why it is in its state, for people."""
        return self.changed.detail if self.changed is not None else ""

    @property
    def name(self) -> str:
        """The job's name, for people."""
        return self.changed.name if self.changed is not None else ""

    @property
    def total(self) -> int:
        """Number of tasks so far."""
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        """Number of tasks that have ended."""
        return sum(self.counts[state] for state in FINAL_STATES)

    @property
    def held_resources(self) -> tuple[ResourceId, ...]:
        """What it holds, in order of id."""
        return tuple(sorted(name for changed in self.held.values() for name in changed.resources))

    def longest_running(self, most: int) -> tuple[TaskChanged, ...]:
        """Return at most ``most`` running tasks, those that began first before the others."""
        return tuple(sorted(self.running.values(), key=lambda it: (it.at_s, it.task_id))[:most])

    def finished_per_s(self, now: float) -> float:
        """Return how many tasks finished per second, of late, at time ``now``."""
        since = max(self.first_s, now - RECENT_SECONDS)
        number = sum(number for second, number in self.recent.items() if second + 1 > since)
        return number / max(now - since, 1.0)

    def apply_task(self, record: TaskChanged) -> None:
        """Take in what happened to a task."""
        task_id, state, counts, live = record.task_id, record.state, self.counts, self.live
        before = live.get(task_id)
        counts[state] += 1
        if before is not None:
            counts[before.state] -= 1
            if before.state is _RUNNING:
                del self.running[task_id]
            if state is _READY and record.attempt >= before.attempt > 0:
                self.retried += 1  # of one that came back and had not begun, the number is less
        elif state is _READY and record.detail:
            counts[_FAILED] -= 1  # ready again though it had ended: a failed one is retried
            self.failures.pop(task_id, None)
        if state in FINAL_STATES:
            if before is not None:
                del live[task_id]
            self._end(record)
        else:
            live[task_id] = record
            if state is _RUNNING:
                self.running[task_id] = record
        if record.at_s > self.last_s:
            self.last_s = record.at_s

    def _end(self, record: TaskChanged) -> None:
        if record.state is _FINISHED:
            self.computed_s += record.duration_s
            for moved in record.moved:
                self.moved_bytes += moved[1]
            self.lately.append(record)
            second = int(record.at_s)
            recent = self.recent
            if second in recent:
                recent[second] += 1
                return
            recent[second] = 1
            if len(recent) > RECENT_SECONDS:
                del recent[next(iter(recent))]
        elif record.state is _FAILED:
            keep_failure(self.failures, record)

    def apply_counts(self, record: TaskCounts) -> None:
        """Begin with what a snapshot says of the tasks that it does not name."""
        self.counts = _no_counts()
        self.counts.update(record.counts)
        self.computed_s, self.retried = record.computed_s, record.retried
        self.moved_bytes = record.moved_bytes
        self.first_s, self.last_s = record.first_s, record.at_s
        self.recent = dict(record.recent)
        if record.keep:
            return
        for known in (self.live, self.running, self.failures):
            known.clear()
        self.lately = deque(record.lately, LATELY_MAX)

    def snapshot(self, named_max: int | None = None) -> list[Record]:
        """Return records that make this state of a new job.

        Args:
            named_max: how many running ones, and how many other live ones, to name; the rest is only counted,
                so that records of what follows count right only after another snapshot.
        """
        counts = dict(self.counts)
        live = list(self.live.values()) if named_max is None else self._worth_naming(named_max)
        named = [*self.failures.values(), *live]
        for record in named:
            counts[record.state] -= 1
            if record.state is _READY and record.detail:
                counts[_FAILED] += 1  # apply_task will take it for one that is retried
        recent = tuple(self.recent.items())
        records: list[Record] = [
            TaskCounts(
                self.last_s,
                self.job,
                counts,
                self.computed_s,
                self.first_s,
                recent,
                tuple(self.lately),
                False,
                self.retried,
                self.moved_bytes,
            )
        ]
        records += named
        records += self.held.values()
        records += self.queues.values()
        if self.changed is not None:
            records.append(self.changed)
        return records

    def totals(self) -> TaskCounts:
        """Return how many tasks there are, for who does not know all of them by name."""
        counts = dict(self.counts)
        recent = tuple(self.recent.items())
        return TaskCounts(
            self.last_s,
            self.job,
            counts,
            self.computed_s,
            self.first_s,
            recent,
            (),
            True,
            self.retried,
            self.moved_bytes,
        )

    def _worth_naming(self, most: int) -> list[TaskChanged]:
        """Return at most ``most`` running tasks and as many of the others that live."""
        running = dict(islice(self.running.items(), most))
        waiting = (name for name in self.live if name not in self.running)
        return [*running.values(), *(self.live[name] for name in islice(waiting, most))]


class Progress(Struct):
    """Everything that a stream of records tells.

    Attributes:
        opened: how the stream's times become wall-clock times, or None.
        jobs: by id.
        ended: the jobs that have ended, in that order.
        resources, workers, rifs: the last word on each that is there.
        loads: how busy the host of each RIF is.
        anomalies: (host, class, whether tasks cause it) -> what is on.
        locality: from where tasks have taken data, None if nobody has said so.
        sites, blocks: the last word on each that is there.
        studies: by name.
    """

    opened: StreamOpened | None = None
    jobs: dict[JobId, JobProgress] = field(default_factory=dict)
    ended: list[JobId] = field(default_factory=list)
    resources: dict[ResourceId, ResourceChanged] = field(default_factory=dict)
    workers: dict[ResourceId, WorkerChanged] = field(default_factory=dict)
    rifs: dict[RifId, RifChanged] = field(default_factory=dict)
    loads: dict[RifId, HostLoad] = field(default_factory=dict)
    anomalies: dict[tuple[str, str, bool], AnomalyChanged] = field(default_factory=dict)
    locality: LocalityChanged | None = None
    sites: dict[str, SiteChanged] = field(default_factory=dict)
    blocks: dict[str, BlockChanged] = field(default_factory=dict)
    studies: dict[str, StudyProgress] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Take in one record. A StreamOpened begins anew: what was known before is forgotten.

        Raises:
            TypeError: it is no record.
        """
        if type(record) is TaskChanged:
            job = self.jobs.get(record.job)
            if job is None:
                job = self._job(record)
            job.apply_task(record)
            return
        if type(record) is GrantChanged:  # two come with each task: a call more would be felt
            job = self.jobs.get(record.job) or self._job(record)
            if record.at_s > job.last_s:
                job.last_s = record.at_s
            if record.held:
                job.held[record.grant_id] = record
            else:
                job.held.pop(record.grant_id, None)
            return
        apply = _APPLY.get(type(record))
        if apply is None:
            raise TypeError(f"{type(record).__name__} is no record")
        apply(self, record)

    @property
    def ended_jobs(self) -> list[JobProgress]:
        """The last jobs that have ended, in that order."""
        return [self.jobs[job] for job in self.ended]

    def snapshot(self, named_max: int | None = None) -> tuple[Record, ...]:
        """Return records that make this state of a new Progress.

        There is one for each live task (or as :meth:`JobProgress.snapshot` says), failure kept, grant, job,
        resource, worker, RIF, site and block; and those of :meth:`StudyProgress.snapshot`.
        """
        records: list[Record] = [] if self.opened is None else [self.opened]
        records += [
            *self.rifs.values(),
            *self.resources.values(),
            *self.workers.values(),
            *self.loads.values(),
            *self.anomalies.values(),
            *(() if self.locality is None else (self.locality,)),
            *self.sites.values(),
            *self.blocks.values(),
        ]
        ended = set(self.ended)
        for job_id in (*self.ended, *(job_id for job_id in self.jobs if job_id not in ended)):
            records += self.jobs[job_id].snapshot(named_max)
        for study in self.studies.values():
            records += study.snapshot()
        return tuple(records)

    def _job(
        self, record: TaskChanged | TaskCounts | GrantChanged | QueueChanged | JobChanged
    ) -> JobProgress:
        job = self.jobs.get(record.job)
        if job is None:
            job = self.jobs[record.job] = JobProgress(record.job, record.at_s, record.at_s)
        return job

    def _stream_opened(self, record: StreamOpened) -> None:
        self.opened = record
        self.locality = None
        for known in (self.jobs, self.ended, self.resources, self.workers, self.rifs, self.loads):
            known.clear()
        for others in (self.sites, self.blocks, self.studies, self.anomalies):
            others.clear()

    def _job_changed(self, record: JobChanged) -> None:
        job = self._job(record)
        job.changed = record
        job.last_s = max(job.last_s, record.at_s)
        if record.job in self.ended:
            self.ended.remove(record.job)
        if record.state != "running":
            self.ended.append(record.job)
            if len(self.ended) > ENDED_JOBS_MAX:
                del self.jobs[self.ended.pop(0)]

    def _task_counts(self, record: TaskCounts) -> None:
        self._job(record).apply_counts(record)

    def _queue_changed(self, record: QueueChanged) -> None:
        job = self._job(record)
        job.last_s = max(job.last_s, record.at_s)
        if record.tasks:
            job.queues[record.resource_id] = record
        else:
            job.queues.pop(record.resource_id, None)

    def _resource_changed(self, record: ResourceChanged) -> None:
        if record.state == "removed":
            self.resources.pop(record.resource_id, None)
        else:
            self.resources[record.resource_id] = record

    def _worker_changed(self, record: WorkerChanged) -> None:
        if record.state == "stopped":
            self.workers.pop(record.resource_id, None)
        else:
            self.workers[record.resource_id] = record

    def _rif_changed(self, record: RifChanged) -> None:
        if record.state != "up":
            self.loads.pop(record.rif_id, None)
        if record.state == "down":
            self.rifs.pop(record.rif_id, None)
        else:
            self.rifs[record.rif_id] = record

    def _host_load(self, record: HostLoad) -> None:
        self.loads[record.rif_id] = record

    def _anomaly_changed(self, record: AnomalyChanged) -> None:
        key = record.host, record.kind, record.by_tasks
        if record.state == "on":
            self.anomalies[key] = record
        else:
            self.anomalies.pop(key, None)

    def _locality_changed(self, record: LocalityChanged) -> None:
        self.locality = record

    def _site_changed(self, record: SiteChanged) -> None:
        if record.state == "removed":
            self.sites.pop(record.site, None)
        else:
            self.sites[record.site] = record

    def _block_changed(self, record: BlockChanged) -> None:
        if record.state == "over":
            self.blocks.pop(record.block_id, None)
        else:
            self.blocks[record.block_id] = record

    def _study_record(self, record: StudyRecord) -> None:
        study = self.studies.get(record.study)
        if study is None:
            study = self.studies[record.study] = StudyProgress()
        study.apply(record)

    def _task_flow(self, record: TaskFlow) -> None:
        """What tasks take from each other counts for who reads the file."""


_APPLY: dict[type, Callable[[Progress, Any], None]] = {
    StreamOpened: Progress._stream_opened,
    JobChanged: Progress._job_changed,
    TaskCounts: Progress._task_counts,
    ResourceChanged: Progress._resource_changed,
    WorkerChanged: Progress._worker_changed,
    RifChanged: Progress._rif_changed,
    HostLoad: Progress._host_load,
    SiteChanged: Progress._site_changed,
    BlockChanged: Progress._block_changed,
    StudyChanged: Progress._study_record,
    StudyJobChanged: Progress._study_record,
    StudyClientChanged: Progress._study_record,
    TaskFlow: Progress._task_flow,
    QueueChanged: Progress._queue_changed,
    AnomalyChanged: Progress._anomaly_changed,
    LocalityChanged: Progress._locality_changed,
}
