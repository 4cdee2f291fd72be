"""The machine of one connection: who the other side is, calls and their credit, signs of life.

It sees handshake bytes, decoded items and the time, and never a socket; ``nursery.connections`` has its
shell. What a peer sends can be wrong in any way: that ends in :class:`Dead`, never in an exception.
:class:`IllegalEvent` means that our own shell has erred.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import ClassVar

from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles
from gspc_trio.protocol import handshake as shake
from gspc_trio.protocol.calls import Calls
from gspc_trio.protocol.envelope import ENVELOPE_TYPES, Beat, Call, Failure, Reply
from gspc_trio.protocol.handshake import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN
from gspc_trio.protocol.hidden import HidesFields
from gspc_trio.protocol.limits import DEFAULT_LIMITS, Limits
from gspc_trio.protocol.signals import (
    AnswerCall,
    BeginSession,
    CallAbandoned,
    CallNumbered,
    CallOut,
    Dead,
    Deliver,
    Garbled,
    HandshakeReceived,
    Heard,
    ItemsReceived,
    Lost,
    Opened,
    RefuseCall,
    Send,
    SendHandshake,
    Sent,
    SessionAction,
    SessionEvent,
)


class Phase(Enum):
    """Where a session is: a dialer goes by HELLO_SENT, a listener by AWAITS_HELLO and WELCOME_SENT."""

    NEW = "new"
    HELLO_SENT = "hello sent"
    """A dialer has said who it is; the listener's welcome and proof are awaited."""
    AWAITS_HELLO = "awaits hello"
    """A listener waits for a dialer to say who it is."""
    WELCOME_SENT = "welcome sent"
    """A listener has proved that it knows the token; the dialer's proof is awaited."""
    OPEN = "open"
    """Both sides have proved it; or both are in one process and need not."""
    OVER = "over"
    """Refused, lost, silent for too long, or wrong."""


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.NEW: frozenset({Phase.HELLO_SENT, Phase.AWAITS_HELLO, Phase.OPEN, Phase.OVER}),
    Phase.HELLO_SENT: frozenset({Phase.OPEN, Phase.OVER}),
    Phase.AWAITS_HELLO: frozenset({Phase.WELCOME_SENT, Phase.OVER}),
    Phase.WELCOME_SENT: frozenset({Phase.OPEN, Phase.OVER}),
    Phase.OPEN: frozenset({Phase.OVER}),
    Phase.OVER: frozenset(),
}
"""Where a session may go from where it is."""

SILENT = "nothing heard"
"""Begins the reason of a session that ends since the other side is silent."""

_SHAKING = frozenset({Phase.HELLO_SENT, Phase.AWAITS_HELLO, Phase.WELCOME_SENT})


