"""RIFs as jobs of a real Slurm, while jobs are cancelled, queues are closed and slurmctld is gone."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import MARKING, SLEEPERS, Process, World, completed, wait_until
from tests.engines.slurm import UNCLEAR_SBATCH, Slurm
from tests.engines.support import own_address, results, start, states


def start_rts(world: World, *options: str) -> Process:
    """Start a run-time system that nodes can reach, with one core of its own."""
    return world.start_rts("--tls", "--listen", own_address(), "--cores", "1", *options)


def bootstrap(world: World, *hosts: str, **options: str) -> Any:
    """Start a run-time system and these hosts; return the report."""
    start_rts(world)
    return json.loads(world.run(*asking_for(world, *hosts, **options)).stdout)


def asking_for(world: World, *hosts: str, nodes: int = 0, **options: str) -> list[str]:
    """Return the command that starts these hosts, or blocks of so many nodes."""
    shared = world.folder / "shared"
    shared.mkdir(exist_ok=True)
    settings = [f"--set={name}={value}" for name, value in {"shared": str(shared), **options}.items()]
    names = [*hosts, *([f"--nodes={nodes}"] if nodes else [])]
    return ["rts", "bootstrap", *names, "--strategy=slurm", "--cores=1", *settings, "--json"]


def open_block(world: World, name: str = "b", **options: str) -> Any:
    """Start a block of two nodes; return the report."""
    return json.loads(world.run(*asking_for(world, name, nodes=2, **options)).stdout)


def rif_of(world: World, host: str) -> Any:
    return next(rif for rif in world.status()["rifs"] if rif["host"] == host)


def test_a_job_runs_on_nodes_of_slurm_and_nothing_is_left(world: World, slurm: Slurm):
    bootstrap(world, "n1", "n2", time="10m", queue="debug")
    assert set(states(world).values()) == {"up"}
    assert len(slurm.jobs("RUNNING")) == 2
    limit = slurm.run("squeue", "-h", "-o", "%l").split()
    assert limit == ["10:00", "10:00"]
    assert len(results(start(world, SLEEPERS, "n=60"))) == 60
    world.stop_rts()
    wait_until(lambda: not slurm.jobs("RUNNING", "PENDING"), "the batch jobs are over")
    assert list((world.folder / "shared").iterdir()) == []


def test_a_batch_job_that_is_cancelled_comes_back_and_no_result_is_lost(world: World, slurm: Slurm):
    bootstrap(world, "n1", "n2")
    traces, gate = world.folder / "traces", world.folder / "gate"
    traces.mkdir()
    job = start(world, MARKING, f"folder={traces}", "n=100", f"gate={gate}")
    wait_until(lambda: len(os.listdir(traces)) >= 3, "tasks run on all hosts")
    lost = slurm.jobs("RUNNING")[0]
    slurm.run("scancel", lost)
    wait_until(lambda: len(slurm.jobs("RUNNING")) == 2 and lost not in slurm.jobs("RUNNING"), "it comes back")
    gate.touch()
    assert sorted(results(job)) == list(range(100))
    world.stop_rts()


def test_a_node_that_waits_in_the_queue_says_why(world: World, slurm: Slurm):
    bootstrap(world, "n1", "n2")
    waiting = ["bootstrap", "n3", "--strategy=slurm", "--cores=1", f"--set=shared={world.folder / 'shared'}"]
    asking = world.start("rts", *waiting)
    wait_until(lambda: "is queued: Resources" in world.run("rts", "status").stdout, "it says why it waits")
    assert world.run("rts", "teardown", "r2").returncode == 0
    assert completed(asking).stdout == "n3: r4 is up\n"
    assert len(slurm.jobs("RUNNING")) == 2
    world.stop_rts()


def test_work_goes_on_while_slurmctld_is_gone(world: World, slurm: Slurm):
    bootstrap(world, "n1")
    slurm.kill_controller()
    try:
        assert len(results(start(world, SLEEPERS, "n=40"))) == 40
        assert states(world)["n1"] == "up"
    finally:
        slurm.start_controller()
        wait_until(lambda: slurm.run("sinfo", "-h"), "slurmctld is back")
    world.stop_rts()
    wait_until(lambda: not slurm.jobs("RUNNING", "PENDING"), "the batch job is over")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queue": "nope"}, "sbatch refused it: sbatch: error: invalid partition specified: nope"),
        ({"time": "2h"}, "can never run as it was asked for: PartitionTimeLimit"),
        ({"tme": "10m"}, "there is no option 'tme'"),
    ],
)
def test_what_slurm_refuses_is_said_in_one_line(world: World, options: dict[str, str], message: str):
    report = bootstrap(world, "n1", **options)
    assert message in json.dumps(report)
    world.stop_rts()


def test_a_block_that_loses_a_node_goes_on_with_the_other(world: World, slurm: Slurm):
    start_rts(world)
    assert set(open_block(world, time="10m")["started"]) == {"b.0", "b.1"}
    assert len(slurm.jobs("RUNNING")) == 1
    traces, gate = world.folder / "traces", world.folder / "gate"
    traces.mkdir()
    job = start(world, MARKING, f"folder={traces}", "n=60", f"gate={gate}")
    wait_until(lambda: len(os.listdir(traces)) >= 3, "tasks run on all hosts")
    os.kill(rif_of(world, "b.1")["pid"], signal.SIGKILL)
    wait_until(lambda: states(world)["b.1"] == "lost", "one is lost")
    gate.touch()
    assert sorted(results(job)) == list(range(60))
    assert (states(world)["b.0"], len(slurm.jobs("RUNNING"))) == ("up", 1)
    secret = next((world.folder / "shared").glob("*/enrol")).read_text()
    ticket = json.loads(secret)["ticket"]
    told = "".join(slurm.run("scontrol", "show", "job", "-dd", number) for number in slurm.jobs("RUNNING"))
    assert ticket not in told
    world.stop_rts()
    wait_until(lambda: not slurm.jobs("RUNNING", "PENDING"), "the batch job is over")
    wait_until(lambda: not list((world.folder / "shared").iterdir()), "nothing is left")


def test_a_block_that_is_requeued_comes_back_in_the_same_job(world: World, slurm: Slurm):
    start_rts(world)
    open_block(world, arguments="--requeue")
    job_id = slurm.jobs("RUNNING")
    before = rif_of(world, "b.0")
    slurm.run("scontrol", "requeue", job_id[0])
    wait_until(lambda: rif_of(world, "b.0")["incarnation"] > before["incarnation"], "it enrols again")
    wait_until(lambda: states(world)["b.0"] == states(world)["b.1"] == "up", "both are up again")
    assert slurm.jobs("RUNNING") == job_id
    assert rif_of(world, "b.0")["rif_id"] == before["rif_id"]
    world.stop_rts()


def test_blocks_outlive_a_run_time_system_that_is_killed(world: World, slurm: Slurm):
    state = f"--state={world.folder / 'state'}"
    first = start_rts(world, state)
    open_block(world)
    asking = world.start(*asking_for(world, "q", nodes=2))
    # Slurm says "Priority" for a moment when it has not looked at the job yet.
    words = ("queued: Resources", "queued: Priority")
    wait_until(lambda: any(word in world.run("rts", "status").stdout for word in words), "the second waits")
    running, queued = slurm.jobs("RUNNING"), slurm.jobs("PENDING")
    time.sleep(0.5)  # until it is in the state; nobody tells
    first.kill()
    completed(asking)
    start_rts(world, state)
    wait_until(lambda: states(world)["b.0"] == states(world)["b.1"] == "up", "the first is back")
    slurm.run("scancel", *running)
    wait_until(lambda: states(world).get("q.0") == states(world).get("q.1") == "up", "the second has come")
    assert slurm.jobs("RUNNING") == queued
    world.stop_rts()


def test_a_submission_that_seems_to_fail_is_adopted_when_its_job_runs(world: World, slurm: Slurm):
    commands = world.folder / "commands"
    commands.mkdir()
    (commands / "sbatch").write_text(UNCLEAR_SBATCH.format(path=slurm.environment["PATH"]))
    (commands / "sbatch").chmod(0o755)
    world.environment["PATH"] = f"{commands}:{slurm.environment['PATH']}"
    start_rts(world)
    assert set(open_block(world)["started"]) == {"b.0", "b.1"}
    assert len(slurm.jobs("RUNNING")) == 1
    world.stop_rts()


def test_a_node_without_gspc_trio_says_so(world: World):
    python = Path(world.folder / "python")
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert "no Python 3.11 here has gspc-trio" in json.dumps(bootstrap(world, "n1", python=str(python)))
    world.stop_rts()
