"""Scores of sites: the formula, bans and the choice; compared with a naive model (SWF-9)."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gspc_trio.components.provision.score import SiteOutcome, SiteScores, SiteUse, ban_s, outcome_of, score_of

EFFECT = {
    SiteOutcome.SUCCESS: 0.1,
    SiteOutcome.LOSS: -0.5,
    SiteOutcome.BLOCK_WITHOUT_RIF: -0.5,
    SiteOutcome.STAGING_FAILED: -0.5,
    SiteOutcome.REFUSED: -0.5,
    SiteOutcome.HOPELESS: -0.5,
    SiteOutcome.CONNECTION_REFUSED: -10.0,
    SiteOutcome.TIME_OUT: -20.0,
}


def test_the_score_lies_between_a_hundredth_and_a_hundred() -> None:
    assert score_of(0, 0) == 1
    assert score_of(1e12, 0) == pytest.approx(100)
    assert score_of(0, 1e12) == pytest.approx(0.01)
    assert score_of(5, 0) == pytest.approx(math.exp(2 * math.log(100) / math.pi * math.atan(1.0)))
    assert score_of(5, 25) == pytest.approx(1)


@given(st.floats(-10, 100), st.floats(-10, 100), st.floats(0, 1000), st.floats(0, 1000))
def test_the_score_rises_with_the_history_and_falls_with_the_use(
    low: float, high: float, idle: float, busy: float
) -> None:
    low, high = sorted((low, high))
    idle, busy = sorted((idle, busy))
    assert score_of(low, busy) <= score_of(low, idle) <= score_of(high, idle)


def test_a_low_history_bans_for_twice_as_long_with_each_point() -> None:
    assert [ban_s(history) for history in (1, 0, -1, -2, -10)] == [0, 0, 0.2, 0.4, 102.4]


def test_a_ban_begins_with_the_last_use_and_says_why() -> None:
    scores = SiteScores()
    for _ in range(12):
        scores.count("far", SiteOutcome.LOSS, 100.0)
    assert scores.history("far") == -6
    assert scores.banned_until("far", 100.0) == 106.4
    assert scores.reason("far", 100.4) == "banned for 6 s: 12 losses"
    assert scores.reason("far", 106.05) == "banned for 0.4 s: 12 losses"
    assert scores.deadline(100.0) == 106.4
    assert scores.reason("far", 106.4) == ""
    assert scores.deadline(106.4) is None
    scores.count("far", SiteOutcome.TIME_OUT, 200.0)
    scores.count("far", SiteOutcome.CONNECTION_REFUSED, 200.0)
    assert scores.history("far") == -10
    assert scores.reason("far", 200.0) == "banned for 103 s: 12 losses, 1 time-out, 1 refused connection"


def test_all_is_well_again_after_enough_successes() -> None:
    scores = SiteScores()
    scores.count("far", SiteOutcome.LOSS, 0.0)
    for _ in range(5):
        assert scores.history("far") < 0
        scores.count("far", SiteOutcome.SUCCESS, 1.0)
    assert scores.history("far") == 0
    assert scores.banned_until("far", 1.0) is None
    scores.count("far", SiteOutcome.LOSS, 2.0)
    assert scores.reason("far", 2.0) == "banned for 0.2 s: 1 loss"


def test_a_site_is_chosen_as_often_as_its_score_says() -> None:
    scores = SiteScores()
    scores.set_history("good", 5.0)
    uses = [SiteUse("good", 40, 8), SiteUse("busy", 80, 8), SiteUse("full", is_full=True)]
    chances = scores.probabilities(uses, 0.0)
    good, busy = score_of(5, 5), score_of(0, 10)
    assert chances == {"good": good / (good + busy), "busy": busy / (good + busy), "full": 0.0}
    random = Random(5)
    chosen = Counter(scores.choose(uses, random, 0.0) for _ in range(4000))
    assert chosen["good"] / 4000 == pytest.approx(chances["good"], abs=0.03)
    assert set(chosen) == {"good", "busy"}


def test_nothing_is_chosen_where_all_are_banned_or_full() -> None:
    scores = SiteScores()
    scores.count("banned", SiteOutcome.TIME_OUT, 0.0)
    uses = [SiteUse("banned"), SiteUse("full", is_full=True)]
    assert scores.choose(uses, Random(0), 1.0) is None
    assert scores.choose(uses, Random(0), 103.0) == "banned"
    assert scores.banned_until("banned", 104.0) == 205.4  # it is in use again


class ScoresAgainstNaive(RuleBasedStateMachine):
    """The naive model keeps all events, and works everything out from them."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = SiteScores()
        self.events: list[tuple[str, SiteOutcome | None, float]] = []
        self.now = 0.0

    @rule(seconds=st.floats(0, 50))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(site=st.sampled_from("abc"), outcome=st.sampled_from(SiteOutcome), times=st.integers(1, 30))
    def count(self, site: str, outcome: SiteOutcome, times: int) -> None:
        for _ in range(times):
            self.scores.count(site, outcome, self.now)
            self.events.append((site, outcome, self.now))

    @rule(tasks=st.integers(0, 100), full=st.sampled_from("abcd"), seed=st.integers(0, 9))
    def choose(self, tasks: int, full: str, seed: int) -> None:
        uses = [SiteUse(site, tasks, 4, site == full) for site in "abc"]
        able = [site for site in "abc" if site != full and self.now >= self.banned_until(site)]
        chosen = self.scores.choose(uses, Random(seed), self.now)
        assert chosen in able if able else chosen is None
        if chosen is not None:
            self.events.append((chosen, None, self.now))

    def history(self, site: str) -> float:
        value = 0.0
        for other, outcome, _ in self.events:
            if other == site and outcome is not None:
                value = round(min(max(value + EFFECT[outcome], -10), 100), 6)
        return value

    def banned_until(self, site: str) -> float:
        last = [when for other, _, when in self.events if other == site]
        history = self.history(site)
        return last[-1] + 0.1 * 2**-history if history < 0 else -math.inf

    @invariant()
    def same(self) -> None:
        for site in "abc":
            assert self.scores.history(site) == pytest.approx(self.history(site))
            until = self.banned_until(site)
            banned = self.scores.banned_until(site, self.now)
            assert banned == pytest.approx(until) if self.now < until else banned is None
            assert bool(self.scores.reason(site, self.now)) == (self.now < until)


TestScoresAgainstNaive = ScoresAgainstNaive.TestCase
TestScoresAgainstNaive.settings = settings(max_examples=40, stateful_step_count=30)


def test_the_words_of_a_refusal_say_what_the_site_is_to_blame_for() -> None:
    assert outcome_of("invalid partition") is SiteOutcome.REFUSED
    assert outcome_of("ssh: connect to host a: Connection refused") is SiteOutcome.CONNECTION_REFUSED
    assert outcome_of("Socket timed out on send/recv operation") is SiteOutcome.TIME_OUT