class Identity(HidesFields, frozen=True):
    """What one side is and wants.

    Attributes:
        role, name, instance: what it says of itself.
        token: the shared secret.
        nonce: fresh random bytes, ``handshake.NONCE_BYTES`` of them.
        dialer: whether it dials; the other side listens.
        expect: role that the other side must have, or "" for any.
        version_min, version_max: what it speaks.
        token_of: role and name of a dialer -> the secret that it has to know; None for the shared one.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"token", "nonce", "token_of"})

    role: str
    name: str
    instance: str
    token: bytes
    nonce: bytes
    dialer: bool
    expect: str = ""
    version_min: int = PROTOCOL_VERSION_MIN
    version_max: int = PROTOCOL_VERSION
    token_of: Callable[[str, str], bytes | None] | None = None


class Session(MachineBase[SessionEvent, SessionAction]):
    """One side of a connection.

    Its peer and its link feed it, not :func:`~gspc_trio.nursery.scopes.drive.drive`: a call needs its number
    at once, the two ends of a connection in memory have no task of their own, and the link tells the time
    when nothing else happens.

    Args:
        identity: of this side.
        limits: of this side; heartbeats come into play once the session is open.

    Attributes:
        lease_s: silence after which the other side counts as gone: that of the limits, or more.
    """

    noun = "a session"

    def __init__(self, identity: Identity, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__()
        self.identity = identity
        self.limits = limits
        self.lease_s: float = limits.lease_s
        self.phase: Phase = Phase.NEW
        self.peer_role: str = ""
        self.peer_name: str = ""
        self.peer_instance: str = ""
        self.version: int = 0
        self._token = identity.token
        self._hello = b""
        self._welcome_signed = b""
        self._deadline_s = 0.0
        self._heard_s = 0.0
        self._sent_s = 0.0
        self.calls: Calls = Calls(limits)

    @classmethod
    def opened(
        cls, identity: Identity, peer_role: str, peer_name: str, limits: Limits = DEFAULT_LIMITS
    ) -> Session:
        """Return a session that needs no handshake and no heartbeat: both ends are in one process."""
        session = cls(identity, limits)
        session._move(Phase.OPEN)
        session.peer_role, session.peer_name = peer_role, peer_name
        session.version = identity.version_max
        session.calls.credit = limits.calls_max
        session._heard_s = session._sent_s = float("inf")
        return session

    # The contract of a machine ----

    def deadline(self) -> float | None:
        """Return when the handshake ends, a heartbeat is due or the lease ends, whichever is next."""
        if self.phase in _SHAKING:
            return self._deadline_s
        if self.phase is not Phase.OPEN or self._heard_s == float("inf"):
            return None
        return min(self._sent_s + self.limits.heartbeat_s, self._heard_s + self.lease_s)

    def check(self) -> None:
        """Assert every invariant: those of the calls, and none of these outside of an open session."""
        self.calls.check()
        if self.phase is not Phase.OPEN:
            assert self.calls.is_empty, "calls outside of an open session"
        else:
            assert self.peer_role, "open, but nobody knows to whom"
            assert self.identity.version_min <= self.version <= self.identity.version_max

    # Handshake ----

    @handles(BeginSession)
    def _begin(self, _: BeginSession) -> None:
        self._need(Phase.NEW)
        self._deadline_s = self.now + self.limits.handshake_s
        me = self.identity
        if not me.dialer:
            self._move(Phase.AWAITS_HELLO)
            return
        self._move(Phase.HELLO_SENT)
        hello = shake.Hello(
            version_min=me.version_min,
            version_max=me.version_max,
            role=me.role,
            name=me.name,
            nonce=me.nonce,
            instance=me.instance,
            expect=me.expect,
            call_credit=self.limits.calls_max,
        )
        self._hello = shake.encode_hello(hello)
        self.actions.append(SendHandshake(self._hello))

    @handles(HandshakeReceived)
    def _handshake_received(self, event: HandshakeReceived) -> None:
        if self.phase not in _SHAKING:
            raise IllegalEvent(f"no handshake message is awaited: {self.phase.value}")
        try:
            message = shake.decode_handshake(event.data, self.limits)
        except shake.BadHandshake as error:
            self._refuse("protocol", f"the other side sent {error}")
            return
        if type(message) is shake.Refused:
            self._refused(message)
        elif self.phase is Phase.AWAITS_HELLO and type(message) is shake.Hello:
            self._take_hello(message, event.data)
        elif self.phase is Phase.HELLO_SENT and type(message) is shake.Welcome:
            self._take_welcome(message)
        elif self.phase is Phase.WELCOME_SENT and type(message) is shake.Proof:
            self._take_proof(message)
        else:
            self._refuse("protocol", f"the other side sent a {type(message).__name__.lower()} out of turn")

    def _take_hello(self, hello: shake.Hello, data: bytes) -> None:
        me = self.identity
        version = min(me.version_max, hello.version_max)
        if version < me.version_min or version < hello.version_min:
            theirs = _versions(hello.version_min, hello.version_max)
            mine = _versions(me.version_min, me.version_max)
            self._refuse("version", f"the dialer speaks {theirs}, the listener {mine}")
            return
        if hello.expect and hello.expect != me.role:
            self._refuse(
                "role", f"the dialer looks for the role {hello.expect!r}, the listener is {me.role!r}"
            )
            return
        if me.expect and hello.role != me.expect:
            self._refuse("role", f"the dialer is {hello.role!r}, the listener takes {me.expect!r} only")
            return
        if not hello.role or len(hello.nonce) != shake.NONCE_BYTES:
            self._refuse("protocol", "the dialer gave no role or a nonce of a wrong length")
            return
        if me.token_of is not None:
            own = me.token_of(hello.role, hello.name)
            self._token = me.token if own is None else own
        self._hello = data
        self.version = version
        self._remember(hello.role, hello.name, hello.instance, hello.call_credit)
        self._welcome_signed = shake.sign_welcome(
            version, me.role, me.name, me.nonce, me.instance, self.limits.calls_max
        )
        self._move(Phase.WELCOME_SENT)
        proof = shake.prove(self._token, shake.LISTENER_LABEL, data, self._welcome_signed)
        self.actions.append(SendHandshake(shake.encode_welcome(self._welcome_signed, proof)))

    def _take_welcome(self, welcome: shake.Welcome) -> None:
        me = self.identity
        if not shake.proof_holds(me.token, shake.LISTENER_LABEL, self._hello, welcome.signed, welcome.proof):
            self._refuse("token", "dialer and listener have different tokens")
            return
        if not me.version_min <= welcome.version <= me.version_max:
            mine = _versions(me.version_min, me.version_max)
            self._refuse("version", f"the listener chose version {welcome.version}, the dialer speaks {mine}")
            return
        if me.expect and welcome.role != me.expect:
            self._refuse(
                "role", f"the dialer looks for the role {me.expect!r}, the listener is {welcome.role!r}"
            )
            return
        self.version = welcome.version
        self._remember(welcome.role, welcome.name, welcome.instance, welcome.call_credit)
        proof = shake.prove(me.token, shake.DIALER_LABEL, self._hello, welcome.signed)
        self.actions.append(SendHandshake(shake.encode_proof(proof)))
        self._open()

    def _take_proof(self, proof: shake.Proof) -> None:
        if not shake.proof_holds(
            self._token, shake.DIALER_LABEL, self._hello, self._welcome_signed, proof.proof
        ):
            self._refuse("token", "dialer and listener have different tokens")
            return
        self._open()

    def _remember(self, role: str, name: str, instance: str, credit: int) -> None:
        self.peer_role, self.peer_name, self.peer_instance = role, name, instance
        self.calls.credit = credit

    def _open(self) -> None:
        self._move(Phase.OPEN)
        self._heard_s = self._sent_s = self.now
        self.actions.append(Opened(self.version, self.peer_role, self.peer_name, self.peer_instance))

    def _refuse(self, kind: str, reason: str) -> None:
        """End the handshake and tell the other side why."""
        me = self.identity
        said = shake.encode_refused(shake.Refused(kind, reason, me.version_min, me.version_max))
        self.actions.append(SendHandshake(said))
        self._end(kind, reason)

    def _refused(self, message: shake.Refused) -> None:
        kind = message.kind if message.kind in ("version", "token", "role") else "protocol"
        reason = " ".join(message.message.split()) or "the other side refused without a reason"
        self._end(kind, reason)

    # The open session ----

    @handles(ItemsReceived)
    def _items_received(self, event: ItemsReceived) -> None:
        self._need(Phase.OPEN)
        if self.now > self._heard_s:
            self._heard_s = self.now
        items, actions = event.items, self.actions
        if items and ENVELOPE_TYPES.isdisjoint(map(type, items)):
            actions.append(Deliver(items))
            return
        deliver: list[object] = []
        for item in items:
            wrong = ""
            if type(item) is Call:
                wrong = self.calls.take_call(item)
                deliver.append(item)
            elif type(item) is Reply or type(item) is Failure:
                wrong = self.calls.take_answer(item, actions)
            elif type(item) is not Beat:
                deliver.append(item)
            if wrong:
                self._end("protocol", f"the other side sent {wrong}")
                return
        if deliver:
            actions.append(Deliver(deliver))

    @handles(Garbled)
    def _garbled(self, event: Garbled) -> None:
        if self.phase in (Phase.NEW, Phase.OVER):
            raise IllegalEvent(f"nothing can have arrived: {self.phase.value}")
        self._end("protocol", f"the other side sent {event.reason}")

    @handles(Heard)
    def _heard(self, _: Heard) -> None:
        if self.now > self._heard_s:
            self._heard_s = self.now

    @handles(Sent)
    def _sent(self, _: Sent) -> None:
        self._notice_stop()
        if self.now > self._sent_s:
            self._sent_s = self.now

    # Calls ----

    @handles(CallOut)
    def _call_out(self, event: CallOut) -> None:
        self._need(Phase.OPEN)
        call, may_go = self.calls.make(event.body)
        self.actions.append(CallNumbered(call.call_id))
        if may_go:
            self.actions.append(Send(call))

    @handles(CallAbandoned)
    def _call_abandoned(self, event: CallAbandoned) -> None:
        self._need(Phase.OPEN)
        self.calls.abandon(event.call_id)

    @handles(AnswerCall)
    def _answer_call(self, event: AnswerCall) -> None:
        self._need(Phase.OPEN)
        self.calls.answer(event.call_id)
        self.actions.append(Send(Reply(event.call_id, event.body)))

    @handles(RefuseCall)
    def _refuse_call(self, event: RefuseCall) -> None:
        self._need(Phase.OPEN)
        self.calls.answer(event.call_id)
        self.actions.append(Send(Failure(event.call_id, event.kind, event.message)))

    # The end ----

    @handles(Lost)
    def _lost(self, event: Lost) -> None:
        if self.phase is Phase.OVER:
            raise IllegalEvent("the session is over already")
        self._end("lost", event.reason)

    @handles(Tick)
    def _tick(self, _: Tick) -> None:
        now, limits = self.now, self.limits
        if self.phase in _SHAKING and now >= self._deadline_s:
            self._end("silent", f"no handshake within {limits.handshake_s:g} s")
        elif self.phase is not Phase.OPEN:
            pass
        elif not self._notice_stop() and now >= self._heard_s + self.lease_s:
            self._end("silent", f"{SILENT} for {self.lease_s:g} s")
        elif now >= self._sent_s + limits.heartbeat_s:
            self._sent_s = now
            self.actions.append(Send(Beat()))

    def _notice_stop(self) -> bool:
        """Return whether we were stopped ourselves just now, and have not read what came meanwhile.

        Then the other side is held to be gone a heartbeat later at the earliest.
        """
        limits = self.limits
        late_s = self.now - limits.heartbeat_s
        if late_s <= self._heard_s + self.lease_s and late_s <= self._sent_s + limits.heartbeat_s:
            return False
        self._heard_s = max(self._heard_s, self.now - self.lease_s + limits.heartbeat_s)
        return True

    def _end(self, kind: str, reason: str) -> None:
        self._move(Phase.OVER)
        self.calls.clear()
        self.actions.append(Dead(kind, reason))

    def _move(self, phase: Phase) -> None:
        assert phase in TRANSITIONS[self.phase], f"from {self.phase.value} to {phase.value}"
        self.phase = phase

    def _need(self, phase: Phase) -> None:
        if self.phase is not phase:
            raise IllegalEvent(f"the session is not {phase.value} but {self.phase.value}")


def _versions(first: int, last: int) -> str:
    return f"version {first}" if first == last else f"versions {first} to {last}"
