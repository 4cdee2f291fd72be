"""Lines of text, and the line with the keys."""

from __future__ import annotations

from rich.text import Text
from textual.pilot import Pilot

from gspc_trio.tui.app import TopApp
from gspc_trio.tui.dialogs import Choose
from gspc_trio.tui.lines import Keys, Lines
from tests.tui.screens.test_views import drive, press
from tests.tui.support import screen_text


def test_lines_are_drawn_and_laid_out_only_when_they_change() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        lines = app.view.query_one("#alerts", Lines)
        lines.show("none")
        refreshed: list[bool] = []
        lines.refresh = lambda *_, layout=False, **__: refreshed.append(layout) or lines  # type: ignore[method-assign]
        lines.show("one")
        assert refreshed == [False]
        lines.show(Text("one"))
        assert refreshed == [False]
        lines.show(Text("one", "red").append("\n"))
        assert lines.styles.height is not None
        assert lines.styles.height.value == 2
        lines.show(Text("one").append("\n", "red"))
        del lines.refresh
        lines.show("")
        await pilot.pause()
        assert lines.size.height == 0

    drive(steps)


def test_a_key_in_the_last_line_can_be_clicked() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        await press(pilot, "down")
        last = screen_text(app).splitlines()[-1]
        assert last.startswith(" x Stop job  w Weight  ? Help")
        await pilot.click(Keys, offset=(last.index("Stop"), 0))
        await pilot.pause()
        assert isinstance(app.screen, Choose)

    drive(steps)
