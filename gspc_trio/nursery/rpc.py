"""One end of a connection: messages one way, and calls with answers, over whatever link carries them."""

from __future__ import annotations

import math
from typing import Any, Protocol

import trio

from gspc_trio.protocol.envelope import Call, Envelope
from gspc_trio.protocol.limits import DEFAULT_LIMITS, Limits
from gspc_trio.protocol.session import Identity, Phase, Session
from gspc_trio.protocol.signals import (
    Action,
    AnswerCall,
    Answered,
    CallAbandoned,
    CallFailed,
    CallNumbered,
    CallOut,
    Dead,
    Deliver,
    ItemsReceived,
    Lost,
    RefuseCall,
    Send,
)

CLOSED_HERE = "closed here"
CLOSED_THERE = "closed by the other side"


class PeerGone(Exception):
    """The connection is over; ``reason`` is one line for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RemoteError(Exception):
    """The other side refused a call: ``kind`` names the exception's type there, ``message`` is one line."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class Link(Protocol):
    """What carries a peer's messages to the other end."""

    def prepare(self, body: Any) -> Any:
        """Return the body of a call or an answer as ``put`` wants it, or raise EncodeError."""
        ...

    def put(self, item: Any) -> None:
        """Queue a message, or an envelope with a prepared body, for the other end; never blocks."""
        ...

    def taken(self) -> None:
        """The receiver has taken everything that was delivered."""
        ...

    def cut(self, reason: str) -> None:
        """End the connection at once; what is queued is lost."""
        ...

    async def flush(self) -> None:
        """Wait until what is queued has been sent, and say goodbye."""
        ...


class IncomingCall:
    """A call of the other side, to be answered exactly once, by any task, in any order.

    Attributes:
        body: the message.
        peer: who called.
    """

    __slots__ = ("_answered", "_call_id", "body", "peer")

    def __init__(self, body: Any, peer: Peer, call_id: int) -> None:
        self.body = body
        self.peer = peer
        self._call_id = call_id
        self._answered = False

    def __repr__(self) -> str:
        return f"IncomingCall({self.body!r})"

    def reply(self, message: Any) -> None:
        """Answer with a message; dropped if the caller is gone.

        Raises:
            RuntimeError: it was answered before.
            EncodeError: the message cannot travel; the call still waits for its answer.
        """
        self._answer(AnswerCall(self._call_id, self.peer.prepare(message)))

    def fail(self, error: Exception) -> None:
        """Refuse: the caller gets a :class:`RemoteError` with the type and the first line of the error.

        Raises:
            RuntimeError: it was answered before.
        """
        kind = error.kind if isinstance(error, RemoteError) else type(error).__name__
        message = next(iter(str(error).splitlines()), "") or kind
        self._answer(RefuseCall(self._call_id, kind, message))

    def _answer(self, event: AnswerCall | RefuseCall) -> None:
        if self._answered:
            raise RuntimeError(f"this call was answered before: {self.body!r}")
        self._answered = True
        self.peer.handle(event)


class _Waiting:
    """A call of ours and its answer."""

    __slots__ = ("answer", "event")

    def __init__(self) -> None:
        self.event = trio.Event()
        self.answer: Any = None


