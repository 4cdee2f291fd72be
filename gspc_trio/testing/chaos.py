"""Kill and stop real processes while real work runs: ``python -m gspc_trio.testing.chaos``.

A run-time system with four hosts, and two job servers that run one job after the other. Every few seconds
one process is struck: a compute process, a RIF, a job server or the run-time system, by SIGKILL, or by
SIGSTOP for one lease or three. The connections of one job server and of one RIF go through forwarders, which
now and then forget them: they are half-open then. Everything happens once, then again in another order. A job
that was not struck itself and kept its run-time system must have every result once; in the end nothing is
left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import psutil
from attrs import define, field
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.provision.shell.strategies import ENTRY_POINTS, LocalStrategy
from gspc_trio.components.provision.strategy import RifOrder
from gspc_trio.nursery.connections.connection_file import (
    ConnectionFileError,
    read_connection_file,
    write_connection_file,
)
from gspc_trio.protocol.address import WebSocketAddress, parse_address
from gspc_trio.protocol.limits import DEFAULT_LIMITS

FLOW = """
import time
from gspc_trio import Workflow, farm

def nap(item):
    number, seconds = item
    time.sleep(seconds)
    return number

def workflow(n: int = 100, seconds: float = 0.05):
    items = [(number, seconds) for number in range(n)]
    return Workflow(farm(nap, name="naps", loss_attempts=100), {"items": items})
