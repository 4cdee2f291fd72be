"""Nobody gets in without the token, whatever of an honest conversation they have overheard."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.protocol import handshake as shake
from gspc_trio.protocol.limits import Limits
from gspc_trio.protocol.session import Phase, Session
from gspc_trio.protocol.signals import Dead, HandshakeReceived, Lost, Opened, SendHandshake
from tests.protocol.support import TOKEN, begin, dialer, feed, listener, open_pair, said


def conversation(one: Session, other: Session) -> tuple[list[Any], list[Any]]:
    """Let two sessions talk until both are open or over; return what each said and did."""
    of_one, of_other = begin(one), begin(other)
    to_other = [action.data for action in of_one if isinstance(action, SendHandshake)]
    to_one: list[bytes] = []
    shaking = {Phase.HELLO_SENT, Phase.AWAITS_HELLO, Phase.WELCOME_SENT}
    while (to_other and other.phase in shaking) or (to_one and one.phase in shaking):
        if to_other and other.phase in shaking:
            actions = feed(other, to_other.pop(0))
            of_other += actions
            to_one += [action.data for action in actions if isinstance(action, SendHandshake)]
        if to_one and one.phase in shaking:
            actions = feed(one, to_one.pop(0))
            of_one += actions
            to_other += [action.data for action in actions if isinstance(action, SendHandshake)]
    return of_one, of_other


def test_both_sides_learn_who_the_other_is() -> None:
    one, other = open_pair()
    assert (one.peer_role, one.peer_name, one.peer_instance) == ("rts", "main", "l")
    assert (other.peer_role, other.peer_name, other.peer_instance) == ("job", "j1", "d")


NO_RTS = "the dialer looks for the role 'rts', the listener is 'rif'"
NO_RIF = "the dialer looks for the role 'rif', the listener is 'rts'"
TWO_TO_ONE = "the dialer speaks versions 2 to 3, the listener version 1"
ONE_TO_FOUR = "the dialer speaks version 1, the listener version 4"


@pytest.mark.parametrize(
    ("one", "other", "kind", "reason"),
    [
        (dialer(token=b"x" * 32), listener(), "token", "dialer and listener have different tokens"),
        (dialer(expect="rif"), listener(), "role", NO_RIF),
        (dialer(), listener(expect="rif"), "role", "the dialer is 'job', the listener takes 'rif' only"),
        (dialer(version_min=2, version_max=3), listener(), "version", TWO_TO_ONE),
        (dialer(), listener(version_min=4, version_max=4), "version", ONE_TO_FOUR),
    ],
    ids=["token", "role of the listener", "role of the dialer", "newer dialer", "newer listener"],
)
def test_both_sides_get_the_same_distinct_reason(one: Any, other: Any, kind: str, reason: str) -> None:
    a, b = Session(one), Session(other)
    of_a, of_b = conversation(a, b)
    assert of_a[-1] == of_b[-1] == Dead(kind, reason)
    assert Opened not in {type(action) for action in of_b}
    assert a.phase is b.phase is Phase.OVER


def test_a_listener_of_another_role_that_does_not_mind_is_refused_by_the_dialer() -> None:
    """It has the token: one of ours, at an address that was somebody else's before."""
    session = Session(dialer(expect="rts"))
    told = said(begin(session))
    signed = shake.sign_welcome(1, "rif", "r1", b"l" * 32, "l", 5)
    welcome = shake.encode_welcome(signed, shake.prove(TOKEN, shake.LISTENER_LABEL, told, signed))
    assert feed(session, welcome)[-1] == Dead("role", NO_RTS)


def test_a_listener_that_chooses_a_version_not_offered_is_refused_by_the_dialer() -> None:
    session = Session(dialer())
    told = said(begin(session))
    signed = shake.sign_welcome(2, "rts", "main", b"l" * 32, "l", 5)
    welcome = shake.encode_welcome(signed, shake.prove(TOKEN, shake.LISTENER_LABEL, told, signed))
    reason = "the listener chose version 2, the dialer speaks version 1"
    assert feed(session, welcome)[-1] == Dead("version", reason)


