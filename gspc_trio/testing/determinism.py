"""The same run from the same seed: trio's own randomness, and a fingerprint of what happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from trio._core import _run as scheduler

from gspc_trio.core.exchange import Cancel, Demand, Finished, Grant, OpenJob, Release, Submit, TakeBack
from gspc_trio.core.rif_events import AtWorker
from gspc_trio.core.rts import events
from gspc_trio.core.scheduler import TasksReady
from gspc_trio.protocol.signals import CallOut, ItemsReceived
from gspc_trio.testing.process import RUNNING, SimulatedProcess


@contextmanager
def seeded_trio(seed: int) -> Iterator[None]:
    """Let trio's order of tasks follow from the seed while the block runs.

    Trio shuffles the tasks that are ready so that nobody relies on their order; here the shuffle is part of
    what a seed explores. (Trio keeps a switch for this, for Hypothesis; it has no public name.)
    """
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    state = scheduler._r.getstate()
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    scheduler._r.seed(seed)
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        scheduler._r.setstate(state)


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
        brief = _BRIEFS.get(type(event))
        said = brief(event) if brief is not None else event
        kinds = [type(action).__name__ for action in actions]
        self._hash.update(f"{who} {machine} {now!r} {type(event).__name__} {said} {kinds}\n".encode())

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
