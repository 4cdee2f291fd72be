"""A cluster for the tests of this folder; without one they are skipped, saying what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.support import World, open_world
from tests.engines.slurm import Slurm, missing, open_slurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    if not os.environ.get("GSPC_ENGINES"):
        pytest.skip("batch systems are started by: make engines")
    why = missing()
    if why:
        pytest.skip(why)
    # Not below the directory of pytest: munged wants all on the way to its socket to be open to others.
    with TemporaryDirectory(prefix="slurm-") as folder, open_slurm(Path(folder)) as cluster:
        yield cluster


@pytest.fixture
def world(slurm: Slurm, tmp_path: Path) -> Iterator[World]:
    """A place to run commands in that know the cluster; no batch job of theirs may be left."""
    with open_world(tmp_path) as place:
        place.environment |= slurm.environment
        yield place
    assert slurm.jobs("RUNNING", "PENDING") == []
