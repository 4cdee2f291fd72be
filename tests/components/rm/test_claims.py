"""Grants of an earlier resource manager, which jobs and RIFs claim from the one in its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.components.rm.claims import TAKEN
from gspc_trio.components.rm.events import (
    Added,
    Claimed,
    Coming,
    JobGone,
    JobJoined,
    Removed,
    Rested,
    Resumed,
    Settled,
)
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Release, Revoke, Revoked
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.records.facts import GrantChanged, ResourceChanged
from tests.components.rm.support import NODE, Driver, any_of, cores, host, several


def old(job: str, number: int, *resources: str, shape: Shape = CORE) -> Grant:
    """Return a grant that the resource manager before the tests' own has given."""
    return Grant(job, shape, (0, number), resources)


def held(driver: Driver) -> dict[str, tuple[int, int]]:
    """Return which resources are held, and under which grant."""
    return {
        vertex.resource_id: vertex.holding.grant_id
        for vertex in driver.rm._state.pool.resources.values()
        if vertex.holding is not None
    }


def test_what_a_job_claims_is_given_to_nobody_else() -> None:
    driver = Driver(*cores(2))
    assert driver.send(Claimed("a", (old("a", 5, "r1.core0"),), whole=True)) == []
    assert driver.demand("b", 2) == [Grant("b", CORE, (1, 1), ("r1.core1",))]
    assert driver.wait(0.2)[0].grant_ids == ((0, 5),), "it is recalled as any other"
    assert driver.send(Release("a", (0, 5))) == [Grant("b", CORE, (1, 2), ("r1.core0",))]


def test_which_grant_of_a_resource_is_the_newest_is_known_of_what_this_resource_manager_gave() -> None:
    driver = Driver(*cores(3))
    newest = driver.rm.newest_given
    driver.send(Claimed("a", (old("a", 5, "r1.core0"),), whole=True))
    (grant,) = driver.demand("b", 1, several("core", "core"))
    assert [newest(f"r1.core{n}", (1, 7)) for n in range(3)] == [NO_GRANT, grant.grant_id, grant.grant_id]
    driver.send(Release("b", grant.grant_id))
    assert newest("r1.core1", (1, 7)) == grant.grant_id, "also when it has been given back"
    assert newest("r1.core0", (0, 7)) == (0, 7), "who knows what an earlier one has given?"
    assert newest("r1.core9", (1, 7)) == (1, 7)
    driver.send(Removed(("r1.core1",)))
    driver.send(Added(cores(2)[1:]))
    assert newest("r1.core1", (1, 7)) == NO_GRANT, "none of what was there before is good for it"


def test_what_was_recalled_while_a_job_could_not_hear_it_is_recalled_again() -> None:
    driver = Driver(*cores(1))
    (grant,) = driver.demand("a", 1)
    driver.demand("b", 1)
    assert driver.wait(0.2)[0].grant_ids == (grant.grant_id,)
    assert driver.wait(0.2) == []
    (again,) = driver.send(Claimed("a", (grant,), whole=True))
    assert again.grant_ids == (grant.grant_id,)
    assert driver.send(Release("a", grant.grant_id)) == [Grant("b", CORE, (1, 2), ("r1.core0",))]


@pytest.mark.parametrize("name", ["r1.core0", "r1.socket0", "r1.node"])
def test_what_is_claimed_of_a_host_that_rests_is_held_and_recalled(name: str) -> None:
    driver = Driver(*host("r1"))
    driver.send(Rested((name,)))
    assert driver.send(Claimed("a", (old("a", 5, "r1.core0"),), whole=True)) == [Recall("a", ((0, 5),))]
    assert driver.send(Claimed("a", (old("a", 5, "r1.core0"),))) == [], "said once more, by the host"
    assert held(driver) == {"r1.core0": (0, 5)}
    driver.demand("b", 4)
    assert driver.send(Release("a", (0, 5))) == []
    assert held(driver).keys().isdisjoint({"r1.core0"})
    driver.send(Resumed((name,)))
    assert held(driver).keys() == {"r1.core0", "r1.core1", "r1.core2", "r1.core3"}


@pytest.mark.parametrize("known", [False, True], ids=["the job", "its host first"])
def test_what_was_removed_while_its_job_was_away_is_lost_with_all_of_its_grant(known: bool) -> None:
    driver = Driver(*cores(2, "r1"), *cores(2, "r2"))
    pair = old("a", 5, "r1.core0", "r2.core0", shape=several("core", "core"))
    if known:
        driver.send(Claimed("a", (old("a", 5, "r1.core0"),)))
    assert driver.send(Removed(("r2.core0",), "wait")) == []
    assert driver.send(Claimed("a", (pair, old("a", 6, "r1.core1")), whole=True)) == [
        Lapsed("a", ((0, 5),), TAKEN)
    ]
    assert held(driver) == {"r1.core1": (0, 6)}
    assert driver.take("a", several("core", "core")) == ("r1.core0", "r2.core1"), "nothing is kept from it"


