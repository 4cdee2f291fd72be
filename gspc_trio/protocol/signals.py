"""What a session is told (events) and what it asks for (actions); see ``protocol/session.py``."""

from __future__ import annotations

from typing import Any, TypeAlias

from gspc_trio.core.value import frozen
from gspc_trio.protocol.envelope import Envelope

# Events ----


@frozen
class Begin:
    """The bytes of the other side can be reached; the handshake's time runs from now."""


@frozen
class HandshakeReceived:
    """A message arrived before the session was open."""

    data: bytes


@frozen
class ItemsReceived:
    """The messages and envelopes of a frame arrived."""

    items: list[Any]


@frozen
class Garbled:
    """What arrived could not be decoded."""

    reason: str


@frozen
class Heard:
    """Some bytes arrived: the other side lives."""


@frozen
class Sent:
    """Something was handed to the network."""


@frozen
class CallOut:
    """Call the other side."""

    body: Any


@frozen
class CallAbandoned:
    """Nobody waits for the answer any more; it is dropped when it comes."""

    call_id: int


@frozen
class AnswerCall:
    """Answer a call of the other side."""

    call_id: int
    body: Any


@frozen
class RefuseCall:
    """Refuse a call of the other side."""

    call_id: int
    kind: str
    message: str


@frozen
class Lost:
    """The connection is over, for a reason seen outside."""

    reason: str


# Actions ----


@frozen
class SendHandshake:
    """Send these bytes as one message."""

    data: bytes


@frozen
class Opened:
    """Both sides have proved that they know the token; messages may flow."""

    version: int
    role: str
    name: str
    instance: str


@frozen
class CallNumbered:
    """The number of the call that was just made."""

    call_id: int


@frozen
class Send:
    """Queue this envelope for the other side."""

    envelope: Envelope


@frozen
class Deliver:
    """Give these to the receiver, in order: messages, and calls as :class:`Call`."""

    items: list[Any]


@frozen
class Answered:
    """Our call was answered."""

    call_id: int
    body: Any


@frozen
class CallFailed:
    """Our call was refused."""

    call_id: int
    kind: str
    message: str


@frozen
class Dead:
    """The session is over; nothing more is sent or delivered.

    Attributes:
        kind: ``version``, ``token`` or ``role`` (the handshake), ``protocol`` (nonsense), ``silent`` or
            ``lost``.
        reason: one line for people.
    """

    kind: str
    reason: str


Action: TypeAlias = SendHandshake | Opened | CallNumbered | Send | Deliver | Answered | CallFailed | Dead
