"""Several resources at once, preferences, memory, backfilling (RM-6, RM-7, RM-8, RM-12, SCH-5)."""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.events import Added, Coming, Removed, Settled
from gspc_trio.components.rm.explain import Reserved
from gspc_trio.components.rm.messages import Grant, Recall, Refuse, Release
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from tests.components.rm.support import NODE, Driver, any_of, cores, host, several

PAIR = several("core", "core")


def test_a_list_is_given_whole_or_not_at_all() -> None:
    driver = Driver(*cores(3))
    driver.take("a")
    driver.take("a")
    assert driver.take("b", PAIR) is None
    assert driver.rm.status().classes["core"].free == 1, "nothing is held while the rest is waited for"
    assert driver.release("a") == [Grant("b", PAIR, (1, 3), ("r1.core2", "r1.core0"))]


def test_what_was_tried_in_vain_keeps_its_place_in_the_queue() -> None:
    driver = Driver(*host("r1"), *host("r2"))
    driver.take("a", NODE)
    driver.demand("b", 1, several("core", "core", "core", "node"))
    driver.demand("b", 0, several("core", "core", "core", "node"))
    assert driver.take("b") == ("r2.core0",)


def test_mixed_classes_leave_the_node_whole_for_the_one_who_needs_a_node() -> None:
    driver = Driver(*host("r1"), *host("r2"))
    assert driver.take("a", several("core", "node")) == ("r2.core0", "r1.node")


def test_a_combination_is_found_where_the_first_of_each_will_not_do() -> None:
    small = (Resource("r2.node", "node"), Resource("r2.core0", "core", ("r2.node",)))
    driver = Driver(*host("r1"), *small)
    shape = several("node", "core", "core", "core")
    assert driver.take("a", shape) == ("r2.node", "r1.core0", "r1.core1", "r1.core2")


def test_all_on_one_host_is_looked_for_on_each_host() -> None:
    driver = Driver(*cores(2, "r1"), *cores(3, "r2"))
    driver.take("b")
    shape = several("core", "core", "core", same_host=True)
    assert driver.take("a", shape) == ("r2.core0", "r2.core1", "r2.core2")
    assert driver.take("a", several("core", "core", same_host=True)) is None
    assert driver.release("b") == [
        Grant("a", several("core", "core", same_host=True), (1, 3), ("r1.core0", "r1.core1"))
    ]


# Preferences ------------------------------------------------------------------------------------------------


def test_preferences_are_honoured_in_their_order() -> None:
    driver = Driver(*cores(4))
    shape = any_of("core", "r1.core2", "r1.core1")
    assert driver.take("a", shape) == ("r1.core2",)
    assert driver.take("a", shape) == ("r1.core1",)


def test_an_ancestor_stands_for_any_of_the_class_below_it() -> None:
    driver = Driver(*host("r1"), *host("r2"))
    assert driver.take("a", any_of("core", "r2.socket1")) == ("r2.core2",)
    assert driver.take("a", any_of("socket", "r2.node")) == ("r2.socket0",)
    assert driver.take("a", any_of("core", "r2.node", "r1.socket1")) == ("r2.core3",)
    assert driver.take("a", any_of("core", "r2.node", "r1.socket1")) == ("r1.core2",)


def test_the_wait_for_a_preferred_resource_is_bounded() -> None:
    driver = Driver(*cores(2), patience_s=0.1, recall_after_s=60)
    driver.take("b")
    assert driver.take("a", any_of("core", "r1.core0")) is None
    (entry,) = driver.rm.explain("a")
    assert entry.reason == "still waits for one of r1.core0"
    assert entry.patient_until_s == entry.since_s + 0.1
    assert driver.wait(0.09) == []
    assert driver.wait(0.02) == [Grant("a", any_of("core", "r1.core0"), (1, 2), ("r1.core1",))]


