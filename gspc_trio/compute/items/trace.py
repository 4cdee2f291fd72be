"""The trace context of the item of a range that is computed now.

Each item has one of its own. To put it into the environment before each of them would take longer than many
of them do, and few ask. So it is made when somebody reads it, or starts a program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from gspc_trio.compute.tidy import VARIABLES, changes
from gspc_trio.core.current import ComputePlace
from gspc_trio.core.trace_context import TRACEPARENT, TraceContext

P = ParamSpec("P")
R = TypeVar("R")

_NAME = TRACEPARENT.encode()

_STARTING = (
    ("_posixsubprocess", "fork_exec", "subprocess", "_fork_exec"),
    ("posix", "posix_spawn", "os", "posix_spawn"),
    ("posix", "posix_spawnp", "os", "posix_spawnp"),
    ("posix", "system", "os", "system"),
    ("posix", "execv", "os", "execv"),
)
"""What starts programs with the environment of the C library: module and name, and where else it is known."""


class ItemTrace:
    """Stands for the value of ``TRACEPARENT`` in ``os.environ`` while a range is computed.

    Args:
        place: where it is.
        trace: trace context of the job.
    """

    def __init__(self, place: ComputePlace, trace: TraceContext) -> None:
        self._place = place
        self._text = trace.texts()
        self._is_watching = False

    def __bytes__(self) -> bytes:
        return self._text(self._place.number, self._place.attempt)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the context of the item that is computed now, as ``os.environ`` asks for it."""
        return bytes(self).decode(encoding, errors)

    @property
    def is_shown(self) -> bool:
        """Whether it is in ``os.environ``: no item has set or deleted the variable."""
        return VARIABLES.get(_NAME) is self

    def show(self) -> None:
        """Be in the environment from now on; what reads that past ``os.environ`` has the present item's."""
        if not self._is_watching:
            self._is_watching = True
            for names in _STARTING:
                self._watch(*names)
            os.register_at_fork(before=self._settle)
        changes.put_variable(_NAME, bytes(self))
        VARIABLES[_NAME] = self

    def hide(self) -> None:
        """Leave the environment as it is for the task."""
        if self.is_shown:
            VARIABLES[_NAME] = bytes(self)

    def _settle(self) -> None:
        """Have what is in the environment be that of the item that is computed now."""
        if self.is_shown:
            self.show()

    def _watch(self, home: str, name: str, other: str, other_name: str) -> None:
        module = sys.modules.get(home) or __import__(home)
        function = getattr(module, name)
        watched = self._before(function)
        setattr(module, name, watched)
        known = sys.modules.get(other)
        if getattr(known, other_name, None) is function:
            setattr(known, other_name, watched)

    def _before(self, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def start(*args: P.args, **kwargs: P.kwargs) -> R:
            self._settle()
            return function(*args, **kwargs)

        return start


_traces: dict[ComputePlace, ItemTrace] = {}


def trace_of(place: ComputePlace) -> ItemTrace | None:
    """Return what shows the trace contexts of items at a place; None if its job has none."""
    if place.trace is None:
        return None
    found = _traces.get(place)
    if found is None:
        found = _traces[place] = ItemTrace(place, place.trace)
    return found


def begun_in(before: int, row: Iterator[object]) -> Callable[[], int]:
    """Return what says how many items of a range have begun, with the one that is about to.

    Args:
        before: those before the row.
        row: an iterator over a list, from which the next items are taken.
    """

    def begun() -> int:
        state = row.__reduce__()
        taken = state[2] if len(state) > 2 else 0
        return before + max(1, taken if isinstance(taken, int) else 0)

    return begun
