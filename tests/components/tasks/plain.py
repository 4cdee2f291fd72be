"""Tasks of a few words."""

from __future__ import annotations

import os
import time


def double(value: int) -> int:
    return 2 * value


def add_up(values: list[int]) -> int:
    return sum(values)


def nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def fall(value: int) -> int:
    if value == 2:
        raise ValueError(f"{value} is not welcome")
    return value
