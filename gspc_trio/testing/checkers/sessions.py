"""Connections: who is let in, and when the other side may be held to be gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gspc_trio.protocol.handshake import BadHandshake, Hello, decode_handshake
from gspc_trio.protocol.limits import DEFAULT_LIMITS
from gspc_trio.protocol.session import SILENT, Phase, Session
from gspc_trio.protocol.signals import (
    BeginSession,
    Dead,
    HandshakeReceived,
    Opened,
    SessionAction,
    SessionEvent,
)
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.simulated.process import SimulatedProcess

SILENCING = frozenset({"clash", "crash", "outage", "partition", "pause", "regret"})
"""Kinds of faults after which somebody hears nothing of somebody."""


class Silence:
    """For how long somebody may hear nothing of somebody, whom a fault has silenced."""

    def __init__(self) -> None:
        self._until_s = 0.0

    def happens(self, kind: str, lasts_s: float, now: float) -> None:
        """A fault happens now."""
        if kind in SILENCING:
            notice_s = DEFAULT_LIMITS.lease_s + 2 * DEFAULT_LIMITS.heartbeat_s
            self._until_s = max(self._until_s, now + lasts_s + notice_s)
        elif kind == "jump" and now < self._until_s:
            self._until_s += lasts_s

    def explains(self, now: float) -> bool:
        """Whether somebody may be held to be gone now for his silence."""
        return now <= self._until_s


class Sessions:
    """All connections of a run.

    Args:
        is_silent: whether a fault explains that somebody is not heard at a time.
    """

    def __init__(self, is_silent: Callable[[float], bool]) -> None:
        self._is_silent = is_silent
        self._tokens: dict[bytes, bytes] = {}
        self._dialers: dict[Session, bytes] = {}

    def saw(
        self,
        process: SimulatedProcess,
        session: Session,
        event: SessionEvent,
        now: float,
        actions: Sequence[SessionAction],
    ) -> None:
        """A session took an event.

        Raises:
            Broken: somebody is let in who does not know the token, or held to be gone who is not.
        """
        if type(event) is BeginSession:
            self._tokens[session.identity.nonce] = session.identity.token
        elif type(event) is HandshakeReceived:
            self._shakes(session, event, actions)
        for action in actions:
            if type(action) is Dead:
                self._dialers.pop(session, None)
                self._check_end(process, session, action, now)

    def _shakes(self, session: Session, event: HandshakeReceived, actions: Sequence[SessionAction]) -> None:
        if not session.identity.dialer and session not in self._dialers:
            try:
                said = decode_handshake(event.data, session.limits)
            except BadHandshake:
                return
            if isinstance(said, Hello):
                self._dialers[session] = said.nonce
        if any(type(action) is Opened for action in actions) and not session.identity.dialer:
            nonce = self._dialers.pop(session)
            me = session.identity
            own = me.token_of(session.peer_role, session.peer_name) if me.token_of is not None else None
            if self._tokens.get(nonce) != (own or me.token):
                raise Broken(f"{session.identity.name} lets in {session.peer_name}, without the token")

    def _check_end(self, process: SimulatedProcess, session: Session, dead: Dead, now: float) -> None:
        if not session.peer_role or session.phase is not Phase.OVER:
            return
        if dead.kind == "silent" and dead.reason.startswith(SILENT) and not self._is_silent(now):
            what = f"{process.name} holds {session.peer_name} to be gone"
            raise Broken(f"{what}, and nothing has kept that from being heard")
