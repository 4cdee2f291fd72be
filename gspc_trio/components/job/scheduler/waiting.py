"""Tasks that wait, by their rank: for any resource of a kind, or for a certain one."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import IntEnum
from math import nan
from typing import Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct, field

from gspc_trio.components.job.scheduler.interface import AssignPolicy, TaskDone
from gspc_trio.core.ids import ResourceId, TaskId
from gspc_trio.core.task import Shape, Task

Rank: TypeAlias = tuple[int, int]
"""Of two tasks that wait, that of the lower rank goes first."""


class HasTask(Protocol):
    """What waits."""

    @property
    def task(self) -> Task:
        """The task that it stands for."""
        ...

    @property
    def number(self) -> int:
        """Of two of one rank in a resource's queue, that of the lower number goes first."""
        ...


EntryT = TypeVar("EntryT", bound=HasTask)
HeldT = TypeVar("HeldT")
QueueT = TypeVar("QueueT")


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

    def __reversed__(self) -> Iterator[EntryT]:
        for rank in reversed(self._ranks):
            yield from reversed(self._rows[rank].values())

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


class Targeted(IntEnum):
    """Whether tasks of a shape name the resources on which they are to run."""

    NOT = 0
    SOFTLY = 1
    HARD = 2


def targeted(shape: Shape) -> Targeted:
    """Return whether tasks of a shape name where they are to run, and whether they may run nowhere else."""
    first = shape.requirements[0]
    if first.hard:
        return Targeted.HARD
    return Targeted.SOFTLY if first.preferences else Targeted.NOT


def _place(entry: HasTask) -> tuple[Rank, int]:
    return rank_of(entry.task), entry.number


class ResourceQueue(Generic[EntryT]):
    """The tasks that wait for one resource (SCH-4).

    Attributes:
        kinds: the tasks, by how they are targeted.
        stated_s: seconds that those take together which state it.
        counts: (resource class, code) of the others -> how many they are.
        order: of the resources whose queues are equal, that of the lower number is the first.
        free_at_s: when all would be done, as it was noted last.
        told: how many tasks it was last said to have.
    """

    __slots__ = ("counts", "free_at_s", "kinds", "order", "stated_s", "told")

    def __init__(self, order: int) -> None:
        self.kinds: tuple[Waiting[EntryT], ...] = tuple(Waiting() for _ in Targeted)
        self.stated_s: float = 0.0
        self.counts: dict[tuple[str, int], int] = {}
        self.order: int = order
        self.told: int = 0
        self.free_at_s: float = nan  # as long as nothing was noted

    def __len__(self) -> int:
        untargeted, soft, hard = self.kinds
        return untargeted.size + soft.size + hard.size

    def __iter__(self) -> Iterator[EntryT]:
        """Yield all of them, the next one first."""
        entries = [entry for waiting in self.kinds for entry in waiting]
        yield from sorted(entries, key=_place)

    def first(self) -> EntryT | None:
        """Return the task that is to go first."""
        untargeted, soft, hard = self.kinds
        if not (soft.size or hard.size):
            return untargeted.first()
        found: EntryT | None = None
        for waiting in self.kinds:
            entry = waiting.first() if waiting.size else None
            if found is None or (entry is not None and _place(entry) < _place(found)):
                found = entry
        return found

    def work_s(self, run_s: Callable[[tuple[str, int]], float]) -> float:
        """Return how long all take together, ``run_s`` being what tasks take that do not state it."""
        seconds = self.stated_s
        for code, count in self.counts.items():
            seconds += count * run_s(code)
        return seconds


class QueuesOfClass(Struct, Generic[HeldT], eq=False):
    """The queues of the resources of one class that tasks may be sent to.

    Attributes:
        members: the grants whose queues they are, in the order in which they came.
        queued: number of tasks in them.
        by_end: (when all would be done, order, grant), a heap; those that have changed since are void.
    """

    members: dict[HeldT, None] = field(default_factory=dict)
    queued: int = 0
    by_end: list[tuple[float, int, HeldT]] = field(default_factory=list)


class AssignedTasks(Struct, Generic[HeldT, QueueT], eq=False):
    """What a scheduler knows whose tasks wait in queues of resources (SCH-4).

    Attributes:
        policy: says how long a task runs and whether it is stolen.
        classes: the queues of each resource class.
        within: resource -> itself and all that it is part of.
        named: resource, or what it is part of -> the grants with queues there.
        hard: resource, or what contains some -> shapes of tasks that wait for one of several such, and may
            run nowhere else.
        runs_s: (resource class, code) -> seconds that tasks are taken for which do not state it.
        mean_s: of all tasks that were measured, None if none was.
        counter: of all that got a place in an order.
        pending: grants to which something may be sent, or that may steal.
        stolen: how many tasks were.
    """

    policy: AssignPolicy
    classes: dict[str, QueuesOfClass[HeldT]] = field(default_factory=dict)
    within: dict[ResourceId, tuple[ResourceId, ...]] = field(default_factory=dict)
    named: dict[ResourceId, dict[HeldT, None]] = field(default_factory=dict)
    hard: dict[ResourceId, dict[QueueT, None]] = field(default_factory=dict)
    runs_s: dict[tuple[str, int], float] = field(default_factory=dict)
    mean_s: float | None = None
    counter: int = 0
    pending: dict[HeldT, None] = field(default_factory=dict)
    stolen: int = 0


class Tie(Struct, Generic[EntryT], eq=False):
    """What ties a task to others in a chain of which parts are sent ahead.

    Attributes:
        before: the task whose result it takes, until that has finished.
        behind: the task that was sent ahead behind it, until it has finished.
        made: the result that it takes, once that is there, until the task gets its arguments.
        failed: told when it has come back: it has failed through another one meanwhile.
    """

    before: EntryT | None = None
    behind: EntryT | None = None
    made: bytes = b""
    failed: TaskDone | None = None