def test_a_requirement_says_how_long_its_preferences_are_worth_waiting_for() -> None:
    driver = Driver(*cores(6), jobs=("a", "b", "c"), patience_s=0.1, recall_after_s=60)

    def preferring(patience_s: float | None) -> Shape:
        return Shape((Requirement("core", ("r1.core0",), patience_s=patience_s),))

    driver.take("b")
    assert driver.take("a", preferring(0)) == ("r1.core1",), "others will do at once"
    assert driver.take("a", preferring(0.5)) is None
    assert driver.take("a", preferring(2.0)) is None
    assert driver.take("a", preferring(None)) is None
    assert driver.wait(0.09) == []
    assert driver.wait(0.02) == [Grant("a", preferring(None), (1, 3), ("r1.core2",))]
    assert driver.wait(0.38) == []
    assert driver.wait(0.02) == [Grant("a", preferring(0.5), (1, 4), ("r1.core3",))]
    assert driver.wait(1.4) == []
    assert driver.release("b") == [Grant("a", preferring(2.0), (1, 5), ("r1.core0",))]


def test_different_patience_runs_from_when_others_come_free() -> None:
    driver = Driver(*cores(4), patience_s=0.1, recall_after_s=60)
    shapes = [Shape((Requirement("core", ("r1.core0",), patience_s=some_s),)) for some_s in (3.0, 1.0, 2.0)]
    driver.demand("b", 4)
    for shape in shapes:
        driver.demand("a", 1, shape)
    driver.wait(10)
    for name in ("r1.core1", "r1.core2", "r1.core3"):
        assert driver.release("b", name) == []
    assert [grant.shape for grant in driver.wait(2.5)] == shapes[1:]


@pytest.mark.parametrize("patience_s", [-1, float("nan"), float("inf")])
def test_patience_is_a_finite_time(patience_s: float) -> None:
    with pytest.raises(ValueError, match="patience_s is a number of seconds, 0 or more, not"):
        Requirement("core", ("r1.core0",), patience_s=patience_s)


def test_patience_runs_only_while_others_are_free() -> None:
    driver = Driver(*cores(1, "r1"), *cores(1, "r2"), patience_s=0.1, recall_after_s=60)
    shape = any_of("core", "r1.core0")
    driver.demand("b", 2)
    driver.demand("a", 3, shape)
    assert driver.wait(10) == [], "its turn has not come"
    assert driver.release("b", "r2.core0") == [], "the preferred one may follow at once"
    assert driver.wait(0.09) == []
    assert driver.release("b", "r1.core0") == [Grant("a", shape, (1, 3), ("r1.core0",))]
    assert driver.wait(0.02) == [Grant("a", shape, (1, 4), ("r2.core0",))], "one was free for so long"
    assert driver.release("a", "r2.core0") == [Grant("a", shape, (1, 5), ("r2.core0",))], (
        "what asked at the same time has waited for as long"
    )


def test_resources_that_are_taken_in_time_cost_no_patience() -> None:
    driver = Driver(*cores(1, "r1"), *cores(1, "r2"), patience_s=0.1, recall_after_s=60)
    driver.demand("b", 2)
    driver.demand("a", 1, any_of("core", "r1.core0"))
    for _ in range(5):
        assert driver.release("b", "r2.core0") == []
        assert driver.wait(0.08) == []
        assert driver.take("b", any_of("core", "r2.core0")) == ("r2.core0",)
        assert driver.wait(1) == []


def test_what_is_patient_again_is_given_what_it_prefers_at_once() -> None:
    driver = Driver(*cores(2, "r1"), *cores(1, "r2"), patience_s=0.1, recall_after_s=60)
    assert driver.take("b", several("core", "core")) == ("r1.core0", "r1.core1")
    shape = any_of("core", "r1.core0", "r1.core1")
    assert driver.demand("a", 2, shape) == []
    assert driver.wait(0.2) == [Grant("a", shape, (1, 2), ("r2.core0",))]
    assert driver.demand("a", 2, shape) == []
    assert driver.release("b") == [
        Grant("a", shape, (1, 3), ("r1.core0",)),
        Grant("a", shape, (1, 4), ("r1.core1",)),
    ], "one for old credit that had lost its patience, one for the younger"


def test_those_who_prefer_the_same_take_turns() -> None:
    driver = Driver(*cores(3), jobs=("a", "b", "c"), patience_s=60, recall_after_s=60)
    driver.take("c", several("core", "core", "core"))
    shape = any_of("core", "r1.core0", "r1.core1", "r1.core2")
    driver.demand("a", 3, shape)
    driver.demand("b", 3, shape)
    assert [grant.job for grant in driver.release("c")] == ["a", "b", "a"]


