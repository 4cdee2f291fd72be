"""A world for each test that runs an example; the one of the end-to-end tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import World, open_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A place to run commands in, in which nothing of theirs may be left."""
    with open_world(tmp_path) as place:
        yield place
