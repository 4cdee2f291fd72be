"""RM-12: the document's list of troubles (GSPC19 2.4.2, 3.4).

Each has a pair of tests: the naive way shows the trouble, ours does not.
"""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.events import Added, JobJoined
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from tests.components.rm.support import NODE, SOCKET, Driver, cores, host, several

TWO = several("core", "core")


class Naive:
    """The document's RM without cures: queues of free resources, an acquire at a time, lists one by one."""

    def __init__(self, *resources: Resource) -> None:
        self.parents = {r.resource_id: r.parents for r in resources}
        self.classes = {r.resource_id: r.resource_class for r in resources}
        self.free = list(self.parents)
        self.held: dict[str, list[str]] = {}

    def above(self, name: str) -> set[str]:
        return {name}.union(*(self.above(parent) for parent in self.parents[name]))

    def acquire(self, job: str, resource_class: str) -> str | None:
        """Return the first free one of the class, or None where the document's call would block."""
        for name in self.free:
            used = {other for names in self.held.values() for other in names}
            blocked = any(other in self.above(name) or name in self.above(other) for other in used)
            if self.classes[name] == resource_class and not blocked:
                self.free.remove(name)
                self.held.setdefault(job, []).append(name)
                return name
        return None

    def release(self, job: str) -> None:
        self.free.append(self.held[job].pop(0))


# Deadlock: a set of resources in a single call --------------------------------------------------------------


def test_naive_lists_deadlock() -> None:
    rm = Naive(*cores(2))
    assert rm.acquire("a", "core")
    assert rm.acquire("b", "core")
    assert rm.acquire("a", "core") is None
    assert rm.acquire("b", "core") is None, "each waits for what the other has, for ever"


def test_lists_do_not_deadlock() -> None:
    driver = Driver(*cores(2))
    assert driver.take("a", TWO) == ("r1.core0", "r1.core1")
    assert driver.take("b", TWO) is None
    assert driver.release("a") == [Grant("b", TWO, (1, 2), ("r1.core0", "r1.core1"))]


# Livelock: give back and try again --------------------------------------------------------------------------


def test_naive_lists_that_give_back_and_try_again_livelock() -> None:
    rm = Naive(*cores(2))
    for _ in range(1000):
        for job in ("a", "b"):
            assert rm.acquire(job, "core")
        assert not any(rm.acquire(job, "core") for job in ("a", "b"))
        for job in ("a", "b"):
            rm.release(job)


def test_lists_do_not_livelock() -> None:
    driver = Driver(*cores(2))
    done = []
    driver.demand("a", 1, TWO)
    driver.demand("b", 1, TWO)
    while any(driver.held.values()):
        job = next(job for job in ("a", "b") if driver.granted(job))
        done.append(job)
        driver.release(job)
    assert done == ["a", "b"]


# Starvation of a list by a stream of single ones (3.4) ------------------------------------------------------


def test_naive_lists_starve_when_all_they_need_is_never_free_at_once() -> None:
    rm = Naive(*cores(2))
    rm.acquire("small", "core")
    for _ in range(1000):
        assert rm.acquire("small", "core"), "tasks overlap: a new one begins before the old one ends"
        assert len(rm.free) < 2, "never both at once"
        rm.release("small")


def test_lists_do_not_starve() -> None:
    driver = Driver(*cores(2), reserve_after_s=0.5, recall_after_s=1000)
    driver.demand("a", 2)
    driver.demand("b", 1, TWO)
    for _ in range(10):
        driver.demand("a", 2)
        driver.wait(0.1)
        if driver.granted("a"):
            driver.release("a")
    assert driver.granted("b") != []


# Class conflict: cores starve nodes -------------------------------------------------------------------------


def test_naive_cores_starve_nodes() -> None:
    rm = Naive(*host("r1"))
    rm.acquire("small", "core")
    for _ in range(1000):
        assert rm.acquire("small", "core")
        assert rm.acquire("large", "node") is None
        rm.release("small")


