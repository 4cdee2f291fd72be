"""Bad input: a typed error that names what is wrong, and nothing has changed."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.components.rm import errors
from gspc_trio.components.rm.events import Added, JobGone, JobJoined, Removed
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Interrupt, Release, Revoked
from gspc_trio.components.rm.state import Limits
from gspc_trio.components.worker.messages import Cancel
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Shape
from tests.components.rm.support import NODE, Driver, host, several


@pytest.fixture
def driver() -> Driver:
    """Job a holds cores 0 and 1 of r1 under grant 1, b core 2 under grant 2, grant 3 is over, 4 is r2."""
    driver = Driver(*host("r1"), *host("r2"))
    driver.take("a", several("core", "core"))
    driver.take("b")
    driver.take("b")
    driver.release("b", "r1.core3")
    driver.demand("b", 2, NODE)
    return driver


A = Resource("r3.a", "core")

BAD: list[tuple[Any, type[Exception], str]] = [
    (Cancel("a", "r1.core0", ()), IllegalEvent, "is no event of the resource manager"),
    (JobJoined("a"), errors.DuplicateJob, "job a has joined already"),
    (JobJoined("c", 0.0), errors.BadWeight, "weight 0.0"),
    (JobJoined("c", float("nan")), errors.BadWeight, "weight nan"),
    (JobGone("c"), errors.UnknownJob, "job c has not joined"),
    (Interrupt("c"), errors.UnknownJob, "job c has not joined"),
    (Demand("c", CORE, 1, NO_GRANT), errors.UnknownJob, "job c has not joined"),
    (Demand("a", CORE, -1, NO_GRANT), errors.BadDemand, "credit -1"),
    (Demand("a", CORE, 1, (1, 99)), errors.BadDemand, r"seen grant \(1, 99\), which was never given"),
    (Demand("a", Shape(()), 1, NO_GRANT), errors.BadDemand, "without requirements"),
    (Demand("a", Shape(memory_bytes=-1), 1, NO_GRANT), errors.BadDemand, "not positive"),
    (Demand("a", Shape(memories=(0,)), 1, NO_GRANT), errors.BadDemand, "not positive"),
    (Release("a", (1, 99)), errors.UnknownGrant, r"grant \(1, 99\) was never given"),
    (Release("a", (0, 1)), errors.UnknownGrant, r"grant \(0, 1\) was never given"),
    (Release("b", (1, 3)), errors.DoubleRelease, r"grant \(1, 3\) has been given back already"),
    (Release("b", (1, 1)), errors.NotYours, r"grant \(1, 1\) is held by a, not by b"),
    (Release("c", (1, 1)), errors.UnknownJob, "job c has not joined"),
    (Release("a", (1, 1), ("r1.core2",)), errors.NotYours, "r1.core2 is not part of grant"),
    (Release("a", (1, 1), ("r1.core0", "r1.core0")), errors.DoubleRelease, "named twice"),
    (Revoked((1, 1), ("r1.core0",)), errors.UnknownGrant, "has not been revoked"),
    (Revoked((1, 77), ("r1.core0",)), errors.UnknownGrant, "has not been revoked"),
    (Removed(("r9.core0",)), errors.UnknownResource, "there is no resource r9.core0"),
    (Removed(("r2.core0", "r9.core0")), errors.UnknownResource, "there is no resource r9.core0"),
    (Removed(("r1.node",), "refuse"), errors.ResourceHeld, "b holds r1.core2"),
    (Removed(("r1.node",), "perhaps"), errors.BadPolicy, "there are lose, wait, refuse"),
    (Added((A, Resource("r1.core0", "core"))), errors.DuplicateResource, "r1.core0 is there"),
    (Added((A, A)), errors.DuplicateResource, "r3.a is named twice"),
    (Added((Resource("r3.a", "core", ("r3.b",)),)), errors.UnknownResource, "r3.a has the parent r3.b"),
    (
        Added((Resource("r3.x", "core", ("r3.y",)), Resource("r3.y", "core", ("r3.x",)), A)),
        errors.CyclicResources,
        "form a cycle: r3.x, r3.y",
    ),
    (Added((Resource("r1.gpu", "gpu", ("r1.core0",)),)), errors.AddClashes, "r1.core0 is held by a"),
]  # fmt: skip


@pytest.mark.parametrize(("event", "error", "message"), BAD)
def test_bad_input_raises_and_changes_nothing(
    driver: Driver, event: Any, error: type[Exception], message: str
) -> None:
    before = driver.rm.status(), driver.rm.explain("a"), driver.rm.explain("b"), driver.rm.deadline()
    with pytest.raises(error, match=message):
        driver.rm.handle(event, 0.0)
    driver.rm.check()
    assert (
        driver.rm.status(),
        driver.rm.explain("a"),
        driver.rm.explain("b"),
        driver.rm.deadline(),
    ) == before
    assert driver.take("a") == ("r1.core3",)
    assert driver.history[-1].grant_id == (1, 5), "no grant id was used up"


def test_part_of_a_grant_given_back_twice(driver: Driver) -> None:
    driver.send(Release("a", (1, 1), ("r1.core0",)))
    with pytest.raises(errors.DoubleRelease, match=r"r1\.core0 of grant"):
        driver.send(Release("a", (1, 1), ("r1.core0",)))
    driver.send(Release("a", (1, 1)))
    with pytest.raises(errors.DoubleRelease, match="has been given back already"):
        driver.send(Release("a", (1, 1)))


def test_a_grant_of_an_earlier_epoch_is_unknown() -> None:
    rm = ResourceManager(5)
    rm.handle(JobJoined("a"), 0.0)
    with pytest.raises(errors.UnknownGrant, match=r"grant \(4, 1\) was never given by this resource manager"):
        rm.handle(Release("a", (4, 1)), 0.0)
    assert rm.handle(Demand("a", CORE, 0, (4, 17)), 0.0) == [], (
        "what was seen before is older than all to come"
    )


def test_a_job_may_wait_for_so_many_shapes_at_a_time() -> None:
    rm = ResourceManager(1, Limits(shapes_max=3))
    rm.handle(JobJoined("a"), 0.0)
    shapes = [Shape(memory_bytes=size, wait=True) for size in range(1, 6)]
    for shape in shapes[:3]:
        rm.handle(Demand("a", shape, 1, NO_GRANT), 0.0)
    with pytest.raises(errors.TooManyShapes, match="waits for 3 shapes already"):
        rm.handle(Demand("a", shapes[3], 1, NO_GRANT), 0.0)
    rm.handle(Demand("a", shapes[0], 0, NO_GRANT), 0.0)
    rm.handle(Demand("a", shapes[3], 1, NO_GRANT), 0.0)
    rm.check()
    assert len(rm.status().jobs["a"].demand) == 3
