"""What the owner can do from the terminal: asked first where it costs work, and told what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest
from textual.pilot import Pilot

from gspc_trio.components.job.messages import CancelTask, RetryFailed, StopJob
from gspc_trio.components.rif.messages import DagReport
from gspc_trio.components.rts.messages import AddDag, GetResources, RemoveDag, ResourceList, SetWeight
from gspc_trio.core.resources import Resource
from gspc_trio.tui.actions import ACTIONS
from gspc_trio.tui.app import VIEWS, Severity, TopApp
from gspc_trio.tui.source import CannotAsk
from tests.tui.support import WALL_S, FakeSource, screen_text, small_run

BETA = (
    Resource("r2.node", "node"),
    Resource("r2.core0", "core", ("r2.node",), cpus=(0,)),
    Resource("r2.core1", "core", ("r2.node",), cpus=(1,)),
)

Steps = Callable[[Pilot[None], TopApp, FakeSource], Awaitable[None]]


class HeardApp(TopApp):
    """A terminal that notes what it says."""

    said: ClassVar[list[str]] = []

    def say(self, text: str, severity: Severity = "information") -> None:
        super().say(text, severity)
        self.said.append(text)


def drive(steps: Steps, **more: Any) -> None:
    source = FakeSource(small_run())
    source.answers |= {GetResources: ResourceList(BETA), RemoveDag: DagReport(()), AddDag: DagReport(())}
    HeardApp.said.clear()
    app = HeardApp(source, now=lambda: WALL_S + 9.5, **more)

    async def run() -> None:
        async with app.run_test(size=(90, 30)) as pilot:
            await pilot.pause()
            await steps(pilot, app, source)

    asyncio.run(run())


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


def orders(source: FakeSource) -> list[tuple[str | None, Any]]:
    """Return what was asked for that changes something."""
    return [(job, message) for job, message in source.asked if not isinstance(message, GetResources)]


@pytest.mark.parametrize(
    ("keys", "job", "order"),
    [
        (("4", "c", "down", "enter"), "j1", CancelTask((6,))),
        (("4", "down", "down", "down", "r"), "j1", RetryFailed(5)),
        (("1", "down", "x", "down", "enter"), "j1", StopJob(drain=True)),
        (("1", "down", "x", "down", "down", "enter"), "j1", StopJob()),
        (("1", "w", "backspace", "3", "enter"), None, SetWeight("j2", 3.0)),
        (("2", "end", "minus", "down", "enter"), None, RemoveDag("r2", ("r2.core1",), "wait")),
        (("2", "end", "delete", "down", "down", "enter"), None, RemoveDag("r2", ("r2.core1",), "lose")),
        (("2", "end", "d", "down", "enter"), None, RemoveDag("r2", ("r2.node",), "wait")),
    ],
    ids=lambda it: type(it).__name__ if not isinstance(it, tuple | str) else None,
)
def test_an_action_is_carried_out(keys: tuple[str, ...], job: str | None, order: Any) -> None:
    async def steps(pilot: Pilot[None], app: TopApp, source: FakeSource) -> None:
        await press(pilot, *keys)
        await pilot.pause()
        assert orders(source) == [(job, order)]
        assert len(app.screen_stack) == 1

    drive(steps)


@pytest.mark.parametrize(
    "keys", [("4", "c"), ("1", "down", "x"), ("2", "end", "minus"), ("2", "end", "d"), ("1", "w")], ids=str
)
def test_nothing_happens_without_a_yes(keys: tuple[str, ...]) -> None:
    async def steps(pilot: Pilot[None], app: TopApp, source: FakeSource) -> None:
        await press(pilot, *keys)
        assert len(app.screen_stack) == 2
        await press(pilot, "escape")
        assert len(app.screen_stack) == 1
        if "w" not in keys:
            await press(pilot, keys[-1], "enter")  # the first answer is harmless
        assert len(app.screen_stack) == 1
        assert source.asked == []

    drive(steps)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("4", "end", "c"), "task 1 is finished already"),
        (("4", "r"), "task 6 has not failed: it is running"),
        (("1", "end", "x"), "job j0 is finished already"),
        (("1", "end", "w"), "job j0 is not registered any more"),
        (("2", "plus"), "nothing was removed from this terminal"),
        (("1", "w", "backspace", "x", "enter"), "'x' is no weight: write a number more than 0"),
        (("1", "w", "backspace", "0", "enter"), "'0' is no weight: write a number more than 0"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_said(keys: tuple[str, ...], said: str) -> None:
    async def steps(pilot: Pilot[None], app: TopApp, source: FakeSource) -> None:
        await press(pilot, *keys)
        await pilot.pause()
        assert len(app.screen_stack) == 1
        assert HeardApp.said == [said]
        assert source.asked == []

    drive(steps)


def test_what_was_removed_can_be_added_back_as_it_was() -> None:
    async def steps(pilot: Pilot[None], app: TopApp, source: FakeSource) -> None:
        await press(pilot, "2", "end", "d", "down", "enter")
        await pilot.pause()
        await press(pilot, "plus", "down", "enter")
        await pilot.pause()
        assert orders(source)[-1] == (None, AddDag("r2", BETA))
        assert app.actions_of_owner.removed == []

    drive(steps)


def test_what_was_refused_is_said_and_not_remembered() -> None:
    async def steps(pilot: Pilot[None], app: TopApp, source: FakeSource) -> None:
        source.answers[RemoveDag] = CannotAsk("r2.core1 is held by j1")
        await press(pilot, "2", "end", "minus", "down", "enter")
        await pilot.pause()
        assert HeardApp.said[-1] == "r2.core1 is held by j1"
        assert app.actions_of_owner.removed == []

    drive(steps)


@pytest.mark.parametrize(
    "keys", [("4", "c"), ("1", "x"), ("1", "w"), ("2", "minus"), ("2", "d"), ("4", "down", "r")]
)
def test_who_may_only_look_changes_nothing(keys: tuple[str, ...]) -> None:
    async def steps(pilot: Pilot[None], app: TopApp, source: FakeSource) -> None:
        await press(pilot, *keys)
        await pilot.pause()
        assert len(app.screen_stack) == 1
        assert source.asked == []
        assert HeardApp.said == []

    drive(steps, read_only=True)


def test_who_may_only_look_is_offered_no_action() -> None:
    async def steps(pilot: Pilot[None], app: TopApp, source: FakeSource) -> None:
        del source
        for view in VIEWS:
            await press(pilot, view.KEY)
            offered = {binding.action for _, binding, _, _ in app.screen.active_bindings.values()}
            assert offered & {f"app.{name}" for name in ACTIONS} == set()
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert titles & {name.replace("_", " ").capitalize() for name in ACTIONS} == set()
        await press(pilot, "1", "question_mark")
        shown = screen_text(app)
        assert "this terminal may only look" in shown
        assert "Stop job" not in shown

    drive(steps, read_only=True)


def test_actions_are_in_the_command_palette() -> None:
    async def steps(pilot: Pilot[None], app: TopApp, source: FakeSource) -> None:
        await press(pilot, "4")
        titles = {command.title: command.callback for command in app.get_system_commands(app.screen)}
        titles["Cancel task"]()
        await pilot.pause()
        await press(pilot, "down", "enter")
        assert orders(source) == [("j1", CancelTask((6,)))]

    drive(steps)
