"""Checker of bounds: queues, tasks and tables do not grow, and no deadline stays (invariant 9)."""

from __future__ import annotations

import gc
import types
from collections import deque
from collections.abc import Callable

import trio

from gspc_trio.core.machine import Tick
from gspc_trio.nursery.scopes.observe import Queue
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.simulated.process import SimulatedProcess

QUEUE_EVENTS = 16
"""After so many events the next queue is looked at."""

TASKS_EVENTS = 200
"""After so many events trio's tasks are counted."""

TABLE_EVENTS = 50
"""After so many events of a machine its objects are counted."""

TASKS_MAX, TASKS_EACH = 100, 12
"""Tasks that there may be, and besides for each process and each end of a connection."""

OBJECTS_MAX, OBJECTS_EACH = 500, 30
"""Objects that a machine may consist of, and besides for each of its tasks, resources or data."""

TICKS_MAX = 1000
"""So often in a row a machine may be told of the same time and do nothing."""

_NO_STATE = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
)
_OUTSIDE = (
    "gspc_trio.testing",
    "gspc_trio.components.embed",
    "gspc_trio.components.embedded_job",
    "gspc_trio.nursery",
    "trio",
)


class Bounds:
    """Queues of connections, trio's tasks and the machines' own tables, while a run goes on.

    Args:
        things: returns the number of processes and ends of connections.
    """

    def __init__(self, things: Callable[[], int]) -> None:
        self._things = things
        self._queues: deque[tuple[SimulatedProcess, Queue]] = deque()
        self._seen: dict[tuple[SimulatedProcess, type], int] = {}
        self._ticks: dict[tuple[SimulatedProcess, type], tuple[float, int]] = {}
        self._events = 0

    def holds(self, process: SimulatedProcess, queue: Queue) -> None:
        """A process has a new queue."""
        self._queues.append((process, queue))

    def event(self) -> None:
        """Something has happened: look at a queue or count the tasks, when it is their turn.

        Raises:
            Broken: there is more than may be.
        """
        self._events += 1
        if self._events % QUEUE_EVENTS == 0 and self._queues:
            self._look_at_next()
        if self._events % TASKS_EVENTS == 0:
            tasks = trio.lowlevel.current_statistics().tasks_living
            most = TASKS_MAX + TASKS_EACH * self._things()
            if tasks > most:
                raise Broken(f"there are {tasks} trio tasks; {most} may be")

    def _look_at_next(self) -> None:
        process, queue = self._queues.popleft()
        fills = queue.fills()
        if fills and process.alive:
            self._queues.append((process, queue))
        for fill in fills:
            if fill.items > fill.items_max or fill.size_bytes > fill.bytes_max:
                raise Broken(
                    f"{process.name}: {fill.items} items with {fill.size_bytes} bytes wait in {fill.name}; "
                    f"{fill.items_max} with {fill.bytes_max} may"
                )

    def machine(self, process: SimulatedProcess, machine: object, size: int) -> None:
        """A machine with so many tasks, resources or data has taken an event: count its objects now and then.

        Raises:
            Broken: there are more than may be.
        """
        key = (process, type(machine))
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen % TABLE_EVENTS:
            return
        objects, most = count_objects(machine), OBJECTS_MAX + OBJECTS_EACH * size
        if objects > most:
            what = f"{process.name}: its {key[1].__name__} of {size} tasks, resources or data"
            raise Broken(f"{what} consists of {objects} objects after {seen} events; {most} may be")

    def told(self, process: SimulatedProcess, machine: object, event: object, now: float, acts: bool) -> None:
        """A machine has taken an event: it may not be told of one time again and again, and do nothing.

        Raises:
            Broken: its deadline has come, and stays.
        """
        key = (process, type(machine))
        last_s, ticks = self._ticks.get(key, (now, 0))
        ticks = ticks + 1 if type(event) is Tick and not acts and now == last_s else 0
        self._ticks[key] = now, ticks
        if ticks > TICKS_MAX:
            raise Broken(f"{process.name}: the deadline of its {key[1].__name__} has come, and stays")


def count_objects(machine: object) -> int:
    """Return the number of a machine's objects that can hold others; those of shells do not count."""
    seen, waiting = {id(machine)}, [machine]
    count = 0
    while waiting:
        count += 1
        for other in gc.get_referents(waiting.pop()):
            if id(other) in seen or not gc.is_tracked(other) or isinstance(other, _NO_STATE):
                continue
            module = type(other).__module__
            if not module.startswith(_OUTSIDE) and ".shell." not in module:
                seen.add(id(other))
                waiting.append(other)
    return count
