"""The same run from the same seed: trio's own randomness, and a fingerprint of what happened."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from math import inf
from random import Random
from typing import Any, cast

import trio
from trio import _timeouts as timeouts
from trio._core import _run as scheduler
from trio.testing import MockClock

from gspc_trio.components.job.scheduler.interface import TasksReady
from gspc_trio.components.rif.events import AtWorker
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.components.rts import events
from gspc_trio.components.worker.events import Computed
from gspc_trio.components.worker.messages import Cancel, Finished, OpenJob, Submit, TakeBack
from gspc_trio.core.machine import Tick
from gspc_trio.protocol.signals import CallOut, Heard, ItemsReceived, Sent
from gspc_trio.testing.layer.packets import PacketEnd
from gspc_trio.testing.simulated.alarm import sleep_until
from gspc_trio.testing.simulated.process import RUNNING, SimulatedProcess

A_WHILE_S = 1e9

COLLECTIONS = (20_000, 20, 100)
"""Thresholds of Python's garbage collector during a simulation."""

LINES_AT_ONCE = 1000
"""Mixed into a fingerprint together."""

POLLS_SPARED = 64
"""There is no I/O in a simulation: only one of so many looks for some is made, for Ctrl-C."""


class _Shuffler(Random):
    """Shuffles; most often there is only one task that can run."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        if len(x) > 1:
            super().shuffle(x)


class _NoIo:
    """Takes the place of trio's I/O manager, and seldom looks for I/O."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._spared = 0
        self.process_events = manager.process_events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    async def wait_readable(self, connection: Any) -> None:
        """Wait for a simulated connection, or a real one of trio's own."""
        if isinstance(connection, PacketEnd):
            await connection.wait_readable()
        else:
            await self._manager.wait_readable(connection)

    async def wait_writable(self, connection: Any) -> None:
        """A simulated connection takes everything."""
        if isinstance(connection, PacketEnd):
            await trio.lowlevel.checkpoint()
        else:
            await self._manager.wait_writable(connection)

    def notify_closing(self, connection: Any) -> None:
        """Let nobody wait for a connection any more."""
        if isinstance(connection, PacketEnd):
            connection.close()
        else:
            self._manager.notify_closing(connection)

    def get_events(self, timeout: float) -> Any:
        self._spared += 1
        if timeout or self._spared >= POLLS_SPARED:
            self._spared = 0
            return self._manager.get_events(timeout)
        return ()


@contextmanager
def seeded_trio(seed: int) -> Iterator[None]:
    """Let trio's order of tasks follow from the seed while the block runs.

    Trio shuffles the tasks that are ready so that nobody relies on their order; here the shuffle is part of
    what a seed explores. (Trio keeps a switch for this, for Hypothesis; it has no public name.)
    """
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    random = scheduler._r
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    scheduler._r = _Shuffler(seed)
    sleeps = trio.sleep_until
    trio.sleep_until = timeouts.sleep_until = sleep_until
    try:
        yield
    finally:
        trio.sleep_until = timeouts.sleep_until = sleeps
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        scheduler._r = random