def test_what_a_host_does_not_bring_is_lost() -> None:
    driver = Driver(*cores(1, "r1"))
    pair = old("a", 5, "r1.core0", "r2.core1", shape=several("core", "core"))
    assert driver.send(Claimed("a", (pair,), whole=True)) == []
    assert driver.send(Added(cores(1, "r2"), "r2")) == [Lapsed("a", ((0, 5),), TAKEN)]
    assert held(driver) == {}


@pytest.mark.parametrize(
    "event", [Rested(("r1.node",)), Removed(("r1.node",), "wait")], ids=["rest", "leave"]
)
def test_who_was_away_when_it_should_give_back_is_told_again(event: Any) -> None:
    driver = Driver(*host("r1"))
    (grant,) = driver.demand("a", 1)
    assert driver.send(event) == [Recall("a", (grant.grant_id,))]
    assert driver.send(Claimed("a", (grant,), whole=True)) == [Recall("a", (grant.grant_id,))]


@pytest.mark.parametrize("name", ["r1.core0", "r1.socket0", "r1.node"])
@pytest.mark.parametrize(
    "mine",
    [
        old("a", 5, "r1.core0", shape=any_of("core", "r1.core0")),
        old("a", 5, "r1.core0", shape=Shape((Requirement("core"),), memory_bytes=3)),
        old("a", 6, "r1.core0"),
    ],
    ids=["preferring", "memory", "a later grant"],
)
def test_what_is_to_leave_stays_while_the_job_that_is_back_has_it(name: str, mine: Grant) -> None:
    """Its host has told less of it than the job does, or of a grant that the job had given back."""
    driver = Driver(*host("r1", sockets=1, per_socket=1, memory_bytes=5))
    driver.send(Claimed("a", (old("a", 5, "r1.core0"),)))
    assert driver.send(Removed((name,), "wait")) == [Recall("a", ((0, 5),))]
    there = set(driver.rm._state.pool.resources)
    assert driver.rm.handle(Claimed("a", (mine,), whole=True), 1.0) == [
        GrantChanged(1.0, "a", (0, 5), ("r1.core0",), False),
        GrantChanged(1.0, "a", mine.grant_id, ("r1.core0",), True),
        Recall("a", (mine.grant_id,)),
    ]
    driver.rm.check()
    assert set(driver.rm._state.pool.resources) == there
    actions = driver.rm.handle(Release("a", mine.grant_id), 2.0)
    assert actions[0] == GrantChanged(2.0, "a", mine.grant_id, ("r1.core0",), False)
    gone = [action.resource_id for action in actions[1:] if isinstance(action, ResourceChanged)]
    names = ["r1.core0", "r1.socket0", "r1.node"]
    assert gone == names[: names.index(name) + 1]
    assert len(actions) == 1 + len(gone)
    driver.rm.check()


def test_what_is_not_there_yet_is_held_when_it_comes() -> None:
    driver = Driver(*cores(1, "r1"))
    pair = old("a", 5, "r1.core0", "r2.core0", shape=several("core", "core"))
    driver.send(Claimed("a", (pair,), whole=True))
    assert held(driver) == {"r1.core0": (0, 5)}
    driver.demand("b", 3)
    assert driver.send(Added(cores(2, "r2"), "r2")) == [Grant("b", CORE, (1, 1), ("r2.core1",))]
    assert held(driver) == {"r1.core0": (0, 5), "r2.core0": (0, 5), "r2.core1": (1, 1)}
    assert len(driver.send(Release("a", (0, 5)))) == 2


def test_a_grant_whose_other_half_never_comes_can_be_given_back() -> None:
    driver = Driver(*cores(1, "r1"))
    pair = old("a", 5, "r1.core0", "r2.core0", shape=several("core", "core"))
    driver.send(Claimed("a", (pair, old("a", 6, "r2.core1")), whole=True))
    driver.send(Release("a", (0, 5)))
    assert driver.send(Release("a", (0, 6))) == []
    driver.demand("b", 3)
    assert driver.send(Added(cores(2, "r2"), "r2")) == [
        Grant("b", CORE, (1, 2), ("r2.core0",)),
        Grant("b", CORE, (1, 3), ("r2.core1",)),
    ]


@pytest.mark.parametrize("there", [True, False])
def test_a_grant_of_a_host_that_does_not_come_is_lost_and_its_other_half_revoked(there: bool) -> None:
    driver = Driver(*cores(2)[:1])
    pair = ("r1.core0", "r2.core0") if there else ("r2.core1", "r2.core0")
    driver.send(Coming("r2"))
    driver.send(Claimed("a", (old("a", 5, *pair, shape=several("core", "core")),), whole=True))
    lapsed = Lapsed("a", ((0, 5),), TAKEN)
    assert driver.send(Settled("r3")) == []
    assert driver.send(Settled("r2")) == [lapsed, *[Revoke((0, 5), ("r1.core0",))] * there]
    if there:
        driver.send(Revoked((0, 5), ("r1.core0",)))
    assert held(driver) == {}


