"""Open a peer over any stream: the websocket's handshake, ours, then the link.

``connect_stream`` is the side that dials, ``serve_stream`` the side that listens. Both work over a TCP socket
and over a pair of memory streams alike; their only clock is trio's and their only randomness the nonce handed
in.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import trio
from msgspec import Struct
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    WebSocketConnection,
    WebSocketRequest,
    wrap_client_stream,
    wrap_server_stream,
)

from gspc_trio.core.machine import Tick
from gspc_trio.nursery.connections.bulk import ROLE as BULK_ROLE
from gspc_trio.nursery.connections.bulk import BulkAndCalls, BulkStream, serve_bulk
from gspc_trio.nursery.connections.errors import (
    AuthenticationFailed,
    ConnectFailed,
    ConnectionProblem,
    HandshakeCut,
    TlsFailed,
    VersionMismatch,
    WrongRole,
)
from gspc_trio.nursery.connections.link import WebSocketLink
from gspc_trio.nursery.connections.pending import LimitedStream, PendingConnections
from gspc_trio.nursery.connections.rpc import Handler, Peer, handle_until_gone
from gspc_trio.nursery.connections.tls import wrap_stream
from gspc_trio.nursery.scopes.observe import observed
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.codec import Codec
from gspc_trio.protocol.limits import Limits
from gspc_trio.protocol.session import Identity, Session
from gspc_trio.protocol.signals import BeginSession, Dead, HandshakeReceived, Lost, Opened, SendHandshake

RECEIVE_BYTES = 256 * 1024
QUEUED_FRAMES = 16
UNPROVED_MESSAGES = 3
"""The HTTP request, and two of ours: what is read before the other side has proved itself."""
NO_WEBSOCKET = "closed the connection or does not speak websocket"

TLS_MESSAGES = 2
"""As many bytes more may be read where certificates are shown."""
_PROBLEMS: dict[str, type[ConnectionProblem]] = {
    "version": VersionMismatch,
    "token": AuthenticationFailed,
    "role": WrongRole,
    "lost": HandshakeCut,
}


class AcceptPolicy(Struct, frozen=True):
    """The policy by which a listener accepts connections.

    Attributes:
        pending: the connections that have not proved themselves yet.
        hosts: names that a request's Host header may have, None for any; keeps web pages out that were
            given a name of their own for our address.
        origins: values that an Origin header may have; browsers send one, our own dialers do not.
    """

    pending: PendingConnections
    hosts: frozenset[str] | None = None
    origins: frozenset[str] = frozenset()

    def objection(self, request: WebSocketRequest) -> str:
        """Return what is wrong with a request, or ""."""
        origins = [value.decode("latin-1") for name, value in request.headers if name.lower() == b"origin"]
        for origin in origins:
            if origin not in self.origins:
                return "web pages may not connect here"
        host = _host_of(request)
        if self.hosts is not None and host not in self.hosts:
            return f"this is not {host[:100]!r}"
        return ""


class Dialer(Struct, frozen=True):
    """Who dials, and where to.

    Attributes:
        identity: of this side, with a fresh nonce.
        codec: of this side, with the limits.
        address: of the listener, for people.
        host: for the Host header.
        tls: to encrypt with, or None.
    """

    identity: Identity
    codec: Codec
    address: str
    host: str
    tls: ssl.SSLContext | None = None


class _Dialed(Struct, frozen=True):
    """A connection on which both sides have proved themselves, seen from the side that dialled."""

    connection: WebSocketConnection
    limited: LimitedStream
    session: Session
    starter: _Starter
    plain: trio.abc.Stream


@asynccontextmanager
async def _dial(stream: trio.abc.Stream, dialer: Dialer) -> AsyncIterator[_Dialed]:
    """Carry out both handshakes over a stream, which is closed at the end; see :func:`connect_stream`."""
    limits, tls, address = dialer.codec.limits, dialer.tls, dialer.address
    limited = _limited(stream, limits, tls)
    session = observed(Session(dialer.identity, limits))
    async with _closing(limited), open_scope() as nursery:
        end: Dead | None = None
        with trio.move_on_after(limits.handshake_s) as scope:
            starter = _Starter(nursery, scope.cancel)
            inner = limited if tls is None else await wrap_stream(limited, tls, server=False)
            arguments = starter.as_nursery, inner, dialer.host, "/"
            connection = await wrap_client_stream(*arguments, **_options(limits))  # type: ignore[arg-type]
            starter.upgraded = True
            end = await _shake(connection, session)
        if scope.cancelled_caught:
            problem = HandshakeCut if starter.was_cut else ConnectFailed
            raise problem(address, f"{address} {starter.why_not() or 'does not answer'}")
        if end is not None:
            await _part(connection, end, limits)
            raise _PROBLEMS.get(end.kind, ConnectFailed)(address, f"{address}: {end.reason}")
        limited.open()
        yield _Dialed(connection, limited, session, starter, stream if tls is None else inner)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connect_stream(stream: trio.abc.Stream, dialer: Dialer) -> AsyncIterator[Peer]:
    """Dial over a stream, which is closed at the end.

    Args:
        stream: connected to a listener.
        dialer: what we say of ourselves, and expect.

    Raises:
        TlsFailed: the other side does not speak TLS, or knows nothing of our authority.
        HandshakeCut: the other side closes without a reason.
        ConnectFailed: the other side does not speak our protocol, or is silent.
        AuthenticationFailed: it has another token or another role than expected.
        VersionMismatch: it speaks no version that we speak.
    """
    async with (
        _dial(stream, dialer) as dialed,
        _carry(dialed.connection, dialed.limited, dialed.session, dialer.codec, dialer.address) as peer,
    ):
        yield peer


@asynccontextmanager
async def connect_bulk(stream: trio.abc.Stream, dialer: Dialer) -> AsyncIterator[BulkStream]:
    """Dial for large bytes; arguments and errors as of :func:`connect_stream`."""
    async with _dial(stream, dialer) as dialed:
        ready: object = None
        with trio.move_on_after(dialer.codec.limits.handshake_s), suppress(ConnectionClosed):
            ready = await dialed.connection.get_message()
        if ready != b"":
            raise ConnectFailed(dialer.address, f"{dialer.address} sends no large bytes")
        await dialed.starter.stop()  # the listener is silent until it is asked for something
        yield BulkStream(dialed.plain, dialer=True)


async def serve_stream(
    stream: trio.abc.Stream,
    identity: Identity,
    codec: Codec,
    handler: Handler,
    policy: AcceptPolicy,
    *,
    remote: str,
    tls: ssl.SSLContext | None = None,
    deadline_s: float | None = None,
) -> str:
    """Serve one accepted connection: the handshake, then the handler; the stream is closed at the end.

    Args:
        stream: from a dialer.
        identity: of this side, with a fresh nonce.
        codec: of this side, with the limits.
        handler: is given the peer once it has proved itself; the connection ends with it. With
            :class:`~.bulk.BulkAndCalls` also dialers that want large bytes are served.
        policy: of the listener.
        remote: the dialer's address, for people.
        tls: to encrypt with, or None.
        deadline_s: when the dialer must have proved itself; by default ``limits.handshake_s`` from now.

    Returns:
        Why the dialer was not let in, or "".
    """
    limits = codec.limits
    limited = _limited(stream, limits, tls)
    if deadline_s is None:
        deadline_s = trio.current_time() + limits.handshake_s
    async with _closing(limited), open_scope() as nursery:
        refused = ""
        with policy.pending.place(stream, deadline_s) as scope:
            starter = _Starter(nursery, scope.cancel)
            try:
                inner = limited if tls is None else await wrap_stream(limited, tls, server=True)
                session = observed(Session(identity, limits))
                request = await wrap_server_stream(starter.as_nursery, inner, **_options(limits))
                starter.upgraded = True
                refused = policy.objection(request)
                if refused:
                    await request.reject(403, body=refused.encode(errors="replace"))
                else:
                    connection = await request.accept()
                    end = await _shake(connection, session)
                    refused = end.reason if end is not None else ""
                    if end is not None:
                        await _part(connection, end, limits)
            except (ConnectionClosed, trio.BrokenResourceError):
                refused = "it went away"
            except TlsFailed as failed:
                refused = failed.reason
        if scope.cancelled_caught:
            refused = refused or starter.why_not() or "it did not finish the handshake"
        if not refused:
            limited.open()
            if isinstance(handler, BulkAndCalls) and session.peer_role == BULK_ROLE:
                await starter.stop()  # the dialer is silent until it hears that we are ready
                await serve_bulk(stream if tls is None else inner, handler.bulk)
            else:
                async with _carry(connection, limited, session, codec, remote) as peer:
                    await handle_until_gone(handler, peer)
        nursery.cancel_scope.cancel()
    return refused


class _Starter:
    """Stands in for the nursery that trio_websocket starts its reader in.

    That reader waits for ever when the other side goes away before the upgrade is complete, and dies of some
    malformed requests. Here the end of the reader ends the wait, and its errors stay with the connection.
    """

    def __init__(self, nursery: trio.Nursery, on_end: Callable[[], None]) -> None:
        self._nursery = nursery
        self._on_end = on_end
        self._reading = trio.CancelScope()
        self._over = trio.Event()
        self.upgraded = False
        self._error: Exception | None = None
        self._ended = False

    @property
    def as_nursery(self) -> trio.Nursery:
        """This, for a signature that wants a nursery."""
        return cast(trio.Nursery, self)

    def start_soon(self, function: Callable[[], Awaitable[None]]) -> None:
        """Start the reader."""
        self._nursery.start_soon(self._run, function)

    async def _run(self, function: Callable[[], Awaitable[None]]) -> None:
        try:
            with self._reading:
                await function()
        except Exception as error:  # whatever the libraries make of hostile bytes
            self._error = error
        finally:
            self._over.set()
            if not self.upgraded:
                self._ended = True
                self._on_end()

    async def stop(self) -> None:
        """Stop the reader between two frames; nobody sends any meanwhile."""
        self._reading.cancel()
        await self._over.wait()

    @property
    def was_cut(self) -> bool:
        """Whether the other side went away without having refused the upgrade."""
        return self._ended and not isinstance(self._error, ConnectionRejected)

    def why_not(self) -> str:
        """Return why the websocket did not come about, or ""."""
        if isinstance(self._error, ConnectionRejected):
            body = (self._error.body or b"").decode(errors="replace")
            return f"refused the connection: {' '.join(body.split())[:200] or self._error.status_code}"
        return NO_WEBSOCKET if self._ended else ""


def _limited(stream: trio.abc.Stream, limits: Limits, tls: ssl.SSLContext | None) -> LimitedStream:
    """Return what lets in no more than a handshake; certificates come on top."""
    messages = UNPROVED_MESSAGES + (0 if tls is None else TLS_MESSAGES)
    return LimitedStream(stream, messages * limits.handshake_bytes_max)


def _options(limits: Limits) -> dict[str, int]:
    return {
        "message_queue_size": QUEUED_FRAMES,
        "max_message_size": limits.frame_bytes_max,
        "receive_buffer_size": RECEIVE_BYTES,
    }


async def _shake(connection: WebSocketConnection, session: Session) -> Dead | None:
    """Carry out our handshake; return None when the session is open, else why it is over."""
    actions = session.handle(BeginSession(), trio.current_time())
    while True:
        for action in actions:
            if isinstance(action, SendHandshake):
                with suppress(ConnectionClosed):  # what was said before it went away is still to be read
                    await connection.send_message(action.data)
            elif isinstance(action, Opened):
                return None
            elif isinstance(action, Dead):
                return action
        try:
            data = await connection.get_message()
        except ConnectionClosed:
            actions = session.handle(Lost("closed the connection during the handshake"), trio.current_time())
            continue
        now = trio.current_time()
        actions = session.handle(HandshakeReceived(data), now) if isinstance(data, bytes) else []
        actions = actions or session.handle(Tick(), now)


async def _part(connection: WebSocketConnection, end: Dead, limits: Limits) -> None:
    """Say goodbye after a handshake that failed, so that the last message arrives before the end does."""
    if end.kind != "lost":
        with trio.move_on_after(limits.flush_s):
            await connection.aclose()


@asynccontextmanager
async def _closing(limited: LimitedStream) -> AsyncIterator[None]:
    """Close the stream at once when the block is left, however that comes about."""
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(limited)


@asynccontextmanager
async def _carry(
    connection: WebSocketConnection, limited: LimitedStream, session: Session, codec: Codec, remote: str
) -> AsyncIterator[Peer]:
    """Run the link for the time of a block."""
    link = WebSocketLink(connection, limited, session, codec)
    peer = link.peer = Peer(session, link, remote)
    async with open_scope() as nursery:
        nursery.start_soon(link.run)
        try:
            yield peer
        finally:
            await peer.aclose()


def _host_of(request: WebSocketRequest) -> str:
    """Return the Host header without its port; trio_websocket keeps it out of ``headers``."""
    host: str = request._event.host
    name, _, port = host.rpartition(":")
    return (name if port.isdigit() and name else host).strip("[]").lower()
