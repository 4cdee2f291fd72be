"""Placements: how many hosts they leave whole, and how long requests wait; the clock is simulated.

Small tasks of one core arrive at random, and now and then a request for a whole host. The grants come
from the real
resource manager, and each is given back when its task ends.

``placement.idle_NAME_LOAD``         share of the hosts of which nothing is in use, LOAD % of all cores
being in use
``placement.large_wait_s_NAME_LOAD`` mean wait of requests for a whole host
``placement.small_wait_s_NAME_LOAD`` mean wait of small tasks
``placement.alone_NAME_LOAD``        mean share of its host that a small task has for itself when it begins
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from statistics import mean

from figures import Figures

from gspc_trio.components.rm.events import Added, JobJoined
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.core.ids import NO_GRANT, GrantId, host_name
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.policies.placement import PLACEMENTS

NODE = Shape((Requirement("node"),))
SIZES = (8,) * 12 + (4,) * 8
"""Cores of each host."""

SMALL_S = 10.0
LARGE_S = 30.0
LARGE_EVERY_S = 20.0
LOADS = (30, 50, 70)
SEEDS = (1, 2)


class World:
    """One run: events in the order of their times, and what was measured.

    Args:
        placement: of both jobs.
        load: share of all cores that small tasks use, from 0 to 1.
        has_large: whether there are requests for whole hosts.
        seed: of what arrives when.
    """

    def __init__(self, placement: str, load: float, has_large: bool, seed: int) -> None:
        self.random = Random(seed)
        self.rm = ResourceManager(1, placement=placement)
        self.now = 0.0
        self.used = dict.fromkeys((f"r{number}" for number in range(len(SIZES))), 0)
        for number, size in enumerate(SIZES):
            node = Resource(f"r{number}.node", "node")
            cores = [Resource(f"r{number}.core{core}", "core", (node.resource_id,)) for core in range(size)]
            self.rm.handle(Added((node, *cores)), 0.0)
        self.every_s = {CORE: SMALL_S / (load * sum(SIZES)), NODE: LARGE_EVERY_S}
        self.asked: dict[Shape, deque[float]] = {CORE: deque(), NODE: deque()}
        self.waits: dict[Shape, list[float]] = {CORE: [], NODE: []}
        self.alone: list[float] = []
        self.idle_s = 0.0
        self.seen: dict[str, GrantId] = {}
        self.events: list[tuple[float, int, Shape | Grant]] = []
        for shape in (CORE, NODE) if has_large else (CORE,):
            self.rm.handle(JobJoined(self.job(shape)), 0.0)
            self.later(self.random.expovariate(1 / self.every_s[shape]), shape)

    @staticmethod
    def job(shape: Shape) -> str:
        """Return whose requests of this shape are."""
        return "small" if shape is CORE else "large"

    def later(self, delay_s: float, what: Shape | Grant) -> None:
        """Have something happen: a request comes, or what holds a grant ends."""
        heappush(self.events, (self.now + delay_s, self.random.getrandbits(60), what))

    def run(self, end_s: float) -> None:
        """Let that many seconds pass."""
        while self.now < end_s:
            deadline = self.rm.deadline()
            if deadline is not None and deadline <= self.events[0][0]:
                self.go_to(max(deadline, self.now))
                self.take(self.rm.handle(Tick(), self.now))
                continue
            at_s, _, what = heappop(self.events)
            self.go_to(at_s)
            if isinstance(what, Grant):
                for name in what.resources:
                    self.used[host_name(name)] -= self.units(name)
                self.take(self.rm.handle(Release(what.job, what.grant_id), self.now))
            else:
                self.asked[what].append(self.now)
                self.demand(what)
                self.later(self.random.expovariate(1 / self.every_s[what]), what)

    def go_to(self, at_s: float) -> None:
        """Let time pass, and count idle hosts over it."""
        idle = sum(not used for used in self.used.values()) / len(SIZES)
        self.idle_s += idle * (at_s - self.now)
        self.now = at_s

    @staticmethod
    def units(name: str) -> int:
        """Return how many cores a resource is."""
        return SIZES[int(host_name(name)[1:])] if name.endswith("node") else 1

    def demand(self, shape: Shape) -> None:
        """Ask for as many grants as are waited for."""
        job = self.job(shape)
        word = Demand(job, shape, len(self.asked[shape]), self.seen.get(job, NO_GRANT))
        self.take(self.rm.handle(word, self.now))

    def take(self, actions: Sequence[object]) -> None:
        """Begin the tasks that have got something; nothing is given back before its task ends."""
        for grant in actions:
            if not isinstance(grant, Grant):
                continue
            shape, (name,) = grant.shape, grant.resources
            host = host_name(name)
            self.waits[shape].append(self.now - self.asked[shape].popleft())
            self.seen[grant.job] = grant.grant_id
            self.used[host] += self.units(name)
            if shape is CORE:
                self.alone.append(1 / self.used[host])
            mean_s = SMALL_S if shape is CORE else LARGE_S
            self.later(self.random.lognormvariate(0.0, 1.0) * mean_s / 1.6487, grant)


def measure(figures: Figures, small: bool, _traces: Path) -> None:
    """Measure each placement at each load, with and without requests for whole hosts."""
    end_s = 100.0 if small else 1000.0
    for load in LOADS[:1] if small else LOADS:
        for placement in PLACEMENTS:
            alone = [World(placement, load / 100, False, seed) for seed in SEEDS]
            mixed = [World(placement, load / 100, True, seed) for seed in SEEDS]
            for world in (*alone, *mixed):
                world.run(end_s)
            what = f"{placement}_{load}"
            figures.add(f"placement.idle_{what}", mean(world.idle_s / end_s for world in alone), "")
            figures.add(f"placement.alone_{what}", mean(mean(world.alone) for world in alone), "")
            for shape, name in ((NODE, "large"), (CORE, "small")):
                waits = mean(mean(world.waits[shape] or [0.0]) for world in mixed)
                figures.add(f"placement.{name}_wait_s_{what}", waits, "s")
