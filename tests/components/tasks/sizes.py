"""Tasks with large and small results."""

from __future__ import annotations

MIB = 1 << 20


def large(number: int) -> bytes:
    return bytes([number]) * MIB


def small(number: int) -> int:
    return -number
