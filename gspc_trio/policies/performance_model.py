"""How long tasks run: learned per code, variant, resource class, processor model and size of input (SCH-7).

A time is kept for each power of two of the size. Where enough sizes are known, a power law tells of those in
between. What people state counts as much as some measured tasks, until more was measured.
"""

from __future__ import annotations

from math import exp, inf, log
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

from gspc_trio.components.job.scheduler.interface import TRUSTED_SAMPLES, Basis, Expected, RunKey

STATED_SAMPLES = TRUSTED_SAMPLES
"""A stated run time counts as so many measured ones."""

WEIGHT_MIN = 1 / 8
"""Weight of the newest sample at least: a mean follows what changes slowly."""

OFF_MAX = 3.0
"""A sample that is so many times off its mean counts as an error."""

LAW_SAMPLES_MIN = 10
"""So many samples a power law needs at least."""

LAW_RANGE_MIN = 2.0
"""Their sizes have to differ by this factor."""

LAW_REACH = 2.0
"""By this factor a power law is taken to hold below the smallest and above the largest size."""

Times: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Whole: TypeAlias = Annotated[int, Meta(ge=0)]


def size_class(size: int) -> int:
    """Return the power of two that is nearest from above; 0 stays 0.

    >>> [size_class(size) for size in (0, 1, 5, 8, 9)]
    [0, 1, 8, 8, 16]
    """
    return 1 << (size - 1).bit_length() if size > 0 else 0


class Mean(Struct, frozen=True):
    """Measured seconds of one size.

    Attributes:
        samples: how many there were; a stated time counts as some.
        mean_s: of them, the last eight most of all.
        errors: samples that were too far off the mean to count for it.
    """

    samples: Positive
    mean_s: Times
    errors: Whole = 0

    def learned(self, seconds: float) -> Mean:
        """Return it after one more sample."""
        if not self.mean_s / OFF_MAX <= seconds <= self.mean_s * OFF_MAX:
            errors = self.errors + 1
            return Mean(1, seconds) if errors >= self.samples else Mean(self.samples, self.mean_s, errors)
        samples = self.samples + 1
        mean_s = self.mean_s + (seconds - self.mean_s) * max(1 / samples, WEIGHT_MIN)
        return Mean(samples, mean_s, self.errors)


class Law(Struct, frozen=True):
    """Sums for a power law: seconds = factor * size ** exponent, by least squares of the logarithms.

    Attributes:
        samples: number of points (x, y): x the logarithm of the size, y that of the seconds.
        x, y, xx, xy: sums over them.
        smallest, largest: size.
    """

    samples: Whole = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    smallest: float = inf
    largest: float = 0.0

    def learned(self, size: int, seconds: float) -> Law:
        """Return it after one more sample; one of no size or no time has no logarithm."""
        if size <= 0 or seconds <= 0.0:
            return self
        x, y = log(size), log(seconds)
        sums = (self.x + x, self.y + y, self.xx + x * x, self.xy + x * y)
        return Law(self.samples + 1, *sums, min(self.smallest, size), max(self.largest, size))

    def seconds(self, size: int) -> float | None:
        """Return how long a task with an input of this size runs, None where the law says nothing."""
        if not self.smallest / LAW_REACH <= size <= self.largest * LAW_REACH:
            return None
        exponent = self.exponent()
        if exponent is None:
            return None
        logarithm = (self.y + exponent * (self.samples * log(size) - self.x)) / self.samples
        return exp(logarithm) if logarithm < 27.0 else None  # that is 17,000 years

    def exponent(self) -> float | None:
        """Return the power of the size with which the seconds grow, None while too little is known."""
        if self.samples < LAW_SAMPLES_MIN or self.largest < LAW_RANGE_MIN * self.smallest:
            return None
        spread = self.samples * self.xx - self.x * self.x
        return (self.samples * self.xy - self.x * self.y) / spread if spread > 0.0 else None


NO_LAW = Law()


class Curve(Struct):
    """What is known of one key.

    Attributes:
        means: power of two of the size -> its mean.
        law: over all of them.
    """

    means: dict[int, Mean] = field(default_factory=dict)
    law: Law = NO_LAW


class Stated(Struct, frozen=True):
    """For which tasks a run time was stated by hand.

    Attributes:
        code, variant: as in :class:`~gspc_trio.components.job.scheduler.interface.RunKey`.
        resource_class, processor: None: any.
        size: power of two; None: any.
    """

    code: str
    variant: str
    resource_class: str | None = None
    processor: str | None = None
    size: int | None = None


