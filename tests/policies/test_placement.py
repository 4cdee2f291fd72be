"""Placement policies: pure functions that rate hosts (ASP-6)."""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.errors import BadPlacement
from gspc_trio.components.rm.events import Added, JobGone, JobJoined, JobWeighed
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.core.ids import NO_GRANT, GrantId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.policies.placement import PLACEMENTS, Offer, compact, fair, rating_of

NODE = Shape((Requirement("node"),))
TOGETHER = Shape((Requirement(),) * 2, same_host=True)


def offer(free: int, total: int, free_memory: int = 0, memory: int = 0) -> Offer:
    return Offer((free, free_memory), (total, memory), (8, 100))


IDLE, HALF = offer(4, 4), offer(2, 4)
IDLE_LARGE, BUSY_LARGE = offer(8, 8), offer(1, 8)


def test_compact_takes_the_host_with_least_left() -> None:
    assert compact(BUSY_LARGE) < compact(HALF) < compact(IDLE) < compact(IDLE_LARGE)
    assert compact(offer(2, 4, 10, 100)) < compact(offer(2, 4, 90, 100)), "memory counts as cores do"
    assert compact(offer(1, 8, 100, 100)) > compact(offer(2, 4, 50, 100))


def test_fair_prefers_idle_small_hosts_to_busy_large_ones() -> None:
    assert fair(IDLE) < fair(IDLE_LARGE) < fair(HALF) < fair(BUSY_LARGE)
    assert fair(offer(4, 4, 10, 100)) > fair(HALF), "one whose memory is in use is not idle"


def turns(placement: str, loads: list[float]) -> str:
    due, found = 0.0, ""
    for load in loads:
        rating, due = rating_of(placement, load, due)
        found += "." if rating is None else rating.__name__[0]
    return found


def test_the_share_of_grants_that_goes_by_compact_is_the_load_and_they_are_interleaved() -> None:
    assert turns("progressive", [0.5] * 8) == "fcfcfcfc"
    assert turns("progressive", [0.25] * 8) == "fffcfffc"
    assert turns("progressive", [0.1] * 30).count("c") == 3
    assert turns("progressive", [number / 8 for number in range(8)]) == "ffffcfcc"
    assert turns("progressive", [0.0, 1.0]) == "fc"
    assert [turns(name, [0.5] * 2) for name in ("fifo", "compact", "fair")] == ["..", "cc", "ff"]


def hosts(*names: str, memory_bytes: int = 0) -> tuple[Resource, ...]:
    found = []
    for name in names:
        found.append(Resource(f"{name}.node", "node", memory_bytes=memory_bytes))
        found += [Resource(f"{name}.core{index}", "core", (f"{name}.node",)) for index in range(4)]
    return tuple(found)


class Job:
    """A job that says where each of its grants comes from, by the number of the host."""

    def __init__(self, rm: ResourceManager, name: str, placement: str = "") -> None:
        self.rm, self.name, self.seen = rm, name, NO_GRANT
        self.held: dict[GrantId, str] = {}
        rm.handle(JobJoined(name, placement=placement), 0.0)

    def take(self, count: int, shape: Shape = CORE) -> str:
        found = []
        for _ in range(count):
            actions = self.rm.handle(Demand(self.name, shape, 1, self.seen), 0.0)
            grant = next(action for action in actions if isinstance(action, Grant))
            self.seen = grant.grant_id
            self.held[self.seen] = grant.resources[0]
            found.append(grant.resources[0][1])
            self.rm.check()
        return "".join(found)

    def give_back(self, names: list[str]) -> None:
        by_name = {resource: grant_id for grant_id, resource in self.held.items()}
        for name in names:
            self.rm.handle(Release(self.name, by_name[name]), 0.0)
            del self.held[by_name[name]]
        self.rm.check()