def test_they_agree_on_the_highest_version_that_both_speak() -> None:
    one, other = Session(dialer(version_max=7)), Session(listener(version_max=5))
    of_one, of_other = conversation(one, other)
    assert of_one[-1] == Opened(5, "rts", "main", "l")
    assert of_other[-1] == Opened(5, "job", "j1", "d")


def test_a_mirrored_proof_is_wrong() -> None:
    """An attacker without the token sends the listener's own proof back to it."""
    honest, victim = Session(dialer()), Session(listener())
    hello = said(begin(honest))
    begin(victim)
    welcome = shake.decode_handshake(said(feed(victim, hello)), Limits())
    assert isinstance(welcome, shake.Welcome)
    actions = feed(victim, shake.encode_proof(welcome.proof))
    assert actions[-1] == Dead("token", "dialer and listener have different tokens")


def test_a_mirrored_conversation_is_out_of_turn() -> None:
    """A listener that sends back what the dialer says."""
    victim = Session(dialer())
    hello = said(begin(victim))
    assert feed(victim, hello)[-1] == Dead("protocol", "the other side sent a hello out of turn")


def test_a_replayed_conversation_fails_on_the_listeners_new_nonce() -> None:
    one, other = Session(dialer()), Session(listener())
    hello = said(begin(one))
    begin(other)
    proof = said(feed(one, said(feed(other, hello))))
    victim = Session(listener(nonce=b"n" * 32))
    begin(victim)
    feed(victim, hello)
    assert feed(victim, proof)[-1] == Dead("token", "dialer and listener have different tokens")


def test_a_replayed_welcome_fails_on_the_dialers_new_nonce() -> None:
    one, other = Session(dialer()), Session(listener())
    begin(other)
    welcome = said(feed(other, said(begin(one))))
    victim = Session(dialer(nonce=b"n" * 32))
    begin(victim)
    assert feed(victim, welcome)[-1] == Dead("token", "dialer and listener have different tokens")


def test_a_downgrade_on_the_way_is_found_out() -> None:
    """Somebody between them lowers the highest version in the hello."""
    one, other = Session(dialer(version_max=2)), Session(listener(version_max=2))
    fields = msgpack.unpackb(said(begin(one)))
    begin(other)
    fields[3] = 1
    welcome = said(feed(other, msgpack.packb(fields)))
    assert feed(one, welcome)[-1] == Dead("token", "dialer and listener have different tokens")


def test_a_changed_name_on_the_way_is_found_out() -> None:
    one, other = Session(dialer()), Session(listener())
    fields = msgpack.unpackb(said(begin(one)))
    begin(other)
    fields[5] = "j2"
    feed(other, msgpack.packb(fields))
    honest = Session(listener())
    begin(honest)
    welcome = said(feed(honest, said(begin(Session(dialer())))))
    proof = said(feed(one, welcome))
    assert feed(other, proof)[-1] == Dead("token", "dialer and listener have different tokens")


def test_fields_that_a_later_version_appends_are_ignored() -> None:
    one, other = Session(dialer()), Session(listener())
    hello = msgpack.packb([*msgpack.unpackb(said(begin(one))), "compression", 3])
    begin(other)
    assert isinstance(feed(other, hello)[0], SendHandshake)
    assert other.phase is Phase.WELCOME_SENT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\n",
        b"\xc1",
        b"\x91" * 4000,
        bytes(4097),
        msgpack.packb(["gspc-trio"]),
        msgpack.packb(["other", "hello"]),
        msgpack.packb(["gspc-trio", "greeting"]),
        msgpack.packb(["gspc-trio", "hello", 1, 1, "job", "j", b"n" * 32, "i", "rts"]),
        msgpack.packb(["gspc-trio", "hello", 1, 1, "job", "j", b"n" * 31, "i", "rts", 5]),
        msgpack.packb(["gspc-trio", "hello", 1, 1, "", "j", b"n" * 32, "i", "rts", 5]),
        msgpack.packb(["gspc-trio", "hello", "1", 1, "job", "j", b"n" * 32, "i", "rts", 5]),
        msgpack.packb(["gspc-trio", "hello", -1, 1, "job", "j", b"n" * 32, "i", "rts", 5]),
        msgpack.packb(["gspc-trio", "hello", 1, 1, "j" * 2000, "j", b"n" * 32, "i", "rts", 5]),
        msgpack.packb(["gspc-trio", "hello", 1, 1, ["job"], "j", b"n" * 32, "i", "rts", 5]),
        msgpack.packb(["gspc-trio", "welcome", b"", b""]),
        msgpack.packb(["gspc-trio", "welcome", msgpack.packb([1, 2]), b""]),
        msgpack.packb(["gspc-trio", "proof", b"x" * 32]),
        msgpack.packb(["gspc-trio", "proof", "text"]),
        msgpack.packb(["gspc-trio", ["hello"], 1]),
    ],
    ids=lambda data: data[10:40].hex(),
)
def test_a_malformed_first_message_ends_the_session_with_a_reason(data: bytes) -> None:
    session = Session(listener())
    begin(session)
    actions = feed(session, data)
    assert [type(action) for action in actions] == [SendHandshake, Dead]
    assert actions[-1].kind == "protocol"
    assert len(actions[-1].reason.splitlines()) == 1


