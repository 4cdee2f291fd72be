"""What those who watch are told: in which detail tasks are recorded, and what they have not had yet.

While a job is slow every record is sent. What happens faster than anybody can look is told in sums: of a
resource, a worker, a grant or a RIF the last word; of a job's tasks how many there are in each state, and a
few by name. Who does not know all tasks of a job by name is told with each batch how many there are.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum

from gspc_trio.records.facts import (
    AnomalyChanged,
    BlockChanged,
    GrantChanged,
    HostLoad,
    JobChanged,
    QueueChanged,
    Record,
    ResourceChanged,
    RifChanged,
    SiteChanged,
    StudyChanged,
    StudyClientChanged,
    StudyJobChanged,
    TaskChanged,
    TaskCounts,
    WorkerChanged,
)
from gspc_trio.records.progress import Progress

TASKS_TOLD_MAX = 200
"""Changes of tasks that are sent one by one in a batch; from more a summary is made."""

TASKS_NAMED_MAX = 100
"""Running tasks, and as many others, that a summary names of each job."""

COALESCE_AT = 2_000
"""Records that wait for a watcher when only the last words of them are kept."""


class Backlog:
    """The records of one stream that one watcher has not had yet.

    Attributes:
        behind: the watcher does not know all live tasks by name.
    """

    __slots__ = ("_left_out", "_records", "behind")

    def __init__(self) -> None:
        self.behind: bool = False
        self._records: list[Record] = []
        self._left_out = False

    def __len__(self) -> int:
        return len(self._records)

    @property
    def has_news(self) -> bool:
        """Whether there is something to send."""
        return bool(self._records) or self._left_out

    def append(self, record: Record) -> None:
        """Take a record; it takes the time of appending to a list."""
        self._records.append(record)
        if len(self._records) >= COALESCE_AT:
            self._coalesce()

    def begin(self, progress: Progress) -> tuple[Record, ...]:
        """Return a snapshot to start with; what waited is forgotten."""
        self._records.clear()
        self._left_out = False
        self.behind = _any_unnamed(progress)
        return progress.snapshot(TASKS_NAMED_MAX)

    def renew(self) -> None:
        """What is known of tasks has changed in other ways than by records: a summary is due."""
        self._left_out = True

    def take(self, progress: Progress) -> tuple[Record, ...]:
        """Return what to send now, and forget it.

        Args:
            progress: the fold of the whole stream, up to its last record.
        """
        jobs = {record.job for record in self._records if type(record) is TaskChanged}
        tasks = sum(type(record) is TaskChanged for record in self._records)
        if tasks > TASKS_TOLD_MAX or (jobs and self.behind and not _any_unnamed(progress)):
            self._coalesce()
        records, self._records = self._records, []
        if self._left_out:
            self._left_out = False
            for job in progress.jobs.values():
                summary = job.snapshot(TASKS_NAMED_MAX)
                records += [record for record in summary if type(record) in (TaskCounts, TaskChanged)]
            self.behind = _any_unnamed(progress)
        elif self.behind:
            records += [progress.jobs[job].totals() for job in sorted(jobs) if job in progress.jobs]
        return tuple(records)

    def _coalesce(self) -> None:
        """Keep the last word on each thing but tasks, of which a summary will be made."""
        last: dict[Hashable, Record] = {}
        for record in self._records:
            if type(record) is TaskChanged:
                self._left_out = True
                continue
            key = _key(record)
            last.pop(key, None)
            last[key] = record
        self._records = list(last.values())


def _any_unnamed(progress: Progress) -> bool:
    """Return whether a summary would not name all live tasks."""
    return any(
        max(len(job.running), len(job.live) - len(job.running)) > TASKS_NAMED_MAX
        for job in progress.jobs.values()
    )


def _key(record: Record) -> Hashable:
    if isinstance(record, GrantChanged):
        return (record.job, record.grant_id)
    if isinstance(record, QueueChanged):
        return (QueueChanged, record.job, record.resource_id)
    if isinstance(record, ResourceChanged | WorkerChanged):
        return (type(record), record.resource_id)
    if isinstance(record, RifChanged | HostLoad):
        return (type(record), record.rif_id)
    if isinstance(record, JobChanged | TaskCounts):
        return (type(record), record.job)
    if isinstance(record, SiteChanged):
        return (SiteChanged, record.site)
    if isinstance(record, BlockChanged):
        return (BlockChanged, record.block_id)
    if isinstance(record, StudyChanged):
        return (StudyChanged, record.study)
    if isinstance(record, AnomalyChanged):
        return (AnomalyChanged, record.host, record.kind, record.by_tasks)
    if isinstance(record, StudyJobChanged):
        return (StudyJobChanged, record.study, record.uid)
    if isinstance(record, StudyClientChanged):
        return (StudyClientChanged, record.study, record.uid, record.client_id)
    return type(record).__name__


FAST_PER_S = 500.0
"""Tasks that end per second from which on watchers are not told of each; nobody could read that."""

SLOW_PER_S = 250.0
"""Tasks that end per second up to which they are told of each again."""

MANY_LIVE = 2_000
"""Live tasks from which on watchers get glances however slow it is."""

MEASURED_S = 0.5
"""Seconds over which the rate is taken; when as many end earlier as make it fast, nobody waits for that."""


class Mode(Enum):
    """What is recorded of tasks."""

    COUNTS = "counts"
    GLANCES = "glances"
    EACH = "each"


class Watching:
    """Decides what watchers are told: nothing but counts while there are none, everything as long as it is
    little, else glances: now and then how many there are, and some by name. A file has everything anyway.
    """

    def __init__(self) -> None:
        self.mode: Mode = Mode.COUNTS
        self._since_s = 0.0
        self._ended = 0

    def decide(self, now: float, *, watched: bool, ended: int, live: int = 0) -> Mode:
        """Return what to record from now on.

        Args:
            now: time, seconds.
            watched: somebody watches.
            ended, live: number of tasks that have ended so far, and that have not.
        """
        if not watched:
            self.mode = Mode.COUNTS
        elif self.mode is Mode.COUNTS:
            self.mode = Mode.EACH if live <= MANY_LIVE else Mode.GLANCES
            self._since_s, self._ended = now, ended
        elif self.mode is Mode.EACH and live > MANY_LIVE:
            self.mode = Mode.GLANCES
            self._since_s, self._ended = now, ended
        elif now - self._since_s >= MEASURED_S or ended - self._ended >= FAST_PER_S * MEASURED_S:
            rate_per_s = (ended - self._ended) / max(now - self._since_s, MEASURED_S)
            self._since_s, self._ended = now, ended
            if rate_per_s >= FAST_PER_S or live > MANY_LIVE:
                self.mode = Mode.GLANCES
            elif rate_per_s <= SLOW_PER_S and live <= MANY_LIVE // 2:
                self.mode = Mode.EACH
        return self.mode
