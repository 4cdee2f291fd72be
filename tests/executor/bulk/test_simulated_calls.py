"""A few worlds of separate calls; the simulation runs many (``tests/simulation/test_separate_calls.py``)."""

from __future__ import annotations

from gspc_trio.testing.simulated.separate_calls import SeparateCalls


def test_calls_in_ranges_end_once_with_their_own_results() -> None:
    for seed in range(2):
        world = SeparateCalls(seed, calls=80)
        world.run()
        assert world.ranges