"""

FORWARDED = 1
"""The number of the job server whose connection goes through the forwarder."""

HOSTS = ("chaos-a", "chaos-b")
"""Besides the one that the run-time system starts with."""

FORWARDED_HOST = "chaos-c"
"""The host whose RIF reaches the run-time system through a forwarder."""

COMMAND_S = 60.0
"""How long a command may take, and a job that nobody disturbs any more."""

MENDS_S = 15.0
"""How long it may take until there is a run-time system again after it was struck."""

FOLLOWS_S = 10.0
"""A loss that is recorded so long after a strike, and before the next one, is its consequence."""


@define(eq=False)
class Findings:
    """What came of it."""

    strikes: list[Strike] = field(factory=list)
    finished: int = 0
    disturbed: int = 0
    tasks: int = 0
    wrong: list[str] = field(factory=list)
    detect_ms: list[float] = field(factory=list)
    reschedule_ms: list[float] = field(factory=list)


class Chaos:
    """One run.

    Args:
        folder: for all files, empty.
        random: to draw from.
        tasks: of each job.
    """

    def __init__(self, folder: Path, random: Random, tasks: int) -> None:
        self.findings: Findings = Findings()
        self._folder = folder
        self._random = random
        self._tasks = tasks
        self._mark = f"GSPC_CHAOS={os.getpid()}"
        name, _, value = self._mark.partition("=")
        offer_strategy(folder)
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        own = {"TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder), "PYTHONPATH": path}
        self._environment = {**os.environ, name: value, **own}
        self._connection_file = folder / "rts.json"
        self._flow = folder / "flow.py"
        self._flow.write_text(FLOW)
        self._rts: subprocess.Popen[str]
        self._jobs: dict[int, int] = {}
        self._forwarder, self._rif_forwarder = Forwarder(self._rts_port), Forwarder(self._rts_port)
        self._deck = Deck(random)
        self._forwarded_file = folder / "forwarded" / "rts.json"
        self._over = threading.Event()

    def run(self, duration_s: float, interval_s: float) -> Findings:
        """Strike for so long, then let everything finish and see that nothing is left."""
        shared_before = set(os.listdir("/dev/shm"))
        self._start_rts()
        threads = [threading.Thread(target=self._keep_working, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            time.sleep(interval_s * self._random.uniform(0.5, 1.5))
            self._strike()
            self._mend()
        self._over.set()
        for thread in threads:
            thread.join()
        self._command("rts", "stop", "--connection-file", str(self._connection_file))
        self._rts.communicate(timeout=COMMAND_S)
        for forwarder in (self._forwarder, self._rif_forwarder):
            forwarder.close()
        self._nothing_is_left(shared_before)
        return self.findings

    # Processes ----

    def _popen(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", f"gspc_trio.cli.{name}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if name == "rts" else subprocess.PIPE,
            text=True,
            cwd=self._folder,
            env=self._environment,
        )

    def _command(self, name: str, *arguments: str) -> tuple[int, str]:
        process = self._popen(name, *arguments)
        printed, _ = process.communicate(timeout=COMMAND_S)
        return process.returncode, printed

    def _start_rts(self) -> None:
        self._rts = self._popen(
            "rts", "start", "--cores", "1", "--connection-file", str(self._connection_file)
        )
        assert self._rts.stdout is not None
        for line in self._rts.stdout:
            if line.startswith("connection file"):
                break
        else:
            raise AssertionError("the run-time system did not start")
        threading.Thread(target=self._rts.stdout.read, daemon=True).start()
        self._bootstrap((*HOSTS, FORWARDED_HOST))

    def _rts_port(self) -> int:
        try:
            where = parse_address(read_connection_file(self._connection_file).address)
        except ConnectionFileError as error:  # it is being started
            raise OSError(str(error)) from error
        assert isinstance(where, WebSocketAddress)
        return where.port

    def _forward(self) -> Path:
        """Return a connection file that leads through the forwarder."""
        with suppress(ConnectionFileError):
            info = read_connection_file(self._connection_file)
            through = replace(info, address=f"ws://127.0.0.1:{self._forwarder.port}")
            write_connection_file(self._forwarded_file, through)
        return self._forwarded_file

    def _bootstrap(self, hosts: Sequence[str]) -> None:
        forwarded = ["--strategy", STRATEGY, "--set", f"port={self._rif_forwarder.port}"]
        for host in hosts:
            options = forwarded if host == FORWARDED_HOST else []
            rts = ["--rts", str(self._connection_file)]
            self._command("rts", "bootstrap", host, "--cores", "1", *options, *rts)

    def _mend(self) -> None:
        """Start the run-time system again if it is gone, and hosts that did not come up."""
        if self._rts.poll() is not None:
            self._start_rts()
            return
        status, printed = self._command("rts", "status", "--json", "--rts", str(self._connection_file))
        if status == 0:
            rifs = json.loads(printed)["rifs"]
            failed = [rif["host"] for rif in rifs if rif["state"] == "failed"]
            missing = [host for host in (*HOSTS, FORWARDED_HOST) if host not in {rif["host"] for rif in rifs}]
            if failed or missing:
                self._bootstrap([*failed, *missing])

    def _pids(self, role: str) -> list[int]:
        if role == "rts":
            return [self._rts.pid] if self._rts.poll() is None else []
        if role == "job":
            return list(self._jobs)
        if role == "job link":
            return [pid for pid, number in self._jobs.items() if number == FORWARDED]
        if role == "rif link":
            forwarded = self._forwarded()
            return [rif.pid for rif in self._children("rif_process") if rif.pid in forwarded]
        found = []
        for rif in self._children("rif_process"):
            if role == "rif":
                found.append(rif.pid)
            else:
                found += [one.pid for child in rif.children() for one in child.children()]
        return found

    def _forwarded(self) -> set[int | None]:
        """Return the processes that have a connection to the forwarder of RIFs."""
        port = self._rif_forwarder.port
        return {one.pid for one in psutil.net_connections("tcp") if one.raddr and one.raddr.port == port}

    def _children(self, word: str) -> list[psutil.Process]:
        try:
            below = psutil.Process(self._rts.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [one for one in below if any(word in part for part in _command_line(one))]

    # Strikes ----

    def _strike(self) -> None:
        role, stopped_s = self._deck.draw()
        pids = self._pids(role)
        if not pids:
            self._deck.put_back((role, stopped_s))
            return
        strike = Strike(time.time(), role, self._random.choice(pids), stopped_s)
        try:
            if role in LINKS:
                (self._forwarder if role == "job link" else self._rif_forwarder).forget()
            else:
                os.kill(strike.pid, signal.SIGSTOP if stopped_s else signal.SIGKILL)
        except ProcessLookupError:
            return
        self.findings.strikes.append(strike)
        print(strike, flush=True)
        if stopped_s:
            time.sleep(stopped_s)
            try:
                os.kill(strike.pid, signal.SIGCONT)
            except ProcessLookupError:
                return
        elif role == "rts":
            self._rts.wait()

    # Work ----

    def _keep_working(self, number: int) -> None:
        count = 0
        while not self._over.is_set():
            count += 1
            self._run_job(number, self._folder / f"records{number}.{count}")

    def _run_job(self, number: int, records: Path) -> None:
        begun_s = time.time()
        connection_file = self._forward() if number == FORWARDED else self._connection_file
        process = self._popen(
            "jobserver", "run", str(self._flow), "--set", f"n={self._tasks}", "--json",
            "--rts", str(connection_file), "--records", str(records),
        )  # fmt: skip
        self._jobs[process.pid] = number
        try:
            printed, complaint = process.communicate()
        finally:
            del self._jobs[process.pid]
        strikes = [one for one in self.findings.strikes if one.at_s + one.stopped_s >= begun_s - MENDS_S]
        disturbed = any(one.role == "rts" or one.pid == process.pid for one in strikes)
        if process.returncode == 0:
            results = [value for values in json.loads(printed)["outputs"].values() for value in values]
            if sorted(results) != list(range(self._tasks)):
                self.findings.wrong.append(f"{self._tasks} tasks have {len(results)} results")
            self.findings.finished += 1
            self.findings.tasks += len(results)
        elif disturbed:
            self.findings.disturbed += 1
            self._over.wait(0.5)
        else:
            self.findings.wrong.append(f"a job that nobody disturbed failed: {complaint[-1000:]}")
        self._measure(records, strikes)

    def _measure(self, path: Path, strikes: Sequence[Strike]) -> None:
        """Take from a job's records how fast losses were noticed and what was lost ran again."""
        if not path.exists():
            return
        records = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        path.unlink()
        offset_s = next((one["wall_offset_s"] for one in records if one["record"] == "StreamOpened"), 0.0)
        tasks = [one for one in records if one["record"] == "TaskChanged"]
        for strike in strikes:
            if strike.role in ("compute", "rif") and not strike.stopped_s:
                later = [one.at_s for one in self.findings.strikes if one.at_s > strike.at_s]
                until_s = min([strike.at_s + FOLLOWS_S, *later])
                self._measure_strike(strike.at_s - offset_s, until_s - offset_s, tasks)

    def _measure_strike(self, struck_s: float, until_s: float, tasks: Sequence[dict[str, Any]]) -> None:
        for position, lost in enumerate(tasks):
            if lost["state"] == "ready" and lost["detail"].startswith("lost"):
                if not struck_s <= lost["at_s"] <= until_s:
                    continue
                self.findings.detect_ms.append(1e3 * (lost["at_s"] - struck_s))
                for again in tasks[position:]:
                    if again["task_id"] == lost["task_id"] and again["state"] == "running":
                        self.findings.reschedule_ms.append(1e3 * (again["at_s"] - lost["at_s"]))
                        return
                return

    def _nothing_is_left(self, shared_before: set[str]) -> None:
        end_s = time.monotonic() + 10.0
        while (left := self._marked()) and time.monotonic() < end_s:
            time.sleep(0.1)
        self.findings.wrong += [f"a process is left: {command}" for command in left]
        shared = {name for name in set(os.listdir("/dev/shm")) - shared_before if "gspc" in name}
        self.findings.wrong += [f"shared memory is left: {name}" for name in sorted(shared)]

    def _marked(self) -> list[str]:
        found = []
        for process in psutil.process_iter():
            try:
                marked = self._mark.encode() in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(_command_line(process))[:200])
            except (OSError, psutil.Error):
                continue
        return found


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status: 0 if nothing was lost, doubled or left."""
    parser = argparse.ArgumentParser(prog="python -m gspc_trio.testing.chaos", description=__doc__)
    parser.add_argument("--duration", type=float, default=60.0, help="seconds of strikes")
    parser.add_argument("--interval", type=float, default=3.0, help="mean seconds between strikes")
    parser.add_argument("--tasks", type=int, default=100, help="tasks of each job")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of strikes")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each figure")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="chaos") as name:
        chaos = Chaos(Path(name), Random(chosen.seed), chosen.tasks)
        found = chaos.run(chosen.duration, chosen.interval)
    for name, values in (("chaos.detect_ms", found.detect_ms), ("chaos.reschedule_ms", found.reschedule_ms)):
        if values:
            _print_figure(name, statistics.median(values), len(values), chosen.json)
    kinds = len({strike.kind for strike in found.strikes})
    print(
        f"{len(found.strikes)} strikes of {kinds} kinds (there are {len(KINDS)}); "
        f"{found.finished} jobs with {found.tasks} tasks finished, {found.disturbed} were disturbed; "
        f"{len(found.wrong)} things are wrong",
        file=sys.stderr if chosen.json else sys.stdout,
    )
    for line in found.wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if found.wrong else 0


def _print_figure(name: str, value: float, samples: int, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"name": name, "value": float(f"{value:.4g}"), "unit": "ms"}))
    else:
        print(f"{name:<32}{value:>14.4g} ms ({samples} samples)")


STOPS_S = (0.0, DEFAULT_LIMITS.lease_s, 3 * DEFAULT_LIMITS.lease_s)
"""How long what is struck is stopped; 0: it is killed."""

PROCESSES = ("compute", "rif", "job", "rts")
"""Roles of processes."""

LINKS = ("job link", "rif link")
"""Connections to the run-time system that go through a forwarder: of a job server, and of a RIF."""

KINDS: tuple[tuple[str, float], ...] = (*product(PROCESSES, STOPS_S), *((link, 0.0) for link in LINKS))
"""All that may happen, once each."""

MORE_KILLS = 2
"""So often more are compute processes and RIFs killed: these kills give the figures."""


class Strike(Struct, frozen=True):
    """Something that was done to a process at a time (wall clock)."""

    at_s: float
    role: str
    pid: int
    stopped_s: float

    def __str__(self) -> str:
        if self.role in LINKS:
            return f"connection of {self.role.split()[0]} {self.pid} half-open"
        how = f"stopped for {self.stopped_s:g} s" if self.stopped_s else "killed"
        return f"{self.role} {self.pid} {how}"

    @property
    def kind(self) -> tuple[str, float]:
        """Which of :data:`KINDS` it is."""
        return self.role, self.stopped_s


class Deck:
    """Says what is next: everything once, in an order that is drawn, then everything again.

    Args:
        random: to draw from.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._cards: list[tuple[str, float]] = []

    def draw(self) -> tuple[str, float]:
        """Return a role, and for how long it is to be stopped."""
        if not self._cards:
            self._cards = [*KINDS, *(MORE_KILLS * (("compute", 0.0), ("rif", 0.0)))]
            self._random.shuffle(self._cards)
        return self._cards.pop()

    def put_back(self, card: tuple[str, float]) -> None:
        """It could not be done; it comes once more, later."""
        self._cards.insert(0, card)


