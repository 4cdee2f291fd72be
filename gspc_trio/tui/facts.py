"""Facts about one job, put together for views."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gspc_trio.core.ids import JobId
from gspc_trio.core.task import FINAL_STATES, TaskState


class JobFacts(Struct, frozen=True):
    """One job, put together from what the RTS and the job's own stream tell.

    Attributes:
        counts: state -> number of tasks.
        rate_per_s: tasks that finish, of late.
        left_s: seconds until all tasks known now have ended, or None.
        held: number of resources.
        connected: whether its own stream is being read.
        ended_ago_s: seconds since it ended; 0 if it has not.
    """

    job: JobId
    name: str
    state: str
    detail: str
    counts: Mapping[TaskState, int]
    rate_per_s: float
    left_s: float | None
    elapsed_s: float
    held: int
    computed_s: float
    connected: bool
    ended_ago_s: float

    @property
    def total(self) -> int:
        """Number of tasks so far."""
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        """Number of tasks that have ended."""
        return sum(self.counts[state] for state in FINAL_STATES)
