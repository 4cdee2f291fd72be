"""How fast blocks are planned, and how much of what they ask for is used, at a simulated batch queue.

    python bench/blocks.py [--json] [--small] [--traces FOLDER]

``blocks.plan_ms``        milliseconds of one core for a plan: 1,000,000 tasks in 1,000 groups, 1,000 blocks
``blocks.sites_ms``       the same for all that the machine of sites does once a second, with 4,000 hosts
``blocks.used_share``     core-seconds in which tasks ran, of those that the blocks that began had asked for
``blocks.charged_share``  of those that blocks held until they ended: what most batch systems charge
``blocks.done_s``         seconds until the last task had ended

The last three are about a site that may have 20 blocks of 4 nodes of 16 cores and two hours, and of whose
other settings nothing is said. A block waits in the queue for a minute, and for four more on average; its
hosts are up five seconds after its start. The machine of sites is that of the
product. The names say what is to be done there:

``...``           2,000 copies of a made-up workflow of 22 tasks at once: 34 tasks for each core of the site
``..._unstated``  the same, of tasks that do not state how long they take
``..._steady``    a workflow every 20 seconds for an hour, which is work for 240 cores
``..._few``       100 workflows at once: fewer than two tasks for each core of the site
``..._tight``     any of these with the setting ``parallelism = 1``, by which blocks are packed tightly

In place of four made-up workflows there may be one of each that was recorded in a folder (WfFormat,
``*.json``). Each task states a tenth more than it takes, in whole seconds.
"""

from __future__ import annotations

import bisect
import heapq
import json
import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen
from figures import Figures, options_parser

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.block_settings import BlockSettings
from gspc_trio.components.provision.planner import BlockView, RunningTasks, plan
from gspc_trio.components.provision.site_events import (
    BatchAnswered,
    BatchMoved,
    BlockGone,
    BlockIdle,
    BlockUsed,
    CancelBlock,
    NodeServes,
    SiteAdded,
    SitesEvent,
    SubmitBlock,
    SuspendBlock,
)
from gspc_trio.components.provision.site_settings import site_settings
from gspc_trio.components.provision.sites import Sites
from gspc_trio.components.provision.waiting import Group
from gspc_trio.core.demand import WALLTIME_S, RunningGroup, TaskDemand, TaskGroup
from gspc_trio.core.machine import Tick

SITE: dict[str, object] = {"provider": "slurm", "max_time": "2h", "max_nodes": 4, "cores_per_node": 16}
SUBMIT_S = 1.0
WAIT_LEAST_S, WAIT_MEAN_S = 60.0, 240.0
START_S = 5.0
STATED = 1.1
"""What a task states, as a multiple of the time it takes."""
RETURN_S = 10.0
"""So long before the end of its block a task that runs is given back."""


# How fast ---------------------------------------------------------------------------------------------------


def plan_ms(groups: int, blocks: int, rounds: int) -> float:
    """Return the milliseconds of one core that a plan takes."""
    chance = random.Random(1)
    waiting = [Group(chance.uniform(1, 7000), chance.randint(1, 16), 1000) for _ in range(groups)]
    there = [
        BlockView(
            f"b{number}",
            16 * chance.randint(1, 4),
            7200,
            chance.uniform(60, 7200),
            [RunningTasks(1, chance.uniform(0, 1000), chance.randint(1, 16)) for _ in range(2)],
        )
        for number in range(blocks)
    ]
    settings = BlockSettings(7200, 4, 16, slots=2 * blocks)
    found = []
    for _ in range(rounds):
        begun_s = time.process_time()
        plan(waiting, there, settings, 0.0)
        found.append(1000 * (time.process_time() - begun_s))
    return statistics.median(found)


