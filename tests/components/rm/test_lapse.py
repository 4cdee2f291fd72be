"""Grants that end against their job's will: jobs die, resources go, nobody answers (RM-10, RM-11)."""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.errors import ResourceHeld, UnknownJob
from gspc_trio.components.rm.events import Added, Awaited, Coming, JobGone, Removed
from gspc_trio.components.rm.messages import (
    ClassStatus,
    Grant,
    Lapsed,
    Recall,
    Refuse,
    Release,
    Revoke,
    Revoked,
)
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.records.facts import GrantChanged, ResourceChanged
from tests.components.rm.support import NODE, SOCKET, Driver, any_of, cores, host, several


def test_a_job_that_is_gone_and_fenced_gives_everything_back_at_once() -> None:
    driver = Driver(*cores(2))
    driver.demand("a", 5)
    driver.demand("b", 5)
    actions = driver.rm.handle(JobGone("a", fenced=True), 3.0)
    driver.rm.check()
    assert actions == [
        GrantChanged(3.0, "a", (1, 1), ("r1.core0",), False),
        GrantChanged(3.0, "a", (1, 2), ("r1.core1",), False),
        Grant("b", CORE, (1, 3), ("r1.core0",)),
        GrantChanged(3.0, "b", (1, 3), ("r1.core0",), True),
        Grant("b", CORE, (1, 4), ("r1.core1",)),
        GrantChanged(3.0, "b", (1, 4), ("r1.core1",), True),
    ]
    with pytest.raises(UnknownJob):
        driver.send(JobGone("a"))


def test_what_a_lost_job_held_is_free_only_when_its_work_is_known_to_have_stopped() -> None:
    driver = Driver(*host("r1"), lease_s=6.0)
    driver.demand("a", 1)
    driver.demand("b", 1, NODE)
    assert driver.send(JobGone("a")) == [Revoke((1, 1), ("r1.core0",))]
    assert driver.wait(5.0) == [], "a new node grant would work beside the old core grant"
    assert driver.send(Revoked((1, 1), ("r1.core0",))) == [Grant("b", NODE, (1, 2), ("r1.node",))]


def test_a_grant_on_several_hosts_comes_back_host_by_host() -> None:
    driver = Driver(*cores(1, "r1"), *cores(1, "r2"))
    driver.take("a", several("core", "core"))
    driver.demand("b", 2)
    assert driver.send(JobGone("a")) == [Revoke((1, 1), ("r1.core0", "r2.core0"))]
    assert driver.send(Revoked((1, 1), ("r2.core0",))) == [Grant("b", CORE, (1, 2), ("r2.core0",))]
    assert driver.rm.status().revoking == ((1, 1),)
    assert driver.send(Revoked((1, 1), ("r1.core0",))) == [Grant("b", CORE, (1, 3), ("r1.core0",))]
    assert driver.send(Revoked((1, 1), ("r1.core0",))) == [], "said twice"


def test_whoever_is_awaited_has_more_time_to_confirm() -> None:
    driver = Driver(*host("r1"), lease_s=6.0)
    driver.demand("a", 1)
    driver.demand("b", 1, NODE)
    driver.send(JobGone("a"))
    driver.send(Awaited((1, 1), 40.0))
    driver.send(Awaited((1, 1), 3.0))  # never less
    driver.send(Awaited((1, 7), 50.0))  # is not being revoked
    assert driver.wait(30.0) == []
    assert driver.send(Revoked((1, 1), ("r1.core0",))) == [Grant("b", NODE, (1, 2), ("r1.node",))]


