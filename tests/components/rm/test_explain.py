"""What people see: status and explanations."""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.errors import UnknownJob
from gspc_trio.components.rm.explain import ExplainedRequest, JobShare, ManagerStatus
from gspc_trio.components.rm.messages import Blocking, ClassNeed, ClassStatus, GrantHolder, HostMemory
from gspc_trio.core.task import CORE, Shape
from tests.components.rm.support import NODE, Driver, any_of, cores, host, several


def test_status_says_who_has_what_and_what_is_left() -> None:
    driver = Driver(*host("r1"), *host("r2", memory_bytes=100))
    driver.take("a", NODE)
    driver.demand("b", 6)
    assert driver.rm.status() == ManagerStatus(
        classes={
            "node": ClassStatus(total=2, free=0, held=1, blocked=1),
            "socket": ClassStatus(total=4, free=0, held=0, blocked=4),
            "core": ClassStatus(total=8, free=0, held=4, blocked=4),
        },
        memories={"r2.node": HostMemory("", total_bytes=100, free_bytes=100)},
        jobs={
            "a": JobShare(weight=1.0, demand={}, held={"node": 1}, share=0.5),
            "b": JobShare(weight=1.0, demand={"core": 2}, held={"core": 4}, share=0.5),
        },
        coming={},
        revoking=(),
        leaving=(),
        reserved=None,
    )


def test_demands_that_people_cannot_tell_apart_are_one() -> None:
    driver = Driver(*cores(1))
    driver.demand("a", 3)
    driver.demand("a", 4, Shape(estimate_s=2.0))
    assert driver.rm.status().jobs["a"].demand == {"core": 6}


def test_an_explanation_names_the_need_the_holder_the_place_and_a_blocking_relative() -> None:
    driver = Driver(*host("r1"), reserve_after_s=1000)
    driver.take("a", any_of("core", "r1.core2"))
    driver.demand("b", 1, NODE)
    driver.now = 1.0
    driver.demand("a", 1, NODE)
    assert driver.rm.explain("b") == [
        ExplainedRequest(
            shape="node",
            credit=1,
            since_s=0.0,
            needs={"node": ClassNeed(needed=1, total=1, free=0)},
            held_by=(GrantHolder("a", (1, 1), ("r1.core2",)),),
            place=1,
            patient_until_s=None,
            blocking=Blocking("r1.node", relative="r1.core2", job="a", grant=(1, 1)),
            awaits=(),
            reason="0 of 1 node free; r1.node is blocked by r1.core2, held by a",
        )
    ]
    (entry,) = driver.rm.explain("a")
    assert entry.place == 2


def test_a_core_below_a_held_node_is_explained_by_the_node() -> None:
    driver = Driver(*host("r1"))
    driver.take("a", NODE)
    driver.demand("b", 1)
    (entry,) = driver.rm.explain("b")
    assert entry.reason == "0 of 4 core free; r1.core0 is blocked by r1.node, held by a"


def test_reasons_other_than_a_holder() -> None:
    driver = Driver(*cores(3), reserve_after_s=0.5, recall_after_s=1000)
    driver.take("a")
    three = several("core", "core", "core")
    driver.demand("b", 1, three)
    driver.demand("a", 1, Shape(any_of("gpu").requirements, wait=True))
    driver.wait(1.0)
    driver.demand("a", 1)
    reasons = {entry.shape: entry.reason for job in "ab" for entry in driver.rm.explain(job)}
    assert reasons == {
        "gpu": "not there yet: there is 0 gpu now",
        "core": "what is free is put aside for b",
        "3 core": "r1.core1, r1.core2, r1.core0 put aside for it, and not all free yet",
    }


def test_hard_preferences_and_the_oldest_first() -> None:
    driver = Driver(*cores(2), reserve_after_s=1000)
    driver.demand("a", 2)
    driver.demand("b", 1, any_of("core", "r1.core1", hard=True))
    driver.now = 1.0
    driver.demand("b", 1)
    entries = driver.rm.explain("b")
    assert [entry.shape for entry in entries] == ["core (only r1.core1)", str(CORE)]
    assert entries[0].reason == "needs one of r1.core1"
    assert entries[0].blocking == Blocking("r1.core1", relative="r1.core1", job="a", grant=(1, 2))


def test_who_holds_what_would_not_do_is_not_named() -> None:
    driver = Driver(*host("r1"), *host("r2"), reserve_after_s=1000)
    driver.take("a", any_of("core", "r1.core0"))
    driver.take("a", any_of("core", "r2.core0"))
    elsewhere = any_of("core", "a host that stays for 500 s", hard=True).requirements
    driver.demand("b", 1, Shape(elsewhere, wait=True))
    driver.demand("b", 1, any_of("core", "r2.core0", hard=True))
    nowhere, there = driver.rm.explain("b")
    assert (nowhere.held_by, nowhere.blocking) == ((), None)
    assert nowhere.reason == "needs one of a host that stays for 500 s"
    assert there.held_by == (GrantHolder("a", (1, 2), ("r2.core0",)),)


def test_nothing_waits_nothing_is_explained() -> None:
    driver = Driver(*cores(1))
    driver.take("a")
    assert driver.rm.explain("a") == []
    with pytest.raises(UnknownJob, match="job c has not joined"):
        driver.rm.explain("c")
