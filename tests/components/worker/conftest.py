"""What the tests of the worker's machine share."""

from __future__ import annotations

import pytest

from tests.components.worker.support import Bench


@pytest.fixture
def bench() -> Bench:
    """Return a worker, with what it is told and what it does."""
    return Bench()
