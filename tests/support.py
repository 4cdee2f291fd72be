"""How tests wait for what happens outside of their own process, or where nobody is told of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import trio

LOOK_INTERVAL_S = 0.01


async def until(condition: Callable[[], Any], within_s: float = 60.0) -> Any:
    """Return the first true value of the condition.

    Raises:
        trio.TooSlowError: there was none for so long.
    """
    with trio.fail_after(within_s):
        while not (found := condition()):  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(LOOK_INTERVAL_S)
    return found


async def until_ended(pid: int, within_s: float = 60.0) -> None:
    """Wait for the end of any process, whoever has started it.

    Raises:
        trio.TooSlowError: it has not ended for so long.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        with trio.fail_after(within_s):
            await trio.lowlevel.wait_readable(descriptor)
    finally:
        os.close(descriptor)
