"""The facts a run leaves behind; progress bar, status, ``--records`` and the terminal are folds of them.

A machine emits a record as an action. ``at_s`` is the machine's time; a stream of records begins with a
:class:`StreamOpened` that says how to turn it into wall-clock time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, final

from msgspec import Struct

from gspc_trio.core.ids import Attempt, Count, GrantId, JobId, ResourceId, RifId, Seconds, TaskId
from gspc_trio.core.task import TaskState


class Fact(Struct, frozen=True, tag_field="record", tag=True):
    """What all records have: their type is a field of theirs, ``record``, where they are JSON."""


class StreamOpened(Fact, frozen=True):
    """First record of a stream; wall-clock time is ``at_s + wall_offset_s``."""

    at_s: float
    wall_offset_s: float
    version: str


class JobChanged(Fact, frozen=True):
    """A job is ``running``, ``finished``, ``failed`` or ``stopped``."""

    at_s: float
    job: JobId
    state: str
    name: str = ""
    detail: str = ""


class TaskChanged(Fact, frozen=True):
    """A task is now in ``state``.

    Attributes:
        attempt: the try it concerns, 0 before the first; what came back and had not begun is not counted, so
            that this names no submission.
        resource_id: of the worker it is at, or "".
        detail: why, for failed and for ready again.
        started_s, duration_s: wall-clock start and seconds of compute, where known.
        staged_s: of an attempt that was staged, wall-clock times: stage-in began, it ended, stage-out began,
            it ended; 0 for what was not. Otherwise empty.
        moved: (host, bytes, seconds) for data that its worker fetched from another host.
        output: the end of what it printed, of a task that failed.
    """

    at_s: float
    job: JobId
    task_id: TaskId
    state: TaskState
    attempt: Attempt = 0
    name: str = ""
    resource_id: ResourceId = ""
    detail: str = ""
    started_s: float = 0.0
    duration_s: float = 0.0
    staged_s: tuple[float, ...] = ()
    moved: tuple[tuple[str, int, float], ...] = ()
    output: str = ""


class TaskFlow(Fact, frozen=True):
    """What a task takes, and from which others; in files alone, when the task is extracted.

    Attributes:
        parents: tasks whose results are among its arguments, perhaps after inline transitions.
        cores: how many resources it needs.
        inputs, outputs: paths of its files on the host of the job.
    """

    at_s: float
    job: JobId
    task_id: TaskId
    name: str = ""
    parents: tuple[TaskId, ...] = ()
    cores: Count = 1
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


class TaskCounts(Fact, frozen=True):
    """What a snapshot says of a job's tasks that it does not name; ``at_s`` is that of its last record.

    Whatever was known of the job's tasks before is forgotten, unless ``keep``.

    Attributes:
        counts: state -> number, to which the records that follow in the snapshot are added.
        computed_s: seconds of compute of the finished ones.
        first_s: time of the job's first record.
        recent: (second, number of tasks finished in it), oldest first.
        lately: of tasks that finished last, oldest first; they are in ``counts``.
        keep: this only says how many there are now, for a watcher that does not know all by name.
        retried: attempts that were followed by another one.
        moved_bytes: what workers fetched from other hosts for tasks that finished.
    """

    at_s: float
    job: JobId
    counts: dict[TaskState, Count]
    computed_s: float = 0.0
    first_s: float = 0.0
    recent: tuple[tuple[int, int], ...] = ()
    lately: tuple[TaskChanged, ...] = ()
    keep: bool = False
    retried: Count = 0
    moved_bytes: Count = 0


@final
class FactColumns(Fact, frozen=True):
    """Many facts of one type, in columns; in files alone.

    Attributes:
        of: name of their type.
        same: field -> what it is in all of them.
        each: field -> what it is in each of them, in order.
        count: number of facts, if there are ``runs``.
        runs: field -> what it is in the first one, and by how much more it is in each than in the one before.
    """

    of: str
    same: Mapping[str, object]
    each: Mapping[str, Sequence[object]] = {}
    count: Count = 0
    runs: Mapping[str, tuple[int | float, int | float]] = {}

    @property
    def rows(self) -> int:
        """Number of facts."""
        return max(map(len, self.each.values()), default=self.count)

    @property
    def values(self) -> int:
        """Number of values in its longest column; 1 if it has none."""
        return max(map(len, self.each.values()), default=1)


class GrantChanged(Fact, frozen=True):
    """A job holds (or no longer holds) resources under a grant."""

    at_s: float
    job: JobId
    grant_id: GrantId
    resources: tuple[ResourceId, ...]
    held: bool


class QueueChanged(Fact, frozen=True):
    """So many tasks of a job wait in the queue of a resource.

    Attributes:
        at_s: time, seconds.
        job: whose tasks.
        resource_id: whose queue.
        tasks: number of them.
        backlog_s: seconds that they take, with what is at the worker.
    """

    at_s: float
    job: JobId
    resource_id: ResourceId
    tasks: Count
    backlog_s: float


class ResourceChanged(Fact, frozen=True):
    """A resource was ``added`` below ``parents``, or ``removed``."""

    at_s: float
    resource_id: ResourceId
    resource_class: str
    state: str
    host: str = ""
    parents: tuple[ResourceId, ...] = ()


class WorkerChanged(Fact, frozen=True):
    """A worker is ``idle``, ``busy`` (for ``job``), ``lost`` (its compute process died) or ``stopped``."""

    at_s: float
    resource_id: ResourceId
    state: str
    job: JobId = ""
    pid: Count = 0
    detail: str = ""


class RifChanged(Fact, frozen=True):
    """A RIF is ``starting``, ``up``, ``quarantined``, ``away``, ``lost``, ``failed`` or ``down``.

    ``ends_in_s``: so long after this its host ends; None: nobody knows of an end.
    """

    at_s: float
    rif_id: RifId
    host: str
    state: str
    detail: str = ""
    ends_in_s: float | None = None


class HostLoad(Fact, frozen=True):
    """How busy a host is.

    Attributes:
        load: processes that ran or wanted to, on average over the last minute.
        cpus: number of its CPUs.
        cpu_share: part of their time that was used since the last record, 0 to 1.
        memory_used_bytes, memory_total_bytes: of its main memory.
    """

    at_s: float
    rif_id: RifId
    host: str
    load: float
    cpus: Count
    cpu_share: float
    memory_used_bytes: Count
    memory_total_bytes: Count


class SiteChanged(Fact, frozen=True):
    """A site is ``open``, ``waiting`` (asks for nothing for a while), ``paused`` or ``removed``.

    Attributes:
        provider: name of its batch system.
        slots: the most blocks that it may have at a time.
        detail: why.
    """

    at_s: float
    site: str
    state: str
    provider: str = ""
    slots: Count = 0
    detail: str = ""


class BlockChanged(Fact, frozen=True):
    """A block has another state, or something of it has changed.

    Its states: ``wanted``, ``submitted``, ``queued``, ``held``, ``running``, ``suspended`` (it gets no new
    task), ``ending`` and ``over``.

    Attributes:
        site: where.
        nodes, cores: how many it has, and how many cores all of them have together.
        walltime_s: seconds for which it was asked.
        up: nodes with a RIF that is up.
        batch_id: what the batch system calls its job; "" as long as that is not known.
        ends_at_s: when the batch system ends it, on the clock of ``at_s``; None as long as it has not begun.
        detail: why it waits, or how it ended; of one that is wanted: why it is asked for.
    """

    at_s: float
    block_id: str
    site: str
    state: str
    nodes: Count
    cores: Count
    walltime_s: Seconds
    up: Count = 0
    batch_id: str = ""
    ends_at_s: float | None = None
    detail: str = ""


class StudyChanged(Fact, frozen=True):
    """A launcher has another state or another server, or has heard of it, or has refused a connection.

    Attributes:
        study: its name.
        state: ``idle``, ``submitting``, ``awaiting``, ``serving``, ``restarting``, ``stopping`` or
            ``stopped``.
        incarnation: number of the server, from 0: so many servers were replaced.
        job_limit: the most jobs at a time.
        heard_at_s: when the server has said something last; None: not yet.
        word: what that was.
        refusals: connections that were refused so far.
        stale: why the batch system does not tell of the jobs, "" if it does.
        detail: why it is in its state, or refused the last connection.
        unnamed: of a snapshot: state -> clients that have ended and are in none of its records.
    """

    at_s: float
    study: str
    state: str
    incarnation: Count
    job_limit: Count = 0
    heard_at_s: float | None = None
    word: str = ""
    refusals: Count = 0
    stale: str = ""
    detail: str = ""
    unnamed: dict[str, Count] = {}


class StudyJobChanged(Fact, frozen=True):
    """A job of a study is ``submitted``, ``queued``, ``held``, ``running``, ``cancelling`` or ``gone``.

    Attributes:
        uid: number of its submission.
        name: by which the batch system knows it.
        incarnation: of the server that it is, or that has asked for it.
        client_ids: of its clients; none: it is the server.
        job_id: what the batch system calls it; "" as long as that is not known.
        detail: why it waits, or how it ended.
    """

    at_s: float
    study: str
    uid: Count
    name: str
    incarnation: Count
    state: str
    client_ids: tuple[Count, ...] = ()
    job_id: str = ""
    detail: str = ""


class StudyClientChanged(Fact, frozen=True):
    """A client of a study has another state.

    Attributes:
        incarnation: of the server that has asked for it.
        state: ``postponed``, ``submitted``, ``queued``, ``held``, ``running``, ``completed``, ``failed``,
            ``not submitted`` or ``cancelled``.
        uid: number of the submission of its job; None: there was none yet.
        job_id: what the batch system calls its job; "" as long as that is not known.
        detail: more about it.
    """

    at_s: float
    study: str
    incarnation: Count
    client_id: Count
    state: str
    uid: Count | None = None
    job_id: str = ""
    detail: str = ""


class AnomalyChanged(Fact, frozen=True):
    """An anomaly of a host is ``on`` or ``over`` (ASP-9).

    Attributes:
        kind: its class.
        by_tasks: tasks cause it, and nothing else on the host.
        detail: what shows it.
    """

    at_s: float
    host: str
    kind: str
    state: str
    by_tasks: bool = False
    detail: str = ""


class LocalityChanged(Fact, frozen=True):
    """From where tasks have taken data until now, in bytes: their node, its rack, another rack (ASP-10)."""

    at_s: float
    node_bytes: Count
    rack_bytes: Count
    inter_rack_bytes: Count


StudyRecord: TypeAlias = StudyChanged | StudyJobChanged | StudyClientChanged

Record: TypeAlias = (
    StreamOpened
    | JobChanged
    | TaskChanged
    | TaskCounts
    | GrantChanged
    | ResourceChanged
    | WorkerChanged
    | RifChanged
    | HostLoad
    | SiteChanged
    | BlockChanged
    | StudyChanged
    | StudyJobChanged
    | StudyClientChanged
    | TaskFlow
    | QueueChanged
    | AnomalyChanged
    | LocalityChanged
)

RECORD_TYPES: tuple[type[Record], ...] = (
    StreamOpened,
    JobChanged,
    TaskChanged,
    GrantChanged,
    ResourceChanged,
    WorkerChanged,
    RifChanged,
    TaskCounts,
    HostLoad,
    SiteChanged,
    BlockChanged,
    StudyChanged,
    StudyJobChanged,
    StudyClientChanged,
    TaskFlow,
    QueueChanged,
    AnomalyChanged,
    LocalityChanged,
)
