"""Invariant: each item of a farm comes into the graph exactly once, whatever became of its range."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from gspc_trio.testing.checkers.base import Broken

T = TypeVar("T")


def check_items(name: str, found: Counter[T], expected: Counter[T], excused: int) -> None:
    """See that all values are there as often as a plain loop makes them.

    Args:
        name: whose values they are.
        found: the values.
        expected: those of the loop.
        excused: how many may be missing: their tasks were lost too often, or cancelled.

    Raises:
        Broken: one came twice, or is none that there can be, or too many are missing.
    """
    if more := found - expected:
        value, count = more.most_common(1)[0]
        raise Broken(f"{name}: {value!r} came {count} times more than once into the graph")
    missing = expected - found
    if missing.total() > excused:
        raise Broken(f"{name}: {missing.total()} items never came, {next(iter(missing))!r} for one")
