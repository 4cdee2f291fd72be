"""Views and what users can put into them: names, errors and output of any kind; lists that change."""

from __future__ import annotations

from msgspec.structs import replace
from textual.pilot import Pilot

from gspc_trio.components.job.messages import GetTask
from gspc_trio.records.facts import JobChanged
from gspc_trio.tui.app import TopApp
from gspc_trio.tui.model import RTS
from gspc_trio.tui.text import one_line, printable
from tests.tui.screens.test_views import TOLD, drive, press
from tests.tui.support import (
    EXPLANATION,
    FAILED,
    FINISHED,
    FakeSource,
    fold,
    opened,
    screen_text,
    small_run,
    task,
)


def test_only_what_can_be_seen_is_left_of_a_text() -> None:
    assert (
        printable("\x1b[31mred\x1b[0m\n10%\r20%\r\n\x07bell\ta\u202e\xa0")
        == "red\n20%\n\ufffdbell   a\ufffd "
    )
    assert printable("\x1b]8;;http://x\x1b\\link\x1b]8;;\x07 \x1b(B\x1b7end\x1b") == "link end\ufffd"
    assert one_line("two\n\tlines") == "two lines"
    assert one_line("as  it is") == "as  it is"


def test_names_and_errors_of_users_cannot_disturb_the_terminal() -> None:
    model, evil = small_run(), "a[/b]\x1b[2J\x1b]0;x\x07\nb"
    fold(model, RTS, [JobChanged(8.0, "j3", "running", evil)])
    fold(model, "j3", [opened(), JobChanged(8.0, "j3", "running", evil)])
    fold(model, "j3", [task(8.5, 1, FAILED, "r1.core0", job="j3", name=evil, detail=evil)])
    model.connected.add("j3")
    model.explanations["j3"] = (replace(EXPLANATION, reason=evil),)

    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        assert isinstance(app.source, FakeSource)
        app.source.answers[GetTask] = replace(TOLD, stdout=f"1%\r2%\n{evil}", inputs=(evil,))
        await press(pilot, "right_square_bracket")
        seen = []
        for keys in (
            ("1",),
            ("4",),
            ("enter",),
            ("escape", "6"),
            ("8",),
            ("end", "enter"),
            ("escape", "0", "2"),
        ):
            await press(pilot, *keys)
            seen.append(screen_text(app))
        assert "\x1b" not in "".join(seen)
        assert "a[/b] b" in seen[0]
        assert "│ 2% " in seen[2]
        assert "1%" not in seen[2]

    drive(steps, size=(100, 40), model=model)


def test_on_the_first_row_the_cursor_stays_there() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        await press(pilot, "4")
        assert app.view.table.key == "j1 6"
        fold(app.model, "j1", [task(9.0, 6, FINISHED, "r1.core0")])
        app.beat()
        assert app.view.table.key == "j1 7"

    drive(steps)
