"""Whoever says something illegal loses its own connection, and nobody else notices."""

from __future__ import annotations

import pytest

from gspc_trio.nursery.drive import CHECK_VARIABLE
from gspc_trio.testing.hostile import lie

MESSAGES = 2500


@pytest.mark.parametrize("seed", [1, 2])
def test_honest_jobs_do_not_notice_those_who_lie_in_every_role(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    tally = lie(seed, MESSAGES)
    assert sum(tally.said.values()) == MESSAGES
    assert tally.ended > MESSAGES / 10
    assert tally.finished > 0
