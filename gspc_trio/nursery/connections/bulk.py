"""Large bytes over a websocket of their own, whose frames both ends read and write themselves.

It begins as every connection does, with the websocket's handshake and our own. Then the listener stops the
library's reader and says so with an empty frame, and so does the dialer when that has come. From there on
every message is one binary frame (RFC 6455), read straight into where it is to lie and written from where it
lies. The dialer only asks; what the listener answers is not masked.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import trio
from msgspec import Struct

from gspc_trio.nursery.connections.rpc import Handler, Peer

ROLE = "bulk"
"""What the dialer of such a connection calls itself."""

READY = b"\x82\x00"
"""The listener's first frame, as it travels: from here on nobody else reads what arrives."""

AHEAD_BYTES = 4096
"""So much is read at once where a frame is expected: its header, and of a short one all."""

WAKE_BYTES = 1 << 18
"""Whoever waits for more than this is woken when so much is there."""

ASKED_BYTES_MAX = 4096
"""Longest message of a dialer."""

KEEPALIVE_S = (10, 5, 3)
"""A silent connection is looked at after so long, so often, so many times: then its other side is gone."""

_BINARY = 0x82
_MASKED = 0x80
_LONG = struct.Struct("!BBQ")
_MEDIUM = struct.Struct("!BBH")


class BulkGone(Exception):
    """The connection is over, or what arrived is none of its frames; one line says which."""


def frame_header(size_bytes: int, masked: int = 0) -> bytes:
    """Return what goes before the payload of one whole binary message."""
    if size_bytes < 126:
        return bytes((_BINARY, masked | size_bytes))
    if size_bytes < 1 << 16:
        return _MEDIUM.pack(_BINARY, masked | 126, size_bytes)
    return _LONG.pack(_BINARY, masked | 127, size_bytes)


def mask(data: bytes, key: bytes) -> bytes:
    """Return the data masked, or unmasked, with a key of four bytes."""
    repeated = (key * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data) ^ int.from_bytes(repeated)).to_bytes(len(data))


class BulkStream:
    """One end of such a connection; one task sends, one task receives.

    Args:
        stream: below the websocket, decrypted.
        dialer: whether this end has dialled.
    """

    def __init__(self, stream: trio.abc.Stream, *, dialer: bool) -> None:
        self._stream = stream
        self._dialer = dialer
        self._ahead = memoryview(b"")
        self._left = 0
        self._key = b""
        self._wakes_at = 1
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
        if self._socket is not None:
            _notice_silence(self._socket)

    async def ask(self, message: bytes) -> None:
        """Send a short message, masked: this end has dialled.

        Raises:
            BulkGone: the connection is over.
        """
        key = os.urandom(4)
        await self._send_all(frame_header(len(message), _MASKED) + key + mask(message, key))

    async def answer(self, head: bytes, data: memoryview) -> None:
        """Send one message of two pieces; this end has listened.

        Raises:
            BulkGone: the connection is over.
        """
        begin = frame_header(len(head) + len(data)) + head
        if self._socket is None:
            await self._send_all(begin)
            await self._send_all(data)
            return
        try:
            sent = await self._socket.sendmsg([begin, data])
            while sent < len(begin):
                sent += await self._socket.send(begin[sent:])
            sent -= len(begin)
            while sent < len(data):
                sent += await self._socket.send(data[sent:])
        except (OSError, trio.ClosedResourceError) as error:
            raise BulkGone(f"the connection was cut: {error}") from error

    async def begin(self) -> int:
        """Wait for the next message; return its size. Its bytes are read by :meth:`take`, all of them.

        Raises:
            BulkGone: the connection is over, or something else than a message has arrived.
        """
        assert not self._left
        await self._need(2)
        flags, size = self._ahead[0], self._ahead[1]
        masked, size = size & _MASKED, size & ~_MASKED
        length = {126: 4, 127: 10}.get(size, 2)
        await self._need(length + (4 if masked else 0))
        if length > 2:
            size = int.from_bytes(self._ahead[2:length])
        if flags != _BINARY or bool(masked) is self._dialer:
            closed = flags & 0x0F == 8
            raise BulkGone("closed by the other side" if closed else "a frame that has no place here")
        if masked:
            self._key = bytes(self._ahead[length : length + 4])
            length += 4
        self._ahead = self._ahead[length:]
        self._left = size
        return size

    async def take(self, target: memoryview) -> None:
        """Fill ``target`` with the next bytes of the message.

        Raises:
            BulkGone: the connection is over, or the message is shorter.
        """
        size = len(target)
        if size > self._left:
            raise BulkGone(f"a message that is {size - self._left} bytes too short")
        here = min(len(self._ahead), size)
        target[:here] = self._ahead[:here]
        self._ahead = self._ahead[here:]
        while here < size:
            self._wake_at(min(size - here, WAKE_BYTES))
            here += await self._receive_into(target[here:])
        self._wake_at(1)
        self._left -= size

    async def asked(self) -> bytes:
        """Return the next message of the side that has dialled.

        Raises:
            BulkGone: the connection is over, or the message is too long for a question.
        """
        size = await self.begin()
        if size > ASKED_BYTES_MAX:
            raise BulkGone(f"a question of {size} bytes, {ASKED_BYTES_MAX} are allowed")
        data = bytearray(size)
        await self.take(memoryview(data))
        return mask(bytes(data), self._key)

    async def _need(self, count: int) -> None:
        """Have so many bytes read ahead."""
        while len(self._ahead) < count:
            try:
                data = await self._stream.receive_some(AHEAD_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise BulkGone("the connection was cut") from error
            if not data:
                raise BulkGone("closed by the other side")
            self._ahead = memoryview(bytes(self._ahead) + data)

    def _wake_at(self, count: int) -> None:
        """Be woken when so much has arrived, not for every packet."""
        if self._socket is not None and count != self._wakes_at:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._wakes_at = count

    async def _receive_into(self, target: memoryview) -> int:
        try:
            if self._socket is not None:
                count = await self._socket.recv_into(target)
            else:
                data = await self._stream.receive_some(len(target))
                count = len(data)
                target[:count] = data
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise BulkGone("the connection was cut") from error
        if not count:
            raise BulkGone("the connection was cut in the middle of a message")
        return count

    async def _send_all(self, data: bytes | memoryview) -> None:
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise BulkGone("the connection was cut") from error


BulkHandler: TypeAlias = Callable[[BulkStream], Awaitable[None]]
"""Serves the other end of such a connection."""


class BulkAndCalls(Struct, frozen=True):
    """A handler of a listener that sends large bytes, too.

    Attributes:
        handler: of usual connections.
        bulk: of those that are for large bytes.
    """

    handler: Handler
    bulk: BulkHandler

    def __call__(self, peer: Peer) -> Awaitable[None]:
        """Serve a usual connection."""
        return self.handler(peer)


async def serve_bulk(stream: trio.abc.Stream, handler: BulkHandler) -> None:
    """Say that we are ready, then run the handler; that the other side is gone is no error in it."""
    with suppress(BulkGone, trio.BrokenResourceError):
        await stream.send_all(READY)
        await handler(BulkStream(stream, dialer=False))


def _notice_silence(connection: trio.socket.SocketType) -> None:
    """Nobody sends heartbeats here: let the kernel see to it that the other side is there."""
    idle_s, interval_s, count = KEEPALIVE_S
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, count)
    timeout_ms = 1000 * (idle_s + interval_s * count)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
