"""Several resource managers, each with hosts of its own: who gets which host and which job (ASP-11)."""

from __future__ import annotations

import pytest

from gspc_trio.components.managers.messages import ManagerDown, ManagerSaid, ManagerUp, TellManager
from gspc_trio.components.managers.partitions import LOOK_S, Partitions
from gspc_trio.components.rm.events import (
    Added,
    Advanced,
    Claimed,
    Coming,
    JobGone,
    JobJoined,
    Removed,
    Settled,
)
from gspc_trio.components.rm.messages import Demand, Grant, Release, Revoke, Revoked
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.policies.partitions import HostMove, HostView, PartitionView, WantView, plan_moves, roomiest

NODE = Shape((Requirement("node"),))
TWO_NODES = Shape((Requirement("node"), Requirement("node")))


def host(name: str) -> Added:
    node = Resource(f"{name}.node", "node")
    return Added((node, Resource(f"{name}.core0", "core", (node.resource_id,))), name)


def coming(name: str) -> Coming:
    return Coming(name, host(name).resources, name)


def two_managers() -> Partitions:
    """Return two managers that are there, each with a host."""
    managers = Partitions(2, 7)
    for number in (0, 1):
        managers.handle(ManagerUp(number), 0.0)
    for number, name in enumerate(("r1", "r2")):
        managers.handle(host(name), 0.0)
        managers.handle(ManagerSaid(number, RmAnswered(host(name))), 0.0)
    return managers


def test_each_host_goes_to_the_manager_with_the_fewest_and_others_may_wait_for_it():
    managers = Partitions(2, 7)
    assert managers.handle(ManagerUp(0), 0.0) == []
    assert managers.handle(ManagerUp(1), 0.0) == []
    assert managers.handle(host("r1"), 0.0) == [
        TellManager(0, Advanced((7, 0))),
        TellManager(0, host("r1")),
    ]
    assert managers.handle(ManagerSaid(0, RmAnswered(host("r1"))), 0.0) == [
        RmAnswered(host("r1")),
        TellManager(0, Settled("r1")),
        TellManager(1, coming("r1")),
    ]
    assert managers.handle(host("r2"), 0.0)[1] == TellManager(1, host("r2"))
    assert [managers.hosts_of(number) for number in (0, 1)] == [["r1"], []], "it has not taken r2 in yet"


def test_a_job_goes_where_there_is_most_room_and_others_may_not_speak_before_they_join():
    managers = two_managers()
    assert managers.handle(JobJoined("j1"), 1.0) == [TellManager(0, JobJoined("j1"))]
    demand = Demand("j1", CORE, 1, NO_GRANT)
    assert managers.handle(demand, 1.0) == [TellManager(0, demand)]
    assert managers.handle(JobJoined("j2"), 1.0) == [TellManager(1, JobJoined("j2"))]
    assert managers.why["j2"] == "it had the most room when the job came: 1 free"
    with pytest.raises(IllegalEvent, match="j3"):
        managers.handle(Demand("j3", CORE, 1, NO_GRANT), 1.0)


def test_an_idle_host_moves_to_a_request_that_waits_and_its_grants_are_newer_there():
    managers = two_managers()
    managers.handle(JobJoined("j1"), 1.0)
    managers.handle(JobJoined("j2"), 1.0)
    managers.handle(ManagerSaid(1, Grant("j2", CORE, (7, 5), ("r2.core0",))), 1.0)
    managers.handle(Release("j2", (7, 5)), 1.0)
    managers.handle(Demand("j1", TWO_NODES, 1, NO_GRANT), 1.0)
    assert managers.deadline() == 1.0 + LOOK_S
    leave = Removed(("r2.node", "r2.core0"), "refuse")
    assert managers.handle(Tick(), 1.1) == [TellManager(1, coming("r2")), TellManager(1, leave)]
    left = ResourcesLeft(("r2.node", "r2.core0"))
    assert managers.handle(ManagerSaid(1, left), 1.2) == [], "it is there all the time"
    assert managers.handle(ManagerSaid(1, RmAnswered(leave)), 1.2) == [
        TellManager(0, Advanced((7, 5))),
        TellManager(0, host("r2")),
    ]
    assert managers.newest_given("r2.core0", (7, 9)) == (7, 5)
    assert managers.handle(ManagerSaid(0, RmAnswered(host("r2"))), 1.3) == [
        TellManager(0, Settled("r2")),
        TellManager(1, coming("r2")),
    ]


