"""Some of the mutants that simulating has found are found still."""

from __future__ import annotations

import json

import pytest

from gspc_trio.testing.simulation import simulate
from tests.mutants.report import FOUND
from tests.mutants.table import MUTANTS, SAMPLE

RESULTS = json.loads(FOUND.read_text())
BY_NAME = {one.name: one for one in MUTANTS}

SEEDS_MAX = 30
"""If its known seed does not find a mutant any more, so many others are looked at."""


@pytest.mark.parametrize("name", SAMPLE)
def test_simulating_finds_it(name: str, monkeypatch: pytest.MonkeyPatch):
    BY_NAME[name].apply(monkeypatch.setattr)
    first = RESULTS[name]["seed"]
    seeds = (first, *(seed for seed in range(SEEDS_MAX) if seed != first))
    found = next((seed for seed in seeds if simulate(seed).broken), None)
    assert found is not None, f"{SEEDS_MAX} seeds, and nobody noticed that {name}"
