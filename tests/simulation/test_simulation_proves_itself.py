"""Simulation finds machines that are wrong on purpose, within 200 seeds each."""

from __future__ import annotations

import pytest
from broken_variants import VARIANTS
from growing_variants import GROWING

from gspc_trio.testing.simulation import Report, simulate

SEEDS_MAX = 200

FOUND_AT = {
    "double_grant": 1,
    "forgotten_release": 1,
    "stale_attempt_accepted": 9,
    "fence_ignores_relatives": 20,
    "no_fence": 3,
    "fate_eats_an_attempt": 21,
    "same_epoch_again": 6,
    "lost_rif_unsaid": 8,
    "ambiguous_loss_repeated": 40,
    "attempt_number_kept": 1,
    "any_token_will_do": 6,
    "job_goes_on_unheard": 9,
    "withdrawal_lost_in_crossing": 11,
    "interrupt_lost_in_crossing": 8,
    "durable_too_early": 3,
    "end_of_work_forgotten": 9,
    "heir_waits_for_what_has_come": 9,
    "tasks_begun_twice_after_a_restart": 3,
    "parted_rif_waits": 31,
    "only_the_tail_is_taken_back": 10,
    "events_kept_for_ever": 8,
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
