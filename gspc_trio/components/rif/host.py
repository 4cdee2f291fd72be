"""A RIF and its workers as one machine: what the shell of a host drives."""

from __future__ import annotations

from typing import Any

from gspc_trio.components.rif.events import (
    AtWorker,
    ForwardToWorker,
    StartFailed,
    StartWorker,
    StopWorker,
    Unfit,
)
from gspc_trio.components.rif.machine import Rif
from gspc_trio.components.worker.events import Assign, Computed, WorkerIdle, WorkerStopped
from gspc_trio.components.worker.machine import Worker
from gspc_trio.core.ids import ResourceId, RifId
from gspc_trio.core.machine import IllegalEvent, Tick


class RifHost:
    """Passes events and actions between the machines of a RIF and of its workers.

    Args:
        rif_id: name of the RIF.
        host: name of its host.
        address: where schedulers reach it.
    """

    def __init__(self, rif_id: RifId, host: str, address: str) -> None:
        self.rif = Rif(rif_id, host, address)
        self.workers: dict[ResourceId, Worker] = {}
        self._due: dict[ResourceId, float] = {}
        self._fitness = Fitness()

    def handle(self, event: Any, now: float) -> list[Any]:
        """Take an :class:`AtWorker`, a StartFailed, a Tick, or an event of the RIF.

        Raises:
            IllegalEvent: as the machines say.
        """
        actions: list[Any] = []
        if type(event) is AtWorker:
            self._at_worker(event.resource_id, event.event, now, actions)
        elif type(event) is Tick:
            for resource_id in [name for name, due_s in self._due.items() if due_s <= now]:
                self._at_worker(resource_id, event, now, actions)
        elif type(event) is StartFailed:
            actions += self._fitness.start_failed(event)
        else:
            self._at_rif(event, now, actions)
        return actions

    def deadline(self) -> float | None:
        """Return the earliest deadline of a worker."""
        return min(self._due.values()) if self._due else None

    def check(self) -> None:
        """Assert every invariant of the RIF and its workers, and that they agree on who is at work."""
        self.rif.check()
        for resource_id, worker in self.workers.items():
            worker.check()
            work = self.rif.at_work.of_worker(resource_id)
            assert (work is not None) == worker.busy, f"{resource_id}: the RIF and the worker disagree"
            if work is not None:
                assert (work.job, work.grant_id) == (worker.job, worker.grant_id)
        assert set(self._due) <= set(self.workers), "a deadline of nobody"

    def _at_rif(self, event: Any, now: float, actions: list[Any]) -> None:
        for action in self.rif.handle(event, now):
            kind = type(action)
            if kind is ForwardToWorker:
                self._at_worker(action.resource_id, action.event, now, actions)
                continue
            if kind is StartWorker:
                self.workers[action.resource.resource_id] = Worker(action.resource)
            elif kind is StopWorker:
                del self.workers[action.resource_id]
                self._due.pop(action.resource_id, None)
            actions.append(action)

    def _at_worker(self, resource_id: ResourceId, event: Any, now: float, actions: list[Any]) -> None:
        worker = self.workers.get(resource_id)
        if worker is None:
            # Its last compute process may tell of its end when the resource has been removed.
            return
        if type(event) is Computed:
            self._fitness.deaths = 0
        try:
            results = worker.handle(event, now)
        except IllegalEvent:
            self._note_unused(worker, event, now, actions)
            raise
        due_s = worker.deadline()
        if due_s is not None:
            self._due[resource_id] = due_s
        elif self._due:
            self._due.pop(resource_id, None)
        for action in results:
            if type(action) is WorkerIdle or type(action) is WorkerStopped:
                self._at_rif(action, now, actions)
            else:
                actions.append(action)
        if type(event) is Assign:
            self._note_unused(worker, event, now, actions)

    def _note_unused(self, worker: Worker, event: Any, now: float, actions: list[Any]) -> None:
        """The worker took nothing of what the RIF has noted as its work."""
        if type(event) is Assign and not worker.busy:
            self._at_rif(WorkerIdle(worker.resource.resource_id), now, actions)


DEATHS = 2
"""So many processes in a row that die before they take a task are no chance: one may have been killed."""


class Fitness:
    """Counts what a host has failed to start, whichever of its workers it was for.

    A process that dies of its task is not counted: it had taken it.

    Attributes:
        deaths: processes that have died before they took a task, since one has last ended a task here.
    """

    def __init__(self) -> None:
        self.deaths = 0

    def start_failed(self, event: StartFailed) -> list[Unfit]:
        """A compute process could not be started, or died at once; say so if the host is to blame."""
        if not event.died:
            return [Unfit(event.detail)]
        self.deaths += 1
        if self.deaths < DEATHS:
            return []
        return [Unfit(f"compute processes die before they take a task, the last: {event.detail}")]
