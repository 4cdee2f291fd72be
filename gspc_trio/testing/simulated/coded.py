"""Connections in memory on which everything is encoded and decoded, as over a network, and nothing waits."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from functools import cached_property

import msgpack
import trio

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.wire.registry import WIRE_TYPES
from gspc_trio.nursery.connections.link import take_frame
from gspc_trio.nursery.connections.network import ConnectFailed, Handler, Network
from gspc_trio.nursery.connections.rpc import CLOSED_HERE, CLOSED_THERE, Peer, handle_until_gone
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.address import MemoryAddress
from gspc_trio.protocol.codec import Codec, Encoded
from gspc_trio.protocol.envelope import Call
from gspc_trio.protocol.session import Identity, Session
from gspc_trio.protocol.signals import ItemsReceived, Lost

_NUMBERS = {kind: number for number, kind in enumerate(WIRE_TYPES)}
_CALL, _REPLY = -1, -2


class CodedLink:
    """Carries what a peer says to the other one in this process, as bytes."""

    def __init__(self, codec: Codec) -> None:
        self.other: Peer | HostilePeer
        self._codec = codec

    def prepare(self, body: object) -> Encoded:
        """Encode the body of an answer."""
        return self._codec.encode(body)

    def prepare_question(self, body: object) -> Encoded:
        """Encode the body of a call."""
        return self._codec.encode_question(body)

    def put(self, item: object) -> None:
        """Deliver at once."""
        self.put_frame(self._codec.frame([self._codec.encode_item(item)]))

    def put_frame(self, frame: bytes) -> None:
        """Deliver bytes, whatever they are."""
        if not self.other.reason:
            take_frame(self.other, self._codec, frame)

    def taken(self) -> None:
        """Nothing waits for this."""

    def cut(self, reason: str) -> None:
        """End the other one, too."""
        self.other.handle(Lost(CLOSED_THERE if reason == CLOSED_HERE else reason))

    async def sent(self) -> None:
        """Everything has been delivered."""
        await trio.lowlevel.checkpoint()

    async def flush(self) -> None:
        """Everything has been delivered."""
        await trio.lowlevel.checkpoint()


class HostilePeer:
    """One end of a connection whose owner is bound by nothing.

    Attributes:
        reason: why the other side has ended the connection, or "".
        heard: what it has said.
    """

    def __init__(self, link: CodedLink, codec: Codec) -> None:
        self.reason: str = ""
        self.heard: list[object] = []
        self._link = link
        self._codec = codec
        self._calls = 0

    def handle(self, event: object) -> None:
        """Take what comes."""
        if isinstance(event, ItemsReceived):
            self.heard += event.items
        elif isinstance(event, Lost):
            self.reason = event.reason or "gone"

    def say(self, kind: type, fields: object, *, call: bool = False, answers: int = 0) -> None:
        """Send a message, a call or the answer to one, whose fields are whatever they are."""
        self._calls += call
        self._link.put_frame(raw_frame(kind, fields, call_id=self._calls if call else 0, answers=answers))

    def say_in_order(self, item: object) -> None:
        """Send a message, a call of it, or an answer, as it should be."""
        self._link.put_frame(self._codec.encode_batch([item]))

    def call_in_order(self, message: object) -> None:
        """Ask something, as it should be."""
        self._calls += 1
        self.say_in_order(Call(self._calls, message))

    def leave(self) -> None:
        """End the connection."""
        self._link.other.handle(Lost("it left"))


def raw_frame(kind: type, fields: object, *, call_id: int = 0, answers: int = 0) -> bytes:
    """Return a frame of one message whose fields are whatever they are.

    Args:
        kind: of the message.
        fields: of it, as they travel.
        call_id: number of the call that it is, or 0.
        answers: number of the call that it answers, or 0.
    """
    body = (_NUMBERS[kind], *fields) if type(fields) is tuple else fields
    item = (_CALL, call_id, body) if call_id else (_REPLY, answers, body) if answers else body
    packed: bytes = msgpack.packb([item], unicode_errors="surrogatepass")
    return packed


class Listeners:
    """Who listens where, and how all speak, for networks that belong together."""

    def __init__(self) -> None:
        self.codec: Codec = wire_codec()
        self.listeners: dict[str, tuple[str, str, Handler, trio.Nursery]] = {}
        self.hostile: dict[str, tuple[Callable[[HostilePeer], Awaitable[None]], trio.Nursery]] = {}

    async def serve_hostile(self, name: str, handler: Callable[[HostilePeer], Awaitable[None]]) -> None:
        """Have a hostile peer listen until cancelled; it runs the handler for each connection."""
        async with open_scope() as nursery:
            self.hostile[name] = (handler, nursery)
            try:
                await trio.sleep_forever()
            finally:
                del self.hostile[name]


class CodedNetwork(Network):
    """The network as one of several parties in this process has it.

    Args:
        token: of all of them.
        listeners: of all of them.
        instance: of this one, as every process has its own.
        on_connect: told of each end of a connection of this one's.
    """

    def __init__(
        self,
        token: bytes,
        listeners: Listeners,
        instance: str,
        on_connect: Callable[[Peer], object] = lambda _: None,
    ) -> None:
        super().__init__(wire_codec, token)
        self.instance = instance
        self._listeners = listeners
        self._on_connect = on_connect

    @cached_property
    def codec(self) -> Codec:
        """The codec that all have."""
        return self._listeners.codec

    async def _listen_in_memory(
        self, where: MemoryAddress, handler: Handler, role: str, name: str, task_status: trio.TaskStatus[str]
    ) -> None:
        listeners = self._listeners.listeners
        if where.name in listeners:
            raise OSError(errno.EADDRINUSE, f"another listener has the address {where}")
        async with open_scope() as nursery:
            listeners[where.name] = (role, name, handler, nursery)
            try:
                task_status.started(str(where))
                await trio.sleep_forever()
            finally:
                del listeners[where.name]

    async def _connect_in_memory(self, where: MemoryAddress, role: str, name: str, expect: str) -> Peer:
        await trio.lowlevel.checkpoint()
        link = CodedLink(self.codec)
        me = Identity(role, name, self.instance, b"", b"", dialer=True)
        here = Peer(Session.opened(me, expect, where.name, self.limits), link, str(where))
        back = CodedLink(self.codec)
        if where.name in self._listeners.hostile:
            hostile_handler, nursery = self._listeners.hostile[where.name]
            hostile = HostilePeer(back, self.codec)
            link.other, back.other = hostile, here
            nursery.start_soon(hostile_handler, hostile)
        else:
            link.other, back.other = self._ring(where.name, role, name, back), here
        self._on_connect(here)
        return here

    async def connect_hostile(self, where: str, role: str, name: str) -> HostilePeer:
        """Connect, to say whatever one likes."""
        await trio.lowlevel.checkpoint()
        link, back = CodedLink(self.codec), CodedLink(self.codec)
        hostile = HostilePeer(link, self.codec)
        link.other, back.other = self._ring(where, role, name, back), hostile
        return hostile

    def _ring(self, where: str, role: str, name: str, back: CodedLink) -> Peer:
        """Return the other end of a new connection, which is served from now on."""
        found = self._listeners.listeners.get(where)
        if found is None:
            raise ConnectFailed(f"memory:{where}", f"nothing listens at memory:{where}")
        there_role, there_name, handler, nursery = found
        identity = Identity(there_role, there_name, "", b"", b"", dialer=False)
        session = Session.opened(identity, role, name, self.limits)
        session.peer_instance = self.instance
        there = Peer(session, back, f"memory:{where}")
        nursery.start_soon(handle_until_gone, handler, there)
        return there
