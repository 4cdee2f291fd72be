"""Worlds of calls that a program sends to a compute process itself: each ends once, with its own result."""

from __future__ import annotations

import pytest

from gspc_trio.testing.simulated.direct_calls import DirectWorld


@pytest.mark.parametrize("end", ["", "stop", "break"])
def test_each_direct_call_ends_once_as_it_should(end: str) -> None:
    direct = 0
    for seed in range(60):
        world = DirectWorld(seed, kills=(0.0, 0.01, 0.05)[seed % 3], end=end)
        world.run()
        direct += world.direct
    assert direct > 100
