"""Simulation finds machines that are wrong on purpose, within 200 seeds each."""

from __future__ import annotations

import pytest
from broken_variants import VARIANTS
from growing_variants import GROWING

from gspc_trio.testing.simulation import Report, simulate

SEEDS_MAX = 200

FOUND_AT = {
    "double_grant": 2,
    "forgotten_release": 1,
    "stale_attempt_accepted": 77,
    "credit_leak": 6,
    "early_free": 1,
    "fence_ignores_relatives": 20,
    "no_fence": 3,
    "duplicate_inject": 2,
    "attempt_number_kept": 29,
    "lost_rif_unsaid": 13,
    "any_token_will_do": 1,
    "job_goes_on_unheard": 1,
    "silence_unnoticed": 1,
    "withdrawal_lost_in_crossing": 30,
    "durable_too_early": 10,
    "interrupt_lost_in_crossing": 21,
    "orphans_for_ever": 8,
    "heir_waits_for_what_has_come": 19,
    "tasks_begun_twice_after_a_restart": 10,
    "only_the_tail_is_taken_back": 10,
    "events_kept_for_ever": 8,
    "end_of_work_forgotten": 9,
    "parted_rif_waits": 27,
    "inbox_without_bound": 8,
}
"""Where each was found when this was written: looked at first, to save time."""


def find() -> Report | None:
    for seed in range(SEEDS_MAX):
        report = simulate(seed)
        if report.broken:
            return report
    return None


@pytest.mark.parametrize("variant", [*VARIANTS, *GROWING], ids=lambda variant: variant.__name__)
def test_a_broken_machine_is_found(variant, monkeypatch):
    variant(monkeypatch.setattr)
    report = simulate(FOUND_AT.get(variant.__name__, 0))
    if not report.broken:
        report = find()
    assert report is not None, f"{SEEDS_MAX} seeds, and nobody noticed: {variant.__doc__}"


def test_there_are_enough_of_them():
    assert len(VARIANTS) >= 12
