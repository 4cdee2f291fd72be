"""Records and spans of calls that travel in ranges, in the job of an executor."""

from __future__ import annotations

import time
from collections.abc import Mapping

from gspc_trio.components.job.items_told import records_of, records_of_cancelled
from gspc_trio.components.job.scheduler.interface import EndedItems, TaskDone
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.core.task import TaskError
from gspc_trio.workflow.graph import TaskGraph


class ToldItems:
    """Tells of each call of a range as if it had been a task of its own, when it has ended.

    Args:
        job: which runs the ranges.
        graph: its tasks.
        are_recorded: whether it has records; else there are only spans.

    Attributes:
        are_recorded: see above.
    """

    def __init__(self, job: Job, graph: TaskGraph, are_recorded: bool) -> None:
        self.are_recorded: bool = are_recorded
        self._job = job
        self._graph = graph

    @property
    def now(self) -> float:
        """The time on the clock of the job."""
        return self._job.machine.now

    def ended(
        self, done: TaskDone, name: str, count: int, errors: Mapping[int, TaskError], ready_s: float
    ) -> None:
        """The first calls of a range have ended.

        Args:
            done: how its task has.
            name: of the function.
            count: so many have ended.
            errors: place among them -> why it has failed.
            ready_s: since when the range was ready, on the clock of the job.
        """
        ended = EndedItems(done, name, count, errors, ready_s)
        if self._job.tracer is not None:
            self._job.tracer.items_ended(ended, time.time())
        if self.are_recorded:
            for record in records_of(self._job.job_id, ended, self.now):
                self._job.records.append(record)

    def cancelled(self, name: str, count: int) -> None:
        """So many calls were cancelled before they were in a range."""
        if self.are_recorded and count:
            first = self._graph.last_task_id + 1
            self._graph.last_task_id += count  # no task has these numbers
            for record in records_of_cancelled(self._job.job_id, name, first, count, self.now):
                self._job.records.append(record)
