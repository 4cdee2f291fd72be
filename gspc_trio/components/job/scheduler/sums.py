"""What a scheduler remembers of tasks that have ended, for whoever begins to watch late."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from gspc_trio.core.ids import JobId, TaskId
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import TaskChanged, TaskCounts
from gspc_trio.records.progress import LATELY_MAX, RECENT_SECONDS, keep_failure


@define(eq=False)
class Sums:
    """Of tasks that have ended.

    Attributes:
        first_s: time of the first event.
        computed_s: seconds of compute of those that finished.
        recent: second -> number of tasks finished in it, the last ones.
        failures: records of those that failed last.
        failed_unsent: number of those that failed without having been ready; they are among ``failures``.
        lately: fields of the record of those that finished last, one of each report; kept while nobody is
            told of each.
    """

    first_s: float | None = None
    computed_s: float = 0.0
    recent: dict[int, int] = field(factory=dict)
    failures: dict[TaskId, TaskChanged] = field(factory=dict)
    failed_unsent: int = 0
    lately: deque[tuple[Any, ...]] = field(factory=lambda: deque(maxlen=LATELY_MAX))

    def finished(self, now: float, number: int, seconds: float) -> None:
        """So many tasks have finished, after so many seconds of compute in all."""
        self.computed_s += seconds
        second, recent = int(now), self.recent
        recent[second] = recent.get(second, 0) + number
        if len(recent) > RECENT_SECONDS:
            del recent[next(iter(recent))]

    def failed(self, record: TaskChanged) -> None:
        """A task has failed."""
        keep_failure(self.failures, record)

    def counts(self, now: float, job: JobId, totals: Mapping[TaskState, int]) -> TaskCounts:
        """Return the record that says all this, with these totals."""
        first_s = now if self.first_s is None else self.first_s
        recent, lately = tuple(self.recent.items()), tuple(TaskChanged(*fields) for fields in self.lately)
        return TaskCounts(now, job, dict(totals), self.computed_s, first_s, recent, lately)
