"""Worlds of several resource managers from seeds: whoever is killed, nothing is given twice (ASP-11)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from gspc_trio.components.managers.claims import OptimisticManagers
from gspc_trio.components.managers.members import Managers
from gspc_trio.components.managers.partitions import Partitions
from gspc_trio.testing.managers import live, managers_broken


@pytest.mark.parametrize(
    "make", [lambda count: Partitions(count, 7), lambda count: OptimisticManagers(count, 7, Random(5))]
)
def test_nothing_is_given_twice_and_all_gets_done_whoever_is_killed(make: Callable[[int], Managers]):
    worlds = [live(seed, make(2 + seed % 3)) for seed in range(5)]
    assert sum(world.grants for world in worlds) > 200
    assert sum(world.kills for world in worlds) > 5


@pytest.mark.parametrize("seed", [92])
def test_what_was_broken_once_holds(seed: int):
    assert managers_broken(seed) == ""
