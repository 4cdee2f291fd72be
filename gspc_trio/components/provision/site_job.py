"""One job at a batch system, as far as it is known there, and all that a site knows."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.components.provision.batch import BatchState


class SiteJob(Struct, eq=False):
    """What is known of one job.

    Attributes:
        name, job_id: what we and the batch system call it; "" while that is not known.
        submitted_at: when the submission was answered, None before.
        text: what was told of it last.
        said: why it is not clear whether there is such a job, "" if the batch system did not say.
        unwanted: it is being cancelled; ``reason`` says why, "" when it was asked for.
        is_cancelling: a cancel of it is under way.
        asking: a question about it is under way.
        ask_at: when to see whether it is gone, and ``ask_s`` how long after the last time.
        missing_since: since when the batch system does not know it, or lists do not have it.
        is_ending: what it runs has ended.
        connected: number of its own processes that are connected.
        answered: the submission was answered.
        state, why, is_hopeless: where it is, and why it waits, as far as that is known.
    """

    name: str
    job_id: str = ""
    submitted_at: float | None = None
    text: str = ""
    said: str = ""
    unwanted: bool = False
    reason: str = ""
    is_cancelling: bool = False
    asking: bool = False
    ask_at: float | None = None
    ask_s: float = 0.0
    missing_since: float | None = None
    is_ending: bool = False
    connected: int = 0
    answered: bool = False
    state: BatchState | None = None
    why: str = ""
    is_hopeless: bool = False

    @property
    def is_unclear(self) -> bool:
        """Whether nobody knows if there is such a job."""
        return self.submitted_at is not None and not self.job_id


class SiteSnapshot(Struct, frozen=True):
    """All that a site knows."""

    jobs: list[SiteJob]
    list_at: float | None
    list_s: float
    listed_from: float | None
    is_changed: bool
