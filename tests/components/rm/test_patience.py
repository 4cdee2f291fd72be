"""Preferences are worth waiting for, whatever the form of the request: memory, several, all on one host.

Requirements: RM-7.
"""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.events import Added, Removed
from gspc_trio.components.rm.messages import Grant
from gspc_trio.core.task import Requirement, Shape
from tests.components.rm.support import Driver, any_of, cores, host, several

HOME = ("r1.node",)
NEAR = Requirement("core", HOME)
MEMORY = Shape((NEAR,), memory_bytes=30)
PIECES = Shape((NEAR,), memories=(10, 10))
PAIR = Shape((NEAR, Requirement("core")))
BOTH = Shape((NEAR, NEAR))
TOGETHER = Shape((NEAR, Requirement("core")), same_host=True)
FORMS = [MEMORY, PIECES, PAIR, BOTH, TOGETHER]
NAMES = ["memory", "pieces", "pair", "both", "together"]


def two_hosts(**limits: float) -> Driver:
    """Return two hosts of two cores with memory; job b has the cores of the first."""
    resources = [*host("r1", 1, 2, memory_bytes=100), *host("r2", 1, 2, memory_bytes=100)]
    driver = Driver(*resources, **{"patience_s": 0.1, "recall_after_s": 60, "reserve_after_s": 60, **limits})
    driver.take("b", Shape((Requirement("core", HOME, True),) * 2, memory_bytes=80))
    return driver


@pytest.mark.parametrize("shape", FORMS, ids=NAMES)
def test_what_is_preferred_is_given_when_it_comes_free_in_time(shape: Shape) -> None:
    driver = two_hosts()
    assert driver.take("a", shape) is None, "the other host is free"
    assert driver.wait(0.09) == []
    (grant,) = driver.release("b")
    assert (grant.job, grant.resources[0]) == ("a", "r1.core0")


@pytest.mark.parametrize("shape", FORMS, ids=NAMES)
def test_the_wait_for_it_is_bounded(shape: Shape) -> None:
    driver = two_hosts()
    driver.take("a", shape)
    (entry,) = driver.rm.explain("a")
    assert entry.reason == "still waits for one of r1.node"
    assert entry.patient_until_s == entry.since_s + 0.1
    assert driver.wait(0.09) == []
    (grant,) = driver.wait(0.02)
    assert (grant.job, grant.resources[0]) == ("a", "r2.core0")
    assert driver.rm.deadline() is None


@pytest.mark.parametrize("shape", FORMS, ids=NAMES)
def test_the_time_runs_only_while_there_is_something_else(shape: Shape) -> None:
    driver = two_hosts()
    driver.take("b", Shape((Requirement("core", ("r2.node",), True),) * 2))
    driver.take("a", shape)
    assert driver.wait(10) == [], "its turn has not come"
    assert driver.rm.explain("a")[0].patient_until_s is None
    assert driver.release("b", "r2.core0") == [], "the preferred one may follow at once"
    assert driver.wait(0.09) == []
    (grant,) = driver.release("b", "r1.core0")
    assert grant.resources[0] == "r1.core0"


def test_memory_that_is_taken_everywhere_is_nothing_to_decline() -> None:
    driver = two_hosts()
    driver.take("b", Shape((Requirement("core", ("r2.node",), True),), memory_bytes=80))
    driver.take("a", MEMORY)
    assert driver.wait(10) == [], "a core is free, but no memory with it"
    (grant,) = driver.release("b")
    assert grant.resources == ("r1.core0",)


def test_what_others_take_in_time_costs_no_patience() -> None:
    driver = two_hosts()
    elsewhere = Shape((Requirement("core", ("r2.node",), True),) * 2)
    driver.take("b", elsewhere)
    driver.take("a", PAIR)
    for _ in range(5):
        assert driver.release("b", "r2.core0") == []
        assert driver.wait(0.08) == []
        assert driver.take("b", elsewhere) is not None
        assert driver.wait(1) == []


def test_each_requirement_says_how_long_it_insists() -> None:
    driver = Driver(*cores(2, "r1"), *cores(1, "r2"), *cores(2, "r3"), recall_after_s=60, reserve_after_s=60)
    driver.take("b", any_of("core", "r1.core0"))
    driver.take("b", any_of("core", "r2.core0"))
    long, short = (Requirement("core", (f"r{n}.core0",), patience_s=s) for n, s in ((1, 2.0), (2, 0.5)))
    shape = Shape((long, short))
    assert driver.take("a", shape) is None
    (entry,) = driver.rm.explain("a")
    assert entry.reason == "still waits for one of r1.core0 and one of r2.core0"
    assert driver.wait(1.0) == []
    assert driver.rm.explain("a")[0].reason == "still waits for one of r1.core0"
    assert driver.wait(0.9) == []
    assert driver.release("b") == [Grant("a", shape, (1, 3), ("r1.core0", "r1.core1"))]


def test_without_patience_others_will_do_at_once() -> None:
    driver = two_hosts()
    now = Requirement("core", HOME, patience_s=0)
    assert driver.take("a", Shape((now, Requirement("core")))) == ("r2.core0", "r2.core1")