class Peer:
    """One end of a connection.

    Messages arrive in the order in which they were posted. Answers to calls reach their caller directly, so
    they may overtake messages that wait to be received. One task receives; do not call from it what only it
    could answer.

    Attributes:
        role, name: what the other end is and calls itself.
        remote: its address, for people.
        lost: set when the connection is over.
        reason: why it is over, or "".
    """

    def __init__(self, session: Session, link: Link, remote: str) -> None:
        self.role = session.peer_role
        self.name = session.peer_name
        self.instance = session.peer_instance
        self.remote = remote
        self.lost = trio.Event()
        self.reason = ""
        self._session = session
        self._link = link
        self._incoming: list[Any] = []
        self._arrived: trio.Event | None = None
        self._calls: dict[int, _Waiting] = {}

    def __repr__(self) -> str:
        state = f"gone: {self.reason}" if self.lost.is_set() else "open"
        return f"<Peer {self.role} {self.name!r} at {self.remote}, {state}>"

    def post(self, message: Any) -> None:
        """Queue a message; never blocks.

        After a loss it is dropped (the receiver learns of the loss). If the other end is so slow that too
        much waits already, the connection is dropped.

        Raises:
            EncodeError: the message cannot travel, or is too large.
        """
        if not self.reason:
            self._link.put(message)

    async def call(self, message: Any, timeout_s: float | None = None) -> Any:
        """Send a message and return its answer.

        Args:
            message: what to ask.
            timeout_s: seconds to wait for the answer, None for ever. The other side is not told when we give
                up.

        Raises:
            RemoteError: the other side refused.
            PeerGone: the connection is over, or ended before the answer came.
            trio.TooSlowError: no answer in time.
            EncodeError: the message cannot travel, or is too large.
        """
        if self.reason:
            await trio.lowlevel.checkpoint()
            raise PeerGone(self.reason)
        waiting = _Waiting()
        call_id = 0
        prepared = self._link.prepare(message)
        for action in self._session.handle(CallOut(prepared), trio.current_time()):
            if type(action) is CallNumbered:
                call_id = action.call_id
                self._calls[call_id] = waiting
            else:
                self._perform(action)
        try:
            with trio.fail_after(math.inf if timeout_s is None else timeout_s):
                await waiting.event.wait()
        finally:
            del self._calls[call_id]
            if not waiting.event.is_set():
                self.handle(CallAbandoned(call_id))
        if isinstance(waiting.answer, Exception):
            raise waiting.answer
        return waiting.answer

    async def receive(self) -> list[Any]:
        """Wait for messages and :class:`IncomingCall` objects; return all that have arrived, in order.

        Raises:
            PeerGone: the connection is over and everything that arrived before has been taken.
            trio.BusyResourceError: another task is receiving.
        """
        if self._arrived is not None:
            raise trio.BusyResourceError("another task receives from this peer already")
        if self._incoming or self.reason:
            await trio.lowlevel.checkpoint()
        else:
            self._arrived = trio.Event()
            try:
                await self._arrived.wait()
            finally:
                self._arrived = None
        if not self._incoming:
            raise PeerGone(self.reason)
        batch, self._incoming = self._incoming, []
        self._link.taken()
        return batch

    def drop(self, reason: str = CLOSED_HERE) -> None:
        """End the connection at once: what is queued is lost, both ends learn of it."""
        if not self.reason:
            self._incoming.clear()
            self.handle(Lost(reason))

    async def aclose(self) -> None:
        """Send what is queued, for at most ``flush_s`` of the limits, then end the connection."""
        try:
            if not self.reason:
                await self._link.flush()
            else:
                await trio.lowlevel.checkpoint()
        finally:
            self.drop()

    # For the links ----

    @property
    def waiting_items(self) -> int:
        """Number of delivered items that nobody has received yet."""
        return len(self._incoming)

    def handle(self, event: Any) -> None:
        """Feed the session, unless it is over, and carry out what it decides."""
        if self._session.phase is not Phase.OVER:
            for action in self._session.handle(event, trio.current_time()):
                self._perform(action)

    def prepare(self, body: Any) -> Any:
        """Return the body of an answer in the form in which it travels."""
        return body if self.reason else self._link.prepare(body)

    def deliver(self, message: Any) -> None:
        """Give one plain message to the receiver."""
        self._incoming.append(message)
        if self._arrived is not None:
            self._arrived.set()

    def _perform(self, action: Action) -> None:
        if isinstance(action, Deliver):
            for item in action.items:
                is_call = type(item) is Call
                self._incoming.append(IncomingCall(item.body, self, item.call_id) if is_call else item)
            if self._arrived is not None:
                self._arrived.set()
        elif isinstance(action, Send):
            self._link.put(action.envelope)
        elif isinstance(action, Answered):
            self._settle(action.call_id, action.body)
        elif isinstance(action, CallFailed):
            self._settle(action.call_id, RemoteError(action.kind, action.message))
        elif isinstance(action, Dead):
            self._over(action.reason)

    def _settle(self, call_id: int, answer: Any) -> None:
        waiting = self._calls[call_id]
        waiting.answer = answer
        waiting.event.set()

    def _over(self, reason: str) -> None:
        self.reason = reason or "unknown reason"
        self.lost.set()
        for waiting in self._calls.values():
            if not waiting.event.is_set():
                waiting.answer = PeerGone(self.reason)
                waiting.event.set()
        if self._arrived is not None:
            self._arrived.set()
        self._link.cut(self.reason)


class _MemoryLink:
    """Carries messages to a peer in the same process, by reference."""

    def __init__(self, limits: Limits) -> None:
        self.other: Peer
        self._items_max = limits.outbox_items_max

    def prepare(self, body: Any) -> Any:
        return body

    def put(self, item: Any) -> None:
        other = self.other
        if other.reason:
            return
        if isinstance(item, Envelope):
            other.handle(ItemsReceived([item]))
        elif other.waiting_items >= self._items_max:
            other.handle(Lost(f"{other.waiting_items} messages wait to be received, more than allowed"))
        else:
            other.deliver(item)

    def taken(self) -> None:
        """Nothing waits for this."""

    def cut(self, reason: str) -> None:
        self.other.handle(Lost(CLOSED_THERE if reason == CLOSED_HERE else reason))

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()


def memory_pair(
    role_a: str,
    name_a: str,
    role_b: str,
    name_b: str,
    nursery: trio.Nursery | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[Peer, Peer]:
    """Return the two ends of a connection in memory: by reference, without codec, else as over a network.

    Args:
        role_a, name_a: what the first end is; the second peer's ``role`` and ``name``.
        role_b, name_b: what the second end is; the first peer's ``role`` and ``name``.
        nursery: if given, the connection ends with it.
        limits: of both ends.
    """
    here = Identity(role_a, name_a, "", b"", b"", dialer=True)
    there = Identity(role_b, name_b, "", b"", b"", dialer=False)
    link_a, link_b = _MemoryLink(limits), _MemoryLink(limits)
    a = Peer(Session.opened(here, role_b, name_b, limits), link_a, "memory")
    b = Peer(Session.opened(there, role_a, name_a, limits), link_b, "memory")
    link_a.other, link_b.other = b, a
    if nursery is not None:
        nursery.start_soon(_end_with_scope, a)
    return a, b


async def _end_with_scope(peer: Peer) -> None:
    try:
        await peer.lost.wait()
    finally:
        peer.drop()
