"""HTTP interface of a launcher: requests come in, are decided by its router, and answered as JSON.

A connection is for one request. It has few bytes, little time and a place among few; a client that is slow,
silent or does not read hurts only itself.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import h11
import trio
from msgspec import structs

from gspc_trio.components.launcher.events import (
    CancelClient,
    CloseConnection,
    Message,
    NewConnection,
    PingServer,
    RefuseConnection,
    RequestAccepted,
    RequestRefused,
    SendToServer,
    ServerMessage,
    ServerPing,
    StudyDone,
    SubmitClients,
)
from gspc_trio.components.launcher.http_routes import (
    AskLauncher,
    AwaitEvents,
    GetSnapshot,
    HttpAnswer,
    HttpPlan,
    HttpRefusal,
    HttpRequest,
    HttpRouter,
    ReadOutput,
    StudyView,
    answer_of_launcher,
)
from gspc_trio.components.launcher.shell.http_file import HttpAccess
from gspc_trio.components.launcher.shell.turns import DrivenEvent, all_done
from gspc_trio.components.provision.shell.block_folders import open_regular
from gspc_trio.core.machine import Performer, performs
from gspc_trio.nursery.scopes.drive import Inbox
from gspc_trio.nursery.scopes.news import News
from gspc_trio.records.facts import Record, StreamOpened
from gspc_trio.records.lines import record_fields

log: logging.Logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"

HEADER_BYTES_MAX = 4 * 1024
"""Of the first line and all headers."""

BODY_BYTES_MAX = 1024 * 1024
OUTPUT_BYTES_MAX = 256 * 1024
"""Of the end of a file of output in one answer."""

REQUEST_S, ANSWER_S = 5.0, 5.0
"""So long a request may take to arrive, and an answer to leave."""

CONNECTIONS_MAX = 64
REFUSED_MAX = 16
"""Connections above the most that are told so at a time; more are closed."""

READS_MAX = 8
"""So many files of output are read at a time, in threads of their own: one that hangs takes no others."""

LINGER_S = 1.0
"""So long what still comes is read after the answer, so that it is not lost to a client that is sending."""

FIRST_REQUEST = 1 << 52
"""Requests that have come by HTTP have this number, or a higher one."""

GATHER_S = 0.02
"""So long an answer that waits for news waits for more of it, seconds."""

ENDS_KEPT = 100
"""Last ends of connections of servers that use HTTP that are kept."""

PIECE = 200
"""Records that are written at once, before others have their turn."""

BODY_WORDS = f"the body is larger than {BODY_BYTES_MAX} bytes"


class HttpServers(Performer[SendToServer | PingServer | RefuseConnection | CloseConnection]):
    """What servers say by HTTP.

    One that uses HTTP alone is a connection for the machine of the launcher. It begins with the first that
    the server asks for, and ends when the launcher closes it, for one because the server was silent for too
    long. What is said with the secret of a server that is connected otherwise is said over that connection.

    Args:
        inbox: of the machine.
        connected: the server that is connected now, and its connection.
    """

    def __init__(self, inbox: Inbox[DrivenEvent], connected: Callable[[], tuple[int, int] | None]) -> None:
        self._inbox = inbox
        self._connected = connected
        self._last = 0
        self._ended: dict[int, RefuseConnection | CloseConnection] = {}
        self._refusals: dict[int, RequestRefused] = {}
        self._requests = FIRST_REQUEST

    async def ask(self, asked: AskLauncher) -> HttpAnswer:
        """Tell the launcher what a server says, and return what it says to that."""
        present = self._connected()
        if present is not None and present[0] == asked.incarnation:
            number = present[1]
        elif isinstance(asked.body, CancelClient):  # it may be the user who asks, with the server's secret
            return HttpAnswer(409, {"error": f"server {asked.incarnation} is not connected"})
        else:
            self._last -= 1
            number = self._last
            self._inbox.put(NewConnection(number, asked.incarnation))
        self._requests += 1
        request, body = self._requests, asked.body
        self._inbox.put(Message(number, _numbered(body, request)))
        await all_done(self._inbox)
        end = self._ended.get(number)
        if end is not None and not (isinstance(body, StudyDone) and isinstance(end, CloseConnection)):
            return HttpAnswer(409, {"error": end.reason})
        if end is None and self._inbox.closed:
            return HttpAnswer(409, {"error": "the study has ended"})
        return answer_of_launcher(body, self._refusals.pop(request, None))

    def heard(self, incarnation: int) -> None:
        """A server has asked for something else: if it is connected, it is alive."""
        present = self._connected()
        if present is not None and present[0] == incarnation:
            self._inbox.put(Message(present[1], ServerPing()))

    def takes(self, action: SendToServer | PingServer | RefuseConnection | CloseConnection) -> bool:
        """Return whether an action is for servers that use HTTP alone, or answers what was said by HTTP."""
        if isinstance(action, SendToServer) and isinstance(action.body, RequestAccepted | RequestRefused):
            return action.connection < 0 or action.body.request >= FIRST_REQUEST
        return action.connection < 0

    @performs(SendToServer)
    def _send(self, action: SendToServer) -> None:
        if isinstance(action.body, RequestRefused) and action.body.request >= FIRST_REQUEST:
            self._refusals[action.body.request] = action.body

    @performs(PingServer)
    def _ping(self, action: PingServer) -> None:
        """A server that uses HTTP says by itself that it lives."""

    @performs(RefuseConnection, CloseConnection)
    def _end(self, action: RefuseConnection | CloseConnection) -> None:
        self._ended[action.connection] = action
        if len(self._ended) > ENDS_KEPT:
            del self._ended[next(iter(self._ended))]


class HttpServer:
    """Serves the HTTP interface of one study.

    Args:
        view: of the study.
        news: told when the view has changed.
        servers: those that use HTTP alone.
        incarnation_of: secret -> the server that has it, or None; in constant time.
        output_dir: of the study, for what its jobs print.
        interval_s: seconds between two signs of life of a server.
        opened: head of a snapshot of records.
        token: that lets its owner look; "" for a random one.
        before: where a launcher before this one has served the same study: that is tried first.
    """

    def __init__(
        self,
        view: StudyView,
        news: News,
        servers: HttpServers,
        incarnation_of: Callable[[bytes], int | None],
        output_dir: Path,
        interval_s: float,
        opened: StreamOpened,
        token: str = "",
        before: HttpAccess | None = None,
    ) -> None:
        self.token: str = token or (before.token if before is not None else secrets.token_urlsafe(32))
        self._before = before
        self._view = view
        self._news = news
        self._servers = servers
        self._incarnation_of = incarnation_of
        self._output_dir = output_dir
        self._interval_s = interval_s
        self._opened = opened
        self._served = self._refused = 0
        self._reads = trio.CapacityLimiter(READS_MAX)

    async def run(self, port: int, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve at the loopback interface until cancelled; ``nursery.start`` returns the address.

        Args:
            port: to listen at; 0 for any free one.

        Raises:
            OSError: it is taken, or not ours.
        """
        listeners = await self._listen(port)
        number = listeners[0].socket.getsockname()[1]
        router = self.router(f"{name}:{number}" for name in (LOOPBACK, "localhost"))
        task_status.started(f"http://{LOOPBACK}:{number}")
        await trio.serve_listeners(partial(self.accept, router), listeners)

    async def _listen(self, port: int) -> list[trio.SocketListener]:
        if self._before is not None and port == 0:
            with suppress(OSError, ValueError, OverflowError):  # another has it by now
                again = urlsplit(self._before.address).port or 0
                return await trio.open_tcp_listeners(again, host=LOOPBACK)
        return await trio.open_tcp_listeners(port, host=LOOPBACK)

    def router(self, hosts: Iterable[str]) -> HttpRouter:
        """Return what decides, where the interface may be called by these values of the header Host."""
        return HttpRouter(self._view, self.token, self._incarnation_of, hosts, self._interval_s)

    async def accept(self, router: HttpRouter, stream: trio.abc.HalfCloseableStream) -> None:
        """Serve one connection, or tell it that there are too many; returns when it is over."""
        try:
            if self._served < CONNECTIONS_MAX:
                self._served += 1
                try:
                    await self._serve(router, stream)
                finally:
                    self._served -= 1
            elif self._refused < REFUSED_MAX:
                self._refused += 1
                try:
                    words = f"{CONNECTIONS_MAX} connections are open already: ask again in a moment"
                    await _reply(stream, h11.Connection(h11.SERVER), HttpAnswer(429, {"error": words}))
                finally:
                    self._refused -= 1
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.ProtocolError):
            pass  # it is gone, or has not waited for the answer
        except trio.TooSlowError:
            log.info("the HTTP interface has closed a connection of which nobody reads")
        finally:
            await trio.aclose_forcefully(stream)

    async def _serve(self, router: HttpRouter, stream: trio.abc.HalfCloseableStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=BODY_BYTES_MAX)
        request: HttpRequest | None = None
        try:
            with trio.fail_after(REQUEST_S):
                request = await _receive(stream, connection)
        except trio.TooSlowError:
            answer = HttpAnswer(408, {"error": f"the request has not arrived within {REQUEST_S:g} s"})
        except HttpRefusal as refusal:
            answer = refusal.answer
        except h11.RemoteProtocolError as error:
            answer = HttpAnswer(error.error_status_hint, {"error": f"this is not HTTP/1.1: {error}"})
        else:
            if request is None:
                return
            try:
                answer = await self._answer(router.plan(request, trio.current_time()))
            except Exception:  # a fault here is no reason to end the study
                log.exception("the HTTP interface has failed at %s %s", request.method, request.target)
                answer = HttpAnswer(500, {"error": "the launcher has failed at this: its log says how"})
        await _reply(stream, connection, answer, with_body=request is None or request.method != "HEAD")

    async def _answer(self, plan: HttpPlan) -> HttpAnswer:
        match plan:
            case AskLauncher():
                return await self._servers.ask(plan)
            case ReadOutput():
                if not self._reads.available_tokens:
                    words = f"{READS_MAX} files are being read: ask again in a moment"
                    return HttpAnswer(429, {"error": words})
                read = partial(read_output, self._output_dir, plan)
                return await trio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._reads)
            case AwaitEvents():
                return await self._events(plan)
            case GetSnapshot():
                last = self._view.last
                records: Sequence[Record] = [self._opened, *self._view.progress.snapshot()]
                return HttpAnswer(
                    200, {"events": await _as_events([(last, it) for it in records]), "next": last}
                )
            case _:
                return plan

    async def _events(self, asked: AwaitEvents) -> HttpAnswer:
        if asked.incarnation is not None:
            self._servers.heard(asked.incarnation)
        found, after, missed = self._view.events(asked.after, asked.incarnation)
        with trio.move_on_after(asked.wait_s):
            while not (found or missed):
                await self._news.wait()
                await trio.sleep(GATHER_S)
                found, after, missed = self._view.events(after, asked.incarnation)
        return HttpAnswer(200, {"events": await _as_events(found), "next": after, "missed": missed})