def test_a_preferred_resource_that_comes_free_in_time_is_taken() -> None:
    driver = Driver(*host("r1"), *host("r2"), patience_s=0.1)
    driver.take("b", any_of("node", "r2.node"))
    shape = any_of("core", "r2.core3")
    assert driver.take("a", shape) is None
    assert driver.release("b") == [Grant("a", shape, (1, 2), ("r2.core3",))], (
        "through the release of its node"
    )


def test_without_patience_or_without_any_preferred_there_is_no_wait() -> None:
    hasty = Driver(*cores(2), patience_s=0.0)
    hasty.take("b")
    assert hasty.take("a", any_of("core", "r1.core0")) == ("r1.core1",)
    patient = Driver(*cores(2))
    assert patient.take("a", any_of("core", "r9.core0")) == ("r1.core0",)


def test_hard_preferences_wait_for_as_long_as_it_takes() -> None:
    driver = Driver(*cores(3), patience_s=0.1, recall_after_s=1000, reserve_after_s=1000)
    shape = any_of("core", "r1.core1", hard=True)
    driver.take("b", shape)
    assert driver.take("a", shape) is None
    assert driver.wait(100) == []
    assert driver.take("b") == ("r1.core0",)
    assert driver.release("b", "r1.core1") == [Grant("a", shape, (1, 3), ("r1.core1",))]


def test_hard_preferences_that_are_not_there_are_refused_unless_they_may_come() -> None:
    driver = Driver(*cores(1))
    shape = any_of("core", "r7.core0", hard=True)
    reason = "asked for core (only r7.core0), but r7.core0 is not there, or has no core"
    assert driver.demand("a", 1, shape) == [Refuse("a", shape, reason, "unknown resource")]
    waiting = Shape(shape.requirements, wait=True)
    assert driver.demand("a", 1, waiting) == []
    assert driver.send(Added(cores(1, "r7"))) == [Grant("a", waiting, (1, 1), ("r7.core0",))]


def test_preferences_work_inside_a_list() -> None:
    driver = Driver(*cores(4))
    shape = Shape(
        (
            Requirement("core"),
            Requirement("core", ("r1.core0",), hard=True),
            Requirement("core", ("r1.core3",)),
        )
    )
    assert driver.take("a", shape) == ("r1.core1", "r1.core0", "r1.core3")


# Memory -----------------------------------------------------------------------------------------------------


def test_memory_comes_with_its_id_and_offset_on_the_host_of_the_resource() -> None:
    driver = Driver(*host("r1", memory_bytes=100), *host("r2", memory_bytes=100))
    shape = Shape(memory_bytes=60)
    assert driver.demand("a", 2, shape) == [
        Grant("a", shape, (1, 1), ("r1.core0",), (("r1.node", 0),)),
        Grant("a", shape, (1, 2), ("r2.core0",), (("r2.node", 0),)),
    ]
    assert driver.take("a", shape) is None, "cores are free, but memory is not"
    assert driver.rm.explain("a")[0].reason == "no host has both the resources and the memory free"
    assert driver.take("b", Shape(memory_bytes=40)) == ("r1.core1",)
    assert driver.release("a") == [Grant("a", shape, (1, 4), ("r1.core0",), (("r1.node", 0),))]


def test_who_has_to_have_a_host_for_its_memory_gets_it_before_those_who_prefer_it() -> None:
    driver = Driver(Resource("r1.node", "node", memory_bytes=100), Resource("r2.node", "node"))
    needs = (Requirement("node"), Requirement("node", ("r1.node",)))
    assert driver.take("a", Shape(needs, memories=(30,))) == ("r1.node", "r2.node")


def test_several_pieces_of_memory_come_in_the_order_asked_for() -> None:
    driver = Driver(*host("r1", memory_bytes=100))
    shape = Shape(memories=(30, 50, 20))
    (grant,) = driver.demand("a", 1, shape)
    assert grant.memories == (("r1.node", 50), ("r1.node", 0), ("r1.node", 80))


