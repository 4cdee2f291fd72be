"""Scores: which of several sites gets what comes next, by how it went there and how busy it is (SWF-9).

A site has a history between -10 and 100, which begins at 0, rises with each success and falls with each
failure of the site. Its score is ``exp(B * atan(0.2 * (history - 0.2 * use)))`` with ``B = 2 ln(100) / pi``,
so it lies between 1/100 and 100; the use is the number of tasks there for each of its cores. A site gets what
comes next with the probability of its score among the scores of all that could take it. A history below 0
bans the site for ``0.1 * 2 ** -history`` seconds after its last use.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from random import Random

from attrs import frozen

HISTORY_MIN = -10.0
HISTORY_MAX = 100.0

_TENTHS = 10
"""Histories are kept in tenths, so that many small changes add up exactly."""

_B = 2 * math.log(100) / math.pi
_STEEPNESS = 0.2
_USE_WEIGHT = 0.2
_BAN_S = 0.1


class SiteOutcome(StrEnum):
    """How it went at a site. The own error of a task says nothing of the site: it counts as a success."""

    SUCCESS = "success"
    LOSS = "loss"
    BLOCK_WITHOUT_RIF = "block without a RIF"
    STAGING_FAILED = "failed staging"
    REFUSED = "refusal"
    HOPELESS = "refusal for good"
    CONNECTION_REFUSED = "refused connection"
    TIME_OUT = "time-out"


def outcome_of(refusal: str) -> SiteOutcome:
    """Return what it says of a site that a block was not to be had, by the words of its batch system."""
    words = refusal.lower()
    if "connection refused" in words:
        return SiteOutcome.CONNECTION_REFUSED
    return SiteOutcome.TIME_OUT if "timed out" in words else SiteOutcome.REFUSED


CHANGES_TENTHS = {
    SiteOutcome.SUCCESS: 1,
    SiteOutcome.LOSS: -5,
    SiteOutcome.BLOCK_WITHOUT_RIF: -5,
    SiteOutcome.STAGING_FAILED: -5,
    SiteOutcome.REFUSED: -5,
    SiteOutcome.HOPELESS: -5,
    SiteOutcome.CONNECTION_REFUSED: -100,
    SiteOutcome.TIME_OUT: -200,
}
"""By how many tenths an outcome changes the history."""

_PLURALS = {
    SiteOutcome.LOSS: "losses",
    SiteOutcome.BLOCK_WITHOUT_RIF: "blocks without a RIF",
    SiteOutcome.STAGING_FAILED: "failed stagings",
}


@frozen
class SiteUse:
    """A site that could be chosen, and how busy it is.

    Attributes:
        site: its name.
        tasks: how many tasks are there, waiting or running.
        cores: how many cores it has now.
        is_full: it can take nothing at present.
    """

    site: str
    tasks: int = 0
    cores: int = 0
    is_full: bool = False

    @property
    def use(self) -> float:
        """Return the tasks for each core; a site without a core counts as one of one core."""
        return self.tasks / max(self.cores, 1)


def score_of(history: float, use: float) -> float:
    """Return the score of a site, between 1/100 and 100, by its history and its tasks for each core."""
    return math.exp(_B * math.atan(_STEEPNESS * (history - _USE_WEIGHT * use)))


def ban_s(history: float) -> float:
    """Return for how many seconds after its last use a site of this history gets nothing."""
    return _BAN_S * 2.0**-history if history < 0 else 0.0


class _Site:
    """What is remembered of one site.

    Attributes:
        tenths: its history, in tenths.
        used_at: when it was used last: chosen, or the outcome of a use became known.
        failures: how often which failure came since a success last left a history of 0 or more.
    """

    def __init__(self) -> None:
        self.tenths = 0
        self.used_at = -math.inf
        self.failures: Counter[SiteOutcome] = Counter()


class SiteScores:
    """The scores of all sites. A site that nobody has heard of has the history 0."""

    def __init__(self) -> None:
        self._sites: dict[str, _Site] = {}

    def count(self, site: str, outcome: SiteOutcome, now: float, times: int = 1) -> None:
        """Take into account how it went at a site, so many times."""
        known = self._known(site)
        tenths = known.tenths + CHANGES_TENTHS[outcome] * times
        known.tenths = min(max(tenths, int(HISTORY_MIN * _TENTHS)), int(HISTORY_MAX * _TENTHS))
        known.used_at = now
        if outcome is not SiteOutcome.SUCCESS:
            known.failures[outcome] += times
        elif known.tenths >= 0:
            known.failures.clear()

    def used(self, site: str, now: float) -> None:
        """Something was given to a site, which :meth:`choose` had not chosen."""
        self._known(site).used_at = now

    def forget(self, site: str) -> None:
        """Forget a site: one of that name that comes later begins anew."""
        self._sites.pop(site, None)

    def set_history(self, site: str, history: float) -> None:
        """Take over the history of a site from a run before; it bans from the next use on."""
        self._known(site).tenths = round(min(max(history, HISTORY_MIN), HISTORY_MAX) * _TENTHS)

    def history(self, site: str) -> float:
        """Return the history of a site, between -10 and 100."""
        known = self._sites.get(site)
        return known.tenths / _TENTHS if known is not None else 0.0

    def score(self, use: SiteUse) -> float:
        """Return the score of a site, between 1/100 and 100."""
        return score_of(self.history(use.site), use.use)

    def banned_until(self, site: str, now: float) -> float | None:
        """Return until when a site gets nothing, None if it is not banned."""
        known = self._sites.get(site)
        if known is None or known.tenths >= 0:
            return None
        until = known.used_at + ban_s(known.tenths / _TENTHS)
        return until if until > now else None

    def deadline(self, now: float) -> float | None:
        """Return when the next ban ends, None if no site is banned."""
        ends = (self.banned_until(site, now) for site in self._sites)
        return min((end for end in ends if end is not None), default=None)

    def probabilities(self, uses: Sequence[SiteUse], now: float) -> dict[str, float]:
        """Return with which probability each site is chosen: 0 for one that is banned or full."""
        scores = {
            use.site: 0.0 if use.is_full or self.banned_until(use.site, now) is not None else self.score(use)
            for use in uses
        }
        total = sum(scores.values())
        return {site: score / total if total else 0.0 for site, score in scores.items()}

    def choose(self, uses: Sequence[SiteUse], random: Random, now: float) -> str | None:
        """Choose a site and note that it is used; None if all are banned or full.

        Args:
            uses: the sites that could take what is to be given.
            random: source of chance.
            now: the time.
        """
        chances = [(site, chance) for site, chance in self.probabilities(uses, now).items() if chance > 0]
        if not chances:
            return None
        sites, weights = zip(*chances, strict=True)
        site: str = random.choices(sites, weights)[0]
        self.used(site, now)
        return site

    def reason(self, site: str, now: float) -> str:
        """Return in words for people why a site is banned, "" if it is not: ``banned for 6 s: 3 losses``."""
        until = self.banned_until(site, now)
        if until is None:
            return ""
        why = ", ".join(_number(outcome, n) for outcome, n in self._sites[site].failures.most_common())
        return f"banned for {_seconds(until - now)}: {why or 'failures of a run before'}"

    def _known(self, site: str) -> _Site:
        return self._sites.setdefault(site, _Site())


def _number(outcome: SiteOutcome, number: int) -> str:
    word = outcome.value if number == 1 else _PLURALS.get(outcome, f"{outcome.value}s")
    return f"{number} {word}"


def _seconds(seconds: float) -> str:
    """Return a time that is still to pass: whole seconds, tenths below one."""
    return f"{math.ceil(seconds)} s" if seconds > 1 else f"{max(math.ceil(10 * seconds), 1) / 10:g} s"
