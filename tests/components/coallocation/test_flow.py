from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from gspc_trio.components.coallocation.tree import Multistage, NamedJob, Option, Request, jobs_of
from gspc_trio.core.machine import IllegalEvent


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


# A naive model: what each job waits for, from the words of the language, asked anew each time ---------------


def naive_waits(request: Request) -> dict[int, set[int]]:
    jobs = list(jobs_of(request))
    if any(job.options for job in jobs):
        stated = [job.options[0].values[0].split(",") if job.options else [] for job in jobs]
        return {number: set(map(int, texts)) for number, texts in enumerate(stated, 1)}
    waits: dict[int, set[int]] = {}
    counter = iter(range(1, len(jobs) + 1))

    def visit(one: Request) -> set[int]:
        if not isinstance(one, Multistage):
            return {next(counter)}
        under = [(stage, visit(stage)) for stage in one.stages]
        below = set().union(*(numbers for stage, numbers in under if isinstance(stage, Multistage)))
        for stage, numbers in under:
            if not isinstance(stage, Multistage):
                waits[min(numbers)] = below
        return set().union(*(numbers for _, numbers in under))

    visit(request)
    return {number: waits.get(number, set()) for number in range(1, len(jobs) + 1)}


LEAVES: st.SearchStrategy[Request] = st.just(NamedJob("a"))
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, min_size=1, max_size=4).map(lambda s: Multistage(tuple(s)))
)


@st.composite
def explicit(draw: st.DrawFn) -> Request:
    count = draw(st.integers(1, 8))
    rank = draw(st.permutations(range(1, count + 1)))
    stages = []
    for number in range(1, count + 1):
        earlier = [other for other in range(1, count + 1) if rank[other - 1] < rank[number - 1]]
        awaited = draw(st.lists(st.sampled_from(earlier), max_size=3)) if earlier else []
        texts = ",".join(map(str, awaited))
        stages.append(NamedJob("a", (Option("wait", (texts,)),) if awaited else ()))
    return Multistage(tuple(stages))


@given(TREES | explicit(), st.data())
@settings(max_examples=60, deadline=None)
def test_every_start_is_that_of_a_naive_model(request: Request, data: st.DataObject) -> None:
    waits = naive_waits(request)
    flow = RequestFlow(order_of(request))
    state = dict.fromkeys(waits, "waiting")

    def compare(actions: list) -> None:
        flow.check()
        started, answered = set(), {}
        for action in actions:
            if isinstance(action, StartCoJobs):
                started |= set(action.numbers)
            elif isinstance(action, NotRun):
                assert action.number not in answered
                answered[action.number] = action.cause
        failed = {number for number, it in state.items() if it in ("failed", "not run")}
        wanted = set()
        while (
            more := {n for n, it in waits.items() if it & (failed | wanted) and state[n] == "waiting"}
            - wanted
        ):
            wanted |= more
        assert set(answered) == wanted
        for number in wanted:
            state[number] = "not run"
        done = {number for number, it in state.items() if it == "finished"}
        ready = {n for n, it in waits.items() if state[n] == "waiting" and it <= done}
        assert started == ready
        for number in ready:
            state[number] = "running"
        assert (FlowEnded() in actions) is not bool(set(state.values()) & {"waiting", "running"})

    compare(flow.handle(BeginFlow(), 0))
    while running := sorted(number for number, it in state.items() if it == "running"):
        number = data.draw(st.sampled_from(running))
        failure = data.draw(st.sampled_from(["", "", "", "failed"]))
        state[number] = failure or "finished"
        compare(flow.handle(CoJobEnded(number, failure), 0))


def test_wide_stages_are_joined_by_a_gate() -> None:
    wide = Multistage((Multistage((NamedJob("a"),) * 3000), *(NamedJob("b"),) * 3000))
    order = order_of(wide)
    assert sum(map(len, order.awaited)) == 6000
    flow = RequestFlow(order)
    flow.handle(BeginFlow(), 0)
    for number in range(1, 3000):
        assert flow.handle(CoJobEnded(number), 0) == []
    assert flow.handle(CoJobEnded(3000), 0) == [StartCoJobs(tuple(range(3001, 6001)))]
