"""Blocks at a batch system: not more than there may be, none asked for twice, none left behind."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.simulated.process import SimulatedProcess


@define(eq=False)
class _Job:
    """A job that is not over.

    Attributes:
        block: of which it is.
        owner: who has submitted it.
        excused: its run-time system may believe that there is no such job: nobody has told it, or it has
            tried to cancel it.
    """

    block: str
    owner: SimulatedProcess
    excused: bool = False


class BatchJobs:
    """The jobs of all run-time systems, one after the other.

    Args:
        slots: so many jobs one run-time system may have.
        fail: told of what does not hold.

    Attributes:
        is_kept: a run-time system goes on with the blocks of the one before.
    """

    def __init__(self, slots: int, fail: Callable[[BaseException], None]) -> None:
        self.is_kept = False
        self.count: int = 0
        self.served: int = 0
        self._slots = slots
        self._fail = fail
        self._jobs: dict[str, _Job] = {}
        self._orders: set[tuple[bytes, str]] = set()

    def submitted(self, owner: SimulatedProcess, job_id: str, name: str) -> None:
        """A job is in the queue."""
        self.count += 1
        block = name.rpartition("-")[0]
        counted = [job for job in self._jobs.values() if self._is_of(job, owner) and not job.excused]
        if any(job.block == block for job in counted):
            self._fail(Broken(f"the block {block} is asked for twice", block))
        self._jobs[job_id] = _Job(block, owner)
        if len(counted) + 1 > self._slots:
            self._fail(Broken(f"{len(counted) + 1} jobs are at the batch system; {self._slots} slots", block))

    def excuse(self, job_id: str) -> None:
        """Its run-time system was not told of it, or has tried to cancel it."""
        if job_id in self._jobs:
            self._jobs[job_id].excused = True

    def ended(self, job_id: str) -> None:
        """It is over with a job."""
        del self._jobs[job_id]

    def ordered(self, ticket: bytes, order: str) -> None:
        """A process of a block has got an order."""
        self.served += 1
        if (ticket, order) in self._orders:
            self._fail(Broken("two processes have the order for the same RIF"))
        self._orders.add((ticket, order))

    def stopped(self, owner: SimulatedProcess) -> None:
        """A run-time system has ended in good order: it has cancelled what it has asked for."""
        left = [job_id for job_id, job in self._jobs.items() if self._is_of(job, owner) and not job.excused]
        if left:
            self._fail(Broken(f"nobody has cancelled the batch jobs {', '.join(left)}"))

    def _is_of(self, job: _Job, owner: SimulatedProcess) -> bool:
        return self.is_kept or job.owner is owner