def test_the_dialer_gives_the_listeners_reason_even_if_it_is_a_strange_one() -> None:
    session = Session(dialer())
    begin(session)
    refused = shake.encode_refused(shake.Refused("mood", "come back\nlater", 1, 1))
    assert feed(session, refused) == [Dead("protocol", "come back later")]


def test_a_handshake_that_takes_too_long_is_over() -> None:
    session = Session(listener(), Limits(handshake_s=5))
    begin(session, now=10)
    assert session.deadline() == 15
    assert session.handle(Tick(), 14.9) == []
    assert session.handle(Tick(), 15) == [Dead("silent", "no handshake within 5 s")]
    assert session.deadline() is None


def test_a_connection_lost_in_the_handshake_ends_it() -> None:
    session = Session(dialer())
    begin(session)
    assert session.handle(Lost("cut"), 0) == [Dead("lost", "cut")]


def test_handshake_messages_are_taken_in_the_handshake_only() -> None:
    fresh = Session(listener())
    one, _ = open_pair()
    for session in (fresh, one):
        with pytest.raises(IllegalEvent):
            session.handle(HandshakeReceived(b""), 0)


def test_the_token_is_not_in_what_is_said_or_shown() -> None:
    one, other = Session(dialer()), Session(listener())
    of_one, of_other = conversation(one, other)
    for action in [*of_one, *of_other]:
        assert not isinstance(action, SendHandshake) or TOKEN not in action.data
    assert repr(TOKEN)[2:10] not in repr(one.identity)


@settings(max_examples=200)
@given(st.data())
def test_nothing_but_the_true_conversation_opens_the_listener(data: st.DataObject) -> None:
    """Cut, repeat, reorder and change bytes of overheard conversations: the listener never opens."""
    one, other = Session(dialer()), Session(listener())
    hello = said(begin(one))
    begin(other)
    welcome = said(feed(other, hello))
    proof = said(feed(one, welcome))
    overheard = [hello, welcome, proof]
    victim = Session(listener(nonce=b"v" * 32))
    begin(victim)
    for _ in range(3):
        message = data.draw(st.sampled_from(overheard))
        change = data.draw(st.sampled_from(["whole", "cut", "flip", "mirror"]))
        if change == "cut":
            message = message[: data.draw(st.integers(0, len(message)))]
        elif change == "flip":
            place = data.draw(st.integers(0, len(message) - 1))
            message = (
                message[:place]
                + bytes((message[place] ^ data.draw(st.integers(1, 255)),))
                + message[place + 1 :]
            )
        actions = feed(victim, message)
        assert not any(isinstance(action, Opened) for action in actions)
        answers = [action.data for action in actions if isinstance(action, SendHandshake)]
        overheard += answers
        if change == "mirror" and answers and victim.phase is not Phase.OVER:
            answer = shake.decode_handshake(answers[0], Limits())
            if isinstance(answer, shake.Welcome):
                overheard.append(shake.encode_proof(answer.proof))
        if victim.phase is Phase.OVER:
            return
