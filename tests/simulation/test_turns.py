"""Whose turn it is, as the simulation judges what a resource manager does."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.components.rm.events import Added, Claimed, JobJoined, Removed
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Release, Revoked
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.testing.checkers.base import Broken, Family
from gspc_trio.testing.checkers.grants import Grants
from gspc_trio.testing.checkers.turns import LIMITS, Turns
from gspc_trio.testing.checkers.waiting import Waiting

PREFERRING = Shape((Requirement("core", ("r1.core0",)),))


class Judged:
    """A resource manager with three cores, and the checker that looks at it."""

    def __init__(self) -> None:
        self.rm = ResourceManager(1)
        family = Family()
        self.grants = Grants(family, lambda: 0.0)
        self.waiting = Waiting(family, self.grants)
        self.turns = Turns(family, self.grants, self.waiting)
        self.send(Added(tuple(Resource(f"r1.core{index}", "core") for index in range(3))), 0.0)
        self.send(JobJoined("a"), 0.0)

    def send(self, event: Any, now: float) -> None:
        self.say(event, now, self.rm.handle(event, now))

    def say(self, event: Any, now: float, actions: list[Any]) -> None:
        """Let the checker see an event and actions, whoever took them."""
        self.grants.saw(event, now, actions)
        self.waiting.take(event, now, actions)
        self.turns.saw(event, now, actions, self.rm.aside)


@pytest.fixture
def judged() -> Judged:
    """Both cores but the first are free, for which a request has waited a while, and a second comes."""
    found = Judged()
    found.send(Demand("a", CORE, 1, NO_GRANT), 0.0)
    assert found.grants.live[1, 1].left == {"r1.core0"}
    found.send(Demand("a", PREFERRING, 1, (1, 1)), 0.0)
    found.send(Demand("a", PREFERRING, 2, (1, 1)), 0.8 * LIMITS.patience_s)
    return found


def test_a_request_that_came_later_declines_what_is_free_since_then(judged: Judged) -> None:
    patience_s = LIMITS.patience_s
    judged.send(Release("a", (1, 1)), 0.9 * patience_s)
    assert judged.grants.live[1, 2].left == {"r1.core0"}
    judged.send(Tick(), 1.5 * patience_s)
    assert judged.grants.credit(("a", PREFERRING)) == 1, "the second is patient still"
    judged.send(Tick(), 1.8 * patience_s)
    assert judged.grants.credit(("a", PREFERRING)) == 0
    assert judged.grants.live[1, 3].left <= {"r1.core1", "r1.core2"}


@pytest.mark.parametrize(("released", "after"), [(False, 1.1), (True, 1.9)])
def test_nobody_waits_for_what_he_prefers_longer_than_he_has_patience(
    judged: Judged, released: bool, after: float
) -> None:
    if released:
        judged.send(Release("a", (1, 1)), 0.9 * LIMITS.patience_s)
    with pytest.raises(Broken, match=r"too long, and there is r1.core[12]"):
        judged.say(Tick(), after * LIMITS.patience_s, [])


def test_what_is_revoked_is_free_only_when_its_host_says_so() -> None:
    """Its job may come back meanwhile, and speak of the grant or not."""
    for claims_it in (True, False):
        judged = Judged()
        pair = Shape((Requirement("core"), Requirement("core")))
        judged.send(Demand("a", pair, 1, NO_GRANT), 0.0)
        (grant,) = judged.grants.live.values()
        gone, left = sorted(grant.left)
        judged.send(Removed((gone,), "lose"), 1.0)
        claims = (Grant("a", pair, (1, 1), (gone, left)),) if claims_it else ()
        judged.send(Claimed("a", claims, whole=True), 2.0)
        assert not judged.grants.is_open(left)
        judged.send(Revoked((1, 1), (left,)), 3.0)
        assert judged.grants.is_open(left)
