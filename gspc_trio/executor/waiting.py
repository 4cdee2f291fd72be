"""What an executor says when its tasks wait: once, on a terminal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import trio

from gspc_trio.core.task import TaskState

PATIENCE_S = 5.0
"""So long may tasks wait while none runs until it is said why."""

LOOK_INTERVAL_S = 0.5
"""Pauses between looks."""


async def tell_waiting(
    counts: Callable[[], Mapping[TaskState, int]],
    why: Callable[[], Awaitable[str]],
    tell: Callable[[str], None],
) -> None:
    """Say once why tasks wait, when some have waited for a while and none ran meanwhile.

    Args:
        counts: returns the number of tasks in each state.
        why: returns the reason in one line, "" if there is none.
        tell: shows it.
    """
    since_s: float | None = None
    while True:
        await trio.sleep(LOOK_INTERVAL_S)
        tasks = counts()
        runs = tasks.get(TaskState.RUNNING) or tasks.get(TaskState.SUBMITTED)
        if runs or not tasks.get(TaskState.READY):
            since_s = None
            continue
        if since_s is None:
            since_s = trio.current_time()
        if trio.current_time() - since_s < PATIENCE_S:
            continue
        if reason := await why():
            tell(reason)
            return
