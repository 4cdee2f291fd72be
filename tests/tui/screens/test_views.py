"""Every view and key of the terminal, with Textual's pilot; what is compared is the text on the screen."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from gspc_trio.components.job.messages import GetNet, GetTask, TaskDetails
from gspc_trio.core.net import NetStatus, PlaceKind, PlaceStatus, TransitionStatus
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import AnomalyChanged, JobChanged, LocalityChanged, RifChanged
from gspc_trio.tui.app import VIEWS, TopApp, help_text
from gspc_trio.tui.model import RTS, Model
from gspc_trio.tui.source import CannotAsk
from gspc_trio.tui.table import WindowTable
from gspc_trio.tui.views import workflow
from tests.tui.support import FINISHED, RUNNING, WALL_S, FakeSource, fold, host, screen_text, small_run, task

NET = NetStatus(
    (
        PlaceStatus("items", PlaceKind.INPUT, 5),
        PlaceStatus("fitted", PlaceKind.PLACE, 2),
        PlaceStatus("sums", PlaceKind.OUTPUT, 0),
    ),
    (
        TransitionStatus("tidy", ("fitted",), ("sums",), {}, done=1, inline=True),
        TransitionStatus("work", ("items",), ("fitted",), {TaskState.SUBMITTED: 5}, done=4, fired=9),
    ),
)

TOLD = TaskDetails(
    5, "task 5 has failed; it can be retried", None, "beta", "work", "core", inputs=("5", "[1, 2]"),
    stdout="fitting 5\n", error="ValueError: it is wrong", traceback="Traceback …\n  line 7, in fit",
)  # fmt: skip

Steps = Callable[[Pilot[None], TopApp], Awaitable[None]]


def drive(
    steps: Steps, *, size: tuple[int, int] = (80, 24), model: Model | None = None, **more: Any
) -> TopApp:
    """Run the steps on a terminal that shows the small run, nine and a half seconds in."""
    source = FakeSource(small_run() if model is None else model)
    source.answers |= {GetNet: NET, GetTask: TOLD}
    app = TopApp(source, now=lambda: WALL_S + 9.5, **more)
    app.rest_factor = 0.0  # each beat draws, however slow the machine is

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await steps(pilot, app)

    asyncio.run(run())
    return app


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


def texts_of(*groups: tuple[str, ...], **more: Any) -> list[str]:
    """Return what is on the screen after each group of keys."""
    seen: list[str] = []

    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        for keys in groups:
            await press(pilot, *keys)
            await app.workers.wait_for_complete()
            await pilot.pause()
            app.draw()
            await pilot.pause()
            seen.append(screen_text(app))

    drive(steps, **more)
    return seen


def text_of(*keys: str, **more: Any) -> str:
    """Return what is on the screen after these keys."""
    return texts_of(keys, **more)[0]


def test_the_overview_shows_cores_jobs_classes_and_alerts() -> None:
    text = text_of()
    assert "2 hosts  3/4 in use   all jobs" in text
    assert "cores  3 of 4 in use" in text
    row = next(line for line in text.splitlines() if line.startswith("j1"))
    assert row.split() == ["j1", "fit", "▶", "running", "1", "3", "4", "1", "0.5", "10.6", "s", "3"]
    assert "core 3 held 1 free of 4" in text
    assert "✗ j1 (fit): 1 task failed" in text


@pytest.mark.parametrize("kind", VIEWS, ids=lambda kind: kind.NAME)
def test_every_view_has_a_key_and_a_command(kind: Any) -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        await press(pilot, kind.KEY)
        assert app.view.NAME == kind.NAME
        assert app.focused is app.view.table
        await press(pilot, "1")
        titles = {command.title: command.callback for command in app.get_system_commands(app.screen)}
        app.call_later(titles[f"Show {kind.NAME}"])
        await pilot.pause()
        assert app.view.NAME == kind.NAME

    drive(steps)


@pytest.mark.parametrize(
    ("size", "theme"),
    [
        ((80, 24), "textual-dark"),
        ((250, 70), "textual-light"),
        ((20, 5), "textual-dark"),
        ((40, 12), "textual-light"),
    ],
    ids=str,
)
def test_every_view_fits_to_every_size(size: tuple[int, int], theme: str) -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        for kind in VIEWS:
            await press(pilot, kind.KEY)
            lines = screen_text(app).splitlines()
            assert len(lines) <= size[1]
            assert max(map(len, lines)) <= size[0]
            assert app.view.table.size.height >= 2 or size == (20, 5)
        app.screen.get_style_at(0, 0)
        assert "<svg" in app.export_screenshot()

    drive(steps, size=size, theme=theme)


def test_it_survives_being_resized() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        for kind in VIEWS:
            await press(pilot, kind.KEY)
            for size in ((20, 5), (1, 1), (80, 24)):
                await pilot.resize_terminal(*size)
                await pilot.pause()
        assert "gspc-top" in screen_text(app)

    drive(steps)


def test_the_resources_are_a_tree_with_holders_and_loads() -> None:
    text = text_of("2", size=(120, 24))
    assert "▾ alpha" in text
    assert " 95% load 1.9  mem " in text
    core = next(line for line in text.splitlines() if "r1.core0 " in line and "core" in line)
    assert "■ held" in core
    assert "j1 for 8.5 s" in core
    assert "4711" in next(line for line in text.splitlines() if line.strip().startswith("r1.core0"))
    node = next(line for line in text.splitlines() if line.strip().startswith("▾ r1.node"))
    assert "▒ blocked" in node
    assert "r1.core0, held by j1" in node


def test_a_host_that_ends_says_when() -> None:
    model = small_run()
    model.apply(RTS, RifChanged(8.0, "r2", "beta", "up", "", 800.0))
    assert "ends in 13m18s  cpu" in text_of("2", size=(120, 24), model=model)


def test_the_tree_folds() -> None:
    shown = texts_of(("2", "enter"), ("enter",), ("left",), ("right",), ("down", "left"), ("left", "left"))
    assert ["r1.node" in text for text in shown] == [False, True, False, True, True, False]
    assert ["    r1.core0" in text for text in shown] == [False, True, False, True, False, False]


def test_the_queues_tell_who_waits_and_why() -> None:
    text = text_of("3")
    row = next(line for line in text.splitlines() if line.startswith("    1 j2"))
    assert row.split()[:4] == ["1", "j2", "node", "2"]
    assert "7.5 s" in row
    assert "j2 waits for node  it holds 0 (0% of all that is held), its weight is 2" in text
    assert "r1.node is blocked by r1.core0, held by j1" in text
    assert "needs 1 node: 0 of 2 free" in text
    assert "held by j1: r1.core0" in text
    assert "j1 waits for core" in text_of("3", "down")


def test_the_tasks_are_listed_filtered_and_searched() -> None:
    text, failed, finished, everything, searched, kept, other, ended, queued = texts_of(
        ("4",), ("s",) * 5, ("S",), ("s",) * 3, ("slash", *"r2.core0"), ("enter", "down"),
        ("slash", *"zzz"), ("escape",), ("slash", *"submitted"),
    )  # fmt: skip
    assert "○ 1 ready  ◌ 1 submitted  ▶ 3 running  ✓ 4 finished  ✗ 1 failed  ⊘ 0 cancelled" in text
    assert "ValueError: it is" in text
    numbers = [shown.count("work") for shown in (failed, finished, everything, searched, kept, ended, queued)]
    assert numbers == [1, 4, 10, 3, 3, 10, 1]
    assert "no task fits" in other


def test_a_task_is_shown_whole() -> None:
    text = text_of("4", "down", "down", "down", "enter", size=(100, 50))
    for part in (
        "task      5 of job j1", "✗ failed since", "where     r2.core0 (beta)", "ValueError: it is wrong",
        "line 7, in fit", "fitting 5", "1: 5", "2: [1, 2]", "needs     core",
    ):  # fmt: skip
        assert part in text
    assert "task      5" not in text_of("4", "down", "down", "down", "enter", "escape")


def test_a_task_of_a_job_that_is_gone_is_shown_as_far_as_it_is_known() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        assert isinstance(app.source, FakeSource)
        app.source.answers[GetTask] = CannotAsk("it is gone")
        await press(pilot, "4", "enter")
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert "Inputs and output are not known here: it is gone" in screen_text(app)

    drive(steps)


def test_the_workers_have_three_lanes() -> None:
    text = text_of("5", size=(120, 24))
    rows = [
        line for line in text.splitlines() if line.split()[:1] in (["r1.core0"], ["compute"], ["out"], ["in"])
    ]
    assert [line.replace("r1.core0", "").split()[0] for line in rows[:3]] == ["in", "compute", "out"]
    assert "6 work" in rows[1]
    assert "█" in rows[1]
    only, longer = texts_of(("5", "n"), ("z",))
    assert "compute" in only
    assert " out " not in only
    assert "10m00s" in longer


def test_the_workflow_is_shown_in_the_order_of_its_tokens() -> None:
    text = text_of("1", "right_square_bracket", "right_square_bracket", "6")
    names = [line.split()[1] for line in text.splitlines() if line.strip()[:1] in "▷▣○▫◁" and line.strip()]
    assert names == ["items", "work", "fitted", "tidy", "sums"]
    work = next(line for line in text.splitlines() if "▣ work" in line)
    assert work.split()[2:] == ["2", "3", "4", "·"]


def test_activities_that_have_begun_are_running_though_no_worker_tells_of_them() -> None:
    render = TransitionStatus("render", (), (), {TaskState.READY: 1, TaskState.RUNNING: 7}, done=2)
    _, _, ready, running, done, *_ = workflow._cells(render, 0, Counter())
    assert [ready[0], running[0], done[0]] == ["1", "7", "2"]


def test_nothing_of_a_job_that_is_over_runs() -> None:
    inputs, outputs = ("a",), ("b",)
    live = {TaskState.READY: 1, TaskState.SUBMITTED: 2, TaskState.RUNNING: 1, TaskState.FAILED: 1}
    asked = [TransitionStatus(name, inputs, outputs, live, 5, 9) for name in ("render", "render.row")]
    known = TransitionStatus("render.row", (), (), {TaskState.FAILED: 2, TaskState.CANCELLED: 1}, 6)
    left = {TaskState.FAILED: 1}, {TaskState.FAILED: 2}
    for state, done in (("finished", 9), ("failed", 5)):
        seen = workflow.at_end(NetStatus((), tuple(asked)), NetStatus((), (known,)), state)
        assert seen.transitions == (
            TransitionStatus("render", inputs, outputs, left[0], done, 9),
            TransitionStatus("render.row", inputs, outputs, left[1], 6, 9),
        )


def test_a_workflow_that_cannot_be_asked_for_is_put_together_from_its_tasks() -> None:
    model = small_run()
    model.connected.clear()
    text = text_of("6", model=model)
    assert "▣ work" in text


def test_a_job_is_chosen_and_the_lists_show_it_alone() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        await press(pilot, "down", "enter")
        assert (app.job, app.view.NAME) == ("j1", "tasks")
        await press(pilot, "right_square_bracket")
        assert app.job == "j0"
        assert "no task fits" in screen_text(app)
        await press(pilot, "right_square_bracket")
        assert app.job is None
        await press(pilot, "left_square_bracket", "0")
        assert app.job is None

    drive(steps)


def test_help_tells_the_keys_of_the_view_and_the_symbols() -> None:
    text = text_of("4", "question_mark", size=(100, 70))
    for part in ("TASKS", "Cancel", "Retry", "◌ submitted", "▒ blocked", "command palette", "1 overview"):
        assert part in text
    assert "TASKS" not in text_of("4", "question_mark", "escape")


def test_a_browser_is_not_offered_to_suspend() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        del pilot
        assert "ctrl+z" in help_text(VIEWS, app.view, replay=False)
        assert "ctrl+z" not in help_text(VIEWS, app.view, replay=False, in_browser=True)

    drive(steps)


def test_the_footer_tells_the_keys_that_work_here() -> None:
    overview, resources, tasks = (text.splitlines()[-1] for text in texts_of(("1",), ("2",), ("4",)))
    assert "x Stop job" in overview
    assert "d Drain host" in resources
    assert "c Cancel" in tasks


def test_the_theme_can_be_changed() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        dark = app.export_screenshot()
        await press(pilot, "t")
        assert not app.current_theme.dark
        await pilot.pause()
        assert app.export_screenshot() != dark
        await press(pilot, "t")
        assert app.current_theme.dark

    drive(steps)


def test_the_picture_can_be_held() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        await press(pilot, "space")
        fold(app.model, "j1", [task(9.0, 6, FINISHED)])
        app.beat()
        await pilot.pause()
        assert "held: space goes on" in screen_text(app)
        held = screen_text(app)
        await press(pilot, "space")
        app.beat()
        await pilot.pause()
        assert screen_text(app) != held

    drive(steps)


def test_the_cursor_stays_on_its_row_while_the_list_changes() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        await press(pilot, "4", "down", "down", "down", "down")
        assert app.view.table.key == "j1 9"
        fold(app.model, "j1", [task(9.0, n, RUNNING, "r2.core1") for n in range(100, 140)])
        app.beat()
        await pilot.pause()
        assert app.view.table.key == "j1 9"

    drive(steps)


def test_long_lists_are_paged_and_only_what_is_seen_is_made() -> None:
    model = small_run()
    for number in range(10, 2010):
        fold(model, RTS, host(f"r{number}", f"h{number}", 4))
    made: list[int] = []

    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        await press(pilot, "2")
        table = app.view.table
        assert len(table.keys) == 2002
        cells = table._cells
        table._cells = lambda at: made.append(at) or cells(at)
        await press(pilot, "end")
        assert table.key == "host h2009"
        await press(pilot, "pageup", "pageup")
        assert 1900 < table.cursor < 2001
        assert len(made) < 300
        await press(pilot, "home", "j", "k", "down")
        assert table.cursor == 1
        assert isinstance(table, WindowTable)

    drive(steps, model=model)


def test_it_says_when_the_other_side_is_gone() -> None:
    model = small_run()
    model.link = "nothing listens at ws://127.0.0.1:9; trying again"
    assert "✗ nothing listens" in text_of(model=model)


def test_it_leaves_with_the_job_it_was_started_for() -> None:
    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        app.beat()
        assert app.is_running
        fold(app.model, "j1", [JobChanged(9.0, "j1", "finished", "fit")])
        app.beat()
        await pilot.pause()

    assert drive(steps, until_job="j1").return_code == 0


def test_anomalies_are_beside_their_host_and_locality_is_in_the_overview() -> None:
    model = small_run()
    model.apply(RTS, AnomalyChanged(8.0, "beta", "dial", "on"))
    model.apply(RTS, LocalityChanged(8.0, 900 << 20, 80 << 20, 20 << 20))
    shown: list[str] = []

    async def steps(pilot: Pilot[None], app: TopApp) -> None:
        for key in "12":
            await pilot.press(key)
            await pilot.pause()
            shown.append(screen_text(app))

    drive(steps, size=(120, 30), model=model)
    (line,) = [line for line in shown[0].splitlines() if "other racks" in line]
    assert (
        "node 90.0% (expected 80-90 %) rack 8.0% (expected 5-10 %) other racks 2.0% (expected 2-5 %)" in line
    )
    (line,) = [line for line in shown[1].splitlines() if "dial" in line]
    assert "beta" in line