def test_without_an_answer_the_resources_are_removed_and_all_above_stays_blocked() -> None:
    driver = Driver(*host("r1"), lease_s=6.0, recall_after_s=1000, reserve_after_s=1000)
    driver.demand("a", 1)
    whole = Shape(NODE.requirements, wait=True)
    driver.demand("b", 1, whole)
    driver.send(JobGone("a"))
    assert driver.rm.deadline() == 6.0
    driver.now = 6.0
    actions = driver.rm.handle(Tick(), 6.0)
    driver.rm.check()
    assert actions == [
        GrantChanged(6.0, "a", (1, 1), ("r1.core0",), False),
        ResourceChanged(6.0, "r1.core0", "core", "removed", ""),
    ]
    assert driver.granted("b") == []
    assert driver.send(Revoked((1, 1), ("r1.core0",))) == [], "too late"
    status = driver.rm.status().classes
    assert status["core"] == ClassStatus(total=3, free=3, held=0, blocked=0)
    assert status["node"] == ClassStatus(total=1, free=0, held=0, blocked=1)
    assert driver.take("b") == ("r1.core1",), "siblings are not concerned"


def test_what_is_blocked_by_work_that_nobody_could_stop_is_refused() -> None:
    driver = Driver(*host("r1"), lease_s=6.0)
    driver.demand("a", 1)
    driver.demand("b", 1, NODE)
    driver.send(JobGone("a"))
    reason = (
        "asked for node, but r1.node cannot be used: work that nobody could stop may still run below; "
        "there is: 1 node, 2 socket, 3 core"
    )
    assert driver.wait(6.0) == [Refuse("b", NODE, reason)]
    assert driver.take("b") == ("r1.core1",)


def test_a_host_that_comes_back_is_whole_again() -> None:
    driver = Driver(*host("r1"), lease_s=6.0)
    driver.demand("a", 1)
    driver.send(JobGone("a"))
    driver.wait(10.0)
    names = tuple(r.resource_id for r in host("r1") if r.resource_id != "r1.core0")
    driver.send(Coming("r1", host("r1")))
    driver.send(Removed(names))
    assert driver.demand("b", 1, NODE) == []
    driver.send(Added(host("r1")))
    assert driver.granted("b") == [("r1.node",)]


# Removing ---------------------------------------------------------------------------------------------------


def test_lose_lapses_the_grants_of_what_is_removed() -> None:
    driver = Driver(*host("r1"), *host("r2"))
    driver.take("b", NODE)
    driver.demand("a", 3)
    reason = "resources removed: r2.node, r2.socket0, r2.socket1, r2.core0, r2.core1, r2.core2, r2.core3"
    assert driver.send(Removed(("r2.node",))) == [Lapsed("a", ((1, 2), (1, 3), (1, 4)), reason)]
    assert driver.rm.status().classes["core"].total == 4
    assert driver.send(Release("a", (1, 3))) == [], "it could not know yet"


def test_what_is_left_of_a_lapsed_grant_is_free_when_it_has_been_revoked() -> None:
    driver = Driver(*cores(1, "r1"), *cores(1, "r2"))
    driver.take("a", several("core", "core"))
    driver.demand("b", 1)
    assert driver.send(Removed(("r1.core0",))) == [
        Revoke((1, 1), ("r2.core0",)),
        Lapsed("a", ((1, 1),), "resources removed: r1.core0"),
    ]
    assert driver.send(Release("a", (1, 1))) == []
    assert driver.send(Revoked((1, 1), ("r2.core0",))) == [Grant("b", CORE, (1, 2), ("r2.core0",))]


@pytest.mark.parametrize("policy", ["lose", "wait", "refuse"])
def test_who_has_memory_of_what_is_removed_has_it_no_more(policy: str) -> None:
    """A memory server hangs below nothing: its own resource stays when that of its memory goes."""
    driver = Driver(*host("r1", memory_bytes=100), Resource("r1.memory", "memory"))
    server = Shape((Requirement("memory"),), memories=(60,))
    assert driver.take("a", server) == ("r1.memory",)
    assert driver.send(Removed(("r1.node",), policy)) == [
        Lapsed("a", ((1, 1),), "its memory was removed"),
        Revoke((1, 1), ("r1.memory",)),
    ]
    driver.send(Revoked((1, 1), ("r1.memory",)))
    driver.send(Added(host("r1", memory_bytes=100)))
    assert driver.take("a", server) == ("r1.memory",)
    assert driver.rm.status().memories["r1.node"].free_bytes == 40


