"""Runs into which anomalies were put for real: each is found soon, and nothing else (ASP-9)."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gspc_trio.components.monitor.detector import Detector
from gspc_trio.components.monitor.messages import NodeFrame

RUNS = Path(__file__).parents[3] / "bench" / "recorded"
SOON_S, LEAK_S, LATE_S = 20.0, 90.0, 10.0


@pytest.mark.parametrize("name", ["loads", "memory", "failures", "frequency", "product"])
def test_what_was_put_into_a_host_is_found_soon_and_nothing_else(name: str) -> None:
    run: Any = msgspec.json.decode(gzip.decompress((RUNS / f"{name}.json.gz").read_bytes()))
    detector = Detector()
    detector.joined("a", run["cpus"])
    frames = msgspec.convert(run["frames"], list[NodeFrame])
    on = [one for frame in frames for one in detector.take("a", frame) if one.is_on and not one.is_urgent]
    put_in = [(kind, begin_s, end_s) for kind, begin_s, end_s in run["when"] if kind != "work"]
    for kind, begin_s, _ in put_in:
        soon_s = LEAK_S if kind == "leak" else SOON_S
        assert any(one.kind == kind and 0 <= one.at_s - begin_s <= soon_s for one in on), (kind, begin_s)
    for one in on:
        if one.subject == "host":
            there = [kind for kind, begin_s, end_s in put_in if begin_s <= one.at_s <= end_s + LATE_S]
            assert one.kind in there, one
