"""One executor for the tests of a module, and a world for those that run programs."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import psutil
import pytest

from gspc_trio import Executor
from tests import commands
from tests.e2e.support import World, open_world


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    """An executor with two cores; no process is left after it."""
    resource_tracker.ensure_running()  # a manager of multiprocessing starts it, and it stays
    before = set(psutil.Process().children(recursive=True))
    with Executor(cores=2) as shared:
        yield shared
    left = set(psutil.Process().children(recursive=True)) - before
    left = {child for child in left if child.pid not in commands.kept}
    assert not left, left


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A place to run programs in, in which nothing of theirs may be left."""
    with open_world(tmp_path) as place:
        yield place
