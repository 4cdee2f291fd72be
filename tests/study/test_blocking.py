"""A server without trio, and its launcher, over the loopback interface in real time."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import evolve

from gspc_trio.components.launcher.events import (
    CommandExited,
    LauncherEvent,
    Message,
    NewConnection,
    PingServer,
    ServerPing,
)
from gspc_trio.components.launcher.states import LauncherState
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.nursery.scopes.drive import Inbox
from gspc_trio.nursery.scopes.loop import NotInTrio
from gspc_trio.study import ClientState, StudyOver, StudyRefused, connect
from tests.study.support import OPTIONS, FakeLauncher

PINGS = 3


class CountingInbox(Inbox[LauncherEvent]):
    """An inbox that lets a server go on when it has answered so many pings."""

    def __init__(self) -> None:
        super().__init__()
        self.connected = trio.Event()
        self.answered = 0
        self.news = trio.Event()
        self.enough = threading.Event()

    def put(self, event: LauncherEvent, by: Peer | None = None) -> None:
        super().put(event, by)
        if isinstance(event, NewConnection):
            self.connected.set()
        if isinstance(event, Message) and isinstance(event.body, ServerPing):
            self.answered += 1
            self.news.set()
            self.news = trio.Event()

    async def ping(self, launcher: FakeLauncher) -> None:
        """Ping the server, which computes, again and again; its answers are all that is waited for."""
        await self.connected.wait()
        for number in range(PINGS):
            launcher.link.perform(PingServer(1))
            while self.answered <= number:
                await self.news.wait()
        self.enough.set()


def serve(file: Path, enough: threading.Event, end: threading.Event) -> None:
    """Be a server: compute for long without a word, then have two clients, and be done."""
    with connect(file) as study:
        assert enough.wait(60)
        assert study.next_change(0) is None
        study.submit([1, 2], ["solve"])
        with pytest.raises(StudyRefused, match="client 2 has not ended"):
            study.submit(2, ["solve"])
        end.set()
        ends = [change for change in study.changes() if change.state is ClientState.COMPLETED]
        assert {change.client_id for change in ends} == {1, 2} == set(study.jobs())
        assert study.stale == ""
        study.done()
        with pytest.raises(StudyOver, match="the server says that the study is done"):
            study.submit(1, ["solve"])
    with pytest.raises(StudyOver, match="closed here"):
        study.submit(1, ["solve"])


async def test_a_server_that_computes_without_a_word_lives(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        inbox = CountingInbox()
        patient = evolve(OPTIONS, timer_interval_s=600.0)
        launcher = FakeLauncher(tmp_path, nursery, patient, inbox)
        await nursery.start(launcher.link.run, "ws://127.0.0.1:0")
        nursery.start_soon(launcher.run)
        await launcher.until_submitted(0)
        end = threading.Event()

        async def end_clients() -> None:
            await trio.to_thread.run_sync(partial(end.wait, 60))
            launcher.inbox.put(CommandExited(launcher.submitted[1].uid, 0, is_gone=True))

        nursery.start_soon(end_clients)
        nursery.start_soon(inbox.ping, launcher)
        await trio.to_thread.run_sync(serve, launcher.file(0), inbox.enough, end)
        assert inbox.answered >= PINGS
        assert len(launcher.servers) == 1
        assert launcher.machine.state in (LauncherState.STOPPING, LauncherState.STOPPED)
        nursery.cancel_scope.cancel()


async def test_a_trio_program_uses_the_other_form(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="here runs trio: use 'async with'"), connect(tmp_path / "file"):
        pass
    with pytest.raises(StudyOver, match="there is no connection file"):
        async with connect(tmp_path / "file"):
            pass


def test_a_program_without_trio_uses_the_other_form(tmp_path: Path) -> None:
    async def use() -> None:
        async with connect(tmp_path / "file"):
            pass

    with pytest.raises(NotInTrio, match=r"or 'with gspc_trio.study.connect\(\)', which needs no event loop"):
        asyncio.run(use())


def test_a_program_without_a_launcher_is_told_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(StudyOver, match="there is no connection file"), connect(tmp_path / "server.json"):
        pass
