"""The HTTP interface over streams in memory, with the machine of a launcher behind it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from attrs import evolve
from trio.testing import memory_stream_pair

from gspc_trio.components.launcher.events import (
    ClientMoved,
    ClientState,
    CloseConnection,
    Message,
    NewConnection,
    PingServer,
    RefuseConnection,
    RequestAccepted,
    SendToServer,
    Stop,
    SubmitClients,
    Submitted,
    SubmitToEngine,
)
from gspc_trio.components.launcher.http_routes import HttpRouter, StudyView
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.shell.http_file import (
    HttpAccess,
    HttpFileError,
    read_http_file,
    write_http_file,
)
from gspc_trio.components.launcher.shell.http_server import (
    BODY_BYTES_MAX,
    CONNECTIONS_MAX,
    HEADER_BYTES_MAX,
    READS_MAX,
    REFUSED_MAX,
    HttpServer,
    HttpServers,
)
from gspc_trio.components.launcher.shell.turns import DrivenAction, DrivenEvent, Mark, MarkedLauncher
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.nursery.scopes.news import News
from gspc_trio.records.facts import StreamOpened, StudyChanged, StudyClientChanged, StudyJobChanged
from tests.components.launcher.support import USUAL

# The clock of a test is found among its own arguments, so each names ``autojump_clock``.
# ruff: noqa: ARG001

QUEUED = "slurm job 11 is queued"
TOKEN, FIRST, SECOND = "a token", b"\x01" * 32, b"\x02" * 32
HOST = "127.0.0.1:8000"


class World:
    """A launcher whose engine takes every job, and its HTTP interface."""

    def __init__(self, directory: Path, interval_s: float) -> None:
        self.inbox: Inbox[DrivenEvent] = Inbox()
        self.view, self.news = StudyView(), News()
        self.machine = Launcher(evolve(USUAL, timer_interval_s=interval_s), "s", records=True)
        self.servers = HttpServers(self.inbox, lambda: self.machine.connected)
        self.told: list[object] = []
        self.ends: list[Stop] = []
        keys = {FIRST: 0, SECOND: 1}
        opened = StreamOpened(0.0, 0.0, "1")
        self.server = HttpServer(self.view, self.news, self.servers, keys.get, directory, 5.0, opened, TOKEN)
        self.router = self.server.router([HOST])
        self.nursery: trio.Nursery

    def perform(self, action: DrivenAction) -> None:
        match action:
            case Mark():
                action.passed.set()
            case SubmitToEngine():
                self.inbox.put(Submitted(action.uid, str(10 + action.uid)))
            case StudyChanged() | StudyJobChanged() | StudyClientChanged():
                self.view.apply(action)
                self.news.tell()
            case Stop():
                self.ends.append(action)
        if isinstance(action, SendToServer | PingServer | RefuseConnection | CloseConnection):
            self.servers.perform(action)
            if not self.servers.takes(action):
                self.told.append(getattr(action, "body", action))

    def dial(self) -> trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]:
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self.server.accept, self.router, theirs)
        return ours

    async def ask(
        self, request: str, body: object = None, *, token: str | bytes = TOKEN
    ) -> tuple[int, dict[str, object]]:
        method, target = request.split()
        data = b"" if body is None else json.dumps(body).encode()
        text = token if isinstance(token, str) else token.hex()
        head = f"{method} {target} HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {text}\r\n"
        return await self.send(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    async def send(self, data: bytes) -> tuple[int, dict[str, object]]:
        stream = self.dial()
        await stream.send_all(data)
        return await answer_of(stream)


async def answer_of(stream: trio.abc.ReceiveStream) -> tuple[int, dict[str, object]]:
    """Return status and body of what is answered."""
    with trio.fail_after(100):
        said = b"".join([bytes(piece) async for piece in stream])
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower(), said
    return int(head.split()[1]), json.loads(body)


@asynccontextmanager
async def open_world(directory: Path, interval_s: float = 5.0) -> AsyncIterator[World]:
    world = World(directory, interval_s)
    async with trio.open_nursery() as nursery:
        world.nursery = nursery
        nursery.start_soon(drive, MarkedLauncher(world.machine), world.inbox, world.perform)
        await trio.testing.wait_all_tasks_blocked()
        yield world
        nursery.cancel_scope.cancel()


async def test_a_server_that_speaks_http_alone_is_a_server(tmp_path: Path, autojump_clock: object) -> None:
    async with open_world(tmp_path) as world:
        assert (await world.ask("GET /status"))[1]["state"] == "awaiting"
        assert await world.ask("DELETE /jobs/1", token=FIRST) == (409, {"error": "server 0 is not connected"})
        assert (await world.ask("GET /status"))[1]["state"] == "awaiting", "only a server says POST"
        assert await world.ask("POST /ping", token=FIRST) == (200, {})
        assert (await world.ask("GET /status"))[1]["state"] == "serving"
        wanted = {"client_ids": [1, 2], "command": ["solve"]}
        told = (202, {"client_ids": [1, 2], "state": "postponed"})
        assert await world.ask("POST /jobs", wanted, token=FIRST) == told
        assert await world.ask("POST /jobs", wanted, token=FIRST) == (
            409,
            {"error": "client 1 has not ended yet"},
        )
        status, events = await world.ask("GET /events", token=FIRST)
        assert isinstance(events["events"], list)
        moves = [
            (event["client_id"], event["state"])
            for event in events["events"]
            if event["record"] == "StudyClientChanged"
        ]
        assert moves == [
            *((1, "postponed"), (2, "postponed"), (1, "submitted")),
            *((2, "submitted"), (1, "queued"), (2, "queued")),
        ]
        assert await world.ask("DELETE /jobs/1", token=FIRST) == (202, {"client_id": 1})
        status, refused = await world.ask("DELETE /jobs/9", token=FIRST)
        assert (status, refused["error"]) == (
            404,
            "there is no client 9: it has ended, or was never asked for",
        )
        assert await world.ask("POST /done", token=FIRST) == (200, {})
        assert (await world.ask("GET /status"))[1]["state"] == "stopping"
        status, refused = await world.ask("POST /ping", token=FIRST)
        assert (status, refused["error"]) == (409, "the study stops: the server says that the study is done")


async def test_a_server_of_which_nothing_is_heard_is_over(tmp_path: Path, autojump_clock: object) -> None:
    async with open_world(tmp_path) as world:
        await world.ask("POST /ping", token=FIRST)
        for _ in range(8):
            await trio.sleep(6.0)  # not for twice the interval
            await world.ask("GET /jobs", token=FIRST)  # says that it lives, too
            await world.ask("POST /ping", token=FIRST)
        await trio.sleep(10.1)
        told = (409, {"error": "server 0 is over: server 1 has taken over"})
        assert await world.ask("POST /ping", token=FIRST) == told
        assert await world.ask("POST /done", token=FIRST) == told
        assert await world.ask("GET /jobs", token=FIRST) == told
        assert not world.ends
        assert await world.ask("POST /ping", token=SECOND) == (200, {})
        assert (await world.ask("GET /status"))[1]["refusals"] == 2


async def test_a_server_that_is_connected_otherwise_may_use_http_too(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_world(tmp_path) as world:
        world.inbox.put(NewConnection(1, 0))
        world.inbox.put(Message(1, SubmitClients(1, (5,), ("solve",))))
        told: list[object] = [RequestAccepted(1)]
        told += [ClientMoved(5, ClientState.SUBMITTED), ClientMoved(5, ClientState.QUEUED, "11", QUEUED)]
        assert world.told == told
        assert await world.ask("POST /ping", token=FIRST) == (200, {})
        assert await world.ask("DELETE /jobs/5", token=FIRST) == (202, {"client_id": 5})
        assert (await world.ask("DELETE /jobs/6", token=FIRST))[0] == 404
        assert world.told == told, "answers to what was said by HTTP go nowhere else"
        assert (await world.ask("GET /status"))[1]["refusals"] == 0
        assert await world.ask("POST /done", token=FIRST) == (200, {})
        assert world.told[-1] == CloseConnection(1, "the study stops: the server says that the study is done")


async def test_an_answer_waits_for_events(tmp_path: Path, autojump_clock: object) -> None:
    async with open_world(tmp_path) as world:
        last = world.view.last
        before = trio.current_time()
        told = await world.ask(f"GET /events?after={last}&wait_s=20")
        assert told == (200, {"events": [], "next": last, "missed": 0})
        assert 20.0 <= trio.current_time() - before < 21.0
        found = []

        async def wait() -> None:
            found.append(await world.ask(f"GET /events?after={last}&wait_s=20"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(3.0)
            await world.ask("POST /ping", token=FIRST)
        assert trio.current_time() - before < 25.0
        assert found[0][1]["events"]
        _, told = await world.ask("GET /events?snapshot=1")
        assert isinstance(told["events"], list)
        assert [event["record"] for event in told["events"]] == [
            *("StreamOpened", "StudyChanged", "StudyJobChanged")
        ]


async def test_the_end_of_output_is_shown(tmp_path: Path) -> None:
    (tmp_path / "job.0.server.out").write_bytes(b"one\ntwo\nthree \xff\n")
    async with open_world(tmp_path) as world:
        status, told = await world.ask("GET /jobs/0/log?tail=2")
        assert (status, told["text"], told["size_bytes"]) == (200, "two\nthree \ufffd\n", 16)
        assert await world.ask("GET /jobs/0/log?stream=err") == (
            404,
            {"error": "there is no output job.0.server.err yet"},
        )


async def test_a_pipe_by_the_name_of_output_holds_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.0.server.out")
    async with open_world(tmp_path) as world:
        with trio.fail_after(60):
            told = await world.ask("GET /jobs/0/log")
    assert told == (404, {"error": "it is no regular file"})


async def test_output_is_read_in_threads_of_its_own_and_by_few_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "job.0.server.out").write_text("one\n")
    async with open_world(tmp_path) as world:
        others = trio.to_thread.current_default_thread_limiter()
        for number in range(int(others.total_tokens)):
            others.acquire_on_behalf_of_nowait(number)
        with trio.fail_after(60):
            assert (await world.ask("GET /jobs/0/log"))[0] == 200
        for number in range(READS_MAX):
            world.server._reads.acquire_on_behalf_of_nowait(number)
        words = f"{READS_MAX} files are being read: ask again in a moment"
        assert await world.ask("GET /jobs/0/log") == (429, {"error": words})


# Limits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /status HTTP/1.1\r\nHost: x\r\nX: " + b"y" * HEADER_BYTES_MAX + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * 2 * HEADER_BYTES_MAX, 431),
        (b"hello\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 421),
        (b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n", 413),
        (b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
        (b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n", 421),
        (f"GET /status HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode(), 401),
        (f"GET http://x/%00 HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer a token\r\n\r\n".encode(), 404),
    ],
)
async def test_what_is_too_large_or_no_request_is_refused(
    tmp_path: Path, autojump_clock: object, data: bytes, status: int
) -> None:
    async with open_world(tmp_path) as world:
        found, told = await world.send(data)
        assert found == status, told
        assert told["error"]


async def test_a_body_in_pieces_has_its_limit_too(tmp_path: Path, autojump_clock: object) -> None:
    head = f"POST /jobs HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    async with open_world(tmp_path) as world:
        piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        status, told = await world.send(head + piece * (1 + BODY_BYTES_MAX // 0x10000))
        assert (status, told["error"]) == (413, "the body is larger than 1048576 bytes")


async def test_a_client_that_waits_for_leave_to_send_gets_it(tmp_path: Path, autojump_clock: object) -> None:
    async with open_world(tmp_path) as world:
        stream = world.dial()
        head = f"POST /ping HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {FIRST.hex()}\r\n"
        await stream.send_all(f"{head}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n".encode())
        assert bytes(await stream.receive_some(100)).startswith(b"HTTP/1.1 100 ")
        await stream.send_all(b"{}")
        assert await answer_of(stream) == (200, {})


PIECES = (
    *(b"GET ", b"POST ", b"DELETE ", b"/jobs", b"/status", b"//[", b"?state=", b"%ff", b" HTTP/1.1", b"\r\n"),
    *(b"Host: 127.0.0.1:8000", b"Authorization: Bearer a token", b"Content-Length: 3", b"\0", b"\xff", b":"),
    *(b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"\r\n\r\n", b"{}", b"5\r\n", b"x" * 5000),
)


async def test_no_bytes_harm_the_launcher(tmp_path: Path, autojump_clock: object) -> None:
    chance = random.Random(17)
    async with open_world(tmp_path) as world:
        for _ in range(300):
            begin = [b"GET ", b"/status", b" HTTP/1.1\r\n"] * chance.randrange(2)
            stream = world.dial()
            await stream.send_all(b"".join([*begin, *chance.choices(PIECES, k=chance.randrange(1, 12))]))
            await stream.send_eof()
            with trio.fail_after(100):
                said = b"".join([bytes(piece) async for piece in stream])
            assert said[:12] != b"HTTP/1.1 500", said
            await stream.aclose()
        assert (await world.ask("GET /status"))[0] == 200


async def test_a_fault_of_the_interface_does_not_end_the_study(
    tmp_path: Path, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_world(tmp_path) as world:
        world.router = HttpRouter(world.view, TOKEN, lambda _: 1 // 0, [HOST], 5.0)
        assert (await world.ask("GET /status", token=FIRST))[0] == 500
        assert "the HTTP interface has failed at GET /status" in caplog.text
        world.router = world.server.router([HOST])
        assert (await world.ask("GET /status"))[0] == 200


async def test_a_request_that_comes_in_drops_is_given_up(tmp_path: Path, autojump_clock: object) -> None:
    async with open_world(tmp_path) as world:
        stream, begun = world.dial(), trio.current_time()
        for byte in b"GET /st":
            await stream.send_all(bytes([byte]))
            await trio.sleep(0.7)
        assert (await answer_of(stream))[0] == 408
        assert trio.current_time() - begun < 7.0


async def test_a_client_that_does_not_read_loses_its_connection(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with open_world(tmp_path) as world:
        ours, theirs = trio.testing.lockstep_stream_pair()
        world.nursery.start_soon(world.server.accept, world.router, theirs)
        await ours.send_all(f"GET /status HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
        await trio.sleep(11.0)
        with pytest.raises((trio.BrokenResourceError, trio.ClosedResourceError)):
            await ours.send_all(b"more")


async def test_of_too_many_connections_the_last_are_told_so(tmp_path: Path, autojump_clock: object) -> None:
    async with open_world(tmp_path) as world:
        silent = [world.dial() for _ in range(CONNECTIONS_MAX)]
        await trio.testing.wait_all_tasks_blocked()
        status, told = await world.ask("GET /status")
        assert (status, told["error"]) == (429, "64 connections are open already: ask again in a moment")
        more = [world.dial() for _ in range(200)]
        await trio.testing.wait_all_tasks_blocked()
        said = [await stream.receive_some(12) for stream in more]
        assert set(map(bytes, said)) == {b"", b"HTTP/1.1 429"}
        assert said.count(b"") >= len(more) - REFUSED_MAX, "of a crowd most are closed at once"
        await trio.sleep(6.5)
        assert (await world.ask("GET /status"))[0] == 200
        for stream in silent:
            assert (await answer_of(stream))[0] == 408


# The file and the network -----------------------------------------------------------------------------------


async def test_it_listens_at_the_loopback_interface_alone(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        address = await world.nursery.start(world.server.run, 0)
        host, _, port = address.removeprefix("http://").partition(":")
        assert host == "127.0.0.1"
        request = f"GET /status HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(request.encode())
            assert (await answer_of(stream))[0] == 200
        with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
            await world.nursery.start(world.server.run, int(port))


async def test_a_launcher_that_goes_on_serves_where_the_one_before_it_has(tmp_path: Path) -> None:
    async with open_world(tmp_path) as world:
        before = HttpAccess(await world.nursery.start(world.server.run, 0), "old token")
        opened = StreamOpened(0.0, 0.0, "1")

        def server(access: HttpAccess) -> HttpServer:
            return HttpServer(
                world.view, world.news, world.servers, {}.get, tmp_path, 5.0, opened, "", access
            )

        other = server(before)  # its port is taken
        assert other.token == "old token"
        address = await world.nursery.start(other.run, 0)
        assert address != before.address
        for wrong in ("", "http://127.0.0.1:99999", "http://127.0.0.1"):
            await world.nursery.start(server(HttpAccess(wrong, "t")).run, 0)
    found = set()
    for _ in range(10):  # somebody else may have got a port that was just left
        async with open_world(tmp_path) as world:
            address = await world.nursery.start(world.server.run, 0)
        async with open_world(tmp_path) as world:
            found.add(await world.nursery.start(server(HttpAccess(address, "t")).run, 0) == address)
        if True in found:
            break
    assert True in found


def test_the_file_with_the_token_is_for_its_owner_alone(tmp_path: Path) -> None:
    access = HttpAccess("http://127.0.0.1:8000", "a token", "login-2", 7)
    path = write_http_file(tmp_path, access)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_http_file(tmp_path) == access
    assert "a token" not in repr(access)
    path.chmod(0o644)
    with pytest.raises(HttpFileError, match="so its token is not secret: chmod 600"):
        read_http_file(tmp_path)
    path.unlink()
    with pytest.raises(HttpFileError, match="the launcher of this study has ended, or there is no study"):
        read_http_file(tmp_path)
    for text in ("", "[]", '{"address": 1, "token": "a"}'):
        path.write_text(text)
        path.chmod(0o600)
        with pytest.raises(HttpFileError, match="is not the file of a launcher"):
            read_http_file(tmp_path)
