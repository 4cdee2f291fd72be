# ruff: noqa: ARG001 - the clock is a fixture
"""A server and its launcher, over streams in memory, on a clock that jumps."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.launcher.events import (
    CancelClient,
    ClientMoved,
    ClientState,
    CommandExited,
    RequestAccepted,
    ServerPing,
    SubmitClients,
)
from gspc_trio.components.launcher.shell.server_link import CONNECTIONS_MAX
from gspc_trio.components.launcher.states import LauncherState
from gspc_trio.core.messages import Done
from gspc_trio.nursery.connections.connection_file import read_connection_file
from gspc_trio.nursery.connections.network import AuthenticationFailed
from gspc_trio.nursery.connections.rpc import PeerGone
from gspc_trio.study import Study, StudyOver, StudyRefused
from gspc_trio.study.server import open_study
from tests.study.support import PATIENCE_S, open_launcher

COMMAND = ["./solve", "--fast"]


async def until(study: Study, client_id: int) -> AsyncIterator[ClientMoved]:
    """Yield changes until this client is queued."""
    while True:
        change = await study.next_change()
        yield change
        if change.client_id == client_id and change.state is ClientState.QUEUED:
            return


async def test_a_server_has_clients_started_and_is_told_how_they_are(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_launcher(tmp_path) as launcher, launcher.server() as study:
        await study.submit([1, 2], COMMAND)
        await study.submit(7, COMMAND)
        pair, single = launcher.submitted[1:]
        assert (pair.client_ids, pair.command) == ((1, 2), tuple(COMMAND))
        assert single.client_ids == (7,)
        for client_id, status in ((1, 0), (2, 1)):
            launcher.inbox.put(CommandExited(pair.uid, status, client_id))
        launcher.inbox.put(CommandExited(single.uid, 0, is_gone=True))
        changes = [(change.client_id, change.state.value) async for change in study.changes()]
        assert [state for client, state in changes if client == 1] == ["submitted", "queued", "completed"]
        assert [state for client, state in changes if client == 2] == ["submitted", "queued", "failed"]
        assert changes[-1] == (7, "completed")
        assert {client: one.state.value for client, one in study.jobs().items()} == {
            1: "completed", 2: "failed", 7: "completed",
        }  # fmt: skip
        await study.done()
        assert launcher.machine.state in (LauncherState.STOPPING, LauncherState.STOPPED)


async def test_what_the_launcher_refuses_changes_nothing(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_launcher(tmp_path) as launcher, launcher.server() as study:
        await study.submit(1, COMMAND)
        with pytest.raises(StudyRefused, match="client 1 has not ended yet"):
            await study.submit([1, 2], COMMAND)
        with pytest.raises(StudyRefused, match="group_size is 4"):
            await study.submit(range(10, 20), COMMAND)
        with pytest.raises(StudyRefused, match="there is no client 9"):
            await study.cancel(9)
        assert set(study.jobs()) == {1}
        assert len(launcher.submitted) == 2


@pytest.mark.parametrize(("ids", "command"), [((), COMMAND), ((1, 1), COMMAND), ((-1,), COMMAND), ((1,), [])])
async def test_clients_that_cannot_be_are_not_asked_for(
    ids: tuple[int, ...], command: list[str], autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_launcher(tmp_path) as launcher, launcher.server() as study:
        with pytest.raises(ValueError, match=r"client_ids|command"):
            await study.submit(ids, command)


async def test_a_server_that_says_nothing_lives(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_launcher(tmp_path) as launcher, launcher.server() as study:
        await trio.sleep(200)
        await study.submit(1, COMMAND)
        assert launcher.machine.state is LauncherState.SERVING
        assert len(launcher.submitted) == 2


async def test_a_server_of_which_nothing_is_heard_is_told_that_another_took_over(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_launcher(tmp_path) as launcher, launcher.server() as study:
        began = trio.current_time()
        launcher.lines[0].mute()
        with pytest.raises(StudyOver, match=r"another server takes over: nothing was heard .* for 10 s"):
            await study.next_change()
        assert 10 <= trio.current_time() - began <= 16
        await launcher.until_submitted(1)
        with pytest.raises(StudyOver):
            await study.submit(1, COMMAND)


async def test_an_old_server_is_refused_and_the_new_one_is_not_hurt(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_launcher(tmp_path) as launcher:
        async with launcher.server():
            pass
        async with launcher.server(1) as study:
            async with launcher.server(0) as old:
                with pytest.raises(StudyOver, match="server 0 is over: server 1 has taken over"):
                    await old.submit(1, COMMAND)
            await study.submit(2, COMMAND)
            async with launcher.server(1) as twin:
                with pytest.raises(StudyOver, match="server 1 is connected already"):
                    await twin.next_change()
            await study.submit(3, COMMAND)


async def test_nobody_gets_in_without_the_secret_of_a_server(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_launcher(tmp_path) as launcher:
        await launcher.until_submitted(0)
        info = read_connection_file(launcher.file(0))
        assert stat.S_IMODE(launcher.file(0).stat().st_mode) == 0o600
        for name in ("1", "0 ../x", "x", ""):
            with pytest.raises(AuthenticationFailed):
                async with launcher.dial(info, name):
                    pass
        assert launcher.machine.state is LauncherState.AWAITING
        assert launcher.link.incarnation_of(info.token) == 0
        assert launcher.link.incarnation_of(b"x") is None


async def test_a_server_that_says_what_no_server_says_loses_its_connection(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_launcher(tmp_path) as launcher:
        await launcher.until_submitted(0)
        async with launcher.dial(read_connection_file(launcher.file(0)), "0") as peer:
            peer.post(Done())
            with pytest.raises(PeerGone, match="no server of a study says Done"):
                await peer.receive()
        await launcher.until_submitted(1)


async def test_a_flooding_server_delays_nobody_else(autojump_clock: MockClock, tmp_path: Path) -> None:
    """All its messages are taken in turn; nothing of them is left in the launcher."""
    async with open_launcher(tmp_path) as launcher:
        await launcher.until_submitted(0)
        async with launcher.dial(read_connection_file(launcher.file(0)), "0") as peer:
            for _ in range(5_000):
                peer.post(ServerPing())
            peer.post(SubmitClients(1, (1,), ("./solve",)))
            answers = await peer.receive()
            assert answers[0] == RequestAccepted(1)
            assert len(launcher.inbox) == 0


async def test_a_server_that_does_not_read_loses_its_connection_alone(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_launcher(tmp_path) as launcher:
        await launcher.until_submitted(0)
        async with launcher.dial(read_connection_file(launcher.file(0)), "0") as peer:
            for number in range(5_000):  # each is refused, with an answer that nobody reads
                peer.post(CancelClient(number, 1))
            await launcher.until_submitted(1)
        async with launcher.server(1) as study:
            await study.submit(1, COMMAND)
            assert (await study.next_change()).state is ClientState.SUBMITTED


async def test_one_secret_has_few_connections(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with open_launcher(tmp_path) as launcher, launcher.server():
        info = read_connection_file(launcher.file(0))
        async with trio.open_nursery() as nursery:
            reasons: list[object] = []

            async def connect() -> None:
                async with launcher.dial(info, "0") as peer:
                    reasons.extend(await peer.receive())

            for _ in range(3 * CONNECTIONS_MAX):
                nursery.start_soon(connect)
        assert len(reasons) == 3 * CONNECTIONS_MAX
        assert launcher.machine.state is LauncherState.SERVING


async def test_a_server_goes_on_with_the_launcher_that_takes_the_place_of_a_killed_one(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """What was told twice is said once; a request that had no answer is made again, and carried out once."""
    async with (
        open_launcher(tmp_path) as launcher,
        launcher.server() as study,
        trio.open_nursery() as nursery,
    ):
        await study.submit([1, 2], COMMAND)
        pair = launcher.submitted[1]
        launcher.inbox.put(CommandExited(pair.uid, 0, 1))
        while (await study.next_change()).state is not ClientState.COMPLETED:
            pass
        launcher.kill()
        nursery.start_soon(study.submit, [3], COMMAND)
        await trio.sleep(20)
        await launcher.go_on()
        launcher.inbox.put(CommandExited(pair.uid, 0, 2))
        changes = [(change.client_id, change.state.value) async for change in until(study, 3)]
        assert changes[0] == (2, "completed")
        assert changes[1:] == [(3, "submitted"), (3, "queued")]
        assert [one.client_ids for one in launcher.submitted] == [(), (1, 2), (3,)]
        await study.done()


async def test_a_server_that_begins_when_there_is_no_launcher_waits_for_one(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_launcher(tmp_path) as launcher:
        await launcher.until_submitted(0)
        launcher.is_there = False
        async with trio.open_nursery() as nursery:

            async def come_back() -> None:
                await trio.sleep(PATIENCE_S / 2)
                launcher.is_there = True

            nursery.start_soon(come_back)
            async with launcher.server() as study:
                assert launcher.is_there
                await study.submit(1, COMMAND)
        launcher.is_there = False
        began = trio.current_time()
        with pytest.raises(StudyOver, match="no connection with the launcher: nothing listens"):
            async with launcher.server():
                pass
        assert trio.current_time() - began >= PATIENCE_S


async def test_a_server_waits_for_another_launcher_only_so_long(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with open_launcher(tmp_path) as launcher, launcher.server() as study:
        launcher.kill()
        launcher.is_there = False
        await launcher.cut()
        began = trio.current_time()
        with pytest.raises(StudyOver, match="the connection with the launcher is over"):
            await study.next_change()
        assert PATIENCE_S <= trio.current_time() - began <= PATIENCE_S + 20


async def test_without_a_launcher_a_server_is_told_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GSPC_SERVER_FILE", raising=False)
    with pytest.raises(StudyOver, match="GSPC_SERVER_FILE is not set: this is no server"):
        async with open_study():
            pass
    with pytest.raises(StudyOver, match="there is no connection file"):
        async with open_study(tmp_path / "server.json"):
            pass