def test_a_host_that_is_in_use_after_all_stays():
    managers = two_managers()
    managers.handle(JobJoined("j1"), 1.0)
    managers.handle(Demand("j1", TWO_NODES, 1, NO_GRANT), 1.0)
    managers.handle(Tick(), 1.1)
    leave = Removed(("r2.node", "r2.core0"), "refuse")
    gone = Removed(("r2.node", "r2.core0"), "lose")
    assert managers.handle(gone, 1.1) == [], "it is said when it is known where the host is"
    assert managers.handle(ManagerSaid(1, RmAnswered(leave, "it is held")), 1.2) == [
        TellManager(0, coming("r2")),
        TellManager(1, Settled("r2")),
        TellManager(1, gone),
    ]


def test_another_manager_gets_all_that_a_lost_one_had():
    managers = two_managers()
    managers.handle(JobJoined("j1"), 1.0)
    managers.handle(Demand("j1", CORE, 3, NO_GRANT), 1.0)
    grant = Grant("j1", CORE, (7, 2), ("r1.core0",))
    assert managers.handle(ManagerSaid(0, grant), 1.0) == [grant]
    assert managers.handle(ManagerDown(0, "killed"), 1.0) == [
        TellManager(1, Advanced((7, 2))),
        TellManager(1, JobJoined("j1")),
        TellManager(1, Claimed("j1", (grant,), whole=True)),
        TellManager(1, host("r1")),
        TellManager(1, Demand("j1", CORE, 2, NO_GRANT)),
    ]
    assert managers.job_of == {"j1": 1}
    assert managers.why == {"j1": "manager 1, which served it, was lost"}
    numbers = managers.numbering(0)
    assert (numbers.first, numbers.step) == (2, 2), "the first of its grants is newer"
    assert managers.handle(ManagerUp(0), 2.0) == [
        TellManager(0, coming("r1")),
        TellManager(0, coming("r2")),
    ]
    assert managers.handle(JobGone("j1"), 2.0) == [TellManager(1, JobGone("j1"))]
    revoke = Revoke((7, 2), ("r1.core0",))
    assert managers.handle(ManagerSaid(1, revoke), 2.0) == [revoke]
    confirmed = Revoked((7, 2), ("r1.core0",))
    assert managers.handle(confirmed, 2.0) == [TellManager(1, confirmed)]
    managers.check()


def test_hosts_go_to_the_oldest_request_and_those_in_use_only_where_they_are_needed():
    idle = [HostView(name, {"node": 1, "core": 2}) for name in ("r1", "r2")]
    old, young = WantView(1.0, {"node": 3}, {"node": 3}), WantView(2.0, {"node": 3}, {"node": 3})
    first, second = PartitionView(0, 1.0, idle[:1], [young]), PartitionView(1, 1.0, idle[1:], [old])
    assert plan_moves([first, second], 2.1) == [HostMove("r1", 0, 1, 0)]
    alike = PartitionView(0, 1.0, idle[:1], [old]), PartitionView(1, 1.0, idle[1:], [old])
    assert plan_moves(alike, 1.1) == [HostMove("r2", 1, 0, 0)], "they do not swap"
    busy = [HostView(name, {"node": 1, "core": 2}, held=1) for name in ("r3", "r4")]
    poor = PartitionView(0, 1.0, [], [WantView(1.0, {"core": 1}, {"core": 1})])
    rich = PartitionView(1, 1.0, busy, [])
    assert plan_moves([poor, rich], 1.2) == [], "it may come free by itself"
    assert plan_moves([poor, rich], 1.6) == [HostMove("r3", 1, 0, 0, drains=True)]
    assert (
        plan_moves([PartitionView(0, 1.0, busy[:1], poor.wants), PartitionView(1, 1.0, busy[1:], [])], 9)
        == []
    )
    apt = WantView(1.0, {"core": 1}, {"core": 1}, [("core", frozenset({"ssd"}))])
    some = [HostView("r5", {"core": 2}), HostView("r6", {"core": 2}, features=frozenset({"ssd", "avx2"}))]
    asked = [PartitionView(0, 1.0, some[:1], [apt]), PartitionView(1, 1.0, [*some[:1], some[1]], [])]
    assert plan_moves(asked, 1.1) == [HostMove("r6", 1, 0, 0)]
    assert roomiest({0: (3, 0), 1: (4, 1), 2: (4, 0)}) == 2
