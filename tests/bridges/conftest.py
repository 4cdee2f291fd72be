"""Tests of bridges start programs, as users do; afterwards nothing of theirs may be left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.support import World, open_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A place to run programs in, in which nothing of theirs may be left."""
    with open_world(tmp_path) as place:
        yield place