def test_who_has_memory_of_what_leaves_with_something_lost_has_it_no_more() -> None:
    """The node was to leave, and waited for a core alone: its memory goes when that core is lost."""
    driver = Driver(*host("r1", memory_bytes=100), Resource("r1.memory", "memory"))
    driver.take("a", CORE)
    assert driver.take("b", Shape((Requirement("memory"),), memories=(60,))) == ("r1.memory",)
    whole = (*(one.resource_id for one in host("r1")), "r1.memory")
    assert driver.send(Removed(whole, "wait")) == [Recall("a", ((1, 1),)), Recall("b", ((1, 2),))]
    assert driver.send(Removed(("r1.core0",), "lose")) == [
        Lapsed("a", ((1, 1),), "resources removed: r1.core0"),
        Lapsed("b", ((1, 2),), "its memory was removed"),
        Revoke((1, 2), ("r1.memory",)),
    ]
    assert driver.send(Revoked((1, 2), ("r1.memory",))) == []
    assert driver.rm.status().memories == {}
    assert all(counts.total == 0 for counts in driver.rm.status().classes.values())


def test_wait_removes_what_is_free_and_recalls_the_rest() -> None:
    driver = Driver(*host("r1"))
    driver.demand("a", 1)
    assert driver.send(Removed(("r1.node",), "wait")) == [Recall("a", ((1, 1),))]
    assert sorted(driver.rm.status().leaving) == ["r1.core0", "r1.node", "r1.socket0"]
    assert driver.demand("b", 1) == [], "what leaves is not given out, but who knows what may come"
    driver.release("a")
    assert driver.rm.status().leaving == ()
    assert driver.rm.status().classes["node"].total == 0


def test_what_is_to_leave_goes_with_what_nobody_could_stop_below_it() -> None:
    driver = Driver(*host("r1", sockets=1, per_socket=1), lease_s=6.0)
    driver.take("a")
    assert driver.send(Removed(("r1.node",), "wait")) == [Recall("a", ((1, 1),))]
    assert driver.send(JobGone("a")) == [Revoke((1, 1), ("r1.core0",))]
    assert driver.rm.handle(Tick(), 6.0) == [
        GrantChanged(6.0, "a", (1, 1), ("r1.core0",), False),
        ResourceChanged(6.0, "r1.core0", "core", "removed", ""),
        ResourceChanged(6.0, "r1.socket0", "socket", "removed", ""),
        ResourceChanged(6.0, "r1.node", "node", "removed", ""),
    ]
    driver.rm.check()


def test_who_waits_for_what_has_been_removed_is_refused() -> None:
    driver = Driver(*host("r1"))
    driver.demand("a", 1)
    driver.demand("b", 1, NODE)
    driver.send(Removed(("r1.node",), "wait"))
    reason = "asked for node, but there is no node; there is: nothing"
    assert driver.release("a") == [Refuse("b", NODE, reason, "unknown class")]


def test_refuse_removes_nothing_that_is_in_use() -> None:
    driver = Driver(*host("r1"))
    driver.demand("a", 1)
    before = driver.rm.status()
    message = r"r1.node cannot be removed: a holds r1.core0 under grant \(1, 1\)"
    with pytest.raises(ResourceHeld, match=message):
        driver.send(Removed(("r1.node",), "refuse"))
    assert driver.rm.status() == before
    driver.release("a")
    driver.send(Removed(("r1.node",), "refuse"))
    assert driver.rm.status().classes["core"].total == 0


def test_removing_a_core_leaves_its_siblings_and_frees_its_ancestors() -> None:
    driver = Driver(*host("r1"))
    driver.demand("a", 1)
    driver.demand("b", 1, NODE)
    lost = driver.send(Removed(("r1.core0",)))
    assert lost == [
        Lapsed("a", ((1, 1),), "resources removed: r1.core0"),
        Grant("b", NODE, (1, 2), ("r1.node",)),
    ]


