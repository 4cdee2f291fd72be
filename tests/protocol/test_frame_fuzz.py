"""A small part of what a release is fuzzed with; the rest is ``fuzz_frames.py``."""

from __future__ import annotations

import pytest

from tests.protocol.fuzz_frames import fuzz


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_frames_are_messages_or_refused(seed: int) -> None:
    counts = fuzz(20_000, seed)
    assert counts["messages"] > 500, counts
    assert counts["refused"] > 5_000, counts
    assert counts["ended"] > 50, counts
