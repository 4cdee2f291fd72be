"""Demand, credit, fairness and recall (RM-10, RM-13; section 3 of the house plan)."""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.events import JobJoined
from gspc_trio.components.rm.messages import Demand, Grant, Interrupt, Recall, Refuse, Release
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.task import CORE, Requirement, Shape
from tests.components.rm.support import NODE, SOCKET, Driver, any_of, cores, host, several

FAST = Shape(estimate_s=0.25)


def demand_of(driver: Driver, job: str) -> dict[str, int]:
    return driver.rm.status().jobs[job].demand


def test_each_grant_eats_one_credit_and_without_credit_nothing_is_pushed() -> None:
    driver = Driver(*cores(3))
    assert [action.resources for action in driver.demand("a", 2)] == [("r1.core0",), ("r1.core1",)]
    assert driver.release("a") == []
    assert driver.demand("a", 0) == []


def test_credit_is_absolute_and_what_was_sent_since_is_subtracted() -> None:
    driver = Driver(*cores(8))
    driver.send(Demand("a", CORE, 2, NO_GRANT))
    assert driver.send(Demand("a", CORE, 3, NO_GRANT)) == [Grant("a", CORE, (1, 3), ("r1.core2",))]
    assert driver.send(Demand("a", CORE, 2, (1, 2))) == [Grant("a", CORE, (1, 4), ("r1.core3",))]
    assert driver.send(Demand("a", CORE, 1, (1, 3))) == [], "grant 4 is on its way and will do"
    assert driver.send(Demand("a", CORE, 0, (1, 4))) == []
    assert demand_of(driver, "a") == {}


def test_a_grant_of_another_shape_on_its_way_is_not_subtracted() -> None:
    driver = Driver(*host("r1"), *host("r2"))
    driver.send(Demand("a", NODE, 1, NO_GRANT))
    assert driver.send(Demand("a", CORE, 1, NO_GRANT)) == [Grant("a", CORE, (1, 2), ("r2.core0",))]


def test_a_release_shows_that_all_grants_before_it_have_arrived() -> None:
    driver = Driver(*cores(200))
    driver.send(Demand("a", CORE, 10_000, NO_GRANT))
    for number in range(1, 2_000):
        driver.rm.handle(Release("a", (1, number)), 0.0)
    want = driver.rm._state.jobs["a"].wants[CORE]
    assert len(want.sent) <= 300, "what is remembered does not grow with the grants that were given"


def test_less_credit_withdraws_the_youngest_demand_first() -> None:
    driver = Driver(*cores(1))
    driver.take("b")
    driver.demand("a", 1)
    driver.now = 1.0
    driver.demand("a", 3)
    driver.demand("a", 1)
    assert driver.rm.explain("a")[0].since_s == 0.0
    assert driver.rm.explain("a")[0].credit == 1


def test_the_older_of_two_shapes_of_a_job_is_served_first() -> None:
    driver = Driver(*cores(1))
    driver.take("b")
    driver.demand("a", 2, FAST)
    driver.now = 1.0
    driver.demand("a", 2)
    order = []
    driver.release("b")
    for _ in range(3):
        order.append(driver.history[-1].shape)
        driver.release("a")
    order.append(driver.history[-1].shape)
    assert order == [FAST, FAST, CORE, CORE]


def test_the_next_resource_goes_to_the_job_that_holds_least() -> None:
    driver = Driver(*cores(4))
    driver.demand("a", 10)
    driver.demand("b", 10)
    for _ in range(2):
        driver.release("a")
    assert (len(driver.granted("a")), len(driver.granted("b"))) == (2, 2)
    driver.release("b")
    assert driver.history[-1].job == "b", "b holds one, a two"


def test_shares_follow_the_weights() -> None:
    driver = Driver(*cores(36), jobs=())
    jobs = [f"j{weight}" for weight in range(1, 9)]
    for weight, job in enumerate(jobs, 1):
        driver.send(JobJoined(job, weight))
    driver.take("j1")
    driver.demand("j1", 10_000)
    for job in jobs[1:]:
        driver.demand(job, 10_000)
    for _ in range(300):
        driver.wait(0.01)
        busiest = max(jobs, key=lambda job: (len(driver.granted(job)) / int(job[1:]), job))
        driver.release(busiest)
    assert [len(driver.granted(job)) for job in jobs] == list(range(1, 9))
    shares = [driver.rm.status().jobs[job].share for job in jobs]
    assert shares == [weight / 36 for weight in range(1, 9)]


def test_a_node_counts_as_the_cores_below_it() -> None:
    driver = Driver(*host("r1"), *host("r2"), *host("r3"))
    driver.take("a", NODE)
    driver.demand("b", 8)
    driver.demand("a", 1, SOCKET)
    driver.demand("a", 1)
    driver.demand("b", 9)
    driver.release("b", "r3.core3")
    assert driver.history[-1].job == "a", "a holds four units, b seven"


