"""An executor in a notebook: where its cells begin and end, and what is shown below them."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Protocol

from gspc_trio.executor.futures import Call


def _shell() -> Any:
    """Return the IPython that runs this program, None if none does."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def is_notebook() -> bool:
    """Whether what is displayed is shown below a cell: in a kernel of Jupyter, not in IPython's terminal."""
    return getattr(_shell(), "kernel", None) is not None


def open_display(html: str, text: str) -> Callable[[str, str], None]:
    """Show something below the cell that runs; return what shows something else in its place.

    Args:
        html: what is shown.
        text: the same for who cannot show HTML.
    """
    handle = import_module("IPython.display").display(  # it is there, for it runs this program
        {"text/html": html, "text/plain": text}, raw=True, display_id=True
    )

    def update(html: str, text: str) -> None:
        handle.update({"text/html": html, "text/plain": text}, raw=True)

    return update


class Cells:
    """Knows which calls of an executor the cell that runs has submitted.

    Those are its own that the main thread submits until it ends. Other threads go on when a cell is
    interrupted, and so do their calls.
    """

    def __init__(self) -> None:
        self.number: int = 1
        self._thread_id = threading.main_thread().ident

    def begin(self) -> None:
        """Another cell runs."""
        self.number += 1

    def note(self, calls: Iterable[Call]) -> None:
        """These calls are submitted."""
        if number := self.current():
            for call in calls:
                call.future._cell = number

    def current(self) -> int:
        """Return the number of the cell that submits, 0 if another thread does."""
        return self.number if threading.get_ident() == self._thread_id else 0


class InCells(Protocol):
    """What an executor's loop does at the end of a cell.

    Attributes:
        cells: of its notebook.
    """

    cells: Cells | None

    @property
    def broken(self) -> str | bool:
        """Why it can take no more calls, False if it can."""
        ...

    def cancel_cell(self, cell: int) -> None:
        """Cancel what a cell has submitted."""
        ...

    def flush_output(self) -> None:
        """Return when what ended tasks have printed is shown."""
        ...


def follow_cells(loop: InCells, shows_output: bool) -> None:
    """Under IPython, from now on have the end of a cell seen by an executor.

    What tasks print is shown by then: what comes between two cells belongs to neither, and programs that run
    notebooks drop it. A cell that was interrupted has its tasks cancelled.

    Args:
        loop: of the executor.
        shows_output: whether what tasks print is shown.
    """
    shell = _shell()
    if shell is None:
        return
    cells = loop.cells = Cells()
    reference = weakref.ref(loop)

    def begin(_info: object) -> None:
        cells.begin()

    def end(result: Any) -> None:
        there = reference()
        if there is None or there.broken:
            shell.events.unregister("pre_run_cell", begin)
            shell.events.unregister("post_run_cell", end)
            return
        if _was_interrupted(result):
            there.cancel_cell(cells.number)
        if shows_output:
            there.flush_output()

    shell.events.register("pre_run_cell", begin)
    shell.events.register("post_run_cell", end)


def _was_interrupted(result: Any) -> bool:
    """Whether a cell was, by the user: one that awaits ends as a cancelled task of asyncio does."""
    if result is None:
        return True
    error = result.error_in_exec or result.error_before_exec
    return error is not None and not isinstance(error, Exception | SystemExit)
