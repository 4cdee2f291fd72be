"""Placement policies: pure functions that rate hosts (ASP-6)."""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.events import Added, JobJoined
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.components.rm.placing import Offer
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.policies.placement import PLACEMENTS, compact, fair, fifo, progressive

NODE = Shape((Requirement("node"),))


def best(policy: str, *offers: Offer) -> Offer:
    return min(offers, key=PLACEMENTS[policy])


IDLE = Offer(free_units=4, total_units=4, load=0.0)
IDLE_LARGE = Offer(free_units=8, total_units=8, load=0.0)
HALF = Offer(free_units=2, total_units=4, load=0.0)
BUSY_LARGE = Offer(free_units=1, total_units=8, load=0.0)


def test_compact_takes_the_host_with_least_left() -> None:
    assert best("compact", IDLE, HALF, BUSY_LARGE, IDLE_LARGE) is BUSY_LARGE
    assert compact(HALF) < compact(IDLE) < compact(IDLE_LARGE)


def test_fair_prefers_idle_small_hosts_to_busy_large_ones() -> None:
    assert best("fair", IDLE_LARGE, HALF, BUSY_LARGE, IDLE) is IDLE
    assert fair(IDLE) < fair(IDLE_LARGE) < fair(HALF) < fair(BUSY_LARGE)


def test_progressive_is_fair_while_there_is_room_and_compact_when_there_is_little() -> None:
    def at(load: float) -> list[Offer]:
        return [Offer(free, 4, load) for free in (4, 2, 1)]

    assert min(at(0.1), key=progressive).free_units == 4
    assert min(at(0.9), key=progressive).free_units == 1


def test_fifo_has_no_opinion() -> None:
    assert {fifo(offer) for offer in (IDLE, HALF, BUSY_LARGE, IDLE_LARGE)} == {0.0}


def hosts(*names: str) -> tuple[Resource, ...]:
    found = []
    for name in names:
        found.append(Resource(f"{name}.node", "node"))
        found += [Resource(f"{name}.core{index}", "core", (f"{name}.node",)) for index in range(4)]
    return tuple(found)


def after_some_traffic(policy: str | None) -> list[str]:
    """Return where four cores come from when the queue's order is mixed and one core of r1 is in use."""
    rm = ResourceManager(1, placement=None if policy is None else PLACEMENTS[policy])
    for name in ("r1", "r2", "r3"):
        rm.handle(Added(hosts(name)), 0.0)
    rm.handle(JobJoined("a"), 0.0)
    taken = [a for a in rm.handle(Demand("a", CORE, 12, NO_GRANT), 0.0) if isinstance(a, Grant)]
    by_name = {grant.resources[0]: grant.grant_id for grant in taken}
    for index in range(4):
        for name in ("r1", "r2", "r3"):
            if (name, index) != ("r1", 0):
                rm.handle(Release("a", by_name[f"{name}.core{index}"]), 0.0)
    rm.check()
    actions = rm.handle(Demand("a", CORE, 4, (1, 12)), 0.0)
    rm.check()
    return [action.resources[0] for action in actions if isinstance(action, Grant)]


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (None, ["r2.core0", "r3.core0", "r1.core1", "r2.core1"]),
        ("fifo", ["r2.core0", "r3.core0", "r1.core1", "r2.core1"]),
        ("compact", ["r1.core1", "r1.core2", "r1.core3", "r2.core0"]),
        ("fair", ["r2.core0", "r3.core0", "r1.core1", "r2.core1"]),
        ("progressive", ["r2.core0", "r3.core0", "r1.core1", "r2.core1"]),
    ],
)
def test_where_resources_come_from(policy: str | None, order: list[str]) -> None:
    assert after_some_traffic(policy) == order


def test_progressive_fills_up_hosts_when_most_is_in_use() -> None:
    rm = ResourceManager(1, placement=progressive)
    for name in ("r1", "r2", "r3"):
        rm.handle(Added(hosts(name)), 0.0)
    rm.handle(JobJoined("a"), 0.0)
    rm.handle(Demand("a", Shape((Requirement("node", ("r1.node",)),)), 1, NO_GRANT), 0.0)
    seen = (1, 1)
    order = []
    for _ in range(7):
        (grant, _) = rm.handle(Demand("a", CORE, 1, seen), 0.0)
        seen = grant.grant_id
        order.append(grant.resources[0].partition(".")[0])
    rm.check()
    assert order == ["r2", "r3", "r2", "r2", "r2", "r3", "r3"], "spread at first, then packed"


def test_a_policy_never_keeps_what_is_free_from_being_given() -> None:
    for policy in PLACEMENTS.values():
        rm = ResourceManager(1, placement=policy)
        rm.handle(Added(hosts("r1")), 0.0)
        rm.handle(JobJoined("a"), 0.0)
        rm.handle(Demand("a", CORE, 1, NO_GRANT), 0.0)
        rm.handle(Added(hosts("r2")), 0.0)
        actions = rm.handle(Demand("a", NODE, 1, (1, 1)), 0.0)
        assert actions[0] == Grant("a", NODE, (1, 2), ("r2.node",))
        assert len(rm.handle(Demand("a", CORE, 9, (1, 2)), 0.0)) == 6
        rm.check()