def test_others_waiting_recall_what_a_job_keeps_but_not_before_it_was_held_for_a_while() -> None:
    driver = Driver(*cores(2), recall_after_s=0.05)
    driver.demand("a", 2)
    assert driver.demand("b", 1) == []
    assert driver.wait(0.04) == []
    assert driver.wait(0.02) == [Recall("a", ((1, 1),))]
    assert driver.wait(1.0) == [], "one waits, one is asked for, once"
    assert driver.release("a") == [Grant("b", CORE, (1, 3), ("r1.core0",))]


@pytest.mark.parametrize("wanted", [CORE, NODE, several("core", "core"), any_of("core", "r1.core0")])
def test_while_nothing_happens_the_machine_does_not_look_again_and_again(wanted: Shape) -> None:
    driver = Driver(*host("r1"), reserve_after_s=0.5)
    driver.demand("a", 4)
    driver.demand("b", 1, wanted)
    driver.wait(1.0)
    assert driver.rm.deadline() is None, "who waits has all that time alone can do for it"
    driver.release("a")
    driver.wait(10.0)
    assert driver.rm.deadline() is None


def test_a_grant_too_young_to_be_recalled_is_recalled_when_it_is_old_enough() -> None:
    driver = Driver(*cores(2), recall_after_s=3.0)
    driver.demand("a", 1)
    driver.demand("b", 3)
    driver.wait(2.0)
    assert driver.release("b") == [Grant("b", CORE, (1, 3), ("r1.core1",))]
    assert driver.wait(0.9) == []
    assert driver.wait(0.2) == [Recall("a", ((1, 1),))]


def test_a_job_that_has_more_than_its_share_and_waits_is_asked_for_no_more_than_the_difference() -> None:
    driver = Driver(*cores(4))
    driver.demand("a", 10)
    driver.now = 1.0
    assert driver.demand("b", 10) == [Recall("a", ((1, 1), (1, 2)))]
    driver.release("a")
    driver.release("a")
    assert driver.wait(10.0) == [], "both hold two"


def test_another_shape_of_the_same_job_recalls_its_own_parked_grants() -> None:
    driver = Driver(*host("r1"))
    driver.demand("a", 2)
    driver.now = 1.0
    assert driver.demand("a", 1, NODE) == [Recall("a", ((1, 1), (1, 2)))]
    driver.release("a")
    assert driver.release("a") == [Grant("a", NODE, (1, 3), ("r1.node",))]


def test_what_a_job_uses_for_several_shapes_is_not_recalled_for_another_of_them() -> None:
    here, there = any_of("core", "r1.core0"), any_of("core", "r1.core1")
    for shared in (False, True):
        driver = Driver(*cores(2))
        driver.send(Demand("a", here, 2, NO_GRANT, shared=shared))
        driver.wait(1.0)  # one comes although it is not preferred
        assert driver.granted("a") == [("r1.core0",), ("r1.core1",)]
        called = driver.send(Demand("a", there, 1, driver.seen["a"], shared=shared))
        assert called == ([] if shared else [Recall("a", ((1, 1),))])
        assert driver.wait(1.0) == []
    other = driver.demand("a", 1, several("core", "core"))
    assert other == [Recall("a", ((1, 1), (1, 2)))], "this one does not share"


def test_a_core_that_is_wanted_recalls_the_node_above_it() -> None:
    driver = Driver(*host("r1"))
    driver.take("a", NODE)
    driver.now = 1.0
    assert driver.demand("b", 3) == [Recall("a", ((1, 1),))]
    assert [grant.resources for grant in driver.release("a")] == [(f"r1.core{index}",) for index in range(3)]


def test_of_several_nodes_the_one_with_least_to_be_recalled_is_freed() -> None:
    driver = Driver(*host("r1"), *host("r2"))
    driver.demand("a", 5)
    driver.now = 1.0
    assert driver.demand("b", 1, NODE) == [Recall("a", ((1, 5),))]


def test_a_job_alone_is_never_asked_for_what_it_waits_for_itself() -> None:
    driver = Driver(*cores(2))
    driver.demand("a", 5)
    assert driver.rm.deadline() is None, "nothing will happen that time brings"
    assert driver.wait(10.0) == []


def test_a_grant_nobody_wants_any_more_is_given_back_and_goes_to_the_next() -> None:
    driver = Driver(*cores(1))
    driver.take("a")
    driver.demand("b", 1)
    driver.demand("a", 0)
    assert driver.release("a") == [Grant("b", CORE, (1, 2), ("r1.core0",))]


