"""What every view looks like, text and colours, compared with files.

It is dark at the smallest usual size, and light at a very large one.

GSPC_UPDATE_SNAPSHOTS=1 writes the files anew; look at the difference before you commit it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gspc_trio.components.job.messages import GetMemory, GetNet, MemoryStatus
from gspc_trio.tui.app import VIEWS, TopApp
from gspc_trio.tui.replay import Player, ReplaySource
from tests.tui.screens.test_views import NET
from tests.tui.screens.test_views_memory_log import LAYER_STATUS
from tests.tui.support import WALL_S, FakeSource, screen_text, small_run, styled_page

HERE = Path(__file__).parent
RECORDED = HERE.parents[2] / "examples" / "recorded-run.jsonl"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def all_views(app: TopApp, size: tuple[int, int], look: Callable[[TopApp], str] = screen_text) -> str:
    """Return what every view looks like, one below the other."""
    pages = []
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for kind in VIEWS:
            await pilot.press(kind.KEY)
            await pilot.pause()
            await app.workers.wait_for_complete()
            app.draw()
            await pilot.pause()
            pages.append(look(app))
    return ("\n" + "=" * size[0] + "\n").join(pages) + "\n"


@pytest.mark.parametrize(
    ("size", "theme"),
    [((80, 24), "textual-dark"), ((250, 70), "textual-light")],
    ids=["80x24", "250x70"],
)
def test_every_view_looks_as_it_did(size: tuple[int, int], theme: str) -> None:
    source = FakeSource(small_run())
    source.answers |= {GetNet: NET, GetMemory: MemoryStatus(LAYER_STATUS)}
    app = TopApp(source, theme=theme, now=lambda: WALL_S + 9.5)
    text = asyncio.run(all_views(app, size, styled_page))
    path = HERE / "snapshots" / f"{size[0]}x{size[1]}.txt"
    if os.environ.get("GSPC_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_the_recorded_run_of_the_examples_can_be_replayed() -> None:
    player = Player(RECORDED)
    player.seek_text("50%")
    source = ReplaySource(player)
    player.paused = True
    text = asyncio.run(all_views(TopApp(source), (80, 24)))
    assert "replay paused" in text
    assert "fit" in text
    assert "✗ failed" in text
    assert "alpha" in text
    assert "■ held" in text
    assert "ready tasks" in text


def test_a_replay_is_moved_by_keys() -> None:
    player = Player(RECORDED)
    player.paused = True
    app = TopApp(ReplaySource(player))

    async def main() -> None:
        async with app.run_test(size=(80, 24)) as pilot:

            async def press(*keys: str) -> None:
                for key in keys:
                    await pilot.press(key)
                    await pilot.pause()

            await press("right_parenthesis", "right_parenthesis", "left_parenthesis")
            assert player.position_s == 10.0
            assert "replay paused" in screen_text(app)
            await press("greater_than_sign", "greater_than_sign", "less_than_sign")
            assert player.speed == 2.0
            log = len(player.model.log), player.model.version
            await press("full_stop")
            assert player.model.version > log[1]
            await press("g", *"50%", "enter")
            assert player.position_s == pytest.approx(player.length_s / 2)
            await press("g", *"soon", "enter")
            assert player.position_s == pytest.approx(player.length_s / 2)
            await press("x")  # there is nothing to stop
            assert len(app.screen_stack) == 1
            await press("space")
            assert not player.paused

    asyncio.run(main())
