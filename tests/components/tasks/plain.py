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


def fall_or_end(item: tuple[int, str]) -> int:
    """Fail with some items; with one of them, end the process the first time."""
    number, path = item
    if number % 500 == 3:
        raise ValueError(f"{number} is not welcome")
    if number == 2000 and not os.path.exists(path):
        with open(path, "w"):
            os._exit(1)
    return number
