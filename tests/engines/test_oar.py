"""All with OAR, in one file for one worker: there is one OAR on a host, for which others would wait."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve

from gspc_trio.components.provision.batch import BadRequest
from gspc_trio.components.provision.find import find_provider
from tests.e2e.support import World, completed, wait_until
from tests.engines.oar import Oar
from tests.engines.studies import check_example, check_interrupt, open_study_world
from tests.engines.support import bootstrap_command, start_rts, states
from tests.engines.test_providers import Block, check_block, check_host

SELDOM = {"job_update_interval_s": 3.0}
"""``oarstat`` takes what the scheduler of OAR needs on a busy host."""

OPTIONS: dict[str, dict[str, object]] = {
    "oar": {"scheduler_arg_client": ["-l", "/resource_id=1"], **SELDOM},
    "oar-hybrid": {
        **SELDOM,
        "scheduler_arg_container": ["-l", "/resource_id=2,walltime=0:30:00"],
        "scheduler_arg_server": ["-l", "/resource_id=1,walltime=0:20:00"],
        "scheduler_arg_client": ["-l", "/resource_id=1,walltime=0:05:00"],
    },
}
"""Of studies, by their adapters."""


@pytest.fixture
def cluster(oar: Oar) -> Oar:
    return oar


@pytest.fixture
def study_world(oar: Oar) -> Iterator[World]:
    with open_study_world(oar) as place:
        yield place


@pytest.mark.parametrize("scheduler", OPTIONS)
def test_the_example_of_a_study_runs(scheduler: str, study_world: World):
    check_example(study_world, scheduler, **OPTIONS[scheduler])


def test_a_study_that_is_interrupted_leaves_nothing(study_world: World, oar: Oar):
    check_interrupt(study_world, "oar-hybrid", **OPTIONS["oar-hybrid"])
    wait_until(lambda: oar.jobs() == [], "no batch job is left")


def test_a_block_runs_on_two_nodes_survives_one_and_is_cancelled(oar: Oar, tmp_path: Path):
    check_block(oar, "oar", tmp_path)


def test_oar_refuses_what_can_never_run(oar: Oar, tmp_path: Path):
    block = Block(oar, find_provider("oar"), tmp_path)
    block.request = evolve(block.request, nodes=5)
    with pytest.raises(BadRequest, match="oarsub refused it: There are not enough resources"):
        block.submit()


def test_a_host_is_a_batch_job_and_nothing_is_left(world: World, oar: Oar):
    check_host(world, oar, "oar")


def test_a_submission_without_the_server_of_oar_is_unclear_until_it_is_back(world: World, oar: Oar):
    start_rts(world)
    oar.kill_server()
    try:
        asking = world.start("rts", *bootstrap_command(world, "oar", "n1"), "--json")
        wait_until(lambda: "oar did not say" in world.run("rts", "status").stdout, "it is not clear")
    finally:
        oar.start_server()
    assert completed(asking).returncode == 0
    assert states(world)["n1"] == "up"
    assert len(oar.jobs()) == 1
    world.stop_rts()
