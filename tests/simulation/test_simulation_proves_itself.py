"""Simulation finds machines that are wrong on purpose, within 200 seeds each."""

from __future__ import annotations

import pytest
from broken_variants import VARIANTS

from gspc_trio.testing.simulation import Report, simulate

SEEDS_MAX = 200

FOUND_AT = {
    "forgotten_release": 1,
    "stale_attempt_accepted": 31,
    "credit_leak": 3,
    "early_free": 2,
    "fence_ignores_relatives": 61,
    "no_fence": 3,
    "lost_rif_unsaid": 26,
    "ambiguous_loss_repeated": 39,
    "attempt_number_kept": 3,
    "any_token_will_do": 6,
    "silence_unnoticed": 8,
    "job_goes_on_unheard": 40,
}
"""Where each was found when this was written: looked at first, to save time."""


def find() -> Report | None:
    for seed in range(SEEDS_MAX):
        report = simulate(seed)
        if report.broken:
            return report
    return None


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.__name__)
def test_a_broken_machine_is_found(variant, monkeypatch):
    variant(monkeypatch.setattr)
    report = simulate(FOUND_AT.get(variant.__name__, 0))
    if not report.broken:
        report = find()
    assert report is not None, f"{SEEDS_MAX} seeds, and nobody noticed: {variant.__doc__}"


def test_there_are_enough_of_them():
    assert len(VARIANTS) >= 12
