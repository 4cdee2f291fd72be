"""How much more several resource managers decide than one, and how often optimistic ones want the same.

``managers.scaling``    grants of 4 pessimistic managers over those of one, in the same time
``managers.conflicts``  claims that are refused, of all claims of 4 optimistic managers at 80 % load

Clocks are simulated: each manager, and the run-time system, has a processor of its own, which is busy for as
long as handling an event takes here. What messages cost to encode and to send is not counted.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from time import thread_time

from figures import Figures

from gspc_trio.components.managers.claims import OptimisticManagers
from gspc_trio.components.managers.members import Managers
from gspc_trio.components.managers.partitions import Partitions
from gspc_trio.core.task import CORE
from gspc_trio.testing.managers import ManagersWorld, Work

HOSTS, CORES = 32, 64
FEW_CORES = 16
"""Of a host, where conflicts are counted: the fewer, the more often two want the same."""
JOBS = 8
LOAD = 0.8
ROUNDS, TURNS, TURN_S = 9, 10, 0.02
"""A round has so many turns of each world, each for so long of its time: hundreds are given at a time."""
WARM_UP_S = 0.3
"""By then no host moves any more."""


def pessimistic(count: int) -> Managers:
    """Return managers with hosts of their own."""
    return Partitions(count, 1)


def world_of(managers: Managers, clock: Callable[[], float], cores: int) -> ManagersWorld:
    """Return a world with hosts."""
    world = ManagersWorld(managers, random=Random(2), latency_s=0.0005, clock=clock, checks=False)
    world.run(0.5)
    for number in range(HOSTS):
        world.add_host(f"r{number + 1}", cores)
    world.run(1.5)
    return world


def busy_world(managers: Managers) -> ManagersWorld:
    """Return a world with jobs that always want more, in which no host moves any more."""
    world = world_of(managers, thread_time, CORES)
    for number in range(JOBS):
        world.begin(Work(f"j{number + 1}", CORE, 1_000_000, 0.001, HOSTS * CORES // JOBS))
        world.run(world.now + 0.01)
    world.run(world.now + WARM_UP_S)
    return world


def grants_in(world: ManagersWorld, seconds: float) -> int:
    """Let time pass in a world; return how many grants are given."""
    begun = world.grants
    world.run(world.now + seconds)
    return world.grants - begun


def scaling(rounds: int) -> tuple[float, float]:
    """Return how many grants one manager gives in a second, and how many times that four do.

    Medians of rounds, in which both worlds take turns: a second later the machine may be twice as fast.
    """
    worlds = one, four = busy_world(pessimistic(1)), busy_world(pessimistic(4))
    given: dict[ManagersWorld, list[int]] = {world: [0] * rounds for world in worlds}
    gc.collect()
    gc.disable()  # it would look at both worlds, whichever's turn it is; a manager's process has none of them
    try:
        for turn in range(rounds * TURNS):
            for world in worlds if turn % 2 else reversed(worlds):
                given[world][turn // TURNS] += grants_in(world, TURN_S)
    finally:
        gc.enable()
    ratios = [more / few for few, more in zip(given[one], given[four], strict=True)]
    return median(given[one]) / (TURNS * TURN_S), median(ratios)


def conflicts(seconds: float) -> float:
    """Return the share of claims that are refused when so much of all cores is in use."""
    managers = OptimisticManagers(4, 1, Random(1))
    world = world_of(managers, lambda: 0.0, FEW_CORES)
    for number in range(JOBS):
        world.begin(Work(f"j{number + 1}", CORE, 1_000_000, 0.1, int(LOAD * HOSTS * FEW_CORES / JOBS)))
        world.run(world.now + 0.013)
    world.run(world.now + seconds)
    return managers.conflicts / managers.claims


def measure(figures: Figures, small: bool, traces: Path) -> None:
    """Measure, without a look at traces."""
    _ = traces
    one_per_s, times = scaling(1 if small else ROUNDS)
    figures.add("managers.one_per_s", one_per_s, "grants per simulated second")
    figures.add("managers.scaling", times, "times one")
    figures.add("managers.conflicts", conflicts(0.2 if small else 0.8), "of the claims")
