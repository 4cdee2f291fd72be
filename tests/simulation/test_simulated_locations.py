"""SCH-6: a job on several run-time systems, simulated from seeds: they are killed, cut off, and come back."""

from __future__ import annotations

import pytest

from gspc_trio.testing.locations import LocationsWorld, locations_broken


@pytest.mark.parametrize("seed", [*range(12), 771107])  # the last: it gives back while it is cut off
def test_no_task_is_lost_and_none_ends_twice(seed: int) -> None:
    assert locations_broken(seed) == ""


def test_all_kinds_of_faults_happen_and_all_locations_work() -> None:
    worlds = [LocationsWorld(seed) for seed in range(12, 18)]
    for world in worlds:
        world.run()
    happened = " ".join(line for world in worlds for line in world.happened)
    assert "was killed" in happened
    assert "cut off for 0.000 s" in happened, "it does not come back"
    assert happened.count("cut off") > happened.count("cut off for 0.000 s")
    assert all(world.ran[name] for world in worlds[:1] for name in ("here", "there", "yonder"))


def test_a_seed_does_the_same_again_and_without_faults_nothing_happens() -> None:
    first, second, calm = LocationsWorld(3), LocationsWorld(3), LocationsWorld(3, faults=False)
    for world in (first, second, calm):
        world.run()
    assert (first.events, first.now, first.happened) == (second.events, second.now, second.happened)
    assert first.happened
    assert not calm.happened
