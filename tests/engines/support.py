"""What tests with any batch system need: a cluster, and run-time systems whose hosts are its jobs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from gspc_trio.components.provision.batch import (
    BatchJob,
    BatchState,
    Command,
    CommandResult,
    Provider,
    QueryFailed,
)
from tests.e2e.support import Process, World, completed, wait_until

START_S = 180.0
"""Far more than a batch system or a running cluster takes to start, on a busy host, too."""

END_S = 15.0
"""How long a daemon has to end by itself before it is killed."""


class Cluster(Protocol):
    """A batch system that runs on this host.

    Attributes:
        environment: for its commands, and for programs that call them.
    """

    environment: dict[str, str]

    def jobs(self) -> list[str]:
        """Return the ids of the jobs that have not ended."""
        ...


class RunningCluster:
    """A cluster that runs, of three hosts of one core; see ``Cluster``.

    Attributes:
        address: of the cluster, as users write it.
        provider: knows it.
    """

    environment: Mapping[str, str] = {}
    address: str
    provider: Provider
    _helper: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def run(self, command: Command, stdin: str = "") -> CommandResult:
        """Have the helper of the provider answer a command: to connect for each takes long on a busy host."""
        if self._helper is None:
            ours, theirs = socket.socketpair()
            with theirs:
                words = (*self.provider.helper, "serve", str(theirs.fileno()))
                self._helper = subprocess.Popen(words, pass_fds=(theirs.fileno(),)), ours
        link = self._helper[1]
        arguments = command[len(self.provider.helper) :]
        link.sendall(json.dumps([arguments, stdin]).encode() + b"\n")
        with link.makefile("rb") as lines:
            return CommandResult(*json.loads(lines.readline()))

    def leave(self) -> None:
        """End the helper."""
        if self._helper is not None:
            process, link = self._helper
            link.close()
            end(process)

    def lose_hosts(self) -> None:
        """Kill two hosts, and start others in their place."""
        raise NotImplementedError

    def size(self) -> tuple[int, int] | None:
        """Return how many hosts there are, and the cores of each; None when that is not known now."""
        command = self.provider.size()
        assert command is not None
        with contextlib.suppress(QueryFailed):
            return self.provider.sized(self.run(command))
        return None

    def wait_complete(self) -> None:
        """Wait until all hosts are there."""
        wait_until(lambda: self.size() == (3, 1), f"{self.provider.name} has its hosts", START_S)

    def listed(self, name: str = "") -> list[BatchJob]:
        """Return its jobs, once it says which; on a busy host a query may fail."""

        def ask() -> tuple[list[BatchJob]] | None:
            with contextlib.suppress(QueryFailed):
                return (list(self.provider.told(self.run(self.provider.query(name)))),)
            return None

        [found] = wait_until(ask, f"{self.provider.name} says which jobs it has")
        return list(found)

    def jobs(self) -> list[str]:
        """Return the names of the jobs that have not ended."""
        return [job.name for job in self.listed() if job.state is not BatchState.ENDED]


def processes_of(session: int) -> list[int]:
    """Return the processes of a session that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # gone meanwhile
                state, _, _, of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(of) == session and state != "Z":
                    found.append(int(entry.name))
    return found


def end(process: subprocess.Popen[Any], with_session: bool = False) -> None:
    """Ask a daemon to end, and kill it when it does not; maybe with all else of its session."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    process.kill()
    process.wait()
    if with_session:
        for pid in processes_of(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def own_address() -> str:
    """Return an address of this host that is not loopback; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no address but loopback")
        address: str = probe.getsockname()[0]
        return address


def start_rts(world: World) -> None:
    """Start a run-time system with one core, which the nodes can reach."""
    world.start_rts("--tls", "--listen", own_address(), "--cores", "1")


def bootstrap_command(world: World, strategy: str, *hosts: str, **options: str) -> list[str]:
    """Return what asks for these hosts, of one core each."""
    shared = world.folder / "shared"
    shared.mkdir(exist_ok=True)
    settings = [f"--set={name}={value}" for name, value in {"shared": str(shared), **options}.items()]
    return ["bootstrap", *hosts, f"--strategy={strategy}", "--cores=1", *settings]


def bootstrap(world: World, strategy: str, *hosts: str, **options: str) -> Any:
    """Have these hosts started, and return the report."""
    done = world.run("rts", *bootstrap_command(world, strategy, *hosts, **options), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def start(world: World, flow: str, *settings: str) -> Process:
    """Start a job on the run-time system of this test."""
    options = [f"--set={setting}" for setting in settings]
    flow = world.workflow(flow)
    return world.start("jobserver", "run", flow, "--rts", world.connection_file, *options, "--json")


def results(job: Process) -> list[Any]:
    """Wait for a job and return its results."""
    done = completed(job)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)["outputs"]["results"]
    return found


def states(world: World) -> dict[str, str]:
    return {rif["host"]: rif["state"] for rif in world.status()["rifs"]}
