"""The same run from the same seed: trio's own randomness, and a fingerprint of what happened."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager
from hashlib import blake2b
from math import inf
from random import Random
from typing import Any, cast

from trio._core import _run as scheduler
from trio.testing import MockClock

from gspc_trio.core.exchange import Cancel, Demand, Finished, Grant, OpenJob, Release, Submit, TakeBack
from gspc_trio.core.machine import Tick
from gspc_trio.core.rif_events import AtWorker
from gspc_trio.core.rts import events
from gspc_trio.core.scheduler import TasksReady
from gspc_trio.protocol.signals import CallOut, Heard, ItemsReceived, Sent
from gspc_trio.testing.process import RUNNING, SimulatedProcess

A_WHILE_S = 1e9

COLLECTIONS = (20_000, 20, 100)
"""Thresholds of Python's garbage collector during a simulation."""

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
    try:
        yield
    finally:
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


class Gate(deque[Any]):
    """Takes the place of trio's queue of tasks that can run; it keeps back those of paused processes."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[SimulatedProcess, list[Any]] = {}

    @classmethod
    def install(cls) -> Gate:
        """Put a gate in place, from a task of the run that it is for."""
        runner = scheduler.GLOBAL_RUN_CONTEXT.runner
        gate = cls()
        gate.extend(runner.runq)
        runner.runq = gate
        runner.io_manager = _NoIo(runner.io_manager)  # type: ignore[assignment]
        return gate

    def append(self, task: Any) -> None:
        """Take a task that can run."""
        if self._kept:
            kept = self._kept.get(task.context.get(RUNNING))
            if kept is not None:
                kept.append(task)
                return
        super().append(task)

    def close(self, process: SimulatedProcess) -> bool:
        """Let no task of the process run; return whether they could before."""
        if process in self._kept:
            return False
        self._kept[process] = []
        return True

    def open(self, process: SimulatedProcess) -> None:
        """Let its tasks run again."""
        self.extend(self._kept.pop(process, ()))


class EventHash:
    """A fingerprint of all events of all machines, in their order.

    What names the real machine that the simulation runs on (process ids, paths) is left out.
    """

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=8)
        self.count = 0

    def add(self, who: str, machine: str, event: Any, now: float, actions: list[Any]) -> None:
        """Take one event."""
        self.count += 1
        kind = type(event)
        brief = _BRIEFS.get(kind)
        said = brief(event) if brief is not None else "" if kind in _PLAIN else event
        kinds = [type(action).__name__ for action in actions] if actions else ""
        self._hash.update(f"{who} {machine} {now!r} {kind.__name__} {said} {kinds}\n".encode())

    @property
    def digest(self) -> str:
        """The fingerprint so far."""
        return self._hash.hexdigest()


def _outcomes(event: Finished) -> list[Any]:
    return [(outcome.task_id, outcome.attempt, outcome.reason.value) for outcome in event.outcomes]


def _at_worker(event: AtWorker) -> tuple[Any, ...]:
    inner = event.event
    brief = getattr(inner, "outcomes", None)
    return event.resource_id, type(inner).__name__, _outcomes(inner) if brief is not None else ""


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
    events.JobAsked: lambda event: (event.link, event.name, event.weight),
    events.RifUp: lambda event: (event.link, event.rif_id, event.incarnation, event.address),
}
