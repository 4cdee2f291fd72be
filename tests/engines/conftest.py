"""Batch systems for the tests of this folder; without one they are skipped, saying what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.support import World, open_world, wait_until
from tests.engines import dask as dask_cluster
from tests.engines import mpi as open_mpi
from tests.engines import oar as oar_server
from tests.engines import ray as ray_cluster
from tests.engines import slurm as slurm_cluster
from tests.engines.support import Cluster, RunningCluster


def skip_without(why: str) -> None:
    if not os.environ.get("GSPC_ENGINES"):
        pytest.skip("batch systems are started by: make engines")
    if why:
        pytest.skip(why)


@pytest.fixture(scope="session")
def slurm() -> Iterator[slurm_cluster.Slurm]:
    skip_without(slurm_cluster.missing())
    # Not below the directory of pytest: munged wants all on the way to its socket to be open to others.
    with TemporaryDirectory(prefix="slurm-") as folder, slurm_cluster.open_slurm(Path(folder)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def oar() -> Iterator[oar_server.Oar]:
    skip_without("")
    # Its one configuration is that of the host: another run of these tests must be over.
    with oar_server.alone(), TemporaryDirectory(prefix="oar-") as folder:
        skip_without(oar_server.missing())
        with oar_server.open_oar(Path(folder)) as server:
            yield server


@pytest.fixture(scope="session")
def mpi() -> open_mpi.Mpi:
    skip_without(open_mpi.missing())
    return open_mpi.Mpi()


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The batch system that a test asks for by its parameter; the usual one is Slurm."""
    found: Cluster = request.getfixturevalue(getattr(request, "param", "slurm"))
    return found


@pytest.fixture
def world(cluster: Cluster, tmp_path: Path) -> Iterator[World]:
    """A place to run commands in that know the cluster; no batch job of theirs may be left."""
    with open_world(tmp_path, forks=False) as place:
        place.environment |= cluster.environment
        yield place
    wait_until(lambda: cluster.jobs() == [], "no batch job is left")


@pytest.fixture(scope="session")
def dask() -> Iterator[dask_cluster.Dask]:
    skip_without(dask_cluster.missing())
    with TemporaryDirectory(prefix="dask-") as folder, dask_cluster.open_dask(Path(folder)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ray() -> Iterator[ray_cluster.Ray]:
    skip_without(ray_cluster.missing())
    with ray_cluster.open_ray() as cluster:
        yield cluster


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> RunningCluster:
    """The running cluster that a test asks for by its parameter, with all of its hosts."""
    found: RunningCluster = request.getfixturevalue(request.param)
    found.wait_complete()
    return found
