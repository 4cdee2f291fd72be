"""Resources that rest: nothing of them is given out, and what is held is asked back."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.components.rm.events import Added, JobJoined, Removed, Rested, Resumed
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import ClassNeed, Demand, Grant, Recall, Release
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Requirement, Shape

CORE = Shape((Requirement("core"),))
NODE = Shape((Requirement("node"),))


class Bench:
    """A resource manager with hosts of a node and two cores each, and one job."""

    def __init__(self, hosts: int = 2) -> None:
        self.machine = ResourceManager(1)
        for number in range(1, hosts + 1):
            rif = f"r{number}"
            cores = [Resource(f"{rif}.core{i}", "core", (f"{rif}.node",)) for i in range(2)]
            self.give(Added((Resource(f"{rif}.node", "node"), *cores), rif))
        self.give(JobJoined("j1"))

    def give(self, event: Any, now: float = 0.0) -> list[Any]:
        out = self.machine.handle(event, now)
        self.machine.check()
        return out

    def granted(self, event: Any, now: float = 0.0) -> set[str]:
        return {name for one in self.give(event, now) if isinstance(one, Grant) for name in one.resources}


@pytest.mark.parametrize("names", [("r1.node",), ("r1.core0", "r1.core1")])
def test_nothing_that_rests_is_given_out_until_it_is_resumed(names: tuple[str, ...]) -> None:
    bench = Bench()
    bench.give(Rested(names))
    assert bench.granted(Demand("j1", CORE, 4, NO_GRANT)) == {"r2.core0", "r2.core1"}
    assert bench.granted(Resumed(names)) == {"r1.core0", "r1.core1"}


def test_nothing_above_what_rests_is_given_out() -> None:
    bench = Bench()
    bench.give(Rested(("r1.core0",)))
    assert bench.granted(Demand("j1", NODE, 2, NO_GRANT)) == {"r2.node"}
    assert bench.granted(Resumed(("r1.core0",))) == {"r1.node"}


def test_what_is_held_is_asked_back_and_not_given_out_again() -> None:
    bench = Bench(hosts=1)
    (grant,) = [one for one in bench.give(Demand("j1", CORE, 1, NO_GRANT)) if isinstance(one, Grant)]
    assert bench.give(Rested(("r1.node",))) == [Recall("j1", (grant.grant_id,))]
    assert bench.granted(Demand("j1", CORE, 3, grant.grant_id)) == set()
    assert bench.granted(Release("j1", grant.grant_id)) == set()
    assert bench.granted(Resumed(("r1.node",))) == {"r1.core0", "r1.core1"}


def test_who_waits_for_what_rests_is_not_refused() -> None:
    bench = Bench(hosts=1)
    bench.give(Rested(("r1.node",)))
    assert bench.give(Demand("j1", NODE, 1, NO_GRANT)) == []
    (entry,) = bench.machine.explain("j1")
    assert entry.needs["node"] == ClassNeed(1, 1, 1)


def test_what_rests_may_be_removed() -> None:
    bench = Bench()
    bench.give(Rested(("r1.node", "r2.core0")))
    bench.give(Removed(("r1.node",), "wait"))
    assert bench.granted(Demand("j1", CORE, 4, NO_GRANT)) == {"r2.core1"}
    assert bench.granted(Resumed(("r1.node", "r2.core0"))) == {"r2.core0"}


def test_what_rests_is_not_there_for_who_waits_others_are_asked_for_theirs() -> None:
    bench = Bench()
    bench.give(JobJoined("j2"))
    bench.give(Rested(("r2.node",)))
    held = [one for one in bench.give(Demand("j1", CORE, 9, NO_GRANT)) if isinstance(one, Grant)]
    assert [grant.resources for grant in held] == [("r1.core0",), ("r1.core1",)]
    assert bench.give(Demand("j2", CORE, 2, NO_GRANT), 1.0) == [Recall("j1", (held[0].grant_id,))]