def test_the_memory_of_sockets_is_that_of_their_node() -> None:
    sockets = tuple(Resource(f"r1.socket{i}", "socket", ("r1.node",), memory_bytes=50) for i in range(2))
    driver = Driver(Resource("r1.node", "node", memory_bytes=100), *sockets)
    shape = Shape((Requirement("socket"),), memory_bytes=80)
    assert driver.demand("a", 1, shape)[0].memories == (("r1.node", 0),)


def test_more_memory_than_any_host_offers_is_refused() -> None:
    driver = Driver(*host("r1", memory_bytes=100), *host("r2", memory_bytes=50))
    shape = Shape(memory_bytes=101)
    reason = (
        "asked for core + 101 bytes of memory, but no host offers that much memory: the largest has 100 bytes"
    )
    assert driver.demand("a", 1, shape) == [Refuse("a", shape, reason)]


# Refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (several(*["core"] * 9), "9 core at once, but there is: 2 node, 4 socket, 8 core"),
        (several("node", "node", "core"), "no resources that are there fit that together"),
        (several(*["core"] * 5, same_host=True), "no resources that are there fit that together"),
        (several("node", "gpu"), "there is no gpu"),
    ],
)
def test_what_can_never_be_met_is_refused_at_once(shape: Shape, reason: str) -> None:
    driver = Driver(*host("r1"), *host("r2"))
    (refused,) = driver.demand("a", 1, shape)
    assert isinstance(refused, Refuse)
    assert reason in refused.reason
    assert str(shape) in refused.reason


def test_nothing_is_refused_while_resources_are_coming() -> None:
    driver = Driver()
    assert driver.send(Coming("r1")) == []
    assert driver.demand("a", 3, PAIR) == []
    assert driver.demand("b", 1, NODE) == []
    assert driver.rm.explain("a")[0].awaits == ("r1",)
    assert driver.send(Added(cores(2))) == [Grant("a", PAIR, (1, 1), ("r1.core0", "r1.core1"))]
    reason = "asked for node, but there is no node; there is: 2 core"
    assert driver.send(Settled("r1")) == [Refuse("b", NODE, reason, "unknown class")]
    assert driver.send(Settled("r1")) == []


def test_before_anything_was_added_a_demand_is_refused() -> None:
    driver = Driver()
    assert driver.demand("a", 1) == [
        Refuse("a", CORE, "asked for core, but there is no core; there is: nothing", "unknown class")
    ]


# Reservations -----------------------------------------------------------------------------------------------


def stream(driver: Driver, rounds: int, shape: Shape = CORE) -> int:
    """Let job a run tasks that overlap; return the round in which b got its node."""
    for number in range(rounds):
        if driver.granted("b"):
            return number
        driver.demand("a", 4, shape)
        driver.wait(0.1)
        if driver.granted("a"):
            driver.release("a")
    return rounds


def test_a_stream_of_small_requests_does_not_starve_a_large_one() -> None:
    driver = Driver(*host("r1"), recall_after_s=1000, reserve_after_s=0.5)
    driver.demand("a", 4)
    driver.demand("b", 1, NODE)
    assert stream(driver, 30) < 15


def test_without_a_reservation_it_would_starve() -> None:
    driver = Driver(*host("r1"), recall_after_s=1000, reserve_after_s=1000)
    driver.send(Release("a", driver.demand("a", 4)[0].grant_id))
    driver.held["a"].pop(0)
    driver.demand("b", 1, NODE)
    assert stream(driver, 100) == 100


def test_what_is_reserved_is_given_to_nobody_else_and_recalled() -> None:
    driver = Driver(*host("r1"), *host("r2"), reserve_after_s=0.5, recall_after_s=0.0)
    driver.demand("a", 8)
    two = several("node", "node")
    driver.demand("a", 100)
    assert driver.demand("b", 1, two) == [Recall("a", ((1, 1), (1, 2), (1, 3), (1, 4)))], "its share"
    driver.release("a")
    assert len(driver.granted("a")) == 8, "before the reservation, a has it back at once"
    assert driver.wait(0.5)[-1] == Recall("a", ((1, 5), (1, 6), (1, 7), (1, 8), (1, 9)))
    assert driver.rm.status().reserved == Reserved("b", "2 node", ("r1.node", "r2.node"))
    for _ in range(7):
        assert driver.release("a") == []
    assert [grant.resources for grant in driver.release("a")] == [("r1.node", "r2.node")]
    assert driver.rm.status().reserved is None


