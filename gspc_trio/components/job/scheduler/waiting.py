"""Tasks that wait, by their rank."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, Protocol, TypeAlias, TypeVar

from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import Task

Rank: TypeAlias = tuple[int, int]
"""Of two tasks that wait, that of the lower rank goes first."""


class HasTask(Protocol):
    """What waits."""

    @property
    def task(self) -> Task:
        """The task that it stands for."""
        ...


EntryT = TypeVar("EntryT", bound=HasTask)


def rank_of(task: Task) -> Rank:
    """Return the rank of a task: the higher priority first, then what is nearer to the end."""
    return -task.options.priority, task.distance


class Waiting(Generic[EntryT]):
    """Tasks by rank, and of one rank in the order in which they came.

    The hot paths work on a row itself, which costs no more than if there were one queue; they keep ``size``.

    Attributes:
        size: number of tasks in all rows.
    """

    __slots__ = ("_ranks", "_rows", "size")

    def __init__(self) -> None:
        self.size: int = 0
        self._rows: dict[Rank, OrderedDict[TaskId, EntryT]] = {}
        self._ranks: list[Rank] = []  # sorted

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[EntryT]:
        for rank in self._ranks:
            yield from self._rows[rank].values()

    def __contains__(self, entry: EntryT) -> bool:
        row = self._rows.get(rank_of(entry.task))
        return row is not None and row.get(entry.task.task_id) is entry

    def row(self, rank: Rank) -> OrderedDict[TaskId, EntryT]:
        """Return the tasks of a rank; whoever adds to them adds to ``size``."""
        row = self._rows.get(rank)
        if row is None:
            row = self._rows[rank] = OrderedDict()
            insort(self._ranks, rank)
        return row

    def first_row(self) -> OrderedDict[TaskId, EntryT] | None:
        """Return the tasks of the lowest rank, None if nothing waits; whoever takes some lowers ``size``."""
        ranks, rows = self._ranks, self._rows
        while ranks:
            row = rows[ranks[0]]
            if row:
                return row
            del rows[ranks.pop(0)]
        return None

    def first(self) -> EntryT | None:
        """Return the task that is to go first."""
        row = self.first_row()
        return None if row is None else next(iter(row.values()))

    def put_first(self, entry: EntryT) -> None:
        """Let a task that was out wait before the others of its rank."""
        row, task_id = self.row(rank_of(entry.task)), entry.task.task_id
        row[task_id] = entry
        row.move_to_end(task_id, last=False)
        self.size += 1

    def remove(self, entry: EntryT) -> None:
        """Take out a task, wherever it is."""
        del self._rows[rank_of(entry.task)][entry.task.task_id]
        self.size -= 1

    def check(self) -> None:
        """Assert that ranks, rows and size agree."""
        assert self._ranks == sorted(self._rows), "ranks and rows differ"
        assert self.size == sum(map(len, self._rows.values())), "waiting tasks are miscounted"
        for rank, row in self._rows.items():
            assert all(rank_of(entry.task) == rank for entry in row.values()), "a task has another rank"
