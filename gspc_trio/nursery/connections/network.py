"""The network of a process: it listens and dials, in memory, over websockets and over TLS."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import trio
from msgspec import Struct

from gspc_trio.nursery.connections.acceptor import Acceptor, asks_for_encryption, asks_for_websocket
from gspc_trio.nursery.connections.buffers import TransferBuffers
from gspc_trio.nursery.connections.errors import (
    AuthenticationFailed,
    ConnectFailed,
    ConnectionProblem,
    HandshakeCut,
    VersionMismatch,
    WrongRole,
)
from gspc_trio.nursery.connections.memory import memory_pair
from gspc_trio.nursery.connections.pending import PendingConnections
from gspc_trio.nursery.connections.rpc import Handler, Peer, handle_until_gone
from gspc_trio.nursery.scopes.scope import leaves, open_scope
from gspc_trio.protocol.address import BadAddress, MemoryAddress, WebSocketAddress, parse_address
from gspc_trio.protocol.handshake import NAME_CHARACTERS_MAX, NONCE_BYTES
from gspc_trio.protocol.limits import DEFAULT_LIMITS, Limits
from gspc_trio.protocol.session import Identity

if TYPE_CHECKING:
    import ssl

    from gspc_trio.nursery.connections.bulk import BulkStream
    from gspc_trio.nursery.connections.websocket import Dialer
    from gspc_trio.protocol.codec import Codec

__all__ = [
    "AuthenticationFailed",
    "ConnectFailed",
    "ConnectionProblem",
    "Handler",
    "Network",
    "VersionMismatch",
    "address_towards",
]

log: logging.Logger = logging.getLogger(__name__)

TOKEN_BYTES_MIN = 16
AGAIN_AFTER_S = (0.05, 0.1, 0.2, 0.4)
"""Pauses before a listener is tried again that has closed the connection during the handshake."""
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

T = TypeVar("T")


class ProcessInfo(Struct, frozen=True):
    """What a process tells others of itself.

    Attributes:
        pid: its process id.
        host: name of its host.
        directory: where it works.
        search_path: where it looks for Python modules.
    """

    pid: int
    host: str
    directory: str
    search_path: tuple[str, ...]


class _MemoryListener(Struct):
    """Somebody listens at a memory address."""

    role: str
    name: str
    handler: Handler
    nursery: trio.Nursery


class Network:
    """``memory:NAME`` inside this object, ``ws://HOST:PORT`` outside, ``wss://HOST:PORT`` encrypted.

    Args:
        make_codec: makes the codec of websockets at the first of them, which knows all messages.
        token: the secret that both ends of a websocket must have, at least 16 bytes; memory needs none.
        limits: of every connection.
        random_bytes: makes nonces and the instance id; replaced in simulations. The clock is trio's.
        allow_remote: listen at addresses that other hosts can reach, though what travels is not encrypted.
        hosts: further names by which dialers may call our listeners (the Host header).
        origins: web pages that may connect (the Origin header).
        credentials: for TLS, see ``nursery.connections.tls``; without them there is no ``wss:``.
        buffers: of all transfers of this process; None: its own.

    Attributes:
        buffers: see above.
        token_of: role and name of a dialer -> the secret that it has to know in place of the token; it may
            return None for the token.
    """

    def __init__(
        self,
        make_codec: Callable[[Limits], Codec],
        token: bytes = b"",
        *,
        limits: Limits = DEFAULT_LIMITS,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        allow_remote: bool = False,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        credentials: str = "",
        buffers: TransferBuffers | None = None,
    ) -> None:
        self.buffers: TransferBuffers = buffers or TransferBuffers()
        self._make_codec = make_codec
        self.token = token
        self.limits = limits
        self.instance: str = random_bytes(8).hex()
        self.allow_remote = allow_remote
        self.credentials = credentials
        self.token_of: Callable[[str, str], bytes | None] | None = None
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)
        self._random_bytes = random_bytes
        self._memory: dict[str, _MemoryListener] = {}

    async def listen(
        self,
        address: str,
        handler: Handler,
        *,
        role: str,
        name: str,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve connections until cancelled; ``nursery.start`` returns the actual address.

        Args:
            address: ``memory:NAME``, ``ws://HOST:PORT`` or ``wss://HOST:PORT``, port 0 for any free one.
            handler: run for each connection once its other side has proved itself; the connection ends with
                it. That its peer is gone is no error in it. One that sends large bytes, too, is a
                :class:`~gspc_trio.nursery.connections.bulk.BulkAndCalls`.
            role, name: what we tell those who connect.

        Raises:
            BadAddress: no address of ours, or one that others can reach without ``allow_remote``.
            OSError: the address is taken or not ours.
            ValueError: a websocket without a token.
        """
        where = parse_address(address)
        if isinstance(where, MemoryAddress):
            await self._listen_in_memory(where, handler, role, name, task_status)
        else:
            await self._listen_on_websocket(where, handler, role, name, task_status)

    @asynccontextmanager
    async def connect(self, address: str, *, role: str, name: str, expect: str) -> AsyncIterator[Peer]:
        """Connect for the time of a block; what is queued at its end is still sent (at most
        ``limits.flush_s``).

        Args:
            address: of the listener.
            role, name: what we tell it.
            expect: role that it must have, "" for any.

        Raises:
            ConnectFailed: nobody listens there, or who does does not speak our protocol.
            TlsFailed: it has no certificate of our authority.
            AuthenticationFailed: it has another token or role.
            VersionMismatch: it speaks other versions.
        """
        where = parse_address(address)
        if isinstance(where, MemoryAddress):
            peer = await self._connect_in_memory(where, role, name, expect)
            try:
                yield peer
            finally:
                await peer.aclose()
        else:
            from gspc_trio.nursery.connections.websocket import connect_stream

            async with self._open(connect_stream, where, role, name, expect) as peer:
                yield peer

    @asynccontextmanager
    async def connect_bulk(self, address: str, *, name: str, expect: str) -> AsyncIterator[BulkStream]:
        """Connect for large bytes for the time of a block; see :class:`~.bulk.BulkStream`.

        Args:
            address: of a listener outside this object that sends such, see :meth:`listen`.
            name: what we tell it.
            expect: role that it must have, "" for any.

        Raises:
            ConnectionProblem: as :meth:`connect`, or it sends no large bytes.
        """
        where = parse_address(address)
        if isinstance(where, MemoryAddress):
            raise ConnectFailed(address, f"{address} is in this process: nothing has to be sent")
        from gspc_trio.nursery.connections import bulk
        from gspc_trio.nursery.connections.websocket import connect_bulk

        async with self._open(connect_bulk, where, bulk.ROLE, name, expect) as stream:
            yield stream

    @asynccontextmanager
    async def _open(
        self,
        connect: Callable[[trio.abc.Stream, Dialer], AbstractAsyncContextManager[T]],
        where: WebSocketAddress,
        role: str,
        name: str,
        expect: str,
    ) -> AsyncIterator[T]:
        """Connect; again when the listener had too many connections at once and gave up ours."""
        self._need_token(where)
        tls = self._tls(where, server=False)
        from gspc_trio.nursery.connections.websocket import Dialer

        async with AsyncExitStack() as stack:
            for pause_s in (*AGAIN_AFTER_S, None):
                identity = self.identity(role, name, dialer=True, expect=expect)
                dialer = Dialer(identity, self.codec, str(where), where.authority, tls)
                try:
                    opened = await stack.enter_async_context(connect(await self._dial(where), dialer))
                    break
                except ConnectionProblem as error:
                    error.wanted = expect
                    if pause_s is None or not isinstance(error, HandshakeCut):
                        raise
                    await trio.sleep(pause_s)
            yield opened

    def identity(self, role: str, name: str, *, dialer: bool, expect: str = "") -> Identity:
        """Return what one side of a new websocket connection says of itself, with a fresh nonce."""
        nonce = self._random_bytes(NONCE_BYTES)
        known = (role, name[:NAME_CHARACTERS_MAX], self.instance, self.token, nonce)
        return Identity(*known, dialer=dialer, expect=expect, token_of=None if dialer else self.token_of)

    @cached_property
    def codec(self) -> Codec:
        """The codec of this network's websockets."""
        return self._make_codec(self.limits)

    def process_info(self) -> ProcessInfo:
        """Return what this process tells others of itself; simulated ones have a network of their own."""
        # Python passes over what is no text there, as a Path, and so do compute processes.
        search_path = tuple(entry for entry in sys.path if isinstance(entry, str))
        return ProcessInfo(os.getpid(), socket.gethostname(), os.getcwd(), search_path)

    def listens(self, address: str) -> bool:
        """Return whether there is a listener of this object at an address in memory."""
        where = parse_address(address)
        return isinstance(where, MemoryAddress) and where.name in self._memory

    # Memory ----

    async def _listen_in_memory(
        self, where: MemoryAddress, handler: Handler, role: str, name: str, task_status: trio.TaskStatus[str]
    ) -> None:
        if where.name in self._memory:
            raise OSError(errno.EADDRINUSE, f"another listener has the address {where}")
        async with open_scope() as nursery:
            self._memory[where.name] = _MemoryListener(role, name, handler, nursery)
            try:
                task_status.started(str(where))
                await trio.sleep_forever()
            finally:
                del self._memory[where.name]

    async def _connect_in_memory(self, where: MemoryAddress, role: str, name: str, expect: str) -> Peer:
        await trio.lowlevel.checkpoint()
        listener = self._memory.get(where.name)
        if listener is None:
            raise ConnectFailed(str(where), f"nothing listens at {where}")
        if expect and expect != listener.role:
            reason = f"the dialer looks for the role {expect!r}, the listener is {listener.role!r}"
            raise WrongRole(str(where), f"{where}: {reason}")
        here, there = memory_pair(role, name, listener.role, listener.name, limits=self.limits)
        here.remote = there.remote = str(where)
        listener.nursery.start_soon(handle_until_gone, listener.handler, there)
        return here

    # Websockets ----

    def _need_token(self, where: WebSocketAddress) -> None:
        if len(self.token) < TOKEN_BYTES_MIN:
            raise ValueError(
                f"{where} needs a token of at least {TOKEN_BYTES_MIN} bytes, which both sides have"
            )

    def _tls(self, where: WebSocketAddress, *, server: bool) -> ssl.SSLContext | None:
        if not where.secure:
            return None
        if not self.credentials:
            raise ConnectFailed(str(where), f"{where} needs credentials for TLS, which are not there")
        return self._contexts[server]

    @cached_property
    def _contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """How we dial, and how we listen."""
        from gspc_trio.nursery.connections.tls import make_context

        return make_context(self.credentials, server=False), make_context(self.credentials, server=True)

    async def _listen_on_websocket(
        self,
        where: WebSocketAddress,
        handler: Handler,
        role: str,
        name: str,
        task_status: trio.TaskStatus[str],
    ) -> None:
        self._need_token(where)
        if not (where.is_loopback or where.secure or self.allow_remote):
            raise BadAddress(
                f"{where} can be reached from other hosts, and nothing would be encrypted: "
                f"listen at ws://127.0.0.1:{where.port}, or with TLS at wss://{where.authority}"
            )
        tls = self._tls(where, server=True)
        host = "127.0.0.1" if where.host == "localhost" else where.host
        try:
            listeners = await trio.open_tcp_listeners(where.port, host=host)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise OSError(errno.EADDRINUSE, f"port {where.port} of {where.host} is taken") from error
            raise OSError(error.errno, f"cannot listen at {where}: {error.strerror or error}") from error
        port = listeners[0].socket.getsockname()[1]
        from gspc_trio.nursery.connections.websocket import AcceptPolicy, serve_stream

        pending = PendingConnections(self.limits.unproved_max)
        names = LOOPBACK_NAMES | {where.host.lower()} | self._hosts

        async def serve(stream: trio.SocketStream, deadline_s: float) -> None:
            remote = _endpoint(stream)
            identity = self.identity(role, name, dialer=False)
            hosts = names | {stream.socket.getsockname()[0]}
            policy = AcceptPolicy(pending, hosts, self._origins)
            refused = await serve_stream(
                stream, identity, self.codec, handler, policy, remote=remote, tls=tls, deadline_s=deadline_s
            )
            if refused:
                log.info("%s %r let nobody in from %s: %s", role, name, remote, refused)

        async with open_scope() as nursery:

            def admit(stream: trio.SocketStream, deadline_s: float) -> None:
                nursery.start_soon(serve, stream, deadline_s)

            acceptor = Acceptor(
                [socket.socket(fileno=listener.socket.detach()) for listener in listeners],
                f"{role} {name!r}",
                pending,
                asks_for_encryption if where.secure else asks_for_websocket,
                peek_bytes_max=self.limits.handshake_bytes_max,
                patience_s=self.limits.handshake_s,
            )
            task_status.started(str(WebSocketAddress(where.host, port, where.secure)))
            await acceptor.run(admit)

    async def _dial(self, where: WebSocketAddress) -> trio.abc.Stream:
        try:
            with trio.fail_after(self.limits.handshake_s):
                return await trio.open_tcp_stream(where.host, where.port)
        except trio.TooSlowError as error:
            raise ConnectFailed(str(where), f"{where} does not answer") from error
        except OSError as error:
            tried = list(leaves(error.__cause__ or error))
            if all(isinstance(leaf, ConnectionRefusedError) for leaf in tried):
                raise ConnectFailed(str(where), f"nothing listens at {where}") from error
            why = next(
                (leaf.strerror for leaf in tried if isinstance(leaf, OSError) and leaf.strerror), str(error)
            )
            raise ConnectFailed(str(where), f"cannot reach {where}: {why}") from error


def address_towards(other: str) -> str:
    """Return where a process listens by default: where its RTS, and others that reach that, can reach it.

    Args:
        other: address of the RTS, or of whatever it belongs to.

    Raises:
        BadAddress: that has no address that a process of its own could use.
        OSError: there is no way to it.
    """
    where = parse_address(other)
    if isinstance(where, MemoryAddress):
        raise BadAddress(f"a process of its own cannot reach {other}")
    if where.is_loopback:
        return str(WebSocketAddress("127.0.0.1", 0, where.secure))
    family, kind, protocol, _, address = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing: it only asks which of our addresses would be used
        return str(WebSocketAddress(probe.getsockname()[0], 0, where.secure))


LOOPBACK = "127.0.0.1"

_ANYWHERE = "192.0.2.1"
"""An address that belongs to nobody, in any other network."""


def outward_address() -> str:
    """Return an address of this host that others can reach; LOOPBACK if it has none. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_ANYWHERE, 9))
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


def _endpoint(stream: trio.SocketStream) -> str:
    """Return the other end's address, for people."""
    try:
        host, port, *_ = stream.socket.getpeername()
    except OSError:
        return "somebody who is gone"
    return WebSocketAddress(host, port).authority