def _numbered(body: ServerMessage, request: int) -> ServerMessage:
    """Return a message with the number of a request, if it has one."""
    return structs.replace(body, request=request) if isinstance(body, SubmitClients | CancelClient) else body


async def _receive(stream: trio.abc.Stream, connection: h11.Connection) -> HttpRequest | None:
    """Return a whole request, or None if the other side has sent none.

    Raises:
        HttpRefusal: it is too large.
        h11.RemoteProtocolError: it is no HTTP.
    """
    room, head, body = HEADER_BYTES_MAX, None, bytearray()
    while True:
        event = connection.next_event()
        match event:
            case h11.NEED_DATA:
                if connection.they_are_waiting_for_100_continue:
                    await stream.send_all(
                        _sent(connection, h11.InformationalResponse(status_code=100, headers=[]))
                    )
                if head is None and room == 0:
                    raise HttpRefusal(431, f"the headers are larger than {HEADER_BYTES_MAX} bytes")
                data = await stream.receive_some(room if head is None else 65536)
                room -= len(data) if head is None else 0
                if not data and head is None and room == HEADER_BYTES_MAX:
                    return None
                connection.receive_data(bytes(data))
            case h11.Request():
                head = event
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
                if int(headers.get("content-length", "0")) > BODY_BYTES_MAX:
                    raise HttpRefusal(413, BODY_WORDS)
            case h11.Data():
                body += event.data
                if len(body) > BODY_BYTES_MAX:
                    raise HttpRefusal(413, BODY_WORDS)
            case h11.EndOfMessage():
                assert head is not None
                method, target = head.method.decode("latin-1"), head.target.decode("latin-1")
                return HttpRequest(method, target, headers, bytes(body))
            case _:
                return None


