"""Whoever says something illegal loses its own connection, and nobody else notices."""

from __future__ import annotations

import pytest

from gspc_trio.nursery.scopes.drive import CHECK_VARIABLE
from gspc_trio.testing.hostile import attack
from gspc_trio.testing.hostile_memory import attack_layer

MESSAGES = 2500


@pytest.mark.parametrize("seed", [1])
def test_honest_jobs_do_not_notice_hostile_peers_of_every_role(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    tally = attack(seed, MESSAGES)
    assert sum(tally.said.values()) == MESSAGES
    assert tally.ended > MESSAGES / 10
    assert tally.finished > 0


@pytest.mark.parametrize("seed", [1])
def test_an_honest_client_of_a_memory_layer_does_not_notice_them_either(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    told = attack_layer(seed, MESSAGES)
    assert told.said >= MESSAGES
    assert told.ended > MESSAGES / 10
    assert told.kept > 0