def test_what_does_not_go_together_is_not_insisted_on() -> None:
    driver = two_hosts()
    apart = Shape((NEAR, Requirement("core", ("r2.node",))), same_host=True)
    assert driver.take("a", apart) is None
    assert driver.rm.explain("a")[0].reason == "still waits for one of r1.node"
    three = Shape((Requirement("core", ("r2.node",)),) * 3)
    assert driver.take("a", three) is None, "two of them go together"
    (grant,) = driver.release("b")
    assert grant.resources == ("r1.core0", "r1.core1")
    assert driver.release("a")[0].resources == ("r2.core0", "r2.core1", "r1.core0")


def test_what_is_preferred_and_goes_is_not_waited_for() -> None:
    driver = Driver(*cores(2, "r1"), patience_s=10)
    driver.take("b", any_of("core", "r1.core0"))
    shape = Shape((Requirement("core", ("r1.core0",)), Requirement("core")))
    driver.demand("a", 1, shape)
    driver.send(Added(cores(2, "r2")))
    assert driver.granted("a") == [], "patient, and others are there"
    (_, grant) = driver.send(Removed(("r1.core0",)))
    assert grant.resources == ("r1.core1", "r2.core0")


def test_one_who_has_lost_patience_finds_it_for_what_was_asked_for_later() -> None:
    driver = two_hosts(patience_s=0.1)
    driver.demand("a", 1, MEMORY)
    driver.wait(0.06)
    driver.demand("a", 2, MEMORY)
    assert len(driver.wait(0.05)) == 1
    (entry,) = driver.rm.explain("a")
    assert entry.patient_until_s == pytest.approx(0.16)
    (grant,) = driver.wait(0.06)
    assert grant.resources == ("r2.core1",)


# Starvation -------------------------------------------------------------------------------------------------


def test_a_stream_of_others_does_not_starve_who_prefers() -> None:
    """What is put aside for it is what it prefers."""
    driver = two_hosts(recall_after_s=1000, reserve_after_s=0.5)
    driver.release("b")
    driver.demand("b", 4)
    driver.demand("a", 1, BOTH)
    for _ in range(40):
        driver.demand("b", 4)
        driver.wait(0.05)
        if driver.granted("a"):
            break
        driver.release("b")
    assert driver.granted("a") == [("r1.core0", "r1.core1")]


def test_nothing_else_is_put_aside_for_who_has_all_that_it_prefers() -> None:
    """It gets more when its own job gives back: what it does not prefer is left to others."""
    driver = two_hosts(recall_after_s=1000, reserve_after_s=0.5)
    driver.release("b")
    driver.demand("b", 2, any_of("core", "r2.node", hard=True))
    driver.demand("a", 3, MEMORY)
    assert driver.granted("a") == [("r1.core0",), ("r1.core1",)]
    driver.wait(1.0)
    assert driver.rm.status().reserved is None


@pytest.mark.parametrize("shape", [BOTH, any_of("node", "r1.node")], ids=["pair", "node"])
def test_nothing_is_put_aside_idle_for_longer_than_the_patience(shape: Shape) -> None:
    """One core of the host that it prefers stays in use: it takes what comes free elsewhere."""
    driver = two_hosts(recall_after_s=1000, reserve_after_s=0.5, patience_s=0.1)
    driver.release("b")
    driver.demand("b", 4)
    driver.demand("a", 1, shape)
    driver.wait(0.6)
    targets = driver.rm.status().reserved.resources
    assert all(name.startswith("r1.") for name in targets)
    driver.release("b", "r1.core0")
    assert driver.granted("a") == []
    driver.wait(0.09)
    assert driver.rm.status().reserved.resources == targets
    driver.wait(0.02)
    driver.release("b", "r2.core0")
    assert driver.granted("a") == []
    driver.release("b", "r2.core1")
    assert [grant[0].partition(".")[0] for grant in driver.granted("a")] == ["r2"]


def test_who_is_patient_is_not_given_what_is_put_aside_for_others() -> None:
    driver = Driver(*cores(3, "r1"), patience_s=60, reserve_after_s=0.5, recall_after_s=1000)
    driver.demand("b", 2, Shape(estimate_s=8.0))
    driver.demand("b", 1, several("core", "core", "core"))
    driver.wait(1.0)
    assert driver.rm.status().reserved.shape == "3 core"
    assert driver.take("b") is None, "nobody knows whether it is over in time"
    short = Shape((Requirement("core", ("r1.core0",)),), estimate_s=2.0)
    assert driver.take("a", short) is None, "it prefers another than the one that is free"
    assert driver.take("a", Shape(estimate_s=2.0)) == ("r1.core2",)


def test_what_prefers_nothing_goes_where_the_rest_is_preferred() -> None:
    resources = [*host("r1", 1, 2), *host("r2", 1, 2), *host("r3", 1, 2)]
    driver = Driver(*resources, recall_after_s=60, reserve_after_s=60)
    given = []
    for number in (3, 1, 2):
        taken = driver.take("a", Shape((Requirement("core", (f"r{number}.node",)), Requirement("core"))))
        assert taken is not None
        given.append({name.partition(".")[0] for name in taken})
    assert given == [{"r3"}, {"r1"}, {"r2"}]


def test_where_there_is_no_room_beside_it_anything_will_do() -> None:
    driver = Driver(*cores(1, "r1"), *cores(1, "r2"), recall_after_s=60, reserve_after_s=60)
    assert driver.take("a", Shape((Requirement("core", ("r2.core0",)), Requirement("core")))) == (
        "r2.core0",
        "r1.core0",
    )
