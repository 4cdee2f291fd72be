"""A task whose result is journaled."""

from __future__ import annotations


def double(item: int) -> int:
    return 2 * item
