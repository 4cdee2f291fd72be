"""Simulation finds memory layers that are wrong on purpose, within 200 seeds each."""

from __future__ import annotations

import pytest
from broken_layers import LAYER_VARIANTS

from gspc_trio.testing.simulation import simulate

SEEDS_MAX = 200

LAYERED = (1, 6, 28, 33, 41, 44, 50)
"""The first seeds with a memory layer: looked at first, to save time."""

FOUND_AT = {"loss_unsaid": 102, "refused_and_kept": 6}
"""Where those were found soonest when this was written: looked at before all others."""


@pytest.mark.parametrize("variant", LAYER_VARIANTS, ids=lambda variant: variant.__name__)
def test_a_broken_memory_layer_is_found(variant, monkeypatch):
    variant(monkeypatch.setattr)
    first = (FOUND_AT.get(variant.__name__, LAYERED[0]), *LAYERED)
    seeds = (*first, *(seed for seed in range(SEEDS_MAX) if seed not in first))
    found = next((seed for seed in seeds if simulate(seed).broken), None)
    assert found is not None, f"{SEEDS_MAX} seeds, and nobody noticed: {variant.__doc__}"