def test_what_is_done_in_time_backfills_the_gap() -> None:
    long, short, unknown = Shape(estimate_s=8.0), Shape(estimate_s=2.0), CORE
    driver = Driver(*cores(3), reserve_after_s=0.5, recall_after_s=1000)
    driver.demand("a", 2, long)
    driver.demand("b", 1, several("core", "core", "core"))
    driver.wait(1.0)
    assert driver.rm.status().reserved.job == "b"
    assert driver.take("a", unknown) is None
    assert driver.take("a", long) is None, "it would end after the two that are waited for"
    assert driver.take("a", short) == ("r1.core2",)
    driver.wait(5.5)
    driver.release("a", "r1.core2")
    assert driver.take("a", short) is None, "the gap ends at 8 s"
    driver.release("a", "r1.core0")
    assert driver.granted("b") == []
    driver.release("a", "r1.core1")
    assert driver.granted("b") == [("r1.core2", "r1.core0", "r1.core1")]


def test_what_is_to_leave_is_not_put_aside() -> None:
    driver = Driver(*cores(4), reserve_after_s=0.5, recall_after_s=1000)
    driver.demand("a", 4)
    driver.demand("b", 1, several("core", "core", "core"))
    for name in ("r1.core0", "r1.core1", "r1.core2", "r1.core3"):
        driver.send(Removed((name,), "wait"))
        driver.wait(1.0)
        aside = driver.rm.aside
        assert aside is None or name not in aside.resource_ids
        if name == "r1.core0":
            assert aside is not None


@pytest.mark.parametrize("shape", [any_of("core", "r1.node", hard=True), NODE, several("core", "core")])
def test_what_a_request_has_got_before_is_not_put_aside_for_it(shape: Shape) -> None:
    driver = Driver(*host("r1", sockets=1), reserve_after_s=0.5, recall_after_s=0.05)
    while driver.demand("a", 7, shape):
        pass
    for _ in range(10):
        assert driver.wait(0.5) == []
    assert driver.rm.status().reserved is None


def test_withdrawing_the_demand_ends_the_reservation() -> None:
    driver = Driver(*cores(3), reserve_after_s=0.5, recall_after_s=1000)
    driver.take("a")
    driver.demand("b", 1, several("core", "core", "core"))
    driver.wait(1.0)
    assert driver.take("a") is None
    assert driver.demand("b", 0, several("core", "core", "core")) == [Grant("a", CORE, (1, 2), ("r1.core1",))]


def test_two_large_requests_get_their_turn_one_after_the_other() -> None:
    driver = Driver(*cores(4), jobs=("a", "b", "c"), reserve_after_s=0.2, recall_after_s=1000)
    all_four = several(*["core"] * 4)
    driver.demand("a", 4)
    driver.demand("b", 1, all_four)
    driver.demand("c", 1, all_four)
    order = []
    for _ in range(60):
        driver.demand("a", 4)
        driver.wait(0.1)
        for job in ("a", "b", "c"):
            if driver.granted(job):
                if job != "a":
                    order.append(job)
                driver.release(job)
    assert order == ["b", "c"]


def test_who_waited_in_vain_is_looked_at_when_there_is_more_though_others_wait_for_less_long() -> None:
    driver = Driver(*host("r1"), jobs=("a", "b", "c"))
    driver.take("c", NODE)
    driver.demand("a", 1, Shape((Requirement("node"),) * 2, wait=True))
    driver.now = 0.6
    driver.send(Tick())
    assert driver.rm.aside is None, "there is one node only"
    driver.demand("b", 1, PAIR)
    driver.now = 0.7
    driver.send(Added(host("r2")))
    aside = driver.rm.aside
    assert aside is not None
    assert (aside.job, aside.resource_ids) == ("a", ("r1.node", "r2.node"))
