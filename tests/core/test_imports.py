from __future__ import annotations

import gc
import sys
import weakref
from types import ModuleType

import pytest

from gspc_trio.core.imports import collector_paused


class Node:
    """Garbage that the collector alone finds."""

    def __init__(self) -> None:
        self.itself = self


def test_what_was_imported_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector_paused():
        monkeypatch.setitem(sys.modules, "imported_now", ModuleType("imported_now"))
        made = [[] for _ in range(2 * gc.get_threshold()[0])]
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_count()[0] < len(made) / 2
    assert not gc.get_freeze_count()


def test_garbage_of_blocks_that_import_nothing_is_found() -> None:
    kept, made, before = weakref.WeakSet[Node](), 1_000, gc.get_threshold()
    gc.set_threshold(10, 2, 1)
    try:
        for _ in range(made):
            with collector_paused():
                kept.add(Node())
    finally:
        gc.set_threshold(*before)
    assert len(kept) < made / 2


@pytest.mark.parametrize("frozen", [False, True])
def test_the_settings_of_the_collector_stay_those_of_whoever_made_them(frozen: bool) -> None:
    if frozen:
        gc.freeze()
    gc.disable()
    try:
        before = gc.get_freeze_count()
        with collector_paused():
            pass
        assert not gc.isenabled()
        gc.enable()
        with collector_paused():
            pass
        assert (gc.get_freeze_count() > 0) == frozen == (before > 0)
    finally:
        gc.enable()
        gc.unfreeze()
