"""Workflows on three hosts with slow links, under gspc-trio, Dask and Ray.

``schedule.real_vs_dask``      time of that of Dask, at worst; medians of rounds in which all take turns
``schedule.real_vs_ray``       time of that of Ray, at worst
``schedule.real_s_WORK_SYSTEM``  the medians

A host is a network namespace with one worker that computes one task at a time; its link is throttled. Tasks
wait instead of computing: so three hosts are three hosts on any machine. The works are a blocked Cholesky
factorization, and a recorded run, each file of which is a value that a task makes and others take. Needs root
and what the tests of the lab need, and a virtual environment for each other system (``PEERS_VENVS``: a folder
with ``dask`` and ``ray``, as for :mod:`peers_adapter`).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from figures import Figures

from schedule.replay import Skipped, Work, read_works

if TYPE_CHECKING:
    from tests.lab.support import Lab

ROOT = Path(__file__).resolve().parents[2]
CLIENT = Path(__file__).with_name("real_client.py")
LINK = "80mbit"
"""What a link takes: 10 MB/s."""
STARTED_S = 60.0
"""A program of another system that is not up after so long is not waited for any longer."""

RAY_SET = {"RAY_raylet_start_wait_time_s": "120", "RAY_AUTH_MODE": "disabled"}
"""A busy machine needs so long. A head asks for a token if its user has one, nodes do not send it."""

Step: TypeAlias = tuple[int, list[int], float, int]


def measure(figures: Figures, small: bool, traces: Path) -> None:
    """Run each workflow under each system, in turns.

    Raises:
        Skipped: there are no such hosts here, or none of the other systems.
    """
    peers = Path(os.environ.get("PEERS_VENVS", "/nowhere"))
    systems = ["gspc", *(name for name in ("dask", "ray") if (peers / name).exists())]
    if len(systems) == 1:
        raise Skipped("PEERS_VENVS names no folder with dask or ray")
    sys.path.insert(0, str(ROOT))
    from tests.lab.support import missing, open_lab

    if why := missing():
        raise Skipped(why)
    works = {"cholesky": cholesky(5 if small else 7)}
    with contextlib.suppress(Skipped):
        trace = next(it for it in read_works(traces) if it.name == "1000genome")
        works["1000genome"] = replayed(trace, 0.01, 0.01)
    rounds = 1 if small else 3
    with tempfile.TemporaryDirectory() as folder, open_lab(Path(folder)) as lab:
        for host in lab.hosts:
            throttle(host.namespace, int(host.name[1:]))
        for name, steps in works.items():
            file = Path(folder) / f"{name}.json"
            file.write_text(json.dumps(steps))
            taken: dict[str, list[float]] = {}
            for _ in range(rounds):
                for system in systems:
                    taken.setdefault(system, []).append(run(system, peers, lab, file))
                    print(f"{name} under {system}: {taken[system][-1]:.3g} s", file=sys.stderr)
            for system, seconds in taken.items():
                figures.add(f"schedule.real_s_{name}_{system}", median(seconds), "s")
            for system in systems[1:]:
                share = median(taken["gspc"]) / median(taken[system])
                figures.add(f"schedule.real_vs_{system}_{name}", share, "of 1")


def throttle(namespace: str, number: int) -> None:
    """Let a link take no more than that, in both directions."""
    shape = ("root", "tbf", "rate", LINK, "burst", "512kb", "latency", "400ms")
    inside = ["ip", "netns", "exec", namespace, "tc", "qdisc", "replace", "dev", "eth0", *shape]
    subprocess.run(inside, check=True)
    if number != 3:  # the outer end of this one is a program
        subprocess.run(["tc", "qdisc", "replace", "dev", f"gspclab{number}", *shape], check=True)


def cholesky(blocks: int, second_s: float = 0.04, size_bytes: int = 500_000) -> list[Step]:
    """Return the tasks of a blocked Cholesky factorization: what each block becomes, one after the other."""
    steps: list[Step] = []
    last: dict[tuple[int, int], int] = {}

    def add(block: tuple[int, int], others: list[tuple[int, int]], seconds: float) -> None:
        taken = [last[it] for it in (block, *others) if it in last]
        steps.append((len(steps), taken, seconds, size_bytes))
        last[block] = len(steps) - 1

    for row in range(blocks):
        for column in range(row + 1):
            add((row, column), [], 0.0)
    for step in range(blocks):
        add((step, step), [], second_s)
        for row in range(step + 1, blocks):
            add((row, step), [(step, step)], 3 * second_s)
        for row in range(step + 1, blocks):
            add((row, row), [(row, step)], 3 * second_s)
            for column in range(step + 1, row):
                add((row, column), [(row, step), (column, step)], 6 * second_s)
    return steps


def replayed(work: Work, time_share: float, bytes_share: float) -> list[Step]:
    """Return the tasks of a recorded run, with a further one for each file, which makes it."""
    steps: list[Step] = []
    made: dict[str, int] = {}

    def make(name: str, of: list[int]) -> None:
        steps.append((len(steps), of, 0.0, int(work.size_bytes.get(name, 0) * bytes_share)))
        made[name] = len(steps) - 1

    for name in work.given():
        make(name, [])
    ran: dict[int, int] = {}
    for task in work.tasks:
        taken = [made[name] for name in task.inputs] + [ran[it] for it in task.parents]
        steps.append((len(steps), taken, task.run_s * time_share, 0))
        ran[task.task_id] = len(steps) - 1
        for name in task.outputs:
            make(name, [ran[task.task_id]])
    return steps


def run(system: str, peers: Path, lab: Lab, file: Path) -> float:
    """Start a system on the hosts, run the tasks, end it, and return how long they took."""
    python = sys.executable if system == "gspc" else str(peers / system / "bin" / "python")
    with {"gspc": gspc, "dask": dask, "ray": ray}[system](lab, python, file.parent) as (address, data):
        command = [python, str(CLIENT), system, os.environ.get("PLAN", "move+"), address, data, str(file)]
        environment = os.environ | RAY_SET
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, cwd=file.parent, env=environment
        )
        if done.returncode:
            raise RuntimeError(f"{system} failed: {done.stderr[-2000:]}")
        return float(done.stdout.rpartition("SECONDS")[2])


@contextlib.contextmanager
def gspc(lab: Lab, python: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Start a run-time system with a memory server on each host."""
    from tests.lab.support import HERE

    rts = str(Path(python).with_name("gspc-rts"))
    environment = os.environ | {"XDG_RUNTIME_DIR": str(folder / "runtime")}
    (folder / "runtime").mkdir(exist_ok=True)
    by_ssh = ["--cores", "1", "--strategy", "ssh", "--set", f"config={lab.ssh_config}"]
    start = [rts, "start", "--tls", "--listen", HERE, *by_ssh, "--host", "h1"]
    with subprocess.Popen(start, env=environment, stdout=subprocess.PIPE, text=True) as system:
        try:
            assert system.stdout is not None
            for line in system.stdout:
                if line.startswith("connection file"):
                    break
            address, data = str(folder / "runtime" / "gspc-trio" / "rts.json"), str(folder / "iml.json")
            for host in (
                "h2",
                "h3",
            ):  # one after the other: a busy machine would take too long for all at once
                subprocess.run([rts, "bootstrap", host, *by_ssh], env=environment, check=True)
            for host in ("r1", "r2", "r3"):
                begin = [rts, "start-iml", host, "--memory", "300MiB", "--publish", data]
                subprocess.run(begin, env=environment, check=True, stdout=subprocess.DEVNULL)
            yield address, data
        finally:
            subprocess.run([rts, "stop"], env=environment, capture_output=True)
            system.terminate()


