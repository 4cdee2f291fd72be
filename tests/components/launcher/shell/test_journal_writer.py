"""The writer of a study's journal, with a disk that takes its time, fills up, or does not answer."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from gspc_trio.components.launcher.events import PingServer as Action
from gspc_trio.components.launcher.http_routes import StudyView
from gspc_trio.components.launcher.journal import StudyFile, StudyHead
from gspc_trio.components.launcher.shell import journal_writer
from gspc_trio.components.launcher.shell.journal_file import StudyJournal
from gspc_trio.components.launcher.shell.journal_writer import HOLD_S, JournalWriter
from gspc_trio.components.launcher.shell.turns import DrivenAction

# The clock of a test is found among its own arguments, so each names ``autojump_clock``.
# ruff: noqa: ARG001

FILE = StudyFile(StudyHead("", "", "", "", {}, ""), b"", StudyView().kept(), [])


class SlowJournal(StudyJournal):
    """A journal on a disk of its own, which takes a second for each write; nothing of it is a file."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.begun = 0
        self.lines_max = 1000
        self.takes_s = 1.0
        self.is_full = self.was_given_up = False

    @property
    def name(self) -> str:
        return "a disk"

    async def begin(self, make: Callable[[], StudyFile]) -> None:
        make()
        await trio.sleep(self.takes_s)
        self.written.clear()
        self.begun += 1

    async def append(self, lines: list[str]) -> None:
        await trio.sleep(self.takes_s)
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.written += lines

    @property
    def is_large(self) -> bool:
        return len(self.written) > self.lines_max

    def give_up(self) -> None:
        self.was_given_up = True


class World:
    def __init__(self) -> None:
        self.journal = SlowJournal()
        self.done: list[tuple[int, float]] = []
        self.begun_with: list[str] = []
        self.follows: dict[int, int] = {}
        self.noted: list[str] = []
        self.writer = JournalWriter(self.journal, self.perform, self.begin_file)

    def begin_file(self) -> Callable[[], StudyFile]:
        self.begun_with = list(self.noted)
        return lambda: FILE

    def event(self, number: int) -> None:
        """An event comes, and one action follows."""
        self.noted.append(str(number))
        self.writer.note(str(number))
        self.writer.do(Action(number))

    def perform(self, action: DrivenAction) -> None:
        assert isinstance(action, Action)
        self.done.append((action.connection, trio.current_time()))
        if action.connection in self.follows:
            self.event(self.follows[action.connection])


@asynccontextmanager
async def open_world() -> AsyncIterator[World]:
    world = World()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.writer.run)
        await trio.testing.wait_all_tasks_blocked()
        yield world
        nursery.cancel_scope.cancel()


async def test_an_action_waits_until_its_event_is_durable_and_lines_gather(autojump_clock: object) -> None:
    async with open_world() as world:
        begun = trio.current_time()
        world.follows = {1: 4}
        world.event(1)
        await trio.sleep(0.5)
        world.event(2)
        world.event(3)
        assert world.done == []
        await world.writer.finish()
        done = [(number, at_s - begun) for number, at_s in world.done]
        assert done == [(1, 1.0), (2, 2.0), (3, 2.0), (4, 2.0)]
        assert world.journal.written == ["1", "2", "3", "4"]
        world.writer.do(Action(9))
        assert world.done[-1][0] == 9, "what follows from nothing new waits for nothing"


async def test_a_file_that_is_large_gives_way_to_what_is_known_now(autojump_clock: object) -> None:
    async with open_world() as world:
        world.journal.lines_max = 1
        world.event(1)
        await trio.sleep(0.5)
        world.event(2)
        world.event(3)
        await trio.sleep(1.0)
        world.event(4)  # while those are written: it is known when the new file begins
        await trio.sleep(1.0)
        world.event(5)
        await world.writer.finish()
        assert (world.begun_with, world.journal.written) == (["1", "2", "3", "4"], ["5"])
        assert [number for number, _ in world.done] == [1, 2, 3, 4, 5]


async def test_nothing_waits_for_long_for_a_disk_that_does_not_answer(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world() as world:
        world.journal.takes_s = 60.0
        begun = trio.current_time()
        world.event(1)
        world.event(2)
        await trio.sleep(10.0)
        assert world.done == [(1, begun + HOLD_S), (2, begun + HOLD_S)]
        world.event(3)
        assert world.done[-1] == (3, begun + 10.0)
        assert "the disk of a disk is slow" in caplog.text
        world.journal.takes_s = 1.0
        await world.writer.finish()
        assert world.journal.written == ["1", "2", "3"]


async def test_a_signal_waits_for_no_disk(autojump_clock: object) -> None:
    async with open_world() as world:
        world.journal.takes_s = 60.0
        begun = trio.current_time()
        world.event(1)
        world.writer.open()
        world.event(2)
        assert world.done == [(1, begun), (2, begun)]


@pytest.mark.parametrize("characters_max", [journal_writer.CHARACTERS_MAX, 3])
async def test_a_full_disk_ends_the_journal_and_not_the_study(
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    characters_max: int,
) -> None:
    monkeypatch.setattr(journal_writer, "CHARACTERS_MAX", characters_max)
    async with open_world() as world:
        world.journal.is_full = characters_max > 3
        for number in range(1, 6):
            world.event(number)
        await world.writer.finish()
        world.event(6)
        assert [number for number, _ in world.done] == [1, 2, 3, 4, 5, 6]
        assert world.journal.was_given_up
        assert "no other launcher can go on" in caplog.text
