"""Sites with a real Slurm: from an empty queue to a result, and back to an empty queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.support import SLEEPERS, World, completed, wait_until
from tests.engines.slurm import Slurm
from tests.engines.test_slurm import own_address, results, start


def sites_file(world: World, **more: object) -> Path:
    """Write a file with one site; return it."""
    shared = world.folder / "shared"
    shared.mkdir(exist_ok=True)
    given = {"provider": "slurm", "max_time": "20m", "cores_per_node": 1, "shared": str(shared), **more}
    path = world.folder / "sites.toml"
    path.write_text("[hpc]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items()))
    return path


def blocks(world: World) -> list[dict[str, Any]]:
    listed = json.loads(world.run("rts", "site", "list", "--json").stdout)
    return [block for site in listed["sites"] for block in site["blocks"]]


def test_a_job_finds_its_nodes_and_leaves_an_empty_queue(world: World, slurm: Slurm):
    sites = sites_file(world, max_nodes=2, parallelism=0, slots=1)
    done = world.run(
        "jobserver", "run", world.workflow(SLEEPERS), "--sites", str(sites), "--set=n=40", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["outputs"]["results"]) == 40
    wait_until(lambda: not slurm.jobs("RUNNING", "PENDING"), "the batch jobs are over")
    nodes = slurm.run("squeue", "-h", "--states=all", "-o", "%D").split()
    assert "2" in nodes, "a block had two nodes"


def test_a_run_time_system_that_was_killed_asks_for_no_block_twice(world: World, slurm: Slurm):
    options = ["--sites", str(sites_file(world, slots=1)), "--tls", "--listen", own_address()]
    first = world.start_rts(*options, "--state", str(world.folder / "state"))
    job = start(world, SLEEPERS, "n=40", "seconds=0.2")
    wait_until(lambda: len(slurm.jobs("RUNNING")) == 1, "a block runs")
    (before,) = blocks(world)
    first.kill()
    first.wait()
    world.start_rts(*options, "--state", str(world.folder / "state"))
    (after,) = blocks(world)
    assert after["block_id"] == before["block_id"]
    assert len(results(job)) == 40
    assert len(slurm.jobs("RUNNING", "PENDING")) == 1
    world.stop_rts()
    wait_until(lambda: not slurm.jobs("RUNNING", "PENDING"), "the batch job is over")


def test_a_queue_that_does_not_exist_pauses_the_site_in_the_words_of_slurm(world: World, slurm: Slurm):
    world.start_rts("--sites", str(sites_file(world, queue="nosuch")), "--tls", "--listen", own_address())
    job = start(world, SLEEPERS, "n=1")
    said = wait_until(lambda: "nosuch" in (out := world.run("rts", "site", "list").stdout) and out, "why")
    assert "paused" in said, "it is not asked ten times"
    world.run("jobserver", "stop", "j1")
    completed(job)
    world.stop_rts()
    assert slurm.jobs("RUNNING", "PENDING") == []
