"""Class queues and hierarchy: RM-1 to RM-5."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gspc_trio.components.rm.events import Added, JobJoined, Removed
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Refuse, Release
from gspc_trio.components.rm.state import Limits
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.records.facts import GrantChanged, ResourceChanged
from tests.components.rm.support import GPU, NODE, SOCKET, Driver, any_of, cores, host


def counts(driver: Driver, name: str) -> tuple[int, int, int, int]:
    entry = driver.rm.status().classes[name]
    return entry.total, entry.free, entry.held, entry.blocked


def test_a_pair_of_acquire_and_release_says_exactly_this() -> None:
    rm = ResourceManager(7)
    added = [ResourceChanged(0.5, f"r1.core{index}", "core", "added", "here") for index in range(2)]
    assert rm.handle(Added(cores(2), "here"), 0.5) == added
    assert rm.handle(JobJoined("a"), 1.0) == []
    assert rm.handle(Demand("a", CORE, 1, NO_GRANT), 2.0) == [
        Grant("a", CORE, (7, 1), ("r1.core0",)),
        GrantChanged(2.0, "a", (7, 1), ("r1.core0",), True),
    ]
    assert rm.handle(Release("a", (7, 1)), 3.0) == [GrantChanged(3.0, "a", (7, 1), ("r1.core0",), False)]


def test_without_hierarchy_a_queue_is_a_round_robin() -> None:
    driver = Driver(*cores(3))
    order = []
    for _ in range(7):
        order.append(driver.take("a"))
        driver.release("a")
    assert order == [(f"r1.core{index % 3}",) for index in range(7)]


def test_what_is_released_first_is_given_first() -> None:
    driver = Driver(*cores(3))
    driver.demand("a", 3)
    for name in ("r1.core2", "r1.core0", "r1.core1"):
        driver.release("a", name)
    driver.demand("a", 3)
    assert driver.granted("a") == [("r1.core2",), ("r1.core0",), ("r1.core1",)]


def test_a_held_core_blocks_its_ancestors_but_not_its_siblings() -> None:
    driver = Driver(*host("r1"), *host("r2"))
    assert driver.take("a") == ("r1.core0",)
    assert counts(driver, "core") == (8, 7, 1, 0)
    assert counts(driver, "socket") == (4, 3, 0, 1)
    assert counts(driver, "node") == (2, 1, 0, 1)
    assert driver.take("a", NODE) == ("r2.node",)
    assert driver.take("a", SOCKET) == ("r1.socket1",)
    assert driver.take("a") == ("r1.core1",)
    assert driver.take("b") is None


def test_a_held_node_blocks_all_below_it_and_nothing_else() -> None:
    driver = Driver(*host("r1"), *host("r2"))
    assert driver.take("a", NODE) == ("r1.node",)
    assert counts(driver, "core") == (8, 4, 0, 4)
    assert counts(driver, "socket") == (4, 2, 0, 2)
    driver.demand("b", 9)
    assert driver.granted("b") == [(f"r2.core{index}",) for index in range(4)]


def test_erratum_an_ancestor_is_free_only_when_none_of_its_descendants_is_held() -> None:
    driver = Driver(*host("r1"))
    driver.demand("a", 3)
    driver.demand("b", 1, NODE)
    driver.release("a", "r1.core0")
    assert counts(driver, "socket") == (2, 0, 0, 2), "core1 and core2 are still held"
    driver.release("a", "r1.core1")
    assert counts(driver, "socket") == (2, 1, 0, 1)
    assert counts(driver, "node") == (1, 0, 0, 1)
    assert driver.granted("b") == []
    driver.release("a", "r1.core2")
    assert driver.granted("b") == [("r1.node",)]


def test_cores_of_a_released_node_rejoin_at_the_back_together_in_their_order() -> None:
    driver = Driver(*host("r1"), *host("r2"))
    driver.take("a", NODE)
    driver.demand("b", 4)
    assert driver.take("b") is None, "all of r1 are parked at its node by now"
    driver.demand("b", 0)
    driver.release("b", "r2.core3")
    driver.release("a", "r1.node")
    driver.release("b", "r2.core0")
    order = [driver.take("a") for _ in range(6)]
    assert order == [
        ("r2.core3",), ("r1.core0",), ("r1.core1",), ("r1.core2",), ("r1.core3",), ("r2.core0",),
    ]  # fmt: skip


def test_a_gpu_below_two_sockets_is_blocked_by_either_and_blocks_both() -> None:
    gpu = Resource("r1.gpu0", "gpu", ("r1.socket0", "r1.socket1"))
    driver = Driver(*host("r1"), gpu)
    assert driver.take("a", SOCKET) == ("r1.socket0",)
    assert counts(driver, "gpu") == (1, 0, 0, 1)
    assert driver.take("a", SOCKET) == ("r1.socket1",)
    driver.demand("b", 1, GPU)
    driver.release("a", "r1.socket0")
    assert driver.granted("b") == [], "the other socket still blocks it"
    driver.release("a", "r1.socket1")
    assert driver.granted("b") == [("r1.gpu0",)]
    assert counts(driver, "socket") == (2, 0, 0, 2)
    assert counts(driver, "core") == (4, 4, 0, 0)


def test_resources_added_while_requests_wait_are_given_to_them() -> None:
    driver = Driver(*cores(1))
    driver.take("a")
    driver.demand("b", 2, Shape(wait=True))
    actions = driver.rm.handle(Added(cores(2, "r2"), "far"), 0.0)
    driver.rm.check()
    assert actions == [
        ResourceChanged(0.0, "r2.core0", "core", "added", "far"),
        ResourceChanged(0.0, "r2.core1", "core", "added", "far"),
        Grant("b", Shape(wait=True), (1, 2), ("r2.core0",)),
        GrantChanged(0.0, "b", (1, 2), ("r2.core0",), True),
        Grant("b", Shape(wait=True), (1, 3), ("r2.core1",)),
        GrantChanged(0.0, "b", (1, 3), ("r2.core1",), True),
    ]


def test_children_may_be_added_to_a_parent_that_is_there_in_any_order() -> None:
    driver = Driver(Resource("r1.node", "node"))
    late = (Resource("r1.core0", "core", ("r1.socket0",)), Resource("r1.socket0", "socket", ("r1.node",)))
    driver.send(Added(late))
    assert driver.take("a") == ("r1.core0",)
    assert counts(driver, "node") == (1, 0, 0, 1)


def lines_run(rm: ResourceManager, event: Any) -> tuple[int, list[Any]]:
    """Return how many lines of the package one event runs, and its actions."""
    count = 0

    def trace(frame: Any, _kind: str, _argument: Any) -> Any:
        nonlocal count
        if "gspc_trio" not in frame.f_code.co_filename:
            return None
        count += 1
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        actions = rm.handle(event, 0.0)
    finally:
        sys.settrace(previous)
    return count, actions


def effort(per_socket: int, hosts: int) -> list[int]:
    """Return how much work each step of a story takes, in lines run."""
    rm = ResourceManager(1)
    for index in range(hosts):
        rm.handle(Added(host(f"r{index}", 2, per_socket)), 0.0)
    rm.handle(JobJoined("a"), 0.0)
    rm.handle(JobJoined("b"), 0.0)
    steps: list[Any] = []
    for number in range(1, hosts + 1):
        steps.append(Demand("a", NODE, 1, (1, number - 1)))
    steps += [Demand("b", CORE, 1, NO_GRANT), Release("a", (1, 1)), Release("b", (1, hosts + 1))]
    steps += [Demand("b", NODE, 1, (1, hosts + 1)), Release("b", (1, hosts + 2)), Release("a", (1, 2))]
    return [lines_run(rm, step)[0] for step in steps]


def test_no_operation_costs_more_when_there_is_more_below_what_it_takes() -> None:
    assert effort(per_socket=2, hosts=4) == effort(per_socket=300, hosts=4)


def effort_beside_a_drain(per_socket: int) -> int:
    """Return how much work a pair takes while all of another host is held and to leave, in lines run."""
    rm = ResourceManager(1)
    for name, size in (("r1", per_socket), ("r2", 2)):
        rm.handle(Added(host(name, 2, size)), 0.0)
    rm.handle(JobJoined("a"), 0.0)
    rm.handle(JobJoined("b"), 0.0)
    rm.handle(Demand("a", CORE, 2 * per_socket, NO_GRANT), 0.0)
    rm.handle(Removed(("r1.node",), "wait"), 0.0)
    taken, _ = lines_run(rm, Demand("b", CORE, 1, NO_GRANT))
    return taken + lines_run(rm, Release("b", (1, 2 * per_socket + 1)))[0]


def test_a_pair_costs_no_more_when_much_is_to_leave() -> None:
    assert effort_beside_a_drain(2) == effort_beside_a_drain(300)


def effort_beside_waiting(shapes: int) -> int:
    """Return how much work a pair takes while so many shapes wait for what is held, in lines run."""
    rm = ResourceManager(1, Limits(recall_after_s=1000, reserve_after_s=1000, patience_s=1000))
    rm.handle(Added((*cores(4, "r1"), *cores(4, "r2"))), 0.0)
    for job in "abc":
        rm.handle(JobJoined(job), 0.0)
    for core in range(4):
        rm.handle(Demand("a", any_of("core", f"r1.core{core}", hard=True), 1, NO_GRANT), 0.0)
    for number in range(shapes):
        wanted = any_of("core", f"r1.core{number % 4}", f"r9.core{number}", hard=bool(number % 2))
        rm.handle(Demand("b", wanted, 3, NO_GRANT), 0.0)
    for number in (5, 6):
        taken, _ = lines_run(rm, Demand("c", CORE, 1, (1, number - 1) if number > 5 else NO_GRANT))
        taken += lines_run(rm, Release("c", (1, number)))[0]
    return taken


def test_a_pair_costs_no_more_when_many_wait_for_what_they_prefer() -> None:
    assert effort_beside_waiting(20) == effort_beside_waiting(400)


def effort_beside_gangs(shapes: int, reserve_after_s: float) -> int:
    """Return how much work a release takes while so many lists of different shapes wait, in lines run."""
    rm = ResourceManager(1, Limits(recall_after_s=1000, reserve_after_s=reserve_after_s))
    rm.handle(Added((*cores(20, "r1"), *host("r2"))), 0.0)
    for job in "ab":
        rm.handle(JobJoined(job), 0.0)
    rm.handle(Demand("a", CORE, 24, NO_GRANT), 0.0)
    for number in range(shapes):
        needs = (Requirement("core"),) * (6 + number % 7) + (Requirement("socket"),) * (number % 2)
        rm.handle(Demand("b", Shape(needs, estimate_s=float(2**number)), 1, NO_GRANT), 0.0)
    rm.handle(Tick(), 1.0)
    assert (rm.status().reserved is not None) == (reserve_after_s < 1)
    before = [rm.handle(Release("a", (1, number)), 1.0) for number in (1, 2, 3, 4)]
    assert sum(map(len, before)) == 4, "nothing is given"
    return lines_run(rm, Release("a", (1, 5)))[0]


@pytest.mark.parametrize("reserve_after_s", [0.5, 1000.0])
def test_a_release_tries_no_list_that_it_cannot_complete(reserve_after_s: float) -> None:
    few, many = effort_beside_gangs(20, reserve_after_s), effort_beside_gangs(600, reserve_after_s)
    assert few == many


def test_a_class_that_is_not_there_is_refused_at_once_with_what_there_is() -> None:
    driver = Driver(*host("r1"))
    reason = "asked for gpu, but there is no gpu; there is: 1 node, 2 socket, 4 core"
    assert driver.demand("a", 1, GPU) == [Refuse("a", GPU, reason, "unknown class")]
    assert driver.rm.status().jobs["a"].demand == {}
    assert "gpu" not in driver.rm.status().classes


def test_the_state_has_so_few_attributes_that_they_are_looked_up_fast() -> None:
    assert len(vars(Driver(*cores(1)).rm._state)) < 30, "with 30, each grant takes 5 % longer"
