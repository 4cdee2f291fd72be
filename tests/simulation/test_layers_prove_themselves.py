"""Simulation finds memory layers that are wrong on purpose, within 200 seeds each."""

from __future__ import annotations

import pytest
from broken_layers import LAYER_VARIANTS

from gspc_trio.testing.simulation import simulate

SEEDS_MAX = 200

LAYERED = (1, 6, 28, 33, 41, 44, 50)
"""The first seeds with a memory layer: looked at first, to save time."""


@pytest.mark.parametrize("variant", LAYER_VARIANTS, ids=lambda variant: variant.__name__)
def test_a_broken_memory_layer_is_found(variant, monkeypatch):
    variant(monkeypatch.setattr)
    seeds = (*LAYERED, *(seed for seed in range(SEEDS_MAX) if seed not in LAYERED))
    found = next((seed for seed in seeds if simulate(seed).broken), None)
    assert found is not None, f"{SEEDS_MAX} seeds, and nobody noticed: {variant.__doc__}"
