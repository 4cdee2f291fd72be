"""What those who watch a job are told of the items of ranges: a range is one task for the scheduler."""

from __future__ import annotations

from msgspec.structs import replace

from gspc_trio.components.job.machine import JobMachine
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import TaskChanged, TaskCounts


class ItemCounts:
    """Counts items in place of ranges for those who watch.

    Args:
        machine: of the job.
    """

    def __init__(self, machine: JobMachine) -> None:
        self._machine = machine
        self._told: dict[TaskState, int] = {}

    def _more(self) -> dict[TaskState, int]:
        """Return what is to be added to the numbers of tasks."""
        more: dict[TaskState, int] = {}
        if self._machine.count_more is not None:
            self._machine.count_more(more)
        return more

    def glance(self, now: float, named_max: int | None) -> list[TaskCounts | TaskChanged]:
        """Return the scheduler's records of how it is now, with items counted.

        Args:
            now: time, seconds.
            named_max: running tasks that are named, and others that are ready or on their way; None: all.
        """
        records = self._machine.scheduler.glance(now, named_max)
        self._told = self._more()
        first = records[0]
        if self._told and isinstance(first, TaskCounts):
            counts = dict(first.counts)
            for state, number in self._told.items():
                counts[state] = counts.get(state, 0) + number
            records[0] = replace(first, counts=counts)
        return records

    def news(self, now: float) -> list[TaskCounts]:
        """Return the record that says how many there are now; nothing if tasks tell all themselves.

        Args:
            now: time, seconds.
        """
        if self._more() == self._told:
            return []
        first, *named = self.glance(now, 0)
        assert isinstance(first, TaskCounts)
        counts = dict(first.counts)
        for record in named:
            assert isinstance(record, TaskChanged)
            counts[record.state] += 1
        return [replace(first, counts=counts, keep=True)]
