"""Studies on real engines: each adapter runs one, with groups, and nothing of it is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.support import World, wait_until
from tests.engines import slurm as slurm_cluster
from tests.engines.conftest import skip_without
from tests.engines.mpi import Mpi
from tests.engines.slurm import Slurm
from tests.engines.studies import StudyRun, check_example, check_interrupt, open_study_world
from tests.engines.support import Cluster

SALLOC = ("salloc", "--quiet", "--nodes=1", "--ntasks=4")
"""The allocation in which a launcher runs whose jobs are steps of it."""

OPTIONS: dict[str, dict[str, object]] = {
    "openmpi": {"scheduler_arg": ["--oversubscribe"]},
    "slurm-openmpi": {
        "scheduler_server_command_options": ["--oversubscribe"],
        "scheduler_client_command_options": ["--oversubscribe"],
    },
    "slurm-srun": {"launched": SALLOC},
    "slurm-mixed": {"launched": SALLOC},
}

ENGINES = {
    "openmpi": "mpi",
    "slurm": "wide_slurm",
    "slurm-srun": "wide_slurm",
    "slurm-mixed": "wide_slurm",
    "slurm-openmpi": "wide_slurm_with_mpi",
}


@pytest.fixture(scope="session")
def wide_slurm() -> Iterator[Slurm]:
    """A cluster on which an allocation, a server and clients run side by side."""
    skip_without(slurm_cluster.missing())
    with TemporaryDirectory(prefix="slurm-") as folder:
        with slurm_cluster.open_slurm(Path(folder), nodes=2, cores=4) as cluster:
            yield cluster


@pytest.fixture(scope="session")
def wide_slurm_with_mpi(mpi: Mpi, wide_slurm: Slurm) -> Slurm:
    """The same, where Open MPI is, too."""
    del mpi
    return wide_slurm


@pytest.fixture
def world(cluster: Cluster) -> Iterator[World]:
    with open_study_world(cluster) as place:
        yield place


def on(*schedulers: str) -> pytest.MarkDecorator:
    """Have a test run with these adapters, each on its engine."""
    pairs = [(name, ENGINES[name]) for name in schedulers]
    return pytest.mark.parametrize(("scheduler", "cluster"), pairs, indirect=["cluster"], ids=schedulers)


def launch(world: World, scheduler: str, groups: int, size: int) -> StudyRun:
    return StudyRun.of_clients(world, scheduler, groups, size, **OPTIONS.get(scheduler, {}))


@on(*ENGINES)
def test_the_example_runs_with_each_adapter(scheduler: str, world: World):
    check_example(world, scheduler, **OPTIONS.get(scheduler, {}))


@on("openmpi", "slurm", "slurm-srun", "slurm-openmpi")
def test_clients_of_a_group_have_states_outputs_and_ends_of_their_own(scheduler: str, world: World):
    study = launch(world, scheduler, groups=1, size=3)
    study.wait_for_output(0, 1, 2)
    study.wait_for("running", 0, 1, 2)
    study.touch("cancel.1")
    study.wait_for("cancelled", 1)
    study.touch("gate.2")
    study.wait_for("completed", 2)
    assert study.states(0)[-1] == "running"
    study.touch("gate")
    assert study.end() == 0, study.describe()
    assert [study.output(one) for one in range(3)] == [f"I am {one}\n" for one in range(3)]
    assert [study.states(one)[-1] for one in range(3)] == ["completed", "cancelled", "completed"]


@on("openmpi", "slurm-srun", "slurm-mixed")
def test_a_study_that_is_interrupted_leaves_nothing(scheduler: str, world: World, cluster: Cluster):
    check_interrupt(world, scheduler, **OPTIONS.get(scheduler, {}))
    wait_until(lambda: cluster.jobs() == [], "no batch job is left")
