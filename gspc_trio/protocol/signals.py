"""Events and actions of a session."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.machine import Tick
from gspc_trio.protocol.envelope import Envelope

# Events ----


class BeginSession(Struct, frozen=True):
    """The bytes of the other side can be reached; the handshake's time runs from now."""


class HandshakeReceived(Struct, frozen=True):
    """A message arrived before the session was open."""

    data: bytes


class ItemsReceived(Struct, frozen=True):
    """The messages and envelopes of a frame arrived."""

    items: list[object]


class Garbled(Struct, frozen=True):
    """What arrived could not be decoded."""

    reason: str


class Heard(Struct, frozen=True):
    """Some bytes arrived: the other side lives."""


class Sent(Struct, frozen=True):
    """Something was handed to the network."""


class CallOut(Struct, frozen=True):
    """Call the other side."""

    body: object


class CallAbandoned(Struct, frozen=True):
    """Nobody waits for the answer any more; it is dropped when it comes."""

    call_id: int


class AnswerCall(Struct, frozen=True):
    """Answer a call of the other side."""

    call_id: int
    body: object


class RefuseCall(Struct, frozen=True):
    """Refuse a call of the other side."""

    call_id: int
    kind: str
    message: str


class Lost(Struct, frozen=True):
    """The connection is over, for a reason seen outside."""

    reason: str


SessionEvent: TypeAlias = (
    BeginSession | HandshakeReceived | ItemsReceived | Garbled | Heard | Sent | CallOut | CallAbandoned
    | AnswerCall | RefuseCall | Lost | Tick
)  # fmt: skip


# Actions ----


class SendHandshake(Struct, frozen=True):
    """Send these bytes as one message."""

    data: bytes


class Opened(Struct, frozen=True):
    """Both sides have proved that they know the token; messages may flow."""

    version: int
    role: str
    name: str
    instance: str


class CallNumbered(Struct, frozen=True):
    """The number of the call that was just made."""

    call_id: int


class Send(Struct, frozen=True):
    """Queue this envelope for the other side."""

    envelope: Envelope


class Deliver(Struct, frozen=True):
    """Give these to the receiver, in order: messages, and calls as :class:`Call`."""

    items: list[object]


class CallAnswered(Struct, frozen=True):
    """Our call was answered."""

    call_id: int
    body: object


class CallFailed(Struct, frozen=True):
    """Our call was refused."""

    call_id: int
    kind: str
    message: str


class Dead(Struct, frozen=True):
    """The session is over; nothing more is sent or delivered.

    Attributes:
        kind: ``version``, ``token`` or ``role`` (the handshake), ``protocol`` (nonsense), ``silent`` or
            ``lost``.
        reason: one line for people.
    """

    kind: str
    reason: str


SessionAction: TypeAlias = (
    SendHandshake | Opened | CallNumbered | Send | Deliver | CallAnswered | CallFailed | Dead
)