def sites_ms(groups: int, blocks: int, rounds: int) -> float:
    """Return the milliseconds of one core that the machine of sites takes for a plan."""
    chance, sites = random.Random(1), Sites({"job_submit": None})
    many = {"slots": blocks + blocks // 10, "allocation_step": 1, "spread": 0, "host_job_submit": "off"}
    sites.handle(SiteAdded(0, "hpc", site_settings("hpc", SITE | many)), 0.0)
    waiting = tuple(TaskGroup(chance.uniform(1, 7000), chance.randint(1, 16), 0, 1000) for _ in range(groups))
    sites.handle(TaskDemand("campaign", waiting), 0.0)
    now = 1.0
    hosts: list[str] = []
    for one in sites.handle(Tick(), now):
        if isinstance(one, SubmitBlock) and len(hosts) < 4 * blocks:
            sites.handle(BatchAnswered(one.block_id, "1"), now)
            for node in range(one.nodes):
                hosts.append(f"{one.block_id}/{node}")
                sites.handle(NodeServes(one.block_id, node, hosts[-1], now + one.walltime_s), now)
    running = tuple(RunningGroup(host, chance.uniform(1, 1000), 1, 0, 8) for host in hosts)
    found = []
    for _ in range(rounds):
        now += 2
        begun_s = time.process_time()
        sites.handle(TaskDemand("campaign", waiting, running), now)
        sites.handle(Tick(), now)
        found.append(1000 * (time.process_time() - begun_s))
    return statistics.median(found)


# What is to be done -----------------------------------------------------------------------------------------


@define(eq=False)
class Work:
    """A task: the time it states, the time it takes, its cores, when it is there, and which wait for it."""

    walltime_s: float
    runtime_s: float
    cores: int = 1
    comes_at: float = 0.0
    missing: int = 0
    after: list[Work] = field(factory=list)

    def precedes(self, other: Work) -> None:
        """Note that another task waits for this one."""
        self.after.append(other)
        other.missing += 1


@frozen
class Workload:
    """What is to be done: copies of workflows, how long after each other they come, and what is stated.

    It is done once with each seed, which is for the queue of the batch system.
    """

    copies: int
    seeds: int = 1
    every_s: float = 0.0
    is_stated: bool = True

    def works(self, traces: Sequence[Path]) -> list[Work]:
        """Return the tasks of copies of each recorded workflow, or of a made-up one."""
        chance = random.Random(2)
        found: list[Work] = []
        for number in range(self.copies):
            works = [one for path in traces for one in self._recorded(path)] or self._made_up(chance)
            for one in works:
                one.comes_at = number * self.every_s
            found += works
        return found

    def _made_up(self, chance: random.Random) -> list[Work]:
        """Return a workflow: one task, 20 tasks at once, one that joins them."""
        begin, end = self._work(chance.uniform(20, 60)), self._work(chance.uniform(60, 120), 4)
        middle = [self._work(chance.uniform(150, 300)) for _ in range(20)]
        for one in middle:
            begin.precedes(one)
            one.precedes(end)
        return [begin, *middle, end]

    def _recorded(self, path: Path) -> list[Work]:
        """Return a recorded workflow."""
        workflow = read_workflow(path)
        executed = workflow["execution"]["tasks"]
        tasks = {one["id"]: self._work(float(one["runtimeInSeconds"])) for one in executed}
        for one in workflow["specification"]["tasks"]:
            for parent in one["parents"]:
                tasks[parent].precedes(tasks[one["id"]])
        return list(tasks.values())

    def _work(self, runtime_s: float, cores: int = 1) -> Work:
        walltime_s = math.ceil(STATED * runtime_s) if self.is_stated else WALLTIME_S
        return Work(walltime_s, runtime_s, cores)


@cache
def read_workflow(path: Path) -> Any:
    """Return what a file in WfFormat says of its workflow."""
    return json.loads(path.read_text(encoding="utf-8"))["workflow"]


WORKLOADS = {
    "": Workload(2000),
    "_unstated": Workload(2000, is_stated=False),
    "_steady": Workload(180, seeds=3, every_s=20.0),
    "_few": Workload(100, seeds=3),
}


# The batch system and the hosts -----------------------------------------------------------------------------


@define(eq=False)
class Node:
    """A node of a block: its free cores, and what runs there until when it should be over."""

    rif_id: str
    free: int
    running: dict[Work, float] = field(factory=dict)


@define(eq=False)
class Block:
    """A block in the batch system."""

    block_id: str
    nodes: int
    cores: int
    walltime_s: float
    began_at: float | None = None
    takes_tasks: bool = True
    is_over: bool = False
    up: list[Node] = field(factory=list)

    @property
    def ends_at(self) -> float:
        """When the batch system ends it, once it has begun."""
        assert self.began_at is not None
        return self.began_at + self.walltime_s


class Queue:
    """A batch system in which blocks wait, the hosts of these blocks, and the product's machine of sites."""

    def __init__(self, tasks: Sequence[Work], settings: Mapping[str, object], seed: int) -> None:
        self.now = 0.0
        self.sites = Sites()
        self.blocks: dict[str, Block] = {}
        self.used_s = self.asked_s = self.held_s = 0.0
        self._chance = random.Random(seed)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._ready: dict[tuple[float, int], list[Work]] = defaultdict(list)
        self._kinds: dict[int, list[float]] = {}  # cores -> walltimes of what waits, the shortest first
        self._left = len(tasks)
        self._says_at: float | None = None
        self._tell(SiteAdded(0, "hpc", site_settings("hpc", settings)))
        for one in tasks:
            if not one.missing:
                self._at(one.comes_at, partial(self._comes, one))

    def run(self) -> float:
        """Let time pass until all is done and all blocks are over; return when the last task ended."""
        done_at = 0.0
        while self._left or self.blocks:
            due = self.sites.deadline()
            if self._later and (due is None or self._later[0][0] <= due):
                self.now, _, action = heapq.heappop(self._later)
                action()
            else:
                assert due is not None, "nothing will happen any more"
                self.now = max(self.now, due)
                self._tell(Tick())
            if self._left:
                done_at = self.now
        return done_at

    def _at(self, when: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._later, (max(when, self.now), self._number, action))

    def _tell(self, event: SitesEvent) -> None:
        for action in self.sites.handle(event, self.now):
            if isinstance(action, SubmitBlock):
                self._submit(action)
            elif isinstance(action, SuspendBlock):
                self.blocks[action.block_id].takes_tasks = False
            elif isinstance(action, CancelBlock):
                block, reason = self.blocks[action.block_id], action.reason
                self._at(self.now, partial(self._end, block, reason))

    # Blocks -------------------------------------------------------------------------------------------------

    def _submit(self, asked: SubmitBlock) -> None:
        block = Block(asked.block_id, asked.nodes, asked.cores, asked.walltime_s)
        self.blocks[block.block_id] = block
        wait_s = WAIT_LEAST_S + self._chance.expovariate(1 / WAIT_MEAN_S)
        self._at(self.now + SUBMIT_S, partial(self._tell, BatchAnswered(block.block_id, "1")))
        self._at(self.now + SUBMIT_S + wait_s, partial(self._begin, block))

    def _begin(self, block: Block) -> None:
        if block.is_over:
            return
        block.began_at = self.now
        self.asked_s += block.nodes * block.cores * block.walltime_s
        self._tell(BatchMoved(block.block_id, BatchState.RUNNING))
        self._at(self.now + START_S, partial(self._come_up, block))
        self._at(block.ends_at - RETURN_S, partial(self._end, block, "its time is over"))

    def _come_up(self, block: Block) -> None:
        for number in range(block.nodes if not block.is_over else 0):
            node = Node(f"{block.block_id}/{number}", block.cores)
            block.up.append(node)
            self._tell(NodeServes(block.block_id, number, node.rif_id, block.ends_at))
        self._pull()

    def _end(self, block: Block, reason: str) -> None:
        if block.is_over:
            return
        block.is_over = True
        del self.blocks[block.block_id]
        if block.began_at is not None:
            self.held_s += block.nodes * block.cores * (self.now - block.began_at)
        for node in block.up:
            for one in node.running:
                self._is_ready(one)
        self._tell(BlockGone(block.block_id, reason))
        self._pull()

    # Tasks --------------------------------------------------------------------------------------------------

    def _comes(self, one: Work) -> None:
        self._is_ready(one)
        self._pull()

    def _is_ready(self, one: Work) -> None:
        waiting = self._ready[one.walltime_s, one.cores]
        if not waiting:
            bisect.insort(self._kinds.setdefault(one.cores, []), one.walltime_s)
        waiting.append(one)
        self._say_soon()

    def _pull(self) -> None:
        """Let free cores take the longest tasks that fit."""
        for block in list(self.blocks.values()):
            for node in block.up if block.takes_tasks else ():
                self._pull_node(block, node)

    def _pull_node(self, block: Block, node: Node) -> None:
        while node.free and block.takes_tasks:
            chosen = longest_fit(self._kinds, block.ends_at - RETURN_S - self.now, node.free)
            if chosen is None:
                return
            waiting = self._ready[chosen]
            one = waiting.pop()
            if not waiting:
                del self._ready[chosen]
                walltimes_s = self._kinds[one.cores]
                del walltimes_s[bisect.bisect_left(walltimes_s, one.walltime_s)]
            is_first = not any(other.running for other in block.up)
            node.running[one] = self.now + one.walltime_s
            node.free -= one.cores
            if is_first:
                self._tell(BlockUsed(block.block_id))
            self._at(self.now + one.runtime_s, partial(self._done, block, node, one))
            self._say_soon()

    def _done(self, block: Block, node: Node, one: Work) -> None:
        if block.is_over:
            return  # it was given back
        del node.running[one]
        node.free += one.cores
        self.used_s += one.cores * one.runtime_s
        self._left -= 1
        for other in one.after:
            other.missing -= 1
            if not other.missing:
                self._is_ready(other)
        self._pull_node(block, node)
        if one.after:
            self._pull()
        if not any(other.running for other in block.up):
            self._tell(BlockIdle(block.block_id))
        self._say_soon()

    def _say_soon(self) -> None:
        """Tell the sites once a second what waits and what runs."""
        if self._says_at is None:
            self._says_at = self.now
            self._at(self.now + 1, self._say)

    def _say(self) -> None:
        self._says_at = None
        groups = tuple(
            TaskGroup(walltime_s, cores, 0, len(waiting))
            for (walltime_s, cores), waiting in sorted(self._ready.items())
            if waiting
        )
        self._tell(TaskDemand("campaign", groups, tuple(self._running())))

    def _running(self) -> Iterator[RunningGroup]:
        for block in self.blocks.values():
            for node in block.up:
                for one, until in node.running.items():
                    yield RunningGroup(node.rif_id, max(0.0, until - self.now), one.cores)


def longest_fit(
    kinds: Mapping[int, Sequence[float]], time_left_s: float, cores_left: int
) -> tuple[float, int] | None:
    """Return walltime and cores of the task that a free worker gets, None if none fits."""
    found: tuple[float, int] | None = None
    for cores, walltimes_s in kinds.items():
        place = bisect.bisect_right(walltimes_s, time_left_s) if cores <= cores_left else 0
        if place and (found is None or found < (walltimes_s[place - 1], cores)):
            found = walltimes_s[place - 1], cores
    return found


def shares(works: Callable[[], list[Work]], settings: Mapping[str, object], seeds: int) -> list[float]:
    """Return the shares used of what was asked for and of what was held, and the time; means of some runs."""
    found = []
    for seed in range(seeds):
        queue = Queue(works(), settings, seed)
        done_s = queue.run()
        found.append((queue.used_s / queue.asked_s, queue.used_s / queue.held_s, done_s))
    return [statistics.mean(column) for column in zip(*found, strict=True)]


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="of recorded workflows")
    options = parser.parse_args()
    traces = sorted(options.traces.glob("*.json")) if options.traces else []
    if options.traces and not traces:
        parser.error(f"there is no recorded workflow, *.json, in {options.traces}")
    groups, blocks, rounds, part = (100, 100, 3, 20) if options.small else (1000, 1000, 15, 1)
    figures = Figures(options.json)
    figures.add("blocks.plan_ms", plan_ms(groups, blocks, rounds), "ms")
    figures.add("blocks.sites_ms", sites_ms(groups, blocks, rounds), "ms")
    for name, load in WORKLOADS.items():
        load = evolve(load, copies=load.copies // part, seeds=1 if options.small else load.seeds)
        if traces:
            load = evolve(load, copies=max(1, load.copies // 4), every_s=4 * load.every_s)
        for tight, more in (("", {}), ("_tight", {"parallelism": 1})):
            used, charged, done_s = shares(partial(load.works, traces), SITE | more, load.seeds)
            figures.add(f"blocks.used_share{name}{tight}", used, "of 1")
            figures.add(f"blocks.charged_share{name}{tight}", charged, "of 1")
            figures.add(f"blocks.done_s{name}{tight}", done_s, "s")


if __name__ == "__main__":
    main()
