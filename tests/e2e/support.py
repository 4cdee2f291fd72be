"""Real processes as a user starts them, and the check that nothing of them is left."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import trio

from gspc_trio.components.rts.messages import RtsStatus
from gspc_trio.components.rts.shell.client import join_rts
from gspc_trio.protocol.plain import to_json
from tests.commands import Forked, can_fork, run_command

ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[str] | Forked

HANG_S = 180.0
"""Far more than anything here takes: a test that waits this long has found a hang."""

MARK = "GSPC_TEST_MARK"

SLEEPERS = """
import time
from gspc_trio import farm, Workflow

def sleep(seconds):
    time.sleep(seconds)
    return seconds

def workflow(n: int = 1000, seconds: float = 0.05):
    return Workflow(farm(sleep, name="sleepers"), {"items": [seconds] * n})
"""

GATED = """
import os, time
from gspc_trio import farm, Workflow

def pass_gate(item):
    gate, number = item
    while not os.path.exists(gate):
        time.sleep(0.01)
    return number

def workflow(gate: str, n: int = 100):
    return Workflow(farm(pass_gate, name="gated"), {"items": [(gate, number) for number in range(n)]})
"""

KEEPING = """
import os, time
from gspc_trio import Net, Workflow

def make(number):
    return bytes([number]) * 1_000_000

def wait_for(gate):
    while not os.path.exists(gate):
        time.sleep(0.05)
    return gate

def check(value, go):
    return [value[0], len(value)]

def workflow(gate: str, n: int = 20):
    net = Net("keeping")
    net.input("number")
    net.input("gate")
    net.place("made")
    net.place("go")
    net.output("sizes")
    net.transition("make", make, inputs=["number"], outputs=["made"])
    net.transition("wait", wait_for, inputs=["gate"], outputs=["go"])
    net.transition("check", check, inputs=["made"], reads=["go"], outputs=["sizes"])
    return Workflow(net, {"number": list(range(n)), "gate": [gate]})
"""
"""A workflow that keeps ``n`` values of a million bytes until there is a file ``gate``."""

MARKING = """
import os, time
from gspc_trio import farm, Workflow

def leave_a_trace(item):
    folder, number, seconds, gate, hurry = item
    with open(os.path.join(folder, f"{number}.{os.getpid()}"), "x"):
        pass
    while gate and not os.path.exists(gate):
        time.sleep(0.01)
    if not hurry:
        time.sleep(seconds)
    end = time.monotonic() + seconds
    while time.monotonic() < end and not os.path.exists(hurry):
        time.sleep(0.01)
    return number

def workflow(folder: str, n: int = 200, seconds: float = 0.02, gate: str = "", hurry: str = "",
             rerun: bool = True):
    items = [(folder, i, seconds, gate, hurry) for i in range(n)]
    return Workflow(farm(leave_a_trace, name="marking", may_rerun=rerun), {"items": items})
"""
"""A workflow whose tasks leave a trace each, named by number and process, and wait for a file ``gate``.

