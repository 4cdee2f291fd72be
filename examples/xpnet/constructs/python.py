"""The functions of the modules of python.xpnet that have no body there."""

from __future__ import annotations

import math


def measure(point: dict[str, int]) -> tuple[float, list[str]]:
    """Return the length of a point's vector, and the names of its fields."""
    return math.hypot(point["x"], point["y"]), list(point)
