"""Requirements on the event loop in which real processes are run: it is trio's, with real time."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import trio

_open = trio.lowlevel.RunVar("gspc_trio_real_time", 0)
"""Blocks of this run of trio in which time is real."""

_before = trio.lowlevel.RunVar("gspc_trio_clock_before", (0.0, math.inf))
"""Rate and threshold of the clock of a test, for the end of the last of these blocks."""


class NotInTrio(RuntimeError):
    """Something of trio's was asked for where trio does not run."""


def require_trio(what: str, instead: str = "gspc_trio.Executor") -> None:
    """Raise NotInTrio, which says what to do, where trio does not run.

    Args:
        what: what was asked for.
        instead: what does without an event loop.
    """
    if trio.lowlevel.in_trio_task():
        return
    asyncio = sys.modules.get("asyncio")
    other = asyncio is not None and asyncio._get_running_loop() is not None
    raise NotInTrio(
        f"{what} runs in trio, and here runs {'asyncio' if other else 'no trio'}: "
        + ("use 'await asyncio.to_thread(trio.run, main)'" if other else "call 'trio.run(main)'")
        + f" with an async function main that uses it, or {instead}, which needs no event loop"
    )


@contextmanager
def real_time() -> Iterator[None]:
    """Have the clock of this run of trio show real time in the block: real processes work in it.

    An autojump clock, as tests use it, leaps to the next time-out whenever all tasks of trio wait. While one
    of them waits for a process, that time-out would come before the process can do anything. So such a clock
    runs at the rate of real time in the block, and leaps again after it; any other clock is left alone.
    """
    testing = sys.modules.get("trio.testing")
    clock = trio.lowlevel.current_clock()
    if testing is None or not isinstance(clock, testing.MockClock):
        yield
        return
    if not _open.get():
        _before.set((clock.rate, clock.autojump_threshold))
        if clock.autojump_threshold < math.inf:
            clock.autojump_threshold, clock.rate = math.inf, 1.0
    _open.set(_open.get() + 1)
    try:
        yield
    finally:
        _open.set(_open.get() - 1)
        rate, threshold = _before.get()
        if not _open.get() and threshold < math.inf:
            clock.rate, clock.autojump_threshold = rate, threshold
