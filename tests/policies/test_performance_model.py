"""Run times as they are learned, against a model that keeps every sample."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job.scheduler.interface import Basis, Expected, RunKey
from gspc_trio.policies.performance_model import (
    Curve,
    Law,
    Mean,
    PerformanceModel,
    Stated,
    merged,
    size_class,
)

KEY = RunKey("solve", "gpu", "gpu", "EPYC")
SECONDS = st.integers(1, 10_000).map(lambda number: number / 100)
SIZES = st.integers(0, 5000)
SAMPLES = st.lists(st.tuples(SIZES, SECONDS), max_size=60)


class Naive:
    """Keeps every sample, and computes all anew from them by the words of the requirement."""

    def __init__(self, estimate_s: float | None) -> None:
        self.estimate_s = estimate_s
        self.kept: dict[int, list[float]] = {}
        self.errors: dict[int, int] = {}
        self.points: list[tuple[int, float]] = []

    def mean_s(self, kept: list[float]) -> float:
        mean_s = kept[0]
        for n, x in enumerate(kept[1:], 2):
            mean_s += (x - mean_s) * max(1 / n, 1 / 8)
        return mean_s

    def learn(self, size: int, seconds: float) -> None:
        power = 1
        while power < size:
            power *= 2
        known = power if size else 0
        stated = [] if self.estimate_s is None else [self.estimate_s] * 3
        kept = self.kept.setdefault(known, stated)
        if kept and not self.mean_s(kept) / 3 <= seconds <= 3 * self.mean_s(kept):
            self.errors[known] = self.errors.get(known, 0) + 1
            if self.errors[known] < len(kept):
                return
            kept.clear()
            self.points.clear()
            self.errors[known] = 0
        kept.append(seconds)
        if size:
            self.points.append((size, seconds))

    def by_law_s(self, size: int) -> float | None:
        sizes = [size for size, _ in self.points]
        if len(sizes) < 10 or max(sizes) < 2 * min(sizes):
            return None
        if not min(sizes) / 2 <= size <= 2 * max(sizes):
            return None
        xs, ys = [math.log(size) for size in sizes], [math.log(seconds) for _, seconds in self.points]
        x, y = sum(xs) / len(xs), sum(ys) / len(ys)
        slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
        logarithm = y + slope * (math.log(size) - x)
        return math.exp(logarithm) if logarithm < 27 else None

    def expected(self, size: int) -> tuple[float, Basis] | None:
        known = size_class(size)
        kept = self.kept.get(known, [])
        if len(kept) >= 3:
            return self.mean_s(kept), Basis.MEASURED
        by_law_s = self.by_law_s(size)
        if by_law_s is not None:
            return by_law_s, Basis.LAW
        if kept:
            return self.mean_s(kept), Basis.MEASURED
        return None if self.estimate_s is None else (self.estimate_s, Basis.STATED)


@given(SAMPLES, st.none() | SECONDS, SIZES)
def test_what_is_learned_is_what_all_samples_say(
    samples: list[tuple[int, float]], estimate_s: float | None, asked: int
) -> None:
    model, naive = PerformanceModel(), Naive(estimate_s)
    for size, seconds in samples:
        model.learn(KEY, size, estimate_s, seconds)
        naive.learn(size, seconds)
    for size in (asked, *(size for size, _ in samples)):
        found, wanted = model.expected(KEY, size, estimate_s), naive.expected(size)
        assert (found is None) == (wanted is None)
        if found is not None and wanted is not None:
            assert found.basis is wanted[1]
            assert found.seconds == pytest.approx(wanted[0], rel=1e-6)
    means = model.curves[KEY].means if samples else {}
    assert {size: mean.samples for size, mean in means.items()} == {
        size: len(kept) for size, kept in naive.kept.items()
    }
    assert model.expected(RunKey("solve", "gpu", "gpu", "Xeon"), asked, None) is None, "of another processor"


def test_a_power_law_holds_from_half_the_smallest_to_twice_the_largest_size() -> None:
    model = PerformanceModel()
    for size in range(100, 201, 10):
        assert model.expected(KEY, 350, None) is None
        model.learn(KEY, size, None, size**2 / 1e4)
    for size, seconds in ((50, 0.25), (400, 16.0)):
        found = model.expected(KEY, size, None)
        assert found is not None
        assert (found.samples, found.basis) == (11, Basis.LAW)
        assert found.seconds == pytest.approx(seconds)
    assert model.expected(KEY, 49, None) is None
    assert model.expected(KEY, 401, None) is None


def test_what_is_stated_by_hand_goes_before_what_the_code_states_and_the_closest_counts() -> None:
    stated = {Stated("solve", "gpu"): 3.0, Stated("solve", "gpu", "gpu", None, 8): 2.0}
    model = PerformanceModel(stated=stated)
    assert model.expected(KEY, 7, 5.0) == Expected(2.0, 3, Basis.STATED)
    assert model.expected(KEY, 9, 5.0) == Expected(3.0, 3, Basis.STATED)
    assert model.expected(RunKey("solve", "cpu", "core"), 9, 5.0) == Expected(5.0, 3, Basis.STATED)
    model.learn(KEY, 9, None, 7.0)
    assert model.expected(KEY, 9, None) == Expected(4.0, 4, Basis.MEASURED)
    assert model.forget("solve", "gpu") == 3
    assert model == PerformanceModel()


OWN = RunKey("a", "b", "core")
MODELS = st.lists(st.tuples(st.sampled_from([KEY, OWN]), SIZES, SECONDS), max_size=12)


def learned(model: PerformanceModel, samples: list[tuple[RunKey, int, float]]) -> PerformanceModel:
    model = model.copy()
    for key, size, seconds in samples:
        model.learn(key, size, None, seconds)
    return model


@given(MODELS, MODELS, MODELS)
def test_what_others_have_written_meanwhile_is_kept(
    before: list[tuple[RunKey, int, float]],
    own: list[tuple[RunKey, int, float]],
    others: list[tuple[RunKey, int, float]],
) -> None:
    base = learned(PerformanceModel(), before)
    ours, theirs = learned(base, own), learned(base, others)
    assert merged(base, ours, base) == ours
    assert merged(base, base, theirs) == theirs
    assert merged(base, base, PerformanceModel()) == PerformanceModel(), "what was forgotten stays so"
    both = merged(base, ours, theirs)
    for key in dict.fromkeys((*ours.curves, *theirs.curves)):
        for size in dict.fromkeys(
            size for one in (ours, theirs) for size in one.curves.get(key, Curve()).means
        ):
            means = [one.curves.get(key, Curve()).means.get(size) for one in (ours, theirs)]
            there = [mean for mean in means if mean is not None]
            found = both.curves[key].means[size]
            assert min(mean.mean_s for mean in there) <= found.mean_s * (1 + 1e-9)
            assert found.mean_s <= max(mean.mean_s for mean in there) * (1 + 1e-9)
            assert 0 <= found.errors < max(1, found.samples)


def test_both_count_by_their_new_samples() -> None:
    base = PerformanceModel({KEY: Curve({8: Mean(4, 1.0, 1)}, Law(4, 8.0, 0.0, 16.0, 0.0, 7, 8))})
    ours = PerformanceModel({KEY: Curve({8: Mean(6, 1.5, 2)}, Law(6, 12.0, 1.0, 24.0, 2.0, 6, 8))})
    theirs = PerformanceModel({KEY: Curve({8: Mean(5, 3.0, 1)}, Law(5, 10.0, 1.0, 20.0, 2.0, 7, 9))})
    assert merged(base, ours, theirs) == PerformanceModel(
        {KEY: Curve({8: Mean(7, 2.0, 2)}, Law(7, 14.0, 2.0, 28.0, 4.0, 6, 9))}
    )
    assert merged(base, ours, PerformanceModel()).curves[KEY].means == {8: Mean(2, 1.5)}
