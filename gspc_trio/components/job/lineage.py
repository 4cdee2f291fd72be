"""Lineage of data: the tasks and initial values from which lost data can be made again.

An origin keeps its task, with references that keep no data, and the origins of what that task was given. It
lives as long as data made by it, or by tasks after it, does; the owner of the data holds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence

from gspc_trio.core.task import Task

BYTES_MAX = 64 << 20
"""By default the arguments of remembered tasks, and initial values, may take so much memory."""


class Forgotten(Exception):
    """Data cannot be made again: nobody remembers how. The message names it."""


class Origin:
    """How some data was made.

    Attributes:
        task: that made it; None: forgotten, or it was never made by a task.
        pieces: of an initial value, one behind the other, to be put again; None: it is none, or forgotten.
        made: for each value that the task made, in order, the id of the data that it is, "" if it is none.
        given: ids of the data that it was given, each with its origin, None if that is not known.
    """

    __slots__ = ("_changes", "given", "made", "pieces", "size_bytes", "task")

    def __init__(
        self,
        changes: deque[int],
        task: Task | None,
        made: tuple[str, ...],
        given: Mapping[str, Origin | None],
        pieces: Sequence[memoryview] | None = None,
    ) -> None:
        self.task: Task | None = task
        self.made: tuple[str, ...] = made
        self.given: Mapping[str, Origin | None] = given
        self.pieces: Sequence[memoryview] | None = pieces
        self.size_bytes: int = 0 if task is None else sum(map(len, task.arguments))
        self.size_bytes += sum(piece.nbytes for piece in pieces or ())
        self._changes = changes
        changes.append(self.size_bytes)

    def __del__(self) -> None:
        self._changes.append(-self.size_bytes)  # in whatever thread that is


class Lineage:
    """The origins of one job's data.

    Args:
        bytes_max: how much the arguments of remembered tasks, and initial values, may take; what is made
            beyond that is forgotten.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self._size_bytes = 0
        self._changes: deque[int] = deque()

    @property
    def size_bytes_before(self) -> int:
        """How much they took when it was last looked at; for any thread."""
        return self._size_bytes

    @property
    def size_bytes(self) -> int:
        """How much they take."""
        while self._changes:
            self._size_bytes += self._changes.popleft()
        return self._size_bytes

    def origin(self, task: Task, made: tuple[str, ...], given: Mapping[str, Origin | None]) -> Origin:
        """Remember how data was made, if there is room.

        Args:
            task: that made it, with arguments that keep nothing alive.
            made: for each value that it made, the id of the data that it is, "" if it is none.
            given: ids of the data among its arguments, with their origins.
        """
        fits = self.size_bytes + sum(map(len, task.arguments)) <= self.bytes_max
        remembered = fits and task.options.may_rerun
        return Origin(self._changes, task if remembered else None, made, given if remembered else {})

    def initial(self, data_id: str, pieces: Sequence[memoryview]) -> Origin | None:
        """Remember an initial value, if there is room.

        Args:
            data_id: of the data that it is.
            pieces: its bytes, which must not change.
        """
        if self.size_bytes + sum(piece.nbytes for piece in pieces) > self.bytes_max:
            return None
        return Origin(self._changes, None, (data_id,), {}, pieces)


def ancestors(origins: Iterable[Origin]) -> list[str]:
    """Return the ids of all data from which these were made, each once."""
    found: dict[str, None] = {}
    waiting = list(origins)
    seen: set[int] = set()
    while waiting:
        origin = waiting.pop()
        if id(origin) in seen:
            continue
        seen.add(id(origin))
        found.update(dict.fromkeys(origin.given))
        waiting += [given for given in origin.given.values() if given is not None]
    return list(found)


def plan(lost: Mapping[str, Origin | None], there: Container[str]) -> list[Origin]:
    """Return the origins whose tasks are to run again, or whose values are to be put again, in an order in
    which each finds what it is given.

    Args:
        lost: ids of data to be had again, with their origins.
        there: ids of data that need not be made.

    Raises:
        Forgotten: some data that is needed cannot be made.
    """
    order: dict[int, Origin] = {}
    waiting: list[tuple[str, Origin | None, bool]] = [(name, origin, False) for name, origin in lost.items()]
    waiting.reverse()
    while waiting:
        data_id, origin, ready = waiting.pop()
        if origin is None or (origin.task is None and origin.pieces is None):
            raise Forgotten(f"data {data_id} cannot be made again: nothing is remembered of how it was made")
        if id(origin) in order:
            continue
        if ready:
            order[id(origin)] = origin
            continue
        waiting.append((data_id, origin, True))
        waiting += [(name, given, False) for name, given in origin.given.items() if name not in there]
    return list(order.values())
