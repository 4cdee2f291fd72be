"""A peer's link over a websocket: one writer, one reader, one who looks at the clock."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection

from gspc_trio.core.machine import Tick
from gspc_trio.nursery.connections.pending import LimitedStream
from gspc_trio.nursery.connections.rpc import CLOSED_HERE, CLOSED_THERE, SIGNED_OFF, Peer
from gspc_trio.nursery.scopes.observe import Fill, show_queue
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.codec import Codec, DecodeError, Encoded
from gspc_trio.protocol.envelope import Reply
from gspc_trio.protocol.limits import Limits
from gspc_trio.protocol.session import SILENT, Session
from gspc_trio.protocol.signals import Garbled, Heard, ItemsReceived, Lost, Sent

NORMAL_CLOSURE = 1000
PROTOCOL_ERROR = 1002
REASON_BYTES_MAX = 120
"""Of a websocket's close frame (RFC 6455, 5.5)."""

LARGE_BYTES = 1 << 16
"""Answers of so many bytes let all else go before them; answers have no order among messages anyway."""


class WebSocketLink:
    """Carries a peer's messages over an open websocket whose handshake is over.

    Only the writer task sends, and no send is ever cancelled alone: half a frame would swallow the next one.

    Args:
        connection: the websocket.
        limited: the stream below it.
        session: of the peer.
        codec: of both ends.
    """

    def __init__(
        self, connection: WebSocketConnection, limited: LimitedStream, session: Session, codec: Codec
    ) -> None:
        self.peer: Peer
        self._connection = connection
        self._limited = limited
        self._session = session
        self._codec = codec
        self._limits: Limits = codec.limits
        self._outbox: list[bytes] = []
        self._large: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._begun = (0, 0)
        self._sent = (0, 0)
        self._progress: trio.Event | None = None
        self._wake: trio.Event | None = None
        self._sending = False
        self._drained: trio.Event | None = None
        self._unreceived_bytes = 0
        self._taken: trio.Event | None = None
        self._closing = False
        self._over = trio.Event()
        self._reason = ""
        show_queue(self)

    # Link ----

    def prepare(self, body: object) -> Encoded:
        """Encode the body of an answer."""
        return self._codec.encode(body)

    def prepare_question(self, body: object) -> Encoded:
        """Encode the body of a call."""
        return self._codec.encode_question(body)

    def put(self, item: object) -> None:
        """Queue for the writer."""
        data = self._codec.encode_item(item)
        size_bytes = len(data)
        if size_bytes >= LARGE_BYTES and type(item) is Reply:
            self._large.append(data)
        else:
            self._outbox.append(data)
        self._outbox_bytes += size_bytes
        if (
            len(self._outbox) + len(self._large) > self._limits.outbox_items_max
            or self._outbox_bytes > self._limits.outbox_bytes_max
        ):
            waiting = f"{self._outbox_items} messages, {self._outbox_bytes} bytes wait"
            self.peer.handle(Lost(f"the other side is too slow: {waiting}"))
        elif self._wake is not None:
            self._wake.set()

    @property
    def _outbox_items(self) -> int:
        return len(self._outbox) + len(self._large)

    def taken(self) -> None:
        """Go on reading if reading had stopped."""
        self._unreceived_bytes = 0
        if self._taken is not None:
            self._taken.set()

    def cut(self, reason: str) -> None:
        """Let :meth:`run` close the connection."""
        self._reason = reason
        self._over.set()
        if self._drained is not None:
            self._drained.set()
        self._tell_progress()

    async def sent(self) -> None:
        """Wait until what is queued now has been sent, or the connection is over."""
        messages, large = self._begun[0] + len(self._outbox), self._begun[1] + len(self._large)
        while (self._sent[0] < messages or self._sent[1] < large) and not self._over.is_set():
            if self._progress is None:
                self._progress = trio.Event()
            await self._progress.wait()

    def _tell_progress(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    def fills(self) -> tuple[Fill, ...]:
        """Return what waits for the writer and for the receiver."""
        if self._over.is_set():
            return ()
        limits, waiting = self._limits, self.peer.waiting_items
        unreceived = self._unreceived_bytes if waiting else 0
        inbox_items, inbox_bytes = limits.inbox_items_max, limits.inbox_bytes_max
        return (
            Fill(
                "the outbox",
                self._outbox_items,
                limits.outbox_items_max,
                self._outbox_bytes,
                limits.outbox_bytes_max,
            ),
            # It is after a frame that one sees that no more is to be read.
            Fill(
                "the inbox",
                waiting,
                inbox_items + limits.frame_items_max,
                unreceived,
                inbox_bytes + limits.frame_bytes_max,
            ),
        )

    async def flush(self) -> None:
        """Wait until the outbox is sent and the other side has said goodbye too, at most ``flush_s``."""
        with trio.move_on_after(self._limits.flush_s):
            if self._outbox_items or self._sending:
                self._drained = trio.Event()
                await self._drained.wait()
            if not self._over.is_set():
                self._closing = True
                await self._connection.aclose(NORMAL_CLOSURE)

    # Tasks ----

    async def run(self) -> None:
        """Carry messages until the connection is over, then close it."""
        self._limited.on_arrival = lambda: self.peer.handle(Heard())
        try:
            async with open_scope() as nursery:
                nursery.start_soon(self._write)
                nursery.start_soon(self._read)
                nursery.start_soon(self._watch)
                await self._over.wait()
                nursery.cancel_scope.cancel()
            if not self._sending:
                with trio.move_on_after(self._limits.flush_s):
                    await self._say_why()
        finally:
            # Whatever happens, the socket goes; trio_websocket's own reader ends with it.
            self._outbox.clear()
            self._large.clear()
            self._over.set()
            self._tell_progress()
            self.peer.drop()
            await trio.aclose_forcefully(self._limited)

    async def _write(self) -> None:
        while True:
            if not self._outbox_items:
                if self._drained is not None:
                    self._drained.set()
                self._wake = trio.Event()
                await self._wake.wait()
                self._wake = None
            large = len(self._large)
            items, size_bytes = self._next_items()
            large -= len(self._large)
            self._begun = (self._begun[0] + len(items) - large, self._begun[1] + large)
            self._sending = True
            try:
                await self._connection.send_message(self._codec.frame(items))
            except ConnectionClosed as closed:
                self._sending = False
                self._closed_by(closed)
                return
            self._sending = False
            self._sent = self._begun
            self._tell_progress()
            self._outbox_bytes -= size_bytes
            self.peer.handle(Sent())

    def _next_items(self) -> tuple[list[bytes], int]:
        """Take what a frame can carry from the outbox; return it and its bytes.

        Of large answers each frame has one, behind all else: what is short does not wait for a slow link to
        carry them, least of all what asks for the next of them or says that one has come.
        """
        if not self._large:
            return self._next_of_outbox()
        items, size_bytes = self._next_of_outbox() if self._outbox else ([], 0)
        large = self._large.popleft()
        return [*items, large], size_bytes + len(large)

    def _next_of_outbox(self) -> tuple[list[bytes], int]:
        limits, outbox = self._limits, self._outbox
        gathered = self._outbox_bytes if not self._large else sum(map(len, outbox))
        if len(outbox) <= limits.frame_items_max and gathered <= limits.frame_bytes_gather:
            self._outbox = []
            return outbox, gathered
        size_bytes = count = 0
        for item in outbox[: limits.frame_items_max]:
            size_bytes += len(item)
            count += 1
            if size_bytes >= limits.frame_bytes_gather:
                break
        self._outbox = outbox[count:]
        return outbox[:count], size_bytes

    async def _read(self) -> None:
        while True:
            try:
                frame = await self._connection.get_message()
            except ConnectionClosed as closed:
                self._closed_by(closed)
                return
            if not isinstance(frame, bytes):
                self.peer.handle(Garbled("a text frame"))
                return
            self._unreceived_bytes += len(frame)
            if not take_frame(self.peer, self._codec, frame):
                return
            if self._is_full():
                # Nothing more is read until the receiver has taken what is there; by the network's own flow
                # control that reaches the other side's writer.
                self._taken = trio.Event()
                await self._taken.wait()
                self._taken = None

    def _is_full(self) -> bool:
        limits, waiting = self._limits, self.peer.waiting_items
        return waiting >= limits.inbox_items_max or (
            waiting > 0 and self._unreceived_bytes > limits.inbox_bytes_max
        )

    async def _watch(self) -> None:
        """Feed the session ticks: for heartbeats when idle, and for the end of the lease."""
        while (due_s := self._session.deadline()) is not None:
            await trio.sleep_until(due_s)
            if due_s != self._session.deadline():  # something was sent or heard meanwhile
                continue
            if self._taken is not None:
                # It is we who do not listen.
                self.peer.handle(Heard())
            self.peer.handle(Tick())

    def _closed_by(self, closed: ConnectionClosed) -> None:
        """The websocket is over: a loss, unless it is we who close it."""
        if not self._closing:
            self.peer.handle(Lost(_reason_of(closed)))

    async def _say_why(self) -> None:
        """End the websocket in order, with the reason for those who can read it."""
        normal = self._reason in (CLOSED_HERE, CLOSED_THERE)
        text = self._reason.encode(errors="replace")[:REASON_BYTES_MAX].decode(errors="ignore")
        await self._connection.aclose(NORMAL_CLOSURE if normal else PROTOCOL_ERROR, None if normal else text)


class Receiver(Protocol):
    """What events of a connection are for."""

    def handle(self, event: Garbled | ItemsReceived) -> None:
        """Take one."""
        ...


def take_frame(peer: Receiver, codec: Codec, frame: bytes) -> bool:
    """Give what has arrived to a peer; return False if it was none of our frames: then the peer is lost."""
    try:
        items = codec.decode_batch(frame)
    except DecodeError as error:
        peer.handle(Garbled(str(error)))
        return False
    peer.handle(ItemsReceived(items))
    return True


def _reason_of(closed: ConnectionClosed) -> str:
    """Return why a websocket was closed, for people."""
    why = closed.reason
    if why is None or why.code == 1006:
        return "the connection was cut"
    if why.code == NORMAL_CLOSURE:
        return CLOSED_THERE
    if why.reason and why.reason.startswith(SILENT):
        for_s = why.reason.removeprefix(SILENT)
        return f"{SIGNED_OFF}, which has heard nothing of this process{for_s}: it was stopped, or too busy"
    return f"closed by the other side: {why.reason or why.name}"
