"""What providers know of real batch systems: blocks of two nodes, lists, cancels, and RIFs as their jobs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from attrs import evolve

from gspc_trio.components.provision.batch import (
    BatchJob,
    BatchRequest,
    BatchState,
    Command,
    CommandResult,
    Provider,
    QueryFailed,
)
from gspc_trio.components.provision.find import find_provider
from tests.e2e.support import SLEEPERS, World, wait_until
from tests.engines.support import (
    Cluster,
    bootstrap,
    results,
    start,
    start_rts,
    states,
)
from tests.processes import is_alive

ALL = [("slurm", "slurm"), ("slurm", "pbs"), ("mpi", "mpi")]
"""A batch system, and a provider that knows it: Slurm has commands for users of Torque, too."""

OPTIONS = {"mpi": ("--oversubscribe",)}


def check_commands(provider: str) -> None:
    if provider == "pbs" and shutil.which("qsub") is None:
        pytest.skip("there is no qsub: install the Debian package slurm-wlm-torque")


class Block:
    """A batch job on whose nodes a command leaves its number and process, and goes on for long."""

    def __init__(self, cluster: Cluster, provider: Provider, folder: Path) -> None:
        self._environment = {**os.environ, **cluster.environment}
        self.provider, self.folder = provider, folder
        self.name = f"test-{os.getpid()}-{provider.name}"
        arguments = OPTIONS.get(provider.name, ())
        output = str(folder / "output")
        nodes = 1 if provider.name == "pbs" else 2  # Slurm has no pbsdsh
        self.request = BatchRequest(
            self.name, 1, 300, folder=str(folder), output=output, nodes=nodes, arguments=arguments
        )
        leave = f'echo $$ > "{folder}/$GSPC_NODE.$GSPC_RESTARTS.$GSPC_BATCH_ID"; exec sleep 100'
        script = f"#!/bin/sh\n{provider.launch(self.request, leave)}\n"
        (folder / "script").write_text(script)
        self.request = evolve(self.request, script=script)

    def run(self, command: Command, stdin: str = "") -> CommandResult:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=self._environment, check=False
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def submit(self) -> str | None:
        command, stdin = self.provider.submit(self.request), self.provider.submit_input(self.request)
        return self.provider.submitted(self.run(command, stdin))

    def listed(self, job_id: str = "") -> list[BatchJob]:
        """Return its jobs, once the batch system says which; on a busy host a query may fail."""

        def ask() -> tuple[tuple[BatchJob, ...]] | None:
            with contextlib.suppress(QueryFailed):
                return (self.provider.told(self.run(self.provider.query(job_id))),)
            return None

        [told] = wait_until(ask, f"{self.provider.name} says which jobs it has")
        return [job for job in told if job.name == self.name or job.job_id == job_id]

    def pid(self, node: int) -> int:
        """Wait for the process of a node, which has been told the id of its job, and return its id."""
        [job] = self.listed()
        path = self.folder / f"{node}.0.{job.job_id}"
        wait_until(lambda: path.exists() and "\n" in path.read_text(), f"node {node} of {job.job_id} runs")
        return int(path.read_text())


def check_block(cluster: Cluster, provider: str, folder: Path) -> None:
    """A block runs on two nodes, survives one, and is cancelled."""
    check_commands(provider)
    block = Block(cluster, find_provider(provider), folder)
    job_id = block.submit()
    assert job_id is not None
    wait_until(lambda: [job.state for job in block.listed()] == [BatchState.RUNNING], "it runs")
    assert [job.job_id for job in block.listed(job_id)] == [job_id]
    first = block.pid(0)
    if block.request.nodes == 2:
        second = block.pid(1)
        os.kill(second, signal.SIGKILL)
        wait_until(lambda: not is_alive(second), "one node's process has ended")
        assert [job.state for job in block.listed()] == [BatchState.RUNNING]
        assert is_alive(first)
    block.run(block.provider.cancel(job_id if provider == "pbs" else "", block.name))
    wait_until(lambda: all(job.state is BatchState.ENDED for job in block.listed(job_id)), "it is over")
    wait_until(lambda: not is_alive(first), "nothing of it is left")
    wait_until(lambda: cluster.jobs() == [], "no batch job is left")


@pytest.mark.parametrize(("cluster", "provider"), ALL, indirect=["cluster"])
def test_a_block_runs_on_two_nodes_survives_one_and_is_cancelled(
    cluster: Cluster, provider: str, tmp_path: Path
):
    check_block(cluster, provider, tmp_path)


def test_slurm_says_what_can_never_run(cluster: Cluster, tmp_path: Path):
    block = Block(cluster, find_provider("slurm"), tmp_path)
    for nodes, why in ((2, ""), (5, "allocation failure: Requested node configuration is not available")):
        command = block.provider.check(evolve(block.request, nodes=nodes))
        assert command is not None
        assert block.provider.checked(block.run(command, block.request.script)) == why


def check_host(world: World, cluster: Cluster, provider: str) -> None:
    """A host is a batch job, and nothing of it is left."""
    check_commands(provider)
    start_rts(world)
    bootstrap(world, provider, "n1", time="10m")
    assert states(world)["n1"] == "up"
    assert len(cluster.jobs()) == 1
    assert len(results(start(world, SLEEPERS, "n=20"))) == 20
    world.stop_rts()
    wait_until(lambda: cluster.jobs() == [], "the batch job is over")
    assert list((world.folder / "shared").iterdir()) == []


@pytest.mark.parametrize(
    ("cluster", "provider"),
    [pair for pair in ALL if pair[0] != pair[1] or pair[0] != "slurm"],
    indirect=["cluster"],
)
def test_a_host_is_a_batch_job_and_nothing_is_left(world: World, cluster: Cluster, provider: str):
    check_host(world, cluster, provider)
