"""Parts of a co-allocation on nodes that Slurm gives: they start together, or not at all (COA-2)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import World, completed, wait_until
from tests.engines.slurm import Slurm
from tests.engines.support import own_address, states

PART = (
    '(&(executable=sh)(arguments="-c" "echo $GSPC_PART $GSPC_RESOURCES; touch {mark}$GSPC_PART")'
    "(contact=slurm:debug))"
)


def request_of(world: World, options: str = "") -> Path:
    path = world.folder / "request.rsl"
    path.write_text(f"+{options}" + 2 * PART.format(mark=world.folder / "started"))
    return path


def started(world: World) -> int:
    return len(list(world.folder.glob("started*")))


def pilots(world: World) -> list[str]:
    return [host for host in states(world) if host.startswith("pilots-")]


@pytest.fixture
def rts(world: World) -> Iterator[None]:
    world.start_rts("--tls", "--listen", own_address(), "--cores", "1")
    yield
    world.stop_rts()


@pytest.mark.usefixtures("rts")
def test_two_components_are_one_batch_job_and_start_together(world: World, slurm: Slurm):
    done = world.run("coallocation.commands", "run", str(request_of(world)), "--json")
    assert done.returncode == 0, done.stderr
    assert "0 r2.core0@pilots-" in done.stdout
    assert "1 r2.core0@pilots-" in done.stdout
    assert started(world) == 2
    wait_until(lambda: not slurm.jobs(), "the batch job is over")
    assert pilots(world) == []


@pytest.mark.usefixtures("rts")
def test_while_one_node_is_taken_none_starts_and_what_is_cancelled_leaves_nothing(world: World, slurm: Slurm):
    slurm.run("sbatch", "--nodes=1", "--wrap=sleep 600", "--output=/dev/null")
    wait_until(lambda: len(slurm.jobs("RUNNING")) == 1, "a node is taken")
    (other,) = slurm.jobs("RUNNING")
    waits = world.start("coallocation.commands", "run", str(request_of(world)))
    wait_until(lambda: len(slurm.jobs("PENDING")) == 1, "its batch job waits")
    assert started(world) == 0
    waits.send_signal(signal.SIGINT)
    assert completed(waits).returncode == 130
    wait_until(lambda: slurm.jobs() == [other], "its batch job is gone")
    assert (pilots(world), started(world)) == ([], 0)
    again = world.start("coallocation.commands", "run", str(request_of(world)))
    wait_until(lambda: len(slurm.jobs("PENDING")) == 1, "its batch job waits")
    slurm.run("scancel", other)
    assert completed(again).returncode == 0
    assert started(world) == 2
    wait_until(lambda: not slurm.jobs(), "the batch job is over")


@pytest.mark.usefixtures("rts")
def test_a_pilot_that_is_lost_before_the_start_takes_the_other_along(world: World, slurm: Slurm):
    request = request_of(world, "(start=inside)(barrier_timeout=60)")
    waits = world.start("coallocation.commands", "run", str(request))
    wait_until(lambda: len(pilots(world)) == 2, "pilots are asked for")
    wait_until(lambda: set(states(world).values()) == {"up"}, "pilots report")
    rif = next(rif for rif in world.status()["rifs"] if rif["host"] == pilots(world)[0])
    os.kill(rif["pid"], signal.SIGKILL)
    done = completed(waits)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    wait_until(lambda: not slurm.jobs(), "the batch job is over")


@pytest.mark.usefixtures("rts")
def test_what_slurm_refuses_and_a_killed_request_leave_nothing(world: World, slurm: Slurm):
    path = world.folder / "refused.rsl"
    path.write_text("&(executable=true)(contact=slurm:nope)")
    done = world.run("coallocation.commands", "run", str(path))
    assert done.returncode == 1
    assert "sbatch refused it: sbatch: error: invalid partition specified: nope" in done.stderr
    sleeper = world.folder / "sleeper.rsl"
    sleeper.write_text("&(executable=sleep)(arguments=600)(contact=slurm:debug)")
    killed = world.start("coallocation.commands", "run", str(sleeper))
    wait_until(lambda: len(slurm.jobs("RUNNING")) == 1, "it runs")
    killed.send_signal(signal.SIGKILL)
    completed(killed)
    assert world.run("coallocation.commands", "run", str(request_of(world))).returncode == 0
    wait_until(lambda: not slurm.jobs(), "what it had was taken down by the next one")
