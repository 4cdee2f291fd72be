"""A world for each test that runs commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A place to run commands in; afterwards no process, file or shared memory of theirs may be left."""
    shared_before = set(os.listdir("/dev/shm"))
    place = World(tmp_path)
    try:
        yield place
        place.wait_nothing_left()
        assert set(os.listdir("/dev/shm")) <= shared_before
    finally:
        place.end()