def simulated_clock() -> MockClock:
    """Return a clock that jumps to the next deadline when nothing can run.

    It is trio's own one; what is replaced are the methods of this object that ask for the real time, or for
    figures on all of the run, tens of thousands of times in a simulation.
    """
    clock: Any = MockClock(autojump_threshold=0)

    def autojump() -> None:
        deadlines = scheduler.GLOBAL_RUN_CONTEXT.runner.deadlines
        due_s = deadlines.next_deadline()
        if clock._virtual_base < due_s < inf:
            clock._virtual_base = due_s
            deadlines.expire(due_s)

    clock._autojump = autojump
    clock.current_time = lambda: clock._virtual_base
    clock.deadline_to_sleep_time = lambda deadline: 0.0 if deadline <= clock._virtual_base else A_WHILE_S
    return cast(MockClock, clock)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for cyclic garbage less often while the block runs: a run keeps much to look through."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Gate:
    """Stands before trio's queue of tasks that can run; it keeps back those of paused processes.

    Args:
        runner: trio's.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._kept: dict[SimulatedProcess, list[Any]] = {}

    @classmethod
    def install(cls) -> Gate:
        """Put a gate in place, from a task of the run that it is for; nothing else looks into that run."""
        runner: Any = scheduler.GLOBAL_RUN_CONTEXT.runner
        runner.io_manager = _NoIo(runner.io_manager)
        runner.instruments = {}  # trio asks several times in each pass, and a dict answers sooner
        return cls(runner)

    def close(self, process: SimulatedProcess) -> bool:
        """Let no task of the process run; return whether they could before."""
        if process in self._kept:
            return False
        if not self._kept:
            self._runner.runq = _Sieve(self._runner.runq, self._kept)
        self._kept[process] = []
        return True

    def open(self, process: SimulatedProcess) -> None:
        """Let its tasks run again."""
        self._runner.runq.extend(self._kept.pop(process, ()))
        if not self._kept:
            self._runner.runq = deque(self._runner.runq)


class _Sieve(deque[Any]):
    """Trio's queue while a process is paused."""

    def __init__(self, tasks: Iterable[Any], kept: Mapping[SimulatedProcess, list[Any]]) -> None:
        super().__init__(tasks)
        self._kept = kept

    def append(self, task: Any) -> None:
        """Take a task that can run."""
        kept = self._kept.get(task.context.get(RUNNING))
        if kept is not None:
            kept.append(task)
        else:
            super().append(task)


class EventHash:
    """A fingerprint of all events of all machines, in their order.

    What names the real machine that the simulation runs on (process ids, paths) is left out.
    """

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=8)
        self._lines: list[str] = []
        self._now = -1.0
        self.count: int = 0

    def add(self, who: str, machine: str, event: Any, now: float, actions: Sequence[object]) -> None:
        """Take one event."""
        self.count += 1
        lines, kind = self._lines, type(event)
        if now != self._now:
            self._now = now
            lines.append(repr(now))
        if kind in _PLAIN:
            lines.append(f"{who} {machine} {kind.__name__}")
        else:
            brief = _BRIEFS.get(kind)
            lines.append(f"{who} {machine} {kind.__name__} {event if brief is None else brief(event)}")
        for action in actions:
            lines.append(type(action).__name__)
        if len(lines) >= LINES_AT_ONCE:
            self._mix()

    def _mix(self) -> None:
        self._lines.append("")
        self._hash.update("\n".join(self._lines).encode())
        self._lines.clear()

    @property
    def digest(self) -> str:
        """The fingerprint so far."""
        self._mix()
        return self._hash.hexdigest()


def _outcomes(event: Finished | Computed) -> list[Any]:
    return [(outcome.task_id, outcome.attempt, outcome.reason.value) for outcome in event.outcomes]


def _at_worker(event: AtWorker) -> tuple[Any, ...]:
    inner = event.event
    return event.resource_id, type(inner).__name__, _outcomes(inner) if isinstance(inner, Computed) else ""


_PLAIN = frozenset({Heard, Sent, Tick})
"""Events that say no more than their type."""

_BRIEFS: dict[type, Callable[[Any], Any]] = {
    AtWorker: _at_worker,
    CallOut: lambda _: "",
    Cancel: lambda event: (event.resource_id, event.attempts),
    Demand: lambda event: (event.job, event.credit, event.seen),
    Finished: lambda event: (event.job, event.resource_id, _outcomes(event)),
    Grant: lambda event: (event.job, event.grant_id, event.resources, event.memories),
    ItemsReceived: lambda event: [type(item).__name__ for item in event.items],
    OpenJob: lambda event: (event.job, event.fate, event.threads),
    Release: lambda event: (event.job, event.grant_id, event.resources),
    Submit: lambda event: (
        event.job,
        event.grant_id,
        event.resources,
        [(one.task_id, one.attempt) for one in event.submissions],
    ),
    TakeBack: lambda event: (event.resource_id, event.attempts),
    TasksReady: lambda event: [task.task_id for task in event.tasks],
    events.JobConnected: lambda event: (event.link, event.wish.name, event.wish.weight),
    events.RifConnected: lambda event: (event.link, event.hello.rif_id, event.hello.incarnation),
}
