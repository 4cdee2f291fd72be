"""How many events a launcher takes, whose clients, server and engine are simulated.

    python bench/launcher.py [--json] [--small]

``launcher.events_per_s``  events per second of one core: 10,000 clients, which are all at the engine at a
                           time; with what simulates them

Each client is asked for by a message of its own, and is alone in its job. The engine answers submissions
after a tenth of a second, lists jobs, lets them begin after some seconds and end after some minutes. Each
client's command says that it has ended before the engine says so.
"""

from __future__ import annotations

import statistics
import time
from heapq import heappop, heappush
from random import Random

from attrs import evolve
from figures import Figures, options_parser

from gspc_trio.components.launcher.events import (
    CancelAtEngine,
    Cancelled,
    ClientMoved,
    CommandExited,
    LauncherAction,
    LauncherEvent,
    Listed,
    ListEngine,
    Message,
    NewConnection,
    PingServer,
    SendToServer,
    ServerPing,
    Stop,
    StudyDone,
    SubmitClients,
    Submitted,
    SubmitToEngine,
)
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import LauncherOptions
from gspc_trio.components.provision.batch import BatchJob, BatchState
from gspc_trio.core.machine import Tick

CLIENTS, SMALL_CLIENTS, RUNS = 10_000, 200, 3
ANSWER_S = 0.1
WAIT_S, RUN_S = 60.0, 300.0
"""How long a job waits at the engine, and runs, at most."""

COMMAND = ("solve", "--input", "case.toml")


class SimulatedStudy:
    """A launcher, its server, which asks for all clients at once, and its engine."""

    def __init__(self, clients: int) -> None:
        options = LauncherOptions(scheduler="slurm", job_limit=clients + 1)
        self.launcher = Launcher(options, "study")
        self.clients = clients
        self.events = self.completed = 0
        self.now = 0.0
        self.stop: Stop | None = None
        self._random = Random(1)
        self._coming: list[tuple[float, int, LauncherEvent | BatchJob]] = []
        self._count = 0
        self._queue: dict[str, BatchJob] = {}

    def run(self) -> None:
        """Run until the launcher stops."""
        self._give(Tick())
        while self.stop is None:
            due = self.launcher.deadline()
            if due is not None and (not self._coming or due <= self._coming[0][0]):
                self.now = max(self.now, due)
                self._give(Tick())
                continue
            self.now, _, coming = heappop(self._coming)
            if not isinstance(coming, BatchJob):
                self._give(coming)
            elif coming.state is BatchState.RUNNING:
                self._queue[coming.job_id] = coming
            else:
                self._queue.pop(coming.job_id, None)

    def _later(self, seconds: float, what: LauncherEvent | BatchJob) -> None:
        self._count += 1
        heappush(self._coming, (self.now + seconds, self._count, what))

    def _give(self, event: LauncherEvent) -> None:
        self.events += 1
        for action in self.launcher.handle(event, self.now):
            self._perform(action)

    def _perform(self, action: LauncherAction) -> None:
        match action:
            case SendToServer(body=body):
                if isinstance(body, ClientMoved) and body.state == "completed":
                    self.completed += 1
                    if self.completed == self.clients:
                        self._later(0.0, Message(1, StudyDone()))
            case SubmitToEngine():
                self._submitted(action)
            case ListEngine(uid=uid, job_id=job_id):
                found = [self._queue[job_id]] if job_id in self._queue else []
                jobs = found if job_id else self._queue.values()
                self._later(ANSWER_S, Listed(uid, tuple(jobs)))
            case CancelAtEngine(uid=uid, job_id=job_id):
                self._queue.pop(job_id, None)
                self._later(ANSWER_S, Cancelled(uid))
            case PingServer(connection=connection):
                self._later(ANSWER_S, Message(connection, ServerPing()))
            case Stop():
                self.stop = action

    def _submitted(self, action: SubmitToEngine) -> None:
        job = BatchJob(str(1000 + action.uid), action.name, BatchState.QUEUED)
        self._queue[job.job_id] = job
        self._later(ANSWER_S, Submitted(action.uid, job.job_id))
        wait_s = self._random.uniform(0.0, WAIT_S)
        self._later(wait_s, evolve(job, state=BatchState.RUNNING))
        if action.client_ids:
            end_s = wait_s + self._random.uniform(0.0, RUN_S)
            self._later(end_s, CommandExited(action.uid, 0))
            self._later(end_s + ANSWER_S, evolve(job, state=BatchState.ENDED))
        else:
            self._later(wait_s, NewConnection(1, 0, job.job_id))
            for client_id in range(self.clients):
                self._later(wait_s, Message(1, SubmitClients(client_id, (client_id,), COMMAND)))


def events_per_s(clients: int) -> float:
    """Return the events per second of CPU time that a launcher with so many clients takes."""
    study = SimulatedStudy(clients)
    begun_s = time.process_time()
    study.run()
    elapsed_s = time.process_time() - begun_s
    assert study.completed == clients
    return study.events / elapsed_s


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    clients = SMALL_CLIENTS if options.small else CLIENTS
    rates = [events_per_s(clients) for _ in range(RUNS)]
    figures.add("launcher.events_per_s", statistics.median(rates), "1/s")


if __name__ == "__main__":
    main()