def test_what_others_have_by_then_is_lost() -> None:
    driver = Driver(*host("r1"))
    driver.take("b", NODE)
    assert driver.send(Claimed("a", (old("a", 5, "r1.core0"),), whole=True)) == [
        Lapsed("a", ((0, 5),), TAKEN)
    ]
    assert driver.send(Release("a", (0, 5))) == [], "it crossed the news"


def test_a_rif_speaks_for_a_job_until_the_job_does() -> None:
    driver = Driver(*cores(3))
    driver.send(Claimed("a", (old("a", 5, "r1.core0"), old("a", 6, "r1.core1"))))
    driver.demand("b", 3)
    mine = old("a", 6, "r1.core1", shape=any_of("core", "r1.core1"))
    assert driver.send(Claimed("a", (mine,), whole=True)) == [Grant("b", CORE, (1, 2), ("r1.core0",))]
    assert held(driver)["r1.core1"] == (0, 6)
    assert driver.send(Claimed("a", (old("a", 6, "r1.core1"),))) == [], "said once more"


def test_a_job_that_does_not_come_back_has_its_work_revoked() -> None:
    driver = Driver(*cores(1))
    driver.send(Claimed("a", (old("a", 5, "r1.core0"), old("a", 6, "r2.core0"))))
    driver.demand("b")
    assert driver.send(JobGone("a")) == [Revoke((0, 5), ("r1.core0",))]
    assert driver.send(Revoked((0, 5), ("r1.core0",))) == [Grant("b", CORE, (1, 1), ("r1.core0",))]
    assert driver.rm._state.claims == {}


def test_a_job_that_was_cut_off_and_its_resource_manager_agree_again() -> None:
    driver = Driver(*cores(3))
    driver.demand("a", 3)
    first, second, _ = driver.held["a"]
    driver.demand("b", 1)
    assert driver.send(Claimed("a", (first,), whole=True)) == [Grant("b", CORE, (1, 4), ("r1.core1",))]
    assert held(driver) == {"r1.core0": (1, 1), "r1.core1": (1, 4)}
    assert driver.send(Claimed("a", (first, second), whole=True)) == [Lapsed("a", ((1, 2),), TAKEN)]


SHAPES = [CORE, NODE, several("core", "core"), several("core", "node"), any_of("core", "r1.core1", hard=True)]


@settings(max_examples=60)
@given(st.data())
def test_whoever_comes_back_first_all_is_as_it_was(data: st.DataObject) -> None:
    """Jobs work on two hosts; their resource manager goes; hosts and jobs come back in any order."""
    hosts = [host("r1"), host("r2")]
    before = ResourceManager(1)
    seen: dict[str, Any] = {"a": (0, 0), "b": (0, 0)}
    live: dict[Any, Grant] = {}
    now = 0.0
    for event in (*(Added(it, it[0].resource_id) for it in hosts), JobJoined("a"), JobJoined("b")):
        before.handle(event, now)
    for _ in range(data.draw(st.integers(1, 20))):
        now += 1.0
        job = data.draw(st.sampled_from("ab"))
        mine = [grant for grant in live.values() if grant.job == job]
        if mine and data.draw(st.booleans()):
            event: Any = Release(job, data.draw(st.sampled_from(mine)).grant_id)
            del live[event.grant_id]
        else:
            shape = data.draw(st.sampled_from(SHAPES))
            event = Demand(job, shape, data.draw(st.integers(0, 3)), seen[job])
        for action in before.handle(event, now):
            if isinstance(action, Grant):
                live[action.grant_id] = action
                seen[action.job] = max(seen[action.job], action.grant_id)
    after = ResourceManager(2)
    steps: list[Any] = [Added(it, it[0].resource_id) for it in hosts]
    steps += [Claimed(job, tuple(g for g in live.values() if g.job == job), whole=True) for job in "ab"]
    steps += [Claimed(grant.job, (Grant(grant.job, CORE, grant.grant_id, grant.resources[:1]),))
              for grant in live.values() if data.draw(st.booleans())]  # fmt: skip
    for job in "ab":
        after.handle(JobJoined(job), now)
    order = data.draw(st.permutations(steps))
    for step in order:
        actions = after.handle(step, now)
        after.check()
        assert not [action for action in actions if isinstance(action, Grant | Lapsed)]
    there = {grant_id: set(it.resources) for grant_id, it in after._state.grants.items()}
    assert there == {grant_id: set(grant.resources) for grant_id, grant in live.items()}
    for vertex in after._state.pool.resources.values():
        name = vertex.resource_id
        holder = next((g for g, it in live.items() if name in it.resources), None)
        assert (vertex.holding.grant_id if vertex.holding else None) == holder, name


def test_a_job_that_claims_what_another_holds_is_told_that_it_has_lapsed() -> None:
    driver = Driver(*cores(1))
    (grant,) = driver.demand("a", 1)
    driver.demand("b", 1)
    claimed = driver.send(Claimed("b", (grant,), whole=True))
    assert Lapsed("b", (grant.grant_id,), TAKEN) in claimed
    assert driver.rm._state.pool.resources["r1.core0"].holding.want.owner.job == "a"
