"""What tests with any batch system need: a cluster, and run-time systems whose hosts are its jobs."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping
from typing import Any, Protocol

import pytest

from gspc_trio.components.provision.batch import BatchJob, BatchState, Command, CommandResult, Provider
from tests.e2e.support import World, completed


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

    def run(self, command: Command, stdin: str = "") -> CommandResult:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def listed(self, name: str = "") -> list[BatchJob]:
        return list(self.provider.told(self.run(self.provider.query(name))))

    def jobs(self) -> list[str]:
        """Return the names of the jobs that have not ended."""
        return [job.name for job in self.listed() if job.state is not BatchState.ENDED]


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
    return json.loads(done.stdout)


def start(world: World, flow: str, *settings: str) -> subprocess.Popen[str]:
    """Start a job on the run-time system of this test."""
    options = [f"--set={setting}" for setting in settings]
    flow = world.workflow(flow)
    return world.start("jobserver", "run", flow, "--rts", world.connection_file, *options, "--json")


def results(job: subprocess.Popen[str]) -> list[Any]:
    """Wait for a job and return its results."""
    done = completed(job)
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)["outputs"]["results"]
    return found


def states(world: World) -> dict[str, str]:
    return {rif["host"]: rif["state"] for rif in world.status()["rifs"]}
