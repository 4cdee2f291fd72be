"""Networks, echoing listeners and raw sockets for the tests of connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from gspc_trio.components.job.messages import ApplicationReply
from gspc_trio.components.rts.messages import GetStatus
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.messages import Done
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer
from gspc_trio.protocol.limits import Limits

TOKEN = bytes(range(32))
MEMORY = "memory:rts"
WEBSOCKET = "ws://127.0.0.1:0"


async def echo(peer: Peer) -> None:
    """Post every message back; answer every call, GetStatus with a refusal."""
    while True:
        for message in await peer.receive():
            if not isinstance(message, IncomingCall):
                peer.post(message)
            elif isinstance(message.body, GetStatus):
                message.fail(LookupError("no status here\nat all"))
            else:
                message.reply(message.body)


@asynccontextmanager
async def listening(
    network: Network, address: str, handler: Callable[[Peer], Awaitable[None]] = echo
) -> AsyncIterator[str]:
    """Listen for the time of a block; yield the actual address."""
    async with trio.open_nursery() as nursery:

        async def listen(task_status: trio.TaskStatus[str]) -> None:
            await network.listen(address, handler, role="rts", name="main", task_status=task_status)

        yield await nursery.start(listen)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(
    address: str, handler: Callable[[Peer], Awaitable[None]] = echo, **options: Any
) -> AsyncIterator[Peer]:
    """Listen and connect for the time of a block; yield the dialer's peer."""
    network = Network(wire_codec, TOKEN, **options)
    async with listening(network, address, handler) as actual:
        async with network.connect(actual, role="job", name="j1", expect="rts") as peer:
            yield peer


async def receive_count(peer: Peer, count: int) -> list[Any]:
    """Receive so many items."""
    items: list[Any] = []
    while len(items) < count:
        items += await peer.receive()
    return items


def reply_of(size_bytes: int) -> ApplicationReply:
    """Return a message of about this size."""
    return ApplicationReply(bytes(size_bytes))


async def raw_connection(address: str) -> trio.SocketStream:
    """Open a plain socket to a listener."""
    host, port = address.removeprefix("ws://").rsplit(":", 1)
    return await trio.open_tcp_stream(host, int(port))


def upgrade_request(*lines: str, host: str = "127.0.0.1") -> bytes:
    """Return the HTTP request that opens a websocket."""
    head = [
        "GET / HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        *lines,
    ]
    return "\r\n".join([*head, "", ""]).encode()


async def until_closed(stream: trio.SocketStream) -> bytes:
    """Return everything that comes until the other side closes."""
    data = b""
    while True:
        try:
            some = await stream.receive_some(65536)
        except trio.BrokenResourceError:
            return data
        if not some:
            return data
        data += some


__all__ = ["MEMORY", "TOKEN", "WEBSOCKET", "Done", "Limits"]
