"""Two sessions and what they say to each other, without a network."""

from __future__ import annotations

from typing import Any

from gspc_trio.protocol.limits import DEFAULT_LIMITS, Limits
from gspc_trio.protocol.session import Identity, Session
from gspc_trio.protocol.signals import BeginSession, HandshakeReceived, Opened, SendHandshake

TOKEN = bytes(range(32))


def dialer(**changes: Any) -> Identity:
    """Return a dialer: a job that looks for an RTS."""
    fields: dict[str, Any] = {
        "role": "job",
        "name": "j1",
        "instance": "d",
        "token": TOKEN,
        "nonce": b"d" * 32,
        "dialer": True,
        "expect": "rts",
    }
    return Identity(**{**fields, **changes})


def listener(**changes: Any) -> Identity:
    """Return a listener: an RTS."""
    fields: dict[str, Any] = {
        "role": "rts",
        "name": "main",
        "instance": "l",
        "token": TOKEN,
        "nonce": b"l" * 32,
        "dialer": False,
    }
    return Identity(**{**fields, **changes})


def said(actions: list[Any]) -> bytes:
    """Return the one handshake message among the actions."""
    (data,) = [action.data for action in actions if isinstance(action, SendHandshake)]
    return bytes(data)


def feed(session: Session, data: bytes, now: float = 0.0) -> list[Any]:
    """Give a session a handshake message and check it."""
    actions = session.handle(HandshakeReceived(data), now)
    session.check()
    return actions


def begin(session: Session, now: float = 0.0) -> list[Any]:
    """Start a session."""
    actions = session.handle(BeginSession(), now)
    session.check()
    return actions


def open_pair(limits: Limits = DEFAULT_LIMITS, now: float = 0.0) -> tuple[Session, Session]:
    """Return a dialer and a listener that have finished the handshake."""
    one, other = Session(dialer(), limits), Session(listener(), limits)
    hello = said(begin(one, now))
    assert begin(other, now) == []
    welcome = said(feed(other, hello, now))
    proof = feed(one, welcome, now)
    assert proof[1:] == [Opened(1, "rts", "main", "l")]
    assert feed(other, said(proof), now) == [Opened(1, "job", "j1", "d")]
    return one, other
