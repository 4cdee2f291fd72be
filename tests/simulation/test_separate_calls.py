"""Worlds of separate calls that travel in ranges: each ends once, with its own result, whatever happens."""

from __future__ import annotations

import pytest

from gspc_trio.testing.simulated.separate_calls import SeparateCalls


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("end", ["", "shutdown", "break"])
def test_each_call_ends_once_as_it_should(loss: float, end: str) -> None:
    ranges = 0
    for seed in range(12):
        world = SeparateCalls(seed, cores=1 + seed % 4, loss=loss, end=end)
        world.run()
        ranges += world.ranges
    assert ranges > 40