They take ``seconds``, or end at once when there is a file ``hurry``.
"""


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = HANG_S) -> Any:
    """Return the first true value of ``condition``; fail the test when it stays false."""
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while (begun := time.monotonic()) < end:
        value = condition()
        if value:
            return value
        took_s = time.monotonic() - begun
        pause.wait(min(max(0.02, 3 * took_s), 0.2))  # what looks often keeps what is looked at from running
    raise AssertionError(f"waited {timeout_s} s in vain: {what}")


def one_line(text: str) -> str:
    """Return the only line of a text."""
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    return lines[0]


class World:
    """Commands run in one test, in a runtime directory of their own, all with the same mark.

    Args:
        folder: for their files.
        forks: whether processes of ours may be forks of one that has loaded what they import.
    """

    def __init__(self, folder: Path, forks: bool = True) -> None:
        self.folder = folder
        self.forks = forks
        self.mark = secrets.token_hex(8)
        self.started: list[Process] = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")},
            MARK: self.mark,
            "XDG_RUNTIME_DIR": str(folder / "runtime"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TMPDIR": str(folder / "tmp"),
        }
        for name in ("runtime", "tmp"):
            (folder / name).mkdir(mode=0o700)

    def start(self, command: str, *arguments: str, **options: Any) -> Process:
        """Start a command of ours in a session of its own; its output is captured."""
        return self.start_program(sys.executable, "-m", f"gspc_trio.cli.{command}", *arguments, **options)

    def start_program(self, *arguments: str, **options: Any) -> Process:
        """Start any program as :meth:`start` does; ``anew`` says that it is to load everything itself."""
        forks = self.forks and not options.pop("anew", False)
        cwd, env = options.pop("cwd", self.folder), {**self.environment, **options.pop("env", {})}
        if forks and can_fork(arguments, options):
            forked = Forked(arguments, cwd=cwd, env=env)
            self.started.append(forked)
            return forked
        process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )
        self.started.append(process)
        return process

    def run(self, command: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command of ours to its end; with options of Popen in a process started anew."""
        if options:
            return completed(self.start(command, *arguments, **options))
        return run_command(command, *arguments, cwd=self.folder, env=self.environment, timeout_s=HANG_S)

    def run_program(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run any program to its end."""
        return completed(self.start_program(*arguments, **options))

    def run_json(self, command: str, *arguments: str) -> Any:
        """Run a command of ours with --json and return what it printed."""
        done = self.run(command, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def status(self) -> Any:
        """Return what ``gspc-rts status --json`` prints, without a process for it."""

        async def ask() -> RtsStatus:
            async with join_rts(Path(self.connection_file)) as rts:
                return await rts.status()

        told: dict[str, Any] = json.loads(to_json(trio.run(ask)))
        return told

    def start_rts(self, *arguments: str) -> Process:
        """Start a run-time system and wait until it says that it is there."""
        process = self.start("rts", "start", *arguments)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("connection file"):
                return process
        _, err = process.communicate(timeout=HANG_S)
        raise AssertionError(f"the run-time system did not start: {err}")

    def start_memory(self, *arguments: str, start: Callable[..., Process] | None = None) -> Process:
        """Start a memory server, maybe by another way, and wait until it says that it is there."""
        process = (start or self.start)("iml", "start", "--memory", "64MiB", *arguments)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("memory server of host"), process.communicate(timeout=HANG_S)[1]
        return process

    @property
    def connection_file(self) -> str:
        """Where a run-time system is published when nothing else is said."""
        return str(self.folder / "runtime" / "gspc-trio" / "rts.json")

    def held_cores(self) -> int:
        """Return how many cores of the run-time system are held."""
        held: int = self.status()["classes"].get("core", {"held": -1})["held"]
        return held

    def stop_rts(self, *arguments: str) -> None:
        """Stop the run-time system."""
        done = self.run("rts", "stop", *arguments)
        assert done.returncode == 0, done.stderr

    def workflow(self, text: str, name: str = "flow") -> str:
        """Write a workflow file and return its path."""
        path = self.folder / f"{name}.py"
        path.write_text(text)
        return str(path)

    def pids(self, containing: str = "") -> list[int]:
        """Return the live processes with this test's mark whose command line contains a text."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                marked = f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marked and containing in command and state != "Z":
                found.append(int(entry.name))
        return sorted(found)

    def wait_nothing_left(self, timeout_s: float = HANG_S) -> None:
        """Wait until no process, socket file or temporary file of this test is there."""
        wait_until(lambda: not self.pids(), f"processes are left: {self.describe()}", timeout_s)
        left = list((self.folder / "tmp").rglob("*"))
        assert not left, f"temporary files are left: {left}"

    def describe(self) -> list[str]:
        described = []
        for pid in self.pids():
            with contextlib.suppress(OSError):  # gone meanwhile
                described.append(f"{pid} {Path(f'/proc/{pid}/cmdline').read_bytes().decode()}")
        return described

    def end(self) -> None:
        """Kill whatever a failed test has left."""
        for process in self.started:
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
        for pid in self.pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            process.wait()


def shared_memory() -> set[str]:
    """Return the names of shared memory that sound like ours; other programs of the machine have theirs."""
    return {name for name in os.listdir("/dev/shm") if "gspc" in name}


@contextlib.contextmanager
def open_world(folder: Path, forks: bool = True) -> Iterator[World]:
    """A place to run commands in; afterwards no process, file or shared memory of theirs may be left."""
    shared_before = shared_memory()
    place = World(folder, forks)
    try:
        yield place
        place.wait_nothing_left()
        assert shared_memory() <= shared_before
    finally:
        place.end()


def completed(process: Process) -> subprocess.CompletedProcess[str]:
    """Wait for the end of a process and return what it printed."""
    out, err = process.communicate(timeout=HANG_S)
    return subprocess.CompletedProcess(process.args, process.wait(), out, err)


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