def mixed(placement: str = "fifo", memory_bytes: int = 0) -> tuple[ResourceManager, Job]:
    """Three hosts with four cores of which one of r1 is in use; the queue has the others in turn."""
    rm = ResourceManager(1, placement=placement)
    for name in ("r1", "r2", "r3"):
        rm.handle(Added(hosts(name, memory_bytes=memory_bytes)), 0.0)
    before = Job(rm, "before", "fifo")
    before.take(12)
    turn = [f"{name}.core{index}" for index in range(4) for name in ("r1", "r2", "r3")]
    before.give_back(turn[1:])
    return rm, before


ORDER = {"fifo": "2312", "compact": "1112", "fair": "2312", "progressive": "2312"}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_where_resources_come_from_is_said_for_all_jobs_or_for_one(placement: str) -> None:
    rm, _ = mixed(placement)
    assert Job(rm, "a").take(4) == ORDER[placement]
    rm, before = mixed()
    rm.handle(JobWeighed("before", 1.0, placement="compact"), 0.0)
    job = Job(rm, "a", placement)
    assert job.take(2) == ORDER[placement][:2]
    rm.handle(JobGone("a", fenced=True), 0.0)
    assert before.take(1) == "1", "each job has its own"
    rm.handle(JobGone("before", fenced=True), 0.0)
    rm.check()
    assert type(rm._state.pool).__name__ == "Pool", "nothing is counted when nobody asks"


@pytest.mark.parametrize(("placement", "order"), [("compact", "2221"), ("fair", "1321"), ("fifo", "1111")])
def test_requests_with_memory_go_by_cores_and_memory(placement: str, order: str) -> None:
    rm = ResourceManager(1)
    for name in ("r1", "r2", "r3"):
        rm.handle(Added(hosts(name, memory_bytes=100)), 0.0)
    only_there = Requirement("core", ("r2.node",), True)
    Job(rm, "other").take(1, Shape((only_there,), memory_bytes=20))
    assert Job(rm, "a", placement).take(4, Shape(memory_bytes=20)) == order


def test_memory_in_use_makes_a_host_full() -> None:
    rm = ResourceManager(1)
    for name in ("r1", "r2"):
        rm.handle(Added(hosts(name, memory_bytes=100)), 0.0)
    other = Job(rm, "other")
    for host, size in (("r1", 0), ("r2", 80)):
        other.take(1, Shape((Requirement("core", (f"{host}.node",), True),), memory_bytes=size))
    assert Job(rm, "a", "compact").take(2) == "22"
    assert Job(rm, "b", "fair").take(2) == "11"


def test_several_resources_of_one_host_come_from_where_the_placement_says() -> None:
    for placement, order in (("compact", "12"), ("fair", "23")):
        rm, _ = mixed()
        assert Job(rm, "a", placement).take(2, TOGETHER) == order


def test_progressive_spreads_at_first_and_fills_up_when_most_is_in_use() -> None:
    assert Job(mixed()[0], "a", "progressive").take(11) == "23121312323"


def test_a_placement_never_keeps_what_is_free_from_being_given() -> None:
    for placement in PLACEMENTS:
        rm = ResourceManager(1, placement=placement)
        rm.handle(Added(hosts("r1")), 0.0)
        rm.handle(JobJoined("a"), 0.0)
        rm.handle(Demand("a", CORE, 1, NO_GRANT), 0.0)
        rm.handle(Added(hosts("r2")), 0.0)
        actions = rm.handle(Demand("a", NODE, 1, (1, 1)), 0.0)
        assert actions[0] == Grant("a", NODE, (1, 2), ("r2.node",))
        assert len(rm.handle(Demand("a", CORE, 9, (1, 2)), 0.0)) == 6
        rm.check()


def test_a_placement_that_there_is_not_is_refused_and_changes_nothing() -> None:
    with pytest.raises(BadPlacement, match=r"'best': there is no such placement; there are: fifo, compact"):
        ResourceManager(1, placement="best")
    rm = ResourceManager(1)
    with pytest.raises(BadPlacement, match=r"job a asks for the placement 'fari': .*did you mean 'fair'"):
        rm.handle(JobJoined("a", placement="fari"), 0.0)
    rm.handle(JobJoined("a", placement="fair"), 0.0)
    rm.check()
