"""Hosts hear of grants long before these are given."""

from __future__ import annotations

import pytest

from gspc_trio.components.rm.machine import LEAD_MIN, LEAD_S, GrantsAheadOf


def test_hosts_are_told_again_when_half_of_what_they_were_told_of_is_given() -> None:
    ahead = GrantsAheadOf((7, 0))
    assert ahead.newest == (7, LEAD_MIN)
    assert not ahead.look((7, 0), 0.0)
    assert not ahead.look((7, LEAD_MIN // 2 - 1), 1.0)
    assert ahead.look((7, LEAD_MIN // 2), 1.0)
    assert ahead.newest == (7, LEAD_MIN // 2 + LEAD_MIN)
    assert not ahead.look((7, LEAD_MIN // 2 + 1), 1.0)


@pytest.mark.parametrize("per_s", [1.0, 1_000.0, 100_000.0])
def test_what_hosts_were_told_of_lasts_for_half_a_minute_at_any_rate(per_s: float) -> None:
    ahead = GrantsAheadOf((1, 0))
    told_s = []
    for step in range(2_000_000 // 1000):
        given, now = step * 1000, step * 1000 / per_s
        assert given <= ahead.newest[1]
        if ahead.look((1, given), now):
            told_s.append(now)
            least = min(LEAD_MIN, per_s * LEAD_S / 2) if len(told_s) == 1 else per_s * LEAD_S / 2
            assert ahead.newest[1] - given >= min(least, LEAD_MIN if len(told_s) == 1 else least)
