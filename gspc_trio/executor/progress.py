"""How far tasks are, shown while they run: on a terminal, or below the cell of a notebook."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.executor.notebook import is_notebook, open_display

if TYPE_CHECKING:
    from gspc_trio.executor.loop import Loop

REFRESH_INTERVAL_S = 0.1

_TROUBLES = (TaskState.FAILED, TaskState.CANCELLED)


class Far(Struct, frozen=True):
    """How far tasks are.

    Attributes:
        ended: so many have ended.
        total: so many there are.
        troubles: how many of them failed or were cancelled, "" if none.
    """

    ended: int
    total: int
    troubles: str


Show: TypeAlias = Callable[[Far], None]
"""Shows it in place of what was shown before."""


def how_far(counts: Mapping[TaskState, int], before: Mapping[TaskState, int] | None = None) -> Far:
    """Return how far tasks are.

    Args:
        counts: of all in each state.
        before: the same at an earlier time; those that had ended then are left out.
    """
    past = before or {}
    ended = {state: counts.get(state, 0) - past.get(state, 0) for state in FINAL_STATES}
    live = sum(number for state, number in counts.items() if state not in FINAL_STATES)
    troubles = ", ".join(f"{ended[state]} {state.value}" for state in _TROUBLES if ended[state])
    return Far(sum(ended.values()), sum(ended.values()) + live, troubles)


@contextmanager
def terminal_bar(title: str) -> Iterator[Show]:
    """Open a bar on standard error, which is gone after the block."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[troubles]}", style="red", markup=False),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        auto_refresh=False,
    )
    row = bar.add_task(title, total=None, troubles="")

    def show(far: Far) -> None:
        bar.update(row, completed=far.ended, total=far.total or None, troubles=far.troubles)
        bar.refresh()

    with bar:
        yield show


@contextmanager
def _notebook_bar(title: str) -> Iterator[Show]:
    """Open a bar below the cell, which stays as it is at the end of the block."""
    begun_s = monotonic()
    update = open_display(*_bundle(title, Far(0, 0, ""), 0.0))
    yield lambda far: update(*_bundle(title, far, monotonic() - begun_s))


def _bundle(title: str, far: Far, elapsed_s: float) -> tuple[str, str]:
    """Return a bar as HTML, and as text for where there is none."""
    parts = (title, f"{far.ended:,} of {far.total:,} tasks", far.troubles, f"{elapsed_s:.1f} s")
    text = ", ".join(part for part in parts if part)
    bar = f'<progress value="{far.ended}" max="{far.total or 1}" style="width: 24em"></progress>'
    return f'<div style="font-variant-numeric: tabular-nums">{bar} {escape(text)}</div>', text


def _seen_bar(title: str) -> AbstractContextManager[Show] | None:
    """Return a bar that somebody will see, None if nobody would."""
    if is_notebook():
        return _notebook_bar(title)
    return terminal_bar(title) if sys.stderr is not None and sys.stderr.isatty() else None


def show_progress(loop: Loop, title: str) -> AbstractContextManager[None]:
    """Return a block that shows how far the tasks of an executor are, see ``Executor.progress``."""
    bar = None if loop.is_watched else _seen_bar(title)
    before = None if bar is None else loop.counts()
    if bar is None or before is None:
        return nullcontext()
    return _shown(loop, bar, before)


@contextmanager
def _shown(loop: Loop, bar: AbstractContextManager[Show], before: Mapping[TaskState, int]) -> Iterator[None]:
    """Have a thread look how far the tasks are, and show it, while the block runs."""
    over = threading.Event()

    def keep_showing() -> None:
        is_last = False
        while (counts := loop.counts()) is not None:
            show(how_far(counts, before))
            if is_last:
                return
            is_last = over.wait(REFRESH_INTERVAL_S)

    with bar as show:
        thread = threading.Thread(target=keep_showing, name="gspc-progress", daemon=True)
        try:
            loop.is_watched = True
            thread.start()
            yield
        finally:
            loop.is_watched = False
            over.set()
            if thread.is_alive():
                thread.join()