CHUNK_BYTES = 64 * 1024

STRATEGY = "forwarded"
"""Name of the strategy that :func:`offer_strategy` offers."""


class Forwarded(LocalStrategy):
    """Starts RIFs on this host that reach the run-time system through a forwarder, at the option ``port``."""

    async def run(self, order: RifOrder) -> str:
        """Run the process until it ends or this is cancelled."""
        address = f"ws://127.0.0.1:{order.options['port']}"
        return await super().run(replace(order, rts_addresses=(address,)))


def offer_strategy(folder: Path) -> None:
    """Have run-time systems with this folder in their PYTHONPATH offer the strategy, as a package would."""
    about = folder / "forwarded-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: forwarded\nVersion: 1\n")
    entry = f"{STRATEGY} = {Forwarded.__module__}:{Forwarded.__name__}"
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{entry}\n")


class Forwarder:
    """Forwards connections to another port until it forgets them: then both ends hear nothing more.

    Nothing is closed then, as when a host or a router between the ends has been started again.

    Args:
        target: returns the port to forward to, at each new connection.

    Attributes:
        port: where it listens.
    """

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._age = 0
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self) -> int:
        """Forward nothing more of the connections there are; return their number. New ones are forwarded."""
        with self._lock:
            self._age += 1
            return sum(one.fileno() >= 0 for one in self._sockets) // 2

    def close(self) -> None:
        """Close everything."""
        with self._lock:
            for one in (self._listener, *self._sockets):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            try:
                there = socket.create_connection(("127.0.0.1", self._target()))
            except OSError:
                here.close()
                continue
            with self._lock:
                self._sockets = [one for one in self._sockets if one.fileno() >= 0]
                self._sockets += [here, there]
                age = self._age
            for source, to in ((here, there), (there, here)):
                threading.Thread(target=self._forward, args=(source, to, age), daemon=True).start()

    def _forward(self, source: socket.socket, to: socket.socket, age: int) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if self._age != age:
                    return
                to.sendall(data)
        if self._age == age:
            for one in (source, to):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            source.close()


if __name__ == "__main__":
    sys.exit(main())