class PerformanceModel(Struct):
    """The run times that are known.

    Attributes:
        curves: what was learned.
        stated: what was stated by hand: the static table.
    """

    curves: dict[RunKey, Curve] = field(default_factory=dict)
    stated: dict[Stated, float] = field(default_factory=dict)

    def expected(self, key: RunKey, size: int, estimate_s: float | None) -> Expected | None:
        """Return how long a task runs, None if nobody knows.

        Args:
            key: of the task.
            size: of its input.
            estimate_s: what its code states, or None.
        """
        known = size_class(size)
        curve = self.curves.get(key)
        few: Expected | None = None
        if curve is not None:
            mean = curve.means.get(known)
            if mean is not None:
                few = Expected(mean.mean_s, mean.samples, Basis.MEASURED)
                if mean.samples >= TRUSTED_SAMPLES:
                    return few
            by_law_s = curve.law.seconds(size)
            if by_law_s is not None:
                return Expected(by_law_s, curve.law.samples, Basis.LAW)
        stated_s = self._stated_s(key, known, estimate_s) if few is None else None
        return few if stated_s is None else Expected(stated_s, STATED_SAMPLES, Basis.STATED)

    def is_measured(self, key: RunKey) -> bool:
        """Return whether a task was measured, with an input of whatever size."""
        return key in self.curves

    def learn(self, key: RunKey, size: int, estimate_s: float | None, seconds: float) -> None:
        """Take a task into account that has finished.

        Args:
            key: of the task.
            size: of its input.
            estimate_s: what its code states, or None.
            seconds: that it ran.
        """
        known = size_class(size)
        curve = self.curves.get(key)
        if curve is None:
            curve = self.curves[key] = Curve()
        before = curve.means.get(known)
        if before is None:
            stated_s = self._stated_s(key, known, estimate_s)
            if stated_s is None:
                curve.means[known] = Mean(1, seconds)
                curve.law = curve.law.learned(size, seconds)
                return
            before = Mean(STATED_SAMPLES, stated_s)
        after = curve.means[known] = before.learned(seconds)
        if after.samples > before.samples:
            curve.law = curve.law.learned(size, seconds)
        elif after.errors <= before.errors:  # it has begun anew: what went into the law holds no more either
            curve.law = NO_LAW.learned(size, seconds)

    def _stated_s(self, key: RunKey, known: int, estimate_s: float | None) -> float | None:
        """Return what was stated of a key and a size most closely: by hand, else by its code."""
        if self.stated:
            for resource_class in (key.resource_class, None):
                for processor in (key.processor, None):
                    for size in (known, None):
                        wanted = Stated(key.code, key.variant, resource_class, processor, size)
                        if wanted in self.stated:
                            return self.stated[wanted]
        return estimate_s

    def forget(self, code: str, variant: str | None = None) -> int:
        """Forget a code, or one variant of it; return how many run times that was."""

        def is_meant(key: RunKey | Stated) -> bool:
            return key.code == code and variant in (None, key.variant)

        stated = [key for key in self.stated if is_meant(key)]
        curves = [key for key in self.curves if is_meant(key)]
        count = len(stated)
        for one in stated:
            del self.stated[one]
        for key in curves:
            count += len(self.curves.pop(key).means)
        return count

    def copy(self) -> PerformanceModel:
        """Return one that learns apart from this."""
        curves = {key: Curve(dict(curve.means), curve.law) for key, curve in self.curves.items()}
        return PerformanceModel(curves, dict(self.stated))


# Merging ----------------------------------------------------------------------------------------------------


def merged(base: PerformanceModel, own: PerformanceModel, others: PerformanceModel) -> PerformanceModel:
    """Return what two have learned, each from the same beginning.

    What one of them has changed is as it has it. Of what both have changed each counts by its new samples.
    What the others have forgotten stays forgotten, but for what is new.

    Args:
        base: the beginning.
        own: one of them; it has forgotten nothing.
        others: the other one; what is stated by hand there holds.
    """
    curves: dict[RunKey, Curve] = {}
    for key in dict.fromkeys((*others.curves, *own.curves)):
        at_first, ours, theirs = (one.curves.get(key, Curve()) for one in (base, own, others))
        means = {}
        for size in dict.fromkeys((*theirs.means, *ours.means)):
            mean = _merged_mean(at_first.means.get(size), ours.means.get(size), theirs.means.get(size))
            if mean is not None:
                means[size] = mean
        if means:
            curves[key] = Curve(means, _merged_law(at_first.law, ours.law, theirs.law))
    stated = dict(others.stated)
    stated.update((key, time_s) for key, time_s in own.stated.items() if key not in base.stated)
    return PerformanceModel(curves, stated)


def _merged_mean(base: Mean | None, own: Mean | None, others: Mean | None) -> Mean | None:
    if own is None or own == base:
        return others
    if others == base:
        return own
    new = own.samples - base.samples if base is not None and own.samples >= base.samples else own.samples
    if others is None:
        return Mean(new, own.mean_s) if new else None
    theirs, common, errors = others.samples, 0, 0
    if base is not None and own.samples >= base.samples and others.samples >= base.samples:
        common, errors = base.samples, base.errors
        theirs -= common
    mean_s = (own.mean_s * new + others.mean_s * theirs) / (new + theirs) if new + theirs else own.mean_s
    samples = max(1, common + new + theirs)
    return Mean(samples, mean_s, max(0, min(samples - 1, own.errors + others.errors - errors)))


def _merged_law(base: Law, own: Law, others: Law) -> Law:
    if own == base:
        return others
    if others == base or own.samples < base.samples:  # it has begun anew
        return own
    if others.samples < base.samples:
        return others
    return Law(
        own.samples + others.samples - base.samples,
        own.x + others.x - base.x,
        own.y + others.y - base.y,
        own.xx + others.xx - base.xx,
        own.xy + others.xy - base.xy,
        min(own.smallest, others.smallest),
        max(own.largest, others.largest),
    )
