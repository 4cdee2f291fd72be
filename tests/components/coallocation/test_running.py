"""COA-3 to COA-6: a request at a service, whether its stages run here or at services below."""

from __future__ import annotations

import json
import re
from collections import deque
from itertools import count
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.coallocation.agents.words import (
    CancelRequest,
    JobReport,
    JobsEnded,
    PartsDone,
    RequestDone,
    SiteOffer,
    SubmitRequest,
)
from gspc_trio.components.coallocation.jobs import jobs_with_options
from gspc_trio.components.coallocation.language import order_of, parse_coallocation
from gspc_trio.components.coallocation.running import (
    BeginRequest,
    GivenStage,
    PlacedSaid,
    PlaceJob,
    RequestAction,
    RequestCancelled,
    RequestEvent,
    RunningRequest,
    StageLost,
    StageTold,
    TellAsker,
    TellBelow,
    UnplaceJob,
)
from gspc_trio.components.coallocation.stages import given_stages
from gspc_trio.components.coallocation.text import print_text
from gspc_trio.core.machine import Tick

JOBS = '{"a": {"executable": "a"}, "b": {"executable": "b", "attempts": 2}}'
BELOW = {"low": [SiteOffer(("x",), {"core": 4}, {"core": 4})]}


def running(text: str, below: dict[str, list[SiteOffer]] | None = None) -> RunningRequest:
    told = SubmitRequest("r", text, JOBS, "/")
    tree = parse_coallocation(text)
    jobs = jobs_with_options(tree, {"a": {"executable": "a"}, "b": {"executable": "b", "attempts": 2}})
    return RunningRequest(
        told, jobs, order_of(tree), tuple(given_stages(tree, told, jobs, below or {}, "top-1"))
    )


def placed(actions: list[RequestAction]) -> list[str]:
    return [one.wanted.request for one in actions if isinstance(one, PlaceJob)]


def feed(one: RunningRequest, event: RequestEvent, now: float = 0.0) -> list[RequestAction]:
    actions = one.handle(event, now)
    one.check()
    return actions


def test_jobs_are_placed_in_their_order_and_ends_are_told_together() -> None:
    one = running("*(*(a)(a))(a)")
    assert placed(feed(one, BeginRequest())) == ["1.1", "2.1"]
    assert feed(one, PlacedSaid(PartsDone("2.1", ran=True, outputs=((0, "x"), (1, "y"))))) == []
    assert placed(feed(one, PlacedSaid(PartsDone("1.1", ran=True)), 0.01)) == ["3.1"]
    assert one.deadline() == 0.05
    ends = (JobReport(2, "finished", "", "xy"), JobReport(1, "finished"))
    assert feed(one, Tick(), 0.05) == [TellAsker(JobsEnded("r", ends))]
    assert one.reports[2].output == "", "what was told is not kept"
    assert feed(one, PlacedSaid(PartsDone("3.1", ran=True)), 0.06) == [
        TellAsker(JobsEnded("r", (JobReport(3, "finished"),))),
        TellAsker(RequestDone("r")),
    ]


def test_a_program_that_fails_is_run_again_and_a_job_that_cannot_be_had_is_not() -> None:
    one = running("*(*(b)(b))(a)")
    feed(one, BeginRequest())
    assert placed(feed(one, PlacedSaid(PartsDone("1.1", "it failed", ran=True)))) == ["1.2"]
    assert feed(one, PlacedSaid(PartsDone("1.1", "it failed", ran=True))) == [], "of the attempt before"
    assert feed(one, PlacedSaid(PartsDone("2.1", "there is none"))) == []
    assert feed(one, PlacedSaid(PartsDone("1.2", ran=True))) == [
        TellAsker(
            JobsEnded(
                "r",
                (
                    JobReport(2, "failed", "there is none"),
                    JobReport(3, "not run", "it waits for job 2 (b), which has failed"),
                    JobReport(1, "finished"),
                ),
            )
        ),
        TellAsker(RequestDone("r")),
    ]


def test_cancel_is_answered_when_nothing_runs_here_or_below() -> None:
    one = running("*(*(a)(a))(*(a))(a)", BELOW)
    begun = feed(one, BeginRequest())
    below = [action.said.request for action in begun if isinstance(action, TellBelow)]
    assert below == ["top-1.1", "top-1.3"]
    assert feed(one, RequestCancelled()) == [TellBelow("low", CancelRequest(name)) for name in below]
    ends = (JobReport(1, "cancelled", "cancelled"), JobReport(2, "cancelled", "cancelled"))
    assert feed(one, StageTold(JobsEnded("top-1.1", ends))) == []
    assert feed(one, StageTold(RequestDone("top-1.1"))) == []
    assert not one.is_over
    feed(one, StageTold(JobsEnded("top-1.3", (JobReport(1, "cancelled", "cancelled"),))))
    last = feed(one, StageTold(RequestDone("top-1.3")))
    assert last[-1] == TellAsker(RequestDone("r"))
    assert [one.reports[number].state for number in range(1, 5)] == ["cancelled"] * 4
    here = running("*(a)(a)")
    feed(here, BeginRequest())
    assert feed(here, RequestCancelled()) == [UnplaceJob("1.1"), UnplaceJob("2.1")]


