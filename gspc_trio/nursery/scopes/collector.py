"""Tuning of the garbage collector of a process that holds many tasks, for as long as somebody wants it.

Every task is a handful of objects that live until it has ended. By Python's own thresholds it looks
at all of them again and again and finds nothing: that costs as much as all else.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (50_000, 20, 100)
"""As for ``gc.set_threshold``; what is not garbage by then is seldom garbage at all."""

_lock = threading.Lock()
_users = 0
_before = gc.get_threshold()


@contextmanager
def tuned_collector(wanted: bool = True) -> Iterator[None]:
    """Tune the collector of this process for the time of the block; nothing is changed unless ``wanted``."""
    if not wanted:
        yield
        return
    _change(1)
    try:
        yield
    finally:
        _change(-1)


def _change(by: int) -> None:
    global _users, _before
    with _lock:
        if not _users:
            _before = gc.get_threshold()
            gc.freeze()
            gc.set_threshold(*THRESHOLDS)
        _users += by
        if not _users:
            gc.set_threshold(*_before)
            gc.unfreeze()
