"""One end of a connection: messages one way, and calls with answers, over whatever link carries them."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, overload

import trio

from gspc_trio.core.messages import AnswerT, Question
from gspc_trio.protocol.envelope import Call
from gspc_trio.protocol.session import Phase, Session
from gspc_trio.protocol.signals import (
    AnswerCall,
    CallAbandoned,
    CallAnswered,
    CallFailed,
    CallNumbered,
    CallOut,
    Dead,
    Deliver,
    Lost,
    RefuseCall,
    Send,
    SessionAction,
    SessionEvent,
)

log: logging.Logger = logging.getLogger(__name__)

CLOSED_HERE = "closed here"
CLOSED_THERE = "closed by the other side"
SIGNED_OFF = "signed off by the other side"
"""Begins the reason when it is the other side that has heard nothing for too long."""

ITEMS_AT_ONCE = 128
"""What one :meth:`Peer.receive` returns at most."""


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

    def prepare(self, body: object) -> object:
        """Return the body of an answer as ``put`` wants it, or raise EncodeError."""
        ...

    def prepare_question(self, body: object) -> object:
        """Return the body of a call as ``put`` wants it, or raise EncodeError, also for a wrong type."""
        ...

    def put(self, item: object) -> None:
        """Queue a message, or an envelope with a prepared body, for the other end; never blocks."""
        ...

    def taken(self) -> None:
        """The receiver has taken everything that was delivered."""
        ...

    def cut(self, reason: str) -> None:
        """End the connection at once; what is queued is lost."""
        ...

    async def sent(self) -> None:
        """Wait until what is queued now has been sent, or the connection is over."""
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

    def __init__(self, body: object, peer: Peer, call_id: int) -> None:
        self.body: object = body
        self.peer: Peer = peer
        self._call_id = call_id
        self._answered = False

    def __repr__(self) -> str:
        return f"IncomingCall({self.body!r})"

    def reply(self, message: object) -> None:
        """Answer with a message; dropped if the caller is gone.

        Raises:
            RuntimeError: it was answered before.
            EncodeError: the message cannot travel; the call still waits for its answer.
        """
        self._answer(AnswerCall(self._call_id, self.peer.prepare(message)))

    def fail(self, error: BaseException, where: str = "") -> None:
        """Refuse: the caller gets a :class:`RemoteError` with the type and the first line of the error.

        Args:
            error: why.
            where: it came from, said after the line; "": that is not said.

        Raises:
            RuntimeError: it was answered before.
        """
        kind = error.kind if isinstance(error, RemoteError) else type(error).__name__
        try:
            message = next(iter(str(error).splitlines()), "") or kind
        except Exception:  # an exception of the user's may not be able to say what it means
            message = kind
        self._answer(RefuseCall(self._call_id, kind, f"{message} ({where})" if where else message))

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
        self.role: str = session.peer_role
        self.name: str = session.peer_name
        self.instance: str = session.peer_instance
        self.remote = remote
        self.lost: trio.Event = trio.Event()
        self.reason: str = ""
        self._session = session
        self._link = link
        self._incoming: list[object] = []
        self._arrived: trio.Event | None = None
        self._take: Callable[[object], None] | None = None
        self._taking = False
        self._dropped = False
        self._failure: BaseException | None = None
        self._calls: dict[int, _Waiting] = {}

    def __repr__(self) -> str:
        state = f"gone: {self.reason}" if self.lost.is_set() else "open"
        return f"<Peer {self.role} {self.name!r} at {self.remote}, {state}>"

    def post(self, message: object) -> None:
        """Queue a message; never blocks.

        After a loss it is dropped (the receiver learns of the loss). If the other end is so slow that too
        much waits already, the connection is dropped.

        Raises:
            EncodeError: the message cannot travel, or is too large.
        """
        if not self.reason:
            self._link.put(message)

    async def sent(self) -> None:
        """Wait until all that was queued before has been sent, or the connection is over."""
        if not self.reason:
            await self._link.sent()

    @overload
    async def call(self, message: Question[AnswerT], timeout_s: float | None = None) -> AnswerT: ...

    @overload
    async def call(self, message: object, timeout_s: float | None = None) -> Any: ...

    async def call(self, message: object, timeout_s: float | None = None) -> Any:
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
        prepared = self._link.prepare_question(message)
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

    async def listen(self, take: Callable[[object], None]) -> None:
        """Have ``take`` called with each message and :class:`IncomingCall`, as soon as it is there.

        It is called from the task that brings the message, or from the sender's own in memory, so that no
        task has to be woken. What it raises is raised here, and ends this.

        Raises:
            PeerGone: the connection is over and everything that arrived before has been taken.
            trio.BusyResourceError: another task is receiving.
        """
        if self._arrived is not None:
            raise trio.BusyResourceError("another task receives from this peer already")
        self._arrived, self._take = trio.Event(), take
        try:
            self._hand_over()
            if self.reason or self._failure is not None:
                await trio.lowlevel.checkpoint()
            else:
                await self._arrived.wait()
        finally:
            self._arrived = self._take = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        raise PeerGone(self.reason)

    def _hand_over(self) -> None:
        """Give what has arrived to the one who listens, unless that is being done already."""
        if self._taking or self._take is None:
            return
        self._taking = True
        try:
            while self._incoming and self._failure is None and self._take is not None:
                batch, self._incoming = self._incoming, []
                for item in batch:
                    if self._dropped:
                        return
                    self._take(item)
                self._link.taken()
        except BaseException as error:
            self._failure = error
        finally:
            self._taking = False
        if self._failure is not None and self._arrived is not None:
            self._arrived.set()

    async def receive(self) -> list[object]:
        """Wait for messages and :class:`IncomingCall` objects; return what has arrived, in order.

        That is no more than :data:`ITEMS_AT_ONCE`: so what is answered to the first of many is on its way
        while the others are dealt with.

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
        batch, self._incoming = self._incoming[:ITEMS_AT_ONCE], self._incoming[ITEMS_AT_ONCE:]
        if not self._incoming:
            self._link.taken()
        return batch

    def allow_silence(self, seconds: float) -> None:
        """Hold the other end to be gone only when it was silent for so long: the kernel tells of its end."""
        self._session.lease_s = max(self._session.lease_s, seconds)

    def drop(self, reason: str = CLOSED_HERE) -> None:
        """End the connection at once: what is queued is lost, both ends learn of it."""
        if not self.reason:
            self._dropped = True
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

    def is_held_by_another(self, newcomer: Peer) -> bool:
        """Return whether this connection is there, and who says now to be the same is another process."""
        return not self.reason and self.instance != newcomer.instance

    # For the links ----

    @property
    def waiting_items(self) -> int:
        """Number of delivered items that nobody has received yet."""
        return len(self._incoming)

    def handle(self, event: SessionEvent) -> None:
        """Feed the session, unless it is over, and carry out what it decides."""
        if self._session.phase is not Phase.OVER:
            for action in self._session.handle(event, trio.current_time()):
                self._perform(action)

    def prepare(self, body: object) -> object:
        """Return the body of an answer in the form in which it travels."""
        return body if self.reason else self._link.prepare(body)

    def deliver(self, message: object) -> None:
        """Give one plain message to the receiver."""
        self._incoming.append(message)
        self._tell()

    def _tell(self) -> None:
        """Something has arrived."""
        if self._take is not None:
            self._hand_over()
        elif self._arrived is not None:
            self._arrived.set()

    def _perform(self, action: SessionAction) -> None:
        if isinstance(action, Deliver):
            items = action.items
            if Call in map(type, items):
                items = [
                    IncomingCall(item.body, self, item.call_id) if type(item) is Call else item
                    for item in items
                ]
            self._incoming.extend(items)
            self._tell()
        elif isinstance(action, Send):
            self._link.put(action.envelope)
        elif isinstance(action, CallAnswered):
            self._settle(action.call_id, action.body)
        elif isinstance(action, CallFailed):
            self._settle(action.call_id, RemoteError(action.kind, action.message))
        elif isinstance(action, Dead):
            reason = _printable(action.reason)
            if action.kind == "protocol":
                _log_end(self, reason)
            self._over(reason)

    def _settle(self, call_id: int, answer: object) -> None:
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


def drop_offender(peer: Peer, reason: str) -> None:
    """End the connection of a peer that said what it must not say."""
    if not peer.reason:
        reason = _printable(reason)
        _log_end(peer, reason)
        peer.drop(reason)


def _printable(text: str) -> str:
    """Return a text that may have words of the other side in it such that any log takes it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _log_end(peer: Peer, reason: str) -> None:
    log.warning("connection of %s %s at %s ended: %s", peer.role, peer.name, peer.remote, reason)


Handler: TypeAlias = Callable[[Peer], Awaitable[None]]
"""Serves the other end of a connection."""


async def handle_until_gone(handler: Handler, peer: Peer) -> None:
    """Run a handler; the end of its connection is no error."""
    try:
        await handler(peer)
    except PeerGone:
        pass
    except BaseExceptionGroup as group:
        _, others = group.split(PeerGone)
        if others is not None:
            raise others from None
    finally:
        await peer.aclose()
