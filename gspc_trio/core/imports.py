"""Imports: whose runs now, and whether this is a compute process, which decides what may be started; and
imports of much at once."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_LOADING = ("exec_module", "_call_with_frames_removed")
"""Functions of loaders, importlib's and others, that run the code of a module."""

_computing = False


class StartedAtImport(RuntimeError):
    """A module starts a run-time system while a compute process imports it."""


def enter_compute_process() -> None:
    """Say that this process, and what is forked from it, runs tasks."""
    global _computing
    _computing = True


def module_being_imported() -> str | None:
    """Return the name of the module that is being imported in this thread by whatever calls; None outside."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_back
        if frame.f_code.co_name == "<module>" and caller is not None and caller.f_code.co_name in _LOADING:
            return str(frame.f_globals.get("__name__", "a module"))
        frame = caller
    return None


def refuse_in_imports_of_tasks() -> None:
    """Keep modules that tasks import from starting run-time systems: each would start itself again.

    Raises:
        StartedAtImport: a compute process imports the module that asks.
    """
    if not _computing:
        return
    name = module_being_imported()
    if name is not None:
        raise StartedAtImport(
            f"module {name} starts a run-time system when it is imported, as compute processes do: "
            'put that part of it under `if __name__ == "__main__":` or into a function'
        )


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from running, for a block that imports much.

    What is imported is no garbage. The collector would find that out a hundred times in a start, and once
    more afterwards. So all that is there by then counts as what has lived long already, if something was
    imported: where the block often runs without, garbage would never be looked for again.
    """
    was_on = gc.isenabled()
    known = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            # What somebody has frozen stays so; to look for that takes long where much is.
            if len(sys.modules) > known and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def missing_extra(what: str, package: str, extra: str) -> str:
    """Return the message for something that needs a package that is not installed.

    Args:
        what: that needs it, for people.
        package: its name.
        extra: of this distribution, which has it.
    """
    return f'{what} needs the package {package}: pip install "gspc-trio[{extra}]"'