def test_a_stage_goes_below_with_the_jobs_that_its_jobs_name() -> None:
    named = {"both": "+(a)(b)", "a": {"executable": "a"}, "b": "&(executable=b)", "c": {"executable": "c"}}
    tree = parse_coallocation("*(*(both))(c)")
    told = SubmitRequest("r", print_text(tree), json.dumps(named), "/")
    (stage,) = given_stages(tree, told, jobs_with_options(tree, named), BELOW, "top-1")
    assert json.loads(stage.told.jobs) == {name: named[name] for name in ("a", "b", "both")}


def test_a_stage_whose_service_is_lost_goes_on_here_with_what_had_not_begun() -> None:
    one = running("*(*(*(a))(a))(*(a))(a)", BELOW)
    (first, *_) = feed(one, BeginRequest())
    assert first == TellBelow("low", SubmitRequest("top-1.1", "*(*(a))(a)", '{"a":{"executable":"a"}}', "/"))
    feed(one, StageTold(JobsEnded("top-1.3", (JobReport(1, "finished"),))))
    feed(one, StageTold(RequestDone("top-1.3")))
    feed(one, StageTold(JobsEnded("top-1.1", (JobReport(1, "finished"),))))
    assert one.child_of(2) == "low"
    lost = feed(one, StageLost("low", "it was killed"))
    reports = {report.number: report for action in lost for report in _ends(action)}
    assert reports[2] == JobReport(2, "failed", "low is gone: it was killed")
    assert reports[4].state == "not run"
    two = running("*(*(*(a))(*(a)))(a)", BELOW)
    feed(two, BeginRequest())
    feed(two, StageLost("low", "it was killed"))
    assert two.is_over


def _ends(action: RequestAction) -> tuple[JobReport, ...]:
    return action.said.ends if isinstance(action, TellAsker) and isinstance(action.said, JobsEnded) else ()


TREES = st.recursive(
    st.just("a"),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda all_: _stages(all_)),
    max_leaves=12,
)


def _stages(members: list[str]) -> str:
    return "*" + "".join(f"({member})" for member in members)


def _with_waits(text: str, random: Random) -> str:
    """Return a request some jobs of which say that they wait for earlier ones."""
    numbers = count(1)

    def wait(found: re.Match[str]) -> str:
        number = next(numbers)
        if number == 1 or random.random() < 0.5:
            return found[0]
        others = random.sample(range(1, number), min(2, number - 1))
        return f"{found[0]}(wait={','.join(map(str, others))})"

    return re.sub("a", wait, text)


class Played:
    """A request at the top whose stages run at one below, played in a random order.

    Args:
        text: of the request.
        failing: numbers of the jobs that fail when they run.
        splits: stages are given away.
        random: the order.
    """

    def __init__(self, text: str, failing: set[int], splits: bool, random: Random) -> None:
        self.runs: list[int] = []
        self._failing = failing
        self._random = random
        self._below: dict[str, tuple[RunningRequest, int]] = {}
        self._given: dict[str, GivenStage] = {}
        self._lanes: dict[str, deque[RequestEvent]] = {}
        self._work: list[tuple[str, str]] = []
        self.top = running(text, BELOW if splits else None)
        self._feed("", BeginRequest())
        while self._step():
            pass

    def _step(self) -> bool:
        choices: list[tuple[str, str]] = [
            *self._work,
            *((name, "") for name, lane in self._lanes.items() if lane),
        ]
        if not choices:
            return False
        where, job = self._random.choice(choices)
        if job:
            self._work.remove((where, job))
            number = int(job.split(".")[0]) + (self._below[where][1] - 1 if where else 0)
            self.runs.append(number)
            self._feed(where, PlacedSaid(PartsDone(job, "bad" if number in self._failing else "", ran=True)))
        else:
            self._feed("", self._lanes[where].popleft())
        return True

    def _feed(self, where: str, event: RequestEvent) -> None:
        one = self._below[where][0] if where else self.top
        for action in feed(one, event):
            if isinstance(action, PlaceJob):
                self._work.append((where, action.wanted.request))
            elif isinstance(action, TellBelow) and isinstance(action.said, SubmitRequest):
                said = action.said
                tree = parse_coallocation(said.text)
                jobs = jobs_with_options(tree, {"a": {"executable": "a"}})
                first = int(said.request.rpartition(".")[2])
                self._below[said.request] = RunningRequest(said, jobs, order_of(tree, said.is_stated)), first
                self._lanes[said.request] = deque()
                self._feed(said.request, BeginRequest())
            elif isinstance(action, TellAsker) and where:
                self._lanes[where].append(StageTold(action.said))


@given(TREES, st.sets(st.integers(1, 12)), st.integers(0, 1 << 30), st.booleans())
def test_where_stages_run_changes_nothing(text: str, failing: set[int], seed: int, states: bool) -> None:
    if states:
        text = _with_waits(text, Random(seed))
    here = Played(text, failing, False, Random(seed))
    below = Played(text, failing, True, Random(seed))
    assert here.top.is_over
    assert below.top.is_over
    assert here.top.flow.states == below.top.flow.states
    assert sorted(here.runs) == sorted(below.runs), "each job runs once, wherever"