@pytest.mark.parametrize("wanted", [NODE, SOCKET])
def test_cores_do_not_starve_larger_classes(wanted: Shape) -> None:
    driver = Driver(*host("r1"), reserve_after_s=0.5, recall_after_s=1000)
    driver.demand("a", 4)
    driver.demand("b", 1, wanted)
    for _ in range(15):
        driver.demand("a", 4)
        driver.wait(0.1)
        if driver.granted("a"):
            driver.release("a")
    assert driver.granted("b") != []


def test_nodes_do_not_starve_cores_either() -> None:
    driver = Driver(*host("r1"), reserve_after_s=0.5, recall_after_s=1000)
    driver.demand("a", 2, NODE)
    driver.now = 1.0
    driver.demand("b", 1)
    driver.now = 2.0
    driver.demand("a", 9, NODE)
    assert driver.release("a")[0].job == "a", "it has waited longer"
    assert driver.release("a") == [Grant("b", CORE, (1, 3), ("r1.core0",))]


# I/O, then compute: one blocking acquire after the other ----------------------------------------------------

IO = Shape((Requirement("io"),))
RESOURCES = (Resource("r1.io0", "io"), *cores(4))


def test_naive_acquires_in_the_order_of_tasks_leave_compute_idle() -> None:
    rm = Naive(*RESOURCES)
    tasks = ["io", "io", "io", "core", "core"]
    started = []
    for task in tasks:
        if rm.acquire("a", task) is None:
            break
        started.append(task)
    assert started == ["io"], "two computations could run, but the one thread waits for the second io worker"


def test_demands_of_different_classes_do_not_wait_for_each_other() -> None:
    driver = Driver(*RESOURCES)
    driver.demand("a", 3, IO)
    driver.demand("a", 2)
    assert driver.granted("a") == [("r1.io0",), ("r1.core0",), ("r1.core1",)]


# Fragmentation ----------------------------------------------------------------------------------------------


def scattered() -> tuple[Resource, ...]:
    """Two nodes of two sockets, whose cores come to the queue in turn: what traffic makes of any order."""
    found = [*host("r1"), *host("r2")]
    rank = {"core0": 0, "core2": 1, "core1": 2, "core3": 3}
    return tuple(sorted(found, key=lambda r: rank.get(r.resource_id.partition(".")[2], -1)))


def test_naive_queues_spread_cores_over_all_sockets() -> None:
    rm = Naive(*scattered())
    assert [rm.acquire("a", "core") for _ in range(4)] == ["r1.core0", "r2.core0", "r1.core2", "r2.core2"]
    assert rm.acquire("b", "socket") is None


def test_what_hangs_below_two_that_are_held_counts_once() -> None:
    rm = ResourceManager(1, placement="compact")
    for name in ("r1", "r2"):
        gpu = Resource(f"{name}.gpu", "gpu", (f"{name}.core0", f"{name}.core1"))
        rm.handle(Added((*cores(4, name), gpu)), 0.0)
    rm.handle(JobJoined("a"), 0.0)
    given = [action for action in rm.handle(Demand("a", CORE, 5, NO_GRANT), 0.0) if isinstance(action, Grant)]
    rm.check()
    names = [*(f"r1.core{number}" for number in range(4)), "r2.core0"]
    assert [grant.resources[0] for grant in given] == names


def test_compact_placement_keeps_sockets_and_nodes_whole() -> None:
    rm = ResourceManager(1, placement="compact")
    resources = scattered()
    rm.handle(Added(resources), 0.0)
    for job in ("a", "b"):
        rm.handle(JobJoined(job), 0.0)
    for number in range(4):
        rm.handle(Demand("a", CORE, 1, (1, number) if number else NO_GRANT), 0.0)
    assert rm.handle(Demand("b", NODE, 1, NO_GRANT), 0.0)[0].resources == ("r2.node",)
    for number in (3, 4):
        rm.handle(Release("a", (1, number)), 0.0)
    (grant, _) = rm.handle(Demand("b", SOCKET, 1, (1, 5)), 0.0)
    assert grant.resources == ("r1.socket1",)
