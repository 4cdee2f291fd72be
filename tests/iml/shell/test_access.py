"""Bytes that are filled in place."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from gspc_trio.iml.shell.access import FreshBytes


def test_they_are_what_was_written() -> None:
    fresh = FreshBytes(4)
    fresh.view[1:3] = b"ab"
    assert fresh.take() == b"\0ab\0"


def test_nobody_complains_when_they_end_in_a_cycle_before_they_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.13 did: "Existing exports of data: object cannot be re-sized"."""
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    fresh = FreshBytes(4)
    cycle: list[object] = [fresh, fresh.view[1:3]]
    cycle.append(cycle)
    del cycle, fresh
    gc.collect()
    assert not complaints
