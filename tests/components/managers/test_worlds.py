"""Worlds of several resource managers from seeds: whoever is killed, nothing is given twice (ASP-11)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from gspc_trio.components.managers.claims import OptimisticManagers
from gspc_trio.components.managers.members import Managers
from gspc_trio.components.managers.partitions import Partitions
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.testing.managers import ManagersWorld, Work

NODE = Shape((Requirement("node"),))
TWO_NODES = Shape((Requirement("node"), Requirement("node")))


def life(seed: int, make: Callable[[int], Managers]) -> tuple[int, int]:
    """Have jobs and hosts come and go, and managers killed; return the numbers of grants and of kills."""
    random = Random(seed)
    count = random.choice((2, 2, 3, 4))
    world = ManagersWorld(make(count), random=Random(seed + 1), latency_s=random.choice((0.001, 0.01, 0.05)))
    world.run(0.1)
    names = [f"r{number + 1}" for number in range(random.randint(3, 6))]
    for name in names:
        world.add_host(name, random.randint(1, 4))
        world.run(world.now + random.random() * 0.05)
    world.run(world.now + 0.3)
    shapes = (CORE, CORE, NODE, TWO_NODES, Shape((Requirement("core"),) * 2))
    for _ in range(random.randint(5, 20)):
        kind = random.random()
        if kind < 0.45 and len(world.jobs) < 8:
            shape, tasks, task_s = (
                random.choice(shapes),
                random.randint(1, 40),
                random.choice((0.002, 0.05, 0.3)),
            )
            job = Work(f"j{len(world.jobs) + 1}", shape, tasks, task_s, random.choice((2, 1000)))
            world.begin(job)
        elif kind < 0.6 and world.jobs:
            world.end(random.choice(list(world.jobs.values())))
        elif kind < 0.85:
            world.kill(random.randrange(count))
        elif len(names) > 2 and random.random() < 0.4:
            world.lose_host(names.pop(0))
        world.run(world.now + random.choice((0.0, 0.01, 0.1, 0.6)))
    world.run(world.now + 200, world.is_done)
    assert world.is_done(), [(job.job, job.left, job.refused) for job in world.jobs.values()]
    for job in world.jobs.values():
        world.end(job)
    world.run(world.now + 20)
    assert not [name for member in world.managers.members for name in member.log.held()]
    return world.grants, world.kills


@pytest.mark.parametrize(
    "make", [lambda count: Partitions(count, 7), lambda count: OptimisticManagers(count, 7, Random(5))]
)
def test_nothing_is_given_twice_and_all_gets_done_whoever_is_killed(make):
    grants, kills = map(sum, zip(*(life(seed, make) for seed in range(5)), strict=True))
    assert grants > 200
    assert kills > 5
