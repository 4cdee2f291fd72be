"""A few worlds of separate and of direct calls; the simulation runs many (``tests/simulation``)."""

from __future__ import annotations

from gspc_trio.testing.simulated.direct_calls import DirectWorld
from gspc_trio.testing.simulated.separate_calls import SeparateCalls


def test_calls_in_ranges_end_once_with_their_own_results() -> None:
    for seed in range(2):
        world = SeparateCalls(seed, calls=80)
        world.run()
        assert world.ranges


def test_direct_calls_end_once_with_their_own_results() -> None:
    worlds = [DirectWorld(seed, calls=40) for seed in range(6)]
    for world in worlds:
        world.run()
    assert any(world.direct for world in worlds)
