"""The backlog of one watcher of records: little when little happens, and bounded when very much does.

While a job is slow every record is sent. What happens faster than anybody can look is told in sums: of a
resource, a worker, a grant or a RIF the last word; of a job's tasks how many there are in each state, and a
few by name. Who does not know all tasks of a job by name is told with each batch how many there are.
"""

from __future__ import annotations

from collections.abc import Hashable

from gspc_trio.records.facts import (
    GrantChanged,
    HostLoad,
    JobChanged,
    Record,
    ResourceChanged,
    RifChanged,
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
        self.behind = False
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
    if isinstance(record, ResourceChanged | WorkerChanged):
        return (type(record), record.resource_id)
    if isinstance(record, RifChanged | HostLoad):
        return (type(record), record.rif_id)
    if isinstance(record, JobChanged | TaskCounts):
        return (type(record), record.job)
    return type(record).__name__
