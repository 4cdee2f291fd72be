"""How data came to be, so that what was lost can be made again: up the graph to the initial values.

An origin keeps its task, with references that keep no data, and the origins of what that task was given. It
lives as long as data made by it, or by tasks after it, does; the owner of the data holds it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from gspc_trio.core.task import Task

BYTES_MAX = 64 << 20
"""By default the arguments of remembered tasks may take so much memory."""


class Forgotten(Exception):
    """Data cannot be made again: nobody remembers how. The message names it."""


class Origin:
    """How some data was made.

    Attributes:
        task: that made it; None: forgotten, or it was never made by a task.
        made: ids of all data that the task made, in order.
        given: ids of the data that it was given, each with its origin, None if that is not known.
    """

    __slots__ = ("_lineage", "given", "made", "size_bytes", "task")

    def __init__(
        self, lineage: Lineage, task: Task | None, made: tuple[str, ...], given: Mapping[str, Origin | None]
    ) -> None:
        self.task = task
        self.made = made
        self.given = given
        self.size_bytes = 0 if task is None else sum(map(len, task.arguments))
        self._lineage = lineage
        lineage.size_bytes += self.size_bytes

    def __del__(self) -> None:
        self._lineage.size_bytes -= self.size_bytes


class Lineage:
    """The origins of one job's data.

    Args:
        bytes_max: how much the arguments of remembered tasks may take; what is made beyond that is forgotten.

    Attributes:
        size_bytes: how much they take.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0

    def origin(self, task: Task, made: tuple[str, ...], given: Mapping[str, Origin | None]) -> Origin:
        """Remember how data was made, if there is room.

        Args:
            task: that made it, with arguments that keep nothing alive.
            made: ids of the data.
            given: ids of the data among its arguments, with their origins.
        """
        fits = self.size_bytes + sum(map(len, task.arguments)) <= self.bytes_max
        remembered = fits and task.options.may_rerun
        return Origin(self, task if remembered else None, made, given if remembered else {})


def ancestors(origins: Iterable[Origin]) -> set[str]:
    """Return the ids of all data from which these were made."""
    found: set[str] = set()
    waiting = list(origins)
    seen: set[int] = set()
    while waiting:
        origin = waiting.pop()
        if id(origin) in seen:
            continue
        seen.add(id(origin))
        found.update(origin.given)
        waiting += [given for given in origin.given.values() if given is not None]
    return found


def plan(lost: Mapping[str, Origin | None], there: Container[str]) -> list[Origin]:
    """Return the origins whose tasks are to run again, in an order in which each finds what it is given.

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
        if origin is None or origin.task is None:
            raise Forgotten(f"data {data_id} cannot be made again: nothing is remembered of how it was made")
        if id(origin) in order:
            continue
        if ready:
            order[id(origin)] = origin
            continue
        waiting.append((data_id, origin, True))
        waiting += [(name, given, False) for name, given in origin.given.items() if name not in there]
    return list(order.values())