def test_removing_what_is_reserved_reserves_something_else() -> None:
    driver = Driver(*host("r1"), *host("r2"), reserve_after_s=0.5, recall_after_s=1000)
    driver.demand("a", 8)
    driver.demand("b", 1, NODE)
    driver.wait(1.0)
    (reserved,) = driver.rm.status().reserved.resources
    driver.send(Removed((reserved,)))
    driver.wait(1.0)
    other = "r1.node" if reserved == "r2.node" else "r2.node"
    assert driver.rm.status().reserved.resources == (other,)


def test_a_gpu_goes_with_either_of_its_sockets() -> None:
    driver = Driver(*host("r1"), Resource("r1.gpu0", "gpu", ("r1.socket0", "r1.socket1")))
    driver.send(Removed(("r1.socket0",)))
    assert {name: entry.total for name, entry in driver.rm.status().classes.items()} == {
        "node": 1, "socket": 1, "core": 2, "gpu": 0,
    }  # fmt: skip
    assert driver.take("a", NODE) == ("r1.node",)


def test_nobody_waits_for_what_was_below_a_preferred_resource_once() -> None:
    driver = Driver(*host("r1"), *cores(1, "r2"))
    driver.send(Removed(("r1.socket0", "r1.socket1")))
    assert driver.take("a", any_of("core", "r1.node")) == ("r2.core0",), "at once"
    (refused,) = driver.demand("b", 1, any_of("core", "r1.node", hard=True))
    assert refused.kind == "unknown resource"


def test_what_shares_a_child_with_a_held_one_leaves_with_it() -> None:
    gpu = Resource("r1.gpu0", "gpu", ("r1.socket0", "r1.socket1"))
    driver = Driver(*host("r1"), gpu)
    driver.take("a", SOCKET)
    driver.send(Removed(("r1.node",), "wait"))
    assert set(driver.rm.status().leaving) >= {"r1.node", "r1.socket1", "r1.gpu0"}
    driver.release("a")
    assert driver.rm.status().leaving == ()
    assert all(entry.total == 0 for entry in driver.rm.status().classes.values())


def test_who_prefers_what_is_removed_waits_for_it_no_longer() -> None:
    driver = Driver(*cores(1, "r1"), *cores(1, "r2"), patience_s=10.0, recall_after_s=1000)
    preferring = any_of("core", "r1.core0")
    driver.take("b", preferring)
    assert driver.demand("a", 1, preferring) == [], "it waits, though r2.core0 is free"
    assert driver.send(Removed(("r1.core0",)))[-1] == Grant("a", preferring, (1, 2), ("r2.core0",))


def test_work_that_nobody_could_stop_hides_nothing_that_is_free_beside_it() -> None:
    driver = Driver(*host("r1"), jobs=("a", "b", "c"), lease_s=6.0)
    driver.demand("a", 2)
    driver.take("b")
    driver.send(JobGone("a"))
    driver.wait(10.0)
    preferring = any_of("core", "r1.node")
    assert driver.take("c", preferring) == ("r1.core3",), "two are lost, one is held, one is free"


def test_what_was_to_leave_does_when_the_last_thing_in_use_below_it_is_lost() -> None:
    """The device is below both sockets, one of which is held: the other stays for as long as it is there."""
    driver = Driver(*host("r1", per_socket=1), Resource("r1.gpu", "gpu", ("r1.socket0", "r1.socket1")))
    assert driver.take("a", any_of("socket", "r1.socket1", hard=True)) == ("r1.socket1",)
    driver.send(Removed(("r1.node",), "wait"))
    assert set(driver.rm._state.pool.resources) == {
        "r1.node", "r1.socket0", "r1.socket1", "r1.core1", "r1.gpu"
    }  # fmt: skip
    driver.send(Removed(("r1.gpu",), "lose"))
    assert set(driver.rm._state.pool.resources) == {"r1.node", "r1.socket1", "r1.core1"}
    driver.release("a")
    assert not driver.rm._state.pool.resources
