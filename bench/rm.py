"""The resource manager through its event interface, at a million resources.

    python bench/rm.py [--json] [--small] [--cpu]

A pair is a Demand with a credit of one, the Grant that answers it, and its Release; the time to make
the events is counted, too. Each rate is the median of five rounds.

``rm.build_s``                    10,000 nodes of 4 sockets of 25 cores, added node by node
``rm.bytes_per_resource``         memory of that
``rm.core_pairs_per_s``           cores, one at a time
``rm.node_pairs_per_s``           nodes, one at a time
``rm.mixed_pairs_per_s``          90 % cores, 5 % sockets, 5 % nodes, up to 2,000 held at a time
``rm.coallocation_pairs_per_s``   16 cores at once
``rm.preference_pairs_per_s``     one core, with 8 preferred ids, some of them nodes
``rm.adversarial_pairs_per_s``    one job takes many nodes and gives them back while another takes cores
``rm.flatness``                   cost of a core pair there over that at 1,050 resources
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from figures import Figures, options_parser

from gspc_trio.components.rm.events import Added, JobJoined
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.core.ids import NO_GRANT, GrantId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape

NODE = Shape((Requirement("node"),))
SOCKET = Shape((Requirement("socket"),))
GANG = Shape((Requirement("core"),) * 16)
SOCKETS = 4
CORES = 25
ROUNDS = 5


def now() -> float:
    """Return seconds on the wall, or of this process's own work where the machine does other work, too."""
    return time.process_time() if "--cpu" in sys.argv else time.perf_counter()


class Client:
    """A job that knows what it has received."""

    def __init__(self, rm: ResourceManager, job: str) -> None:
        self.rm = rm
        self.job = job
        self.seen: GrantId = NO_GRANT
        rm.handle(JobJoined(job), 0.0)

    def take(self, shape: Shape) -> GrantId:
        """Demand one grant, which must come at once."""
        grant = self.rm.handle(Demand(self.job, shape, 1, self.seen), 0.0)[0]
        assert grant.__class__ is Grant
        self.seen = grant.grant_id
        return self.seen

    def give_back(self, grant_id: GrantId) -> None:
        """Release a grant."""
        self.rm.handle(Release(self.job, grant_id), 0.0)

    def pairs(self, shape: Shape, count: int) -> float:
        """Return pairs per second of one grant at a time."""
        handle, job, seen = self.rm.handle, self.job, self.seen
        start = now()
        for _ in range(count):
            grant: Any = handle(Demand(job, shape, 1, seen), 0.0)[0]
            seen = grant.grant_id
            handle(Release(job, seen), 0.0)
        elapsed_s = now() - start
        self.seen = seen
        return count / elapsed_s


def add_node(rm: ResourceManager, index: int) -> None:
    """Add one node with all that is below it."""
    node = f"r{index}.node"
    found = [Resource(node, "node")]
    above = (node,)
    for socket in range(SOCKETS):
        name = f"r{index}.socket{socket}"
        found.append(Resource(name, "socket", above))
        parents = (name,)
        first = socket * CORES
        found += [Resource(f"r{index}.core{first + core}", "core", parents) for core in range(CORES)]
    rm.handle(Added(tuple(found)), 0.0)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def build(nodes: int) -> tuple[ResourceManager, float, float]:
    """Return a resource manager, the seconds it took to build and its bytes per resource."""
    gc.collect()
    before = resident_bytes()
    rm = ResourceManager(1)
    start = now()
    for index in range(nodes):
        add_node(rm, index)
    elapsed_s = now() - start
    gc.collect()
    taken = resident_bytes() - before
    return rm, elapsed_s, taken / (nodes * (1 + SOCKETS + SOCKETS * CORES))


def mixed(client: Client, count: int, window: int) -> float:
    """Return pairs per second of a mix of classes, the oldest given back first."""
    rng = random.Random(1)
    shapes = rng.choices((CORE, SOCKET, NODE), (90, 5, 5), k=count)
    held: deque[GrantId] = deque()
    start = now()
    for shape in shapes:
        held.append(client.take(shape))
        if len(held) > window:
            client.give_back(held.popleft())
    while held:
        client.give_back(held.popleft())
    return count / (now() - start)


def preferences(client: Client, count: int, nodes: int) -> float:
    """Return pairs per second with 8 preferred ids each."""
    rng = random.Random(2)
    shapes = []
    for _ in range(512):
        names = [f"r{rng.randrange(nodes)}.core{rng.randrange(SOCKETS * CORES)}" for _ in range(6)]
        names += [f"r{rng.randrange(nodes)}.node", f"r{rng.randrange(nodes)}.socket{rng.randrange(SOCKETS)}"]
        rng.shuffle(names)
        shapes.append(Shape((Requirement("core", tuple(names)),)))
    held: deque[GrantId] = deque()
    start = now()
    for index in range(count):
        held.append(client.take(shapes[index % len(shapes)]))
        if len(held) > 256:
            client.give_back(held.popleft())
    while held:
        client.give_back(held.popleft())
    return count / (now() - start)


def adversarial(client: Client, other: Client, count: int, nodes: int) -> float:
    """Return pairs per second when nearly all nodes are taken and given back while cores are asked for."""
    many = nodes * 9 // 10
    cores = 64
    pairs = 0
    start = now()
    while pairs < count:
        taken = [client.take(NODE) for _ in range(many)]
        some = [other.take(CORE) for _ in range(cores)]
        for grant_id in taken[::2]:
            client.give_back(grant_id)
        more = [other.take(CORE) for _ in range(cores)]
        for grant_id in taken[1::2]:
            client.give_back(grant_id)
        for grant_id in (*some, *more):
            other.give_back(grant_id)
        pairs += many + 2 * cores
    return pairs / (now() - start)


def main() -> None:
    """Print the figures."""
    parser = options_parser(__doc__)
    parser.add_argument("--cpu", action="store_true", help="seconds of CPU time instead of those on the wall")
    options = parser.parse_args()
    figures = Figures(options.json)
    nodes, count = (50, 2_000) if options.small else (10_000, 200_000)
    gc.set_threshold(100_000, 50, 1_000)
    rm, build_s, bytes_each = build(nodes)
    gc.freeze()
    figures.add("rm.build_s", build_s, "s")
    figures.add("rm.bytes_per_resource", bytes_each, "bytes")
    client, other = Client(rm, "a"), Client(rm, "b")
    few = Client(build(10)[0], "a")
    rates = [(few.pairs(CORE, count), client.pairs(CORE, count)) for _ in range(ROUNDS)]
    figures.add("rm.core_pairs_per_s", median(many for _, many in rates), "pairs/s")
    window = min(2_000, nodes // 5)
    runs: tuple[tuple[str, Callable[[], float]], ...] = (
        ("rm.node_pairs_per_s", lambda: client.pairs(NODE, count)),
        ("rm.mixed_pairs_per_s", lambda: mixed(client, count, window)),
        ("rm.coallocation_pairs_per_s", lambda: client.pairs(GANG, count // 10)),
        ("rm.preference_pairs_per_s", lambda: preferences(client, count // 4, nodes)),
        ("rm.adversarial_pairs_per_s", lambda: adversarial(client, other, count // 2, nodes)),
    )
    for name, run in runs:
        figures.add(name, median(run() for _ in range(ROUNDS)), "pairs/s")
    figures.add("rm.flatness", median(one / many for one, many in rates), "ratio")


if __name__ == "__main__":
    main()