@contextlib.contextmanager
def others(commands: list[list[str]], folder: Path, started_text: str = "") -> Iterator[None]:
    """Have programs run for the time of a block.

    Args:
        commands: start them, one after the other.
        folder: for what they print.
        started_text: each of them prints this when it is up, which is waited for before the next one starts.
    """
    environment = os.environ | RAY_SET
    with contextlib.ExitStack() as stack:
        started = []
        for number, command in enumerate(commands):
            file = folder / f"peer{number}.log"
            log = stack.enter_context(file.open("w"))
            started.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment))
            if started_text:
                wait_for_text(file, started_text)
            else:
                time.sleep(4.0 if number == 0 else 0.5)
        try:
            yield
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:  # it has nothing to lose
                    process.kill()
                    process.wait()


def wait_for_text(file: Path, text: str) -> None:
    """Wait until a program has printed a text, for some time."""
    deadline_s = time.monotonic() + STARTED_S
    while text not in file.read_text() and time.monotonic() < deadline_s:
        time.sleep(0.2)


@contextlib.contextmanager
def dask(lab: Lab, python: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Start a scheduler here and a worker on each host."""
    from tests.lab.support import HERE

    address = f"tcp://{HERE}:8786"
    tool = str(Path(python).with_name("dask"))
    commands = [[tool, "scheduler", "--host", HERE, "--port", "8786", "--no-dashboard"]]
    for host in lab.hosts:
        inside = ["ip", "netns", "exec", host.namespace, tool, "worker", address, "--host", host.address]
        commands.append([*inside, "--nthreads", "1", "--nworkers", "1", "--no-nanny", "--no-dashboard"])
    with others(commands, folder):
        time.sleep(6)
        yield address, ""


@contextlib.contextmanager
def ray(lab: Lab, python: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Start a head without cores here, and a node on each host."""
    from tests.lab.support import HERE

    tool = str(Path(python).with_name("ray"))
    usual = ["--block", "--object-store-memory", "200000000", "--disable-usage-stats"]
    head = ["--head", "--node-ip-address", HERE, "--port", "6399", "--num-cpus", "0", "--include-dashboard"]
    commands = [[tool, "start", *head, "false", *usual]]
    for host in lab.hosts:
        inside = ["ip", "netns", "exec", host.namespace, tool, "start", "--address", f"{HERE}:6399"]
        commands.append([*inside, "--node-ip-address", host.address, "--num-cpus", "1", *usual])
    with others(commands, folder, "Ray runtime started"):  # together they give up on a busy machine
        yield f"{HERE}:6399", ""
