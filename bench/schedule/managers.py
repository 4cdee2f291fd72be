"""How much more several resource managers decide than one, and how often optimistic ones want the same.

``managers.scaling``    grants of 4 pessimistic managers over those of one, in the same time
``managers.conflicts``  claims that are refused, of all claims of 4 optimistic managers at 80 % load

Clocks are simulated: each manager, and the run-time system, has a processor of its own, which is busy for as
long as handling an event takes here. What messages cost to encode and to send is not counted.
"""

from __future__ import annotations

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


def grants_per_s(managers: Managers, seconds: float) -> float:
    """Return how many grants a second are given to jobs that always want more."""
    world = world_of(managers, thread_time, CORES)
    for number in range(JOBS):
        world.begin(Work(f"j{number + 1}", CORE, 1_000_000, 0.001, HOSTS * CORES // JOBS))
        world.run(world.now + 0.01)
    world.run(world.now + WARM_UP_S)
    begun, began_s = world.grants, world.now
    world.run(began_s + seconds)
    return (world.grants - begun) / seconds


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
    seconds, pairs = (0.1, 1) if small else (0.4, 3)
    ratios = []
    for _ in range(pairs):
        one, four = (grants_per_s(pessimistic(count), seconds) for count in (1, 4))
        ratios.append(four / one)
    figures.add("managers.one_per_s", one, "grants per simulated second")
    figures.add("managers.scaling", median(ratios), "times one")
    figures.add("managers.conflicts", conflicts(2 * seconds), "of the claims")
