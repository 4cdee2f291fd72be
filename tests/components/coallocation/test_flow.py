from __future__ import annotations

from random import Random

import pytest

from gspc_trio.components.coallocation.flow import (
    BeginFlow,
    CancelFlow,
    CoJobEnded,
    CoJobState,
    EndCoJobs,
    FlowEnded,
    NotRun,
    RequestFlow,
    StartCoJobs,
)
from gspc_trio.components.coallocation.language import JobOrder, order_of
from gspc_trio.components.coallocation.language import parse_coallocation as parse
from gspc_trio.components.coallocation.tree import Multistage, NamedJob
from gspc_trio.core.machine import IllegalEvent
from tests.components.coallocation.long import look_at_tree, random_tree


def test_jobs_start_when_what_they_wait_for_has_finished() -> None:
    flow = RequestFlow(order_of(parse("*(a)(b)(c(wait=2))(d(wait=1,2))")))
    assert flow.handle(BeginFlow(), 0) == [StartCoJobs((1, 2))]
    assert flow.handle(CoJobEnded(2), 0) == [StartCoJobs((3,))]
    assert flow.handle(CoJobEnded(3), 0) == []
    assert flow.handle(CoJobEnded(1), 0) == [StartCoJobs((4,))]
    assert flow.handle(CoJobEnded(4), 0) == [FlowEnded()]
    assert flow.is_over


def test_a_failure_is_answered_to_each_dependent_once_and_others_go_on() -> None:
    flow = RequestFlow(order_of(parse("*(*(*(a)(b))(c)(d))(e(count=1))")))
    assert flow.handle(BeginFlow(), 0) == [StartCoJobs((1, 2))]
    assert flow.handle(CoJobEnded(1, "no such file"), 0) == [NotRun(3, 1), NotRun(4, 1), NotRun(5, 1)]
    assert flow.handle(CoJobEnded(2), 0) == [FlowEnded()]
    assert flow.causes == {3: 1, 4: 1, 5: 1}


def test_cancel_is_answered_when_nothing_runs_any_more() -> None:
    flow = RequestFlow(order_of(parse("*(a)(b)(c(wait=1))")))
    flow.handle(BeginFlow(), 0)
    assert flow.handle(CancelFlow(), 0) == [EndCoJobs((1, 2))]
    assert flow.handle(CancelFlow(), 0) == []
    assert flow.handle(CoJobEnded(1), 0) == []
    assert flow.handle(CoJobEnded(2, "cancelled"), 0) == [FlowEnded()]
    assert flow.states == [CoJobState.FINISHED, CoJobState.CANCELLED, CoJobState.CANCELLED]


def test_what_cannot_be_is_refused() -> None:
    flow = RequestFlow(JobOrder(1, ((),)))
    for event in (CoJobEnded(1), CoJobEnded(2), CoJobEnded(0)):
        with pytest.raises(IllegalEvent):
            flow.handle(event, 0)
    flow.handle(BeginFlow(), 0)
    with pytest.raises(IllegalEvent, match="begun already"):
        flow.handle(BeginFlow(), 0)


@pytest.mark.parametrize("seed", range(4))
def test_every_start_is_that_of_a_naive_model(seed: int) -> None:
    random = Random(seed)
    jobs = [look_at_tree(random_tree(random), random) for _ in range(25)]
    assert max(jobs) > 10


def test_wide_stages_are_joined_by_a_gate() -> None:
    wide = Multistage((Multistage((NamedJob("a"),) * 3000), *(NamedJob("b"),) * 3000))
    order = order_of(wide)
    assert sum(map(len, order.awaited)) == 6000
    flow = RequestFlow(order)
    flow.handle(BeginFlow(), 0)
    for number in range(1, 3000):
        assert flow.handle(CoJobEnded(number), 0) == []
    assert flow.handle(CoJobEnded(3000), 0) == [StartCoJobs(tuple(range(3001, 6001)))]
