from __future__ import annotations

import gc

import pytest

from gspc_trio.core.imports import collector_paused


def test_what_was_imported_is_not_looked_at_again() -> None:
    with collector_paused():
        made = [[] for _ in range(2 * gc.get_threshold()[0])]
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_count()[0] < len(made) / 2
    assert not gc.get_freeze_count()


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
