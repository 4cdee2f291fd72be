"""The jobs of a run-time system that are over: what is kept of them, and which are forgotten first."""

from __future__ import annotations

from itertools import chain

from msgspec import json
from msgspec.structs import replace

from gspc_trio.components.rts.messages import EndedJob, EndState, JobSummary
from gspc_trio.core.ids import JobId

JOBS_MAX = 1_000
"""So many jobs are kept after their end."""

BYTES_MAX = 64 << 20
"""So much is kept of all of them."""

JOB_BYTES_MAX = 16 << 20
"""A job of which more is told keeps only how it ended."""

NOTHING = JobSummary()
"""What is kept of a job whose job server has told nothing."""


class History:
    """Keeps jobs within limits of number and size: the oldest go first, failed ones late, the last one never.

    Args:
        jobs_max: number of jobs.
        bytes_max: size of all of them, as JSON.

    Attributes:
        changes: how often anything has changed.
    """

    def __init__(self, jobs_max: int = JOBS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.changes: int = 0
        self._jobs_max = jobs_max
        self._bytes_max = bytes_max
        self._sizes: dict[JobId, int] = {}
        self._size_bytes = 0
        self._failed: dict[JobId, EndedJob] = {}
        self._others: dict[JobId, EndedJob] = {}

    def add(self, job: EndedJob) -> None:
        """Keep a job that has ended, in place of an earlier end of the same one; forget what is too much."""
        self._forget(job.job)
        size_bytes = _size_of(job)
        if size_bytes > JOB_BYTES_MAX:
            job = replace(job, summary=NOTHING)
            size_bytes = _size_of(job)
        kept = self._failed if job.state == EndState.FAILED else self._others
        kept[job.job] = job
        self._sizes[job.job] = size_bytes
        self._size_bytes += size_bytes
        while len(self._sizes) > self._jobs_max or (
            self._size_bytes > self._bytes_max and len(self._sizes) > 1
        ):
            self._forget(next(name for name in chain(self._others, self._failed) if name != job.job))
        self.changes += 1

    def find(self, job: JobId) -> EndedJob | None:
        """Return what is kept of a job, or None."""
        return self._failed.get(job) or self._others.get(job)

    @property
    def jobs(self) -> list[EndedJob]:
        """The jobs in the order in which they ended."""
        return sorted(chain(self._failed.values(), self._others.values()), key=lambda job: job.ended_s)

    def _forget(self, job: JobId) -> None:
        if job in self._sizes:
            self._size_bytes -= self._sizes.pop(job)
            for kept in (self._failed, self._others):
                kept.pop(job, None)


def _size_of(job: EndedJob) -> int:
    return len(json.encode(job))