async def _reply(
    stream: trio.abc.HalfCloseableStream,
    connection: h11.Connection,
    answer: HttpAnswer,
    *,
    with_body: bool = True,
) -> None:
    """Send an answer, and end the connection so that it is not lost.

    Raises:
        trio.TooSlowError: nobody reads it.
    """
    if isinstance(events := answer.body.get("events"), list) and len(events) > PIECE:
        data = await trio.to_thread.run_sync(_as_json, answer)
    else:
        data = _as_json(answer)
    headers = [
        ("content-type", "application/json"),
        ("content-length", str(len(data))),
        ("cache-control", "no-store"),
        ("connection", "close"),
        *answer.headers,
    ]
    sent = _sent(connection, h11.Response(status_code=answer.status, headers=headers, reason=_reason(answer)))
    with trio.fail_after(ANSWER_S):
        await stream.send_all(sent + (data if with_body else b""))
        await stream.send_eof()
    with trio.move_on_after(LINGER_S), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        left = BODY_BYTES_MAX
        while left > 0 and (rest := await stream.receive_some(65536)):
            left -= len(rest)


def _as_json(answer: HttpAnswer) -> bytes:
    return json.dumps(answer.body, separators=(",", ":")).encode() + b"\n"


def _reason(answer: HttpAnswer) -> bytes:
    return HTTPStatus(answer.status).phrase.encode()


def _sent(connection: h11.Connection, event: h11.Event) -> bytes:
    return connection.send(event) or b""


async def _as_events(records: Sequence[tuple[int, Record]]) -> list[dict[str, object]]:
    """Return records with their numbers as JSON has them, while others have their turn in between."""
    events = []
    for place, (number, record) in enumerate(records):
        if place % PIECE == PIECE - 1:
            await trio.lowlevel.checkpoint()
        events.append({"number": number, **record_fields(record)})
    return events


def read_output(directory: Path, asked: ReadOutput) -> HttpAnswer:
    """Return the last lines of a file of output; blocks."""
    try:
        with open_regular(directory / asked.file) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - OUTPUT_BYTES_MAX))
            data = file.read(OUTPUT_BYTES_MAX)
    except OSError as error:
        words = f"there is no output {asked.file} yet" if error.errno == errno.ENOENT else error.strerror
        return HttpAnswer(404, {"error": words})
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    text = "".join(lines[-asked.lines :] if asked.lines else [])
    return HttpAnswer(200, {**asked.about, "file": asked.file, "size_bytes": size, "text": text})
