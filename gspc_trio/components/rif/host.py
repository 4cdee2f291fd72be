"""A RIF and its workers as one machine: what the shell of a host drives."""

from __future__ import annotations

from gspc_trio.components.rif.events import (
    AtWorker,
    Called,
    EndJob,
    ForwardToWorker,
    GrantChecked,
    HostAction,
    HostEvent,
    RifEvent,
    StartFailed,
    StartWorker,
    Stop,
    StopWorker,
    Unfit,
)
from gspc_trio.components.rif.machine import Rif
from gspc_trio.components.rif.messages import Hold
from gspc_trio.components.rm.messages import GrantsAhead, Revoke
from gspc_trio.components.worker.events import Assign, Computed, WorkerEvent, WorkerIdle, WorkerStopped
from gspc_trio.components.worker.machine import Worker
from gspc_trio.components.worker.messages import Cancel, DefineCode, OpenJob, Submit, TakeBack
from gspc_trio.core.ids import ResourceId, RifId
from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles


class RifHost(MachineBase[HostEvent, HostAction]):
    """Passes events and actions between the machines of a RIF and of its workers.

    Args:
        rif_id: name of the RIF.
        host: name of its host.
        address: where schedulers reach it.
    """

    noun = "a RIF"

    def __init__(self, rif_id: RifId, host: str, address: str) -> None:
        super().__init__()
        self.rif: Rif = Rif(rif_id, host, address)
        self.workers: dict[ResourceId, Worker] = {}
        self._due: dict[ResourceId, float] = {}
        self._fitness = Fitness()

    @handles(AtWorker)
    def _from_shell(self, event: AtWorker) -> None:
        self._at_worker(event.resource_id, event.event)

    @handles(Tick)
    def _tick(self, event: Tick) -> None:
        for resource_id in [name for name, due_s in self._due.items() if due_s <= self.now]:
            self._at_worker(resource_id, event)

    @handles(StartFailed)
    def _start_failed(self, event: StartFailed) -> None:
        self.actions.extend(self._fitness.start_failed(event))

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

    @handles(
        Submit, Cancel, TakeBack, OpenJob, DefineCode, EndJob, Hold, Revoke, GrantsAhead, GrantChecked,
        Called, Stop,
    )  # fmt: skip
    def _at_rif(self, event: RifEvent) -> None:
        for action in self.rif.handle(event, self.now):
            if isinstance(action, ForwardToWorker):
                self._at_worker(action.resource_id, action.event)
                continue
            if type(action) is StartWorker:
                self.workers[action.resource.resource_id] = Worker(action.resource)
            elif type(action) is StopWorker:
                del self.workers[action.resource_id]
                self._due.pop(action.resource_id, None)
            self.actions.append(action)

    def _at_worker(self, resource_id: ResourceId, event: WorkerEvent) -> None:
        worker = self.workers.get(resource_id)
        if worker is None:
            # Its last compute process may tell of its end when the resource has been removed.
            return
        if type(event) is Computed:
            self._fitness.deaths = 0
        try:
            results = worker.handle(event, self.now)
        except IllegalEvent:
            self._note_unused(worker, event)
            raise
        due_s = worker.deadline()
        if due_s is not None:
            self._due[resource_id] = due_s
        elif self._due:
            self._due.pop(resource_id, None)
        for action in results:
            if type(action) is WorkerIdle or type(action) is WorkerStopped:
                self._at_rif(action)
            else:
                self.actions.append(action)
        if type(event) is Assign:
            self._note_unused(worker, event)

    def _note_unused(self, worker: Worker, event: WorkerEvent) -> None:
        """The worker took nothing of what the RIF has noted as its work."""
        if type(event) is Assign and not worker.busy:
            self._at_rif(WorkerIdle(worker.resource.resource_id))


DEATHS = 2
"""So many processes in a row that die before they take a task are no chance: one may have been killed."""


class Fitness:
    """Counts what a host has failed to start, whichever of its workers it was for.

    A process that dies of its task is not counted: it had taken it.

    Attributes:
        deaths: processes that have died before they took a task, since one has last ended a task here.
    """

    def __init__(self) -> None:
        self.deaths: int = 0

    def start_failed(self, event: StartFailed) -> list[Unfit]:
        """A compute process could not be started, or died at once; say so if the host is to blame."""
        if not event.died:
            return [Unfit(event.detail)]
        self.deaths += 1
        if self.deaths < DEATHS:
            return []
        return [Unfit(f"compute processes die before they take a task, the last: {event.detail}")]
