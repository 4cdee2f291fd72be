"""What a host may bring that is on its way is waited for; what it cannot bring is refused at once."""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.events import Added, Coming, Removed, Settled
from gspc_trio.components.rm.messages import Grant, Refuse
from gspc_trio.core.task import CORE, Shape
from tests.components.rm.support import NODE, Driver, any_of, cores, host, several

MEMORY = Shape(memory_bytes=80)
FIVE = several(*["core"] * 5, same_host=True)


def one_lost() -> Driver:
    """Return a host without memory, and one with it that is lost and started again."""
    driver = Driver(*host("r1", 1, 2), *host("r2", 1, 3, memory_bytes=100))
    driver.send(Coming("r2", host("r2", 1, 3, memory_bytes=100), "berta"))
    driver.send(Removed(tuple(one.resource_id for one in host("r2", 1, 3))))
    return driver


@pytest.mark.parametrize(
    "shape",
    [
        MEMORY,
        several("core", "core", "core", same_host=True),
        several(*["core"] * 4),
        several("node", "node"),
        any_of("core", "r2.core1", hard=True),
    ],
    ids=str,
)
def test_what_a_lost_host_could_meet_is_waited_for(shape: Shape) -> None:
    driver = one_lost()
    assert driver.take("a", shape) is None
    (entry,) = driver.rm.explain("a")
    assert entry.awaits == ("r2",)
    assert driver.rm.status().coming == {"node": 1, "socket": 1, "core": 3}
    driver.send(Added(host("r2", 1, 3, memory_bytes=100), "berta"))
    assert len(driver.granted("a")) == 1
    assert driver.send(Settled("r2")) == []


@pytest.mark.parametrize(
    "shape",
    [
        Shape(memory_bytes=101),
        FIVE,
        several(*["core"] * 6),
        several("node", "node", "node"),
        any_of("core", "r3.core0", hard=True),
        several("gpu", "core"),
    ],
    ids=str,
)
def test_what_no_host_could_meet_is_refused_though_one_is_on_its_way(shape: Shape) -> None:
    driver = one_lost()
    (refused,) = driver.demand("a", 1, shape)
    assert isinstance(refused, Refuse)
    assert refused.reason.startswith(f"asked for {shape}")
    assert refused.reason.endswith("; what is on its way will not do either: 1 node, 1 socket, 3 core")


def test_what_waits_for_a_host_is_refused_when_that_does_not_come() -> None:
    driver = one_lost()
    driver.demand("a", 1, MEMORY)
    reason = (
        "asked for core + 80 bytes of memory, but no host offers that much memory: the largest has 0 bytes"
    )
    assert driver.send(Settled("r2")) == [Refuse("a", MEMORY, reason)]


def test_what_waits_for_a_host_is_refused_when_that_turns_out_to_be_smaller() -> None:
    driver = Driver()
    driver.send(Coming("r1"))
    assert driver.demand("a", 1, several("core", "core")) == [], "nobody knows what it has"
    assert driver.demand("b", 1, CORE) == []
    (refused,) = driver.send(Coming("r1", cores(1)))
    assert (refused.job, refused.kind) == ("a", "unknown class")
    assert driver.send(Added(cores(1))) == [Grant("b", CORE, (1, 1), ("r1.core0",))]


def test_a_host_on_its_way_is_named_beside_who_holds_what_there_is() -> None:
    driver = one_lost()
    driver.take("b", NODE)
    driver.take("a", NODE)
    (waiting,) = driver.rm.explain("a")
    assert (waiting.awaits, waiting.reason) == (("r2",), "0 of 1 node free, held by b")


def test_a_host_on_its_way_is_not_named_where_another_is_insisted_on() -> None:
    driver = one_lost()
    driver.take("b", NODE)
    driver.take("a", any_of("core", "r1.core0", hard=True))
    assert driver.rm.explain("a")[0].awaits == ()
