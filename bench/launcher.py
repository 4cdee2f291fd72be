"""How many events a launcher takes, and how fast it answers, replaces a server and fills its places.

    python bench/launcher.py [--json] [--small]

``launcher.events_per_s``   events per second of one core: 10,000 simulated clients, which are all at the
                            engine at a time; with what simulates them
``launcher.signal_p99_ms``  from SIGINT to the end of the ``sbatch`` that hangs, which is killed first
``launcher.restart_s``      from the time that a server is stopped to the start of the next one, at
                            ``timer_interval_s = 5``, as a process of this host; the longest of several
``launcher.idle_share``     share of the places of clients in which none runs while some wait: 200 clients of
                            15 s, ``job_limit`` 20, in a Slurm cluster on this host; left out without Slurm

A simulated client is asked for by a message of its own, and is alone in its job. The engine answers
submissions after a tenth of a second, lists jobs, lets them begin after some seconds and end after some
minutes. Each client's command says that it has ended before the engine says so.
"""

from __future__ import annotations

import math
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

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

SIGNALS = 100
START_S = 600.0
"""Within which what is waited for is there, on a busy host, too."""

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


# Real studies -----------------------------------------------------------------------------------------------


@contextmanager
def launched(folder: Path, options: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a launcher in a folder for the time of a block."""
    (folder / "study.toml").write_text(f'output_dir = "out"\n{options}')
    command = [sys.executable, "-m", "gspc_trio.cli.launcher", "-c", "study.toml"]
    with (folder / "launcher.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=os.environ | environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(90)
        finally:
            process.kill()


def awaited(path: Path, process: subprocess.Popen[bytes]) -> str:
    """Return what a file says as soon as it says something.

    Raises:
        RuntimeError: the launcher has ended before.
    """
    until_s = time.monotonic() + START_S
    while True:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return text
        if process.poll() is not None or time.monotonic() > until_s:
            log = (path.parent / "launcher.log").read_text()
            raise RuntimeError(f"there is no {path.name}; the launcher says: {log}")
        time.sleep(0.01)


def signal_ms(folder: Path) -> float:
    """Return how long after SIGINT an ``sbatch`` has ended that hangs."""
    for name, text in (("sbatch", "echo $$ > sbatch.pid\nsleep 3600"), ("squeue", ""), ("scancel", "")):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    options = 'scheduler = "slurm"\nserver_command = ["true"]\nstop_grace_s = 0.1\n'
    with launched(folder, options, {"PATH": f"{folder}:{os.environ['PATH']}"}) as process:
        hanging = os.pidfd_open(int(awaited(folder / "sbatch.pid", process)))
        time.sleep(random.uniform(0.0, 0.1))
        ends = select.poll()
        ends.register(hanging, select.POLLIN)
        begun_s = time.perf_counter()
        process.send_signal(signal.SIGINT)
        ends.poll(60_000)
        elapsed_s = time.perf_counter() - begun_s
        os.close(hanging)
    return 1e3 * elapsed_s


SILENT_SERVER = """
import pathlib, sys, time
from gspc_trio import study
with study.connect():
    pathlib.Path("connected." + sys.argv[1]).write_text("yes\\n")
    time.sleep(3600)
"""

NOTED_START = """
read -r now rest < /proc/uptime
echo "$$ $now" > "started.$GSPC_INCARNATION"
exec "$1" server.py "$GSPC_INCARNATION"
"""


def restart_s(folder: Path) -> float:
    """Return how long after a server is stopped the next one is started."""
    (folder / "server.py").write_text(SILENT_SERVER)
    (folder / "server.sh").write_text(NOTED_START)
    options = f'scheduler = "local"\nserver_command = ["sh", "server.sh", "{sys.executable}"]\n'
    with launched(folder, options, {}) as process:
        awaited(folder / "connected.0", process)
        time.sleep(random.uniform(0.0, 5.0))
        os.kill(int(awaited(folder / "started.0", process).split()[0]), signal.SIGSTOP)
        stopped_s = float(Path("/proc/uptime").read_text().split()[0])
        began_s = float(awaited(folder / "started.1", process).split()[1])
    return began_s - stopped_s


MANY_CLIENTS = """
import pathlib
from gspc_trio import study
with study.connect() as launcher:
    for client_id in range({clients}):
        launcher.submit(client_id, ["sh", "client.sh", "{run_s}"])
    for change in launcher.changes():
        pass
    pathlib.Path("all").write_text("done\\n")
    launcher.done()
"""

CLIENT = """
read -r begun rest < /proc/uptime
sleep "$1"
read -r ended rest < /proc/uptime
echo "$begun $ended" > "ran.$GSPC_CLIENT_ID"
"""


def idle_share(folder: Path, environment: dict[str, str], clients: int, limit: int, run_s: float) -> float:
    """Return the share of the places of clients in which none runs as long as some wait.

    Args:
        folder: in which jobs run.
        environment: of the commands of Slurm.
        clients: number of them.
        limit: of jobs, with that of the server.
        run_s: how long a client takes.
    """
    (folder / "server.py").write_text(MANY_CLIENTS.format(clients=clients, run_s=run_s))
    (folder / "client.sh").write_text(CLIENT)
    options = (
        f'scheduler = "slurm"\nserver_command = ["{sys.executable}", "server.py"]\njob_limit = {limit}\n'
    )
    with launched(folder, options, environment) as process:
        awaited(folder / "all", process)
    spans = sorted(tuple(map(float, path.read_text().split())) for path in folder.glob("ran.*"))
    assert len(spans) == clients, f"{len(spans)} clients have run"
    first_s, last_s = spans[0][0], spans[-1][0]  # after that none waits
    busy_s = sum(min(ended_s, last_s) - begun_s for begun_s, ended_s in spans)
    return 1 - busy_s / ((limit - 1) * (last_s - first_s))


def measure_slurm(figures: Figures, *, small: bool) -> None:
    """Measure with a Slurm cluster of this host, if there can be one."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    try:
        from tests.engines.slurm import missing, open_slurm
    except ImportError as error:
        print(f"no launcher.idle_share: {error}", file=sys.stderr)
        return
    if why := missing():
        print(f"no launcher.idle_share: {why}", file=sys.stderr)
        return
    sizes = (4, 3, 1.0) if small else (200, 20, 15.0)
    # munged wants all on the way to its socket to be open to others.
    with TemporaryDirectory(prefix="slurm-") as cluster, TemporaryDirectory(prefix="study-") as folder:
        with open_slurm(Path(cluster), nodes=2, cores=16) as slurm:
            share = idle_share(Path(folder), slurm.environment, *sizes)
    figures.add("launcher.idle_share", share, "share")


def repeat(measure: Callable[[Path], float], times: int) -> list[float]:
    """Return what so many measurements give, each in a folder of its own."""
    found = []
    for _ in range(times):
        with TemporaryDirectory(prefix="study-") as folder:
            found.append(measure(Path(folder)))
    return found


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    clients = SMALL_CLIENTS if options.small else CLIENTS
    rates = [events_per_s(clients) for _ in range(RUNS)]
    figures.add("launcher.events_per_s", statistics.median(rates), "1/s")
    times_ms = sorted(repeat(signal_ms, 2 if options.small else SIGNALS))
    figures.add("launcher.signal_p99_ms", times_ms[math.ceil(0.99 * len(times_ms)) - 1], "ms")
    figures.add("launcher.restart_s", max(repeat(restart_s, 1 if options.small else RUNS)), "s")
    measure_slurm(figures, small=options.small)


if __name__ == "__main__":
    main()