def test_interrupt_tells_each_who_waits_and_leaves_what_is_held() -> None:
    driver = Driver(*host("r1"))
    driver.demand("a", 5)
    driver.demand("a", 1, NODE)
    driver.demand("b", 1)
    assert driver.send(Interrupt("a")) == [
        Refuse("a", CORE, "interrupted: job a withdrew its demand for core", "interrupted"),
        Refuse("a", NODE, "interrupted: job a withdrew its demand for node", "interrupted"),
    ]
    assert driver.send(Interrupt("a")) == []
    assert driver.rm.status().jobs["a"].held == {"core": 4}
    assert driver.release("a") == [Grant("b", CORE, (1, 5), ("r1.core0",))]


def test_part_of_a_grant_can_be_given_back() -> None:
    three = Shape((Requirement("core"),) * 3)
    driver = Driver(*cores(3))
    driver.take("a", three)
    driver.demand("b", 3)
    assert driver.send(Release("a", (1, 1), ("r1.core1",))) == [Grant("b", CORE, (1, 2), ("r1.core1",))]
    assert [action.resources for action in driver.send(Release("a", (1, 1)))] == [
        ("r1.core0",),
        ("r1.core2",),
    ]


def test_memory_grows_with_shapes_not_with_tasks_that_wait() -> None:
    few, many = Driver(*cores(2)), Driver(*cores(2))
    for driver, credit in ((few, 1_000), (many, 1_000_000)):
        for step in range(0, credit, credit // 500):
            driver.rm.handle(Demand("a", CORE, step, NO_GRANT), float(step))
    sizes = [len(driver.rm._state.jobs["a"].wants[CORE].ages) for driver in (few, many)]
    assert sizes == [64, 64]


def test_a_core_that_is_all_of_its_node_is_recalled_for_the_node() -> None:
    driver = Driver(*host("r1", sockets=1, per_socket=1))
    driver.take("a")
    driver.now = 1.0
    assert driver.demand("b", 1, NODE) == [Recall("a", ((1, 1),))]
    assert driver.release("a") == [Grant("b", NODE, (1, 2), ("r1.node",))]


def test_of_the_shapes_of_a_job_that_of_the_highest_priority_is_served_first() -> None:
    driver = Driver(*cores(1))
    driver.take("b")
    driver.demand("a", 2, FAST)
    driver.send(Demand("a", CORE, 2, NO_GRANT, 5))
    order = []
    driver.release("b")
    for _ in range(3):
        order.append(driver.history[-1].shape)
        driver.release("a")
    order.append(driver.history[-1].shape)
    assert order == [CORE, CORE, FAST, FAST]


def test_a_demand_that_waits_may_change_its_priority() -> None:
    for last, first in ((5, CORE), (-5, FAST)):
        driver = Driver(*cores(1))
        driver.take("b")
        driver.send(Demand("a", FAST, 1, NO_GRANT))
        driver.send(Demand("a", CORE, 1, NO_GRANT, -last))
        driver.send(Demand("a", CORE, 1, NO_GRANT, last))
        driver.release("b")
        assert driver.history[-1].shape == first


def test_a_job_of_a_higher_priority_comes_first_whatever_it_holds_and_the_others_by_weight() -> None:
    driver = Driver(*cores(4), jobs=("low",))
    driver.send(JobJoined("high", 1.0, 3))
    driver.demand("low", 4)
    driver.demand("low", 9)
    driver.demand("high", 2)
    for _ in range(4):
        driver.release("low")
    assert len(driver.granted("high")) == 2
    assert len(driver.granted("low")) == 2
    assert driver.rm.explain("low")[0].place == 1
    driver.demand("high", 9)
    assert driver.rm.explain("low")[0].place == 2


def test_a_job_of_a_higher_priority_gets_back_all_that_others_hold_and_they_nothing_of_its_own() -> None:
    driver = Driver(*cores(4), jobs=("low",))
    driver.send(JobJoined("high", 0.1, 3))
    driver.demand("low", 4)
    driver.demand("low", 9)
    driver.demand("high", 9)
    recalled = [action for action in driver.wait(1.0) if isinstance(action, Recall)]
    assert {number for recall in recalled for number in recall.grant_ids} == {(1, n) for n in range(1, 5)}
    for _ in range(4):
        driver.release("low")
    assert len(driver.granted("high")) == 4
    assert not [action for action in driver.wait(1.0) if isinstance(action, Recall)]


def test_a_shape_of_a_higher_priority_gets_back_what_the_job_holds_for_others() -> None:
    driver = Driver(*cores(4), jobs=("a",))
    driver.demand("a", 4, FAST)
    driver.demand("a", 9, FAST)
    driver.send(Demand("a", CORE, 4, (1, 4), 1))
    recalled = [action for action in driver.wait(1.0) if isinstance(action, Recall)]
    assert sum(len(recall.grant_ids) for recall in recalled) == 4
