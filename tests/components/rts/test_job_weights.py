"""A job's weight that is changed while it runs: the RTS answers, the RM shares accordingly."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gspc_trio.components.rm.errors import BadWeight, UnknownJob
from gspc_trio.components.rm.events import Added, JobJoined, JobWeighed
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.components.rts import actions, events
from gspc_trio.components.rts.actions import TellJobs
from gspc_trio.components.rts.machine import Rts
from gspc_trio.components.rts.messages import NewWeight, RegisterJob
from gspc_trio.components.rts.state import Limits
from gspc_trio.core.ids import NO_GRANT, GrantId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE
from tests.components.rts.support import back_as


def held_after(weights: dict[str, float]) -> dict[str, int]:
    """Return how many of twelve cores each job has after all were released once, with these weights."""
    rm = ResourceManager(1)
    held: dict[str, list[GrantId]] = {job: [] for job in weights}

    def do(event: Any) -> None:
        for action in rm.handle(event, 0.0):
            if isinstance(action, Grant):
                held[action.job].append(action.grant_id)
        rm.check()

    do(Added(tuple(Resource(f"r1.core{n}", "core") for n in range(12))))
    for job in weights:
        do(JobJoined(job))
    for job in weights:
        do(Demand(job, CORE, 100, NO_GRANT))
    for job, weight in weights.items():
        do(JobWeighed(job, weight))
    for job, grants in held.items():
        for grant_id in list(grants):
            grants.remove(grant_id)
            do(Release(job, grant_id))
    return {job: len(grants) for job, grants in held.items()}


def test_shares_follow_the_weights() -> None:
    assert held_after({"a": 3.0, "b": 1.0}) == {"a": 9, "b": 3}
    assert held_after({"a": 1.0, "b": 1.0}) == {"a": 6, "b": 6}


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_a_weight_is_a_number_more_than_0(weight: float) -> None:
    rm = ResourceManager(1)
    rm.handle(JobJoined("a"), 0.0)
    with pytest.raises(BadWeight):
        rm.handle(JobWeighed("a", weight), 0.0)
    assert rm.status().jobs["a"].weight == 1.0
    rts = Rts(frozenset())
    rts.handle(events.JobConnected(1, RegisterJob("fit", 7, "h")), 0.0)
    (answer,) = rts.handle(events.WeightAsked(5, "j1", weight), 0.0)
    assert isinstance(answer, actions.QuestionRefused)
    assert rts.jobs[0].weight == 1.0


def test_the_run_time_system_tells_the_resource_manager_and_answers() -> None:
    rts = Rts(frozenset())
    rts.handle(events.JobConnected(1, RegisterJob("fit", 7, "h")), 0.0)
    assert rts.handle(events.WeightAsked(5, "j1", 2.5), 0.0) == [
        actions.TellRm(JobWeighed("j1", 2.5)),
        TellJobs(("j1",), NewWeight(2.5)),
        actions.Answer(5, actions.Weighed()),
    ]
    assert rts.jobs[0].weight == 2.5
    assert rts.handle(events.WeightAsked(6, "j7", 2.5), 0.0) == [
        actions.QuestionRefused(6, "there is no job j7; registered: j1")
    ]


def test_the_priority_of_a_job_changes_with_its_weight_if_one_is_said() -> None:
    """Of two that wait, the job of the higher priority gets what comes free."""
    rm = ResourceManager(1)
    rm.handle(Added((Resource("r1.core0", "core"),), "h"), 0.0)
    for job in ("first", "a", "b"):
        rm.handle(JobJoined(job, 1.0, 1), 0.0)
        rm.handle(Demand(job, CORE, 1, NO_GRANT), 0.0)
    rm.handle(JobWeighed("a", 2.0), 0.0)
    rm.handle(JobWeighed("b", 1.0, 2), 0.0)
    out = rm.handle(Release("first", (1, 1)), 0.0)
    rm.check()
    assert [action.job for action in out if isinstance(action, Grant)] == ["b"]


def test_an_unknown_job_has_no_weight() -> None:
    with pytest.raises(UnknownJob):
        ResourceManager(1).handle(JobWeighed("a", 1.0), 0.0)


def test_a_job_that_comes_back_keeps_the_weight_that_it_was_given() -> None:
    """It may have gone before it heard of it, and says what it said at first."""
    rts = Rts(frozenset(), Limits(grace_s=30.0))
    first = events.JobConnected(1, RegisterJob("fit", 7, "h"))
    rts.handle(first, 0.0)
    rts.handle(events.WeightAsked(5, "j1", 2.5), 0.0)
    rts.handle(events.JobServerGone("j1", "nothing heard", silent=True, link=1), 1.0)
    back = rts.handle(back_as(replace(first, link=2), "j1"), 2.0)
    assert actions.TellRm(JobWeighed("j1", 2.5, 0, "")) in back
    assert TellJobs(("j1",), NewWeight(2.5)) in back
    assert rts.jobs[0].weight == 2.5
