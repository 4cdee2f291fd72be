"""Calls, credit, signs of life and the end of an open session."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.protocol.envelope import Beat, Call, Failure, Reply
from gspc_trio.protocol.limits import Limits
from gspc_trio.protocol.session import Session
from gspc_trio.protocol.signals import (
    AnswerCall,
    BeginSession,
    CallAbandoned,
    CallAnswered,
    CallFailed,
    CallNumbered,
    CallOut,
    Dead,
    Deliver,
    Garbled,
    Heard,
    ItemsReceived,
    Lost,
    RefuseCall,
    Send,
    Sent,
)
from tests.protocol.support import dialer, open_pair

FEW = Limits(calls_max=2, calls_waiting_max=2)


def do(session: Session, event: Any, now: float = 0.0) -> list[Any]:
    actions = session.handle(event, now)
    session.check()
    return actions


def test_messages_and_calls_are_delivered_in_order_and_beats_are_not() -> None:
    _, session = open_pair()
    items = ["a", Call(1, "question"), Beat(), "b"]
    assert do(session, ItemsReceived(items)) == [Deliver(["a", Call(1, "question"), "b"])]
    assert do(session, ItemsReceived([Beat()])) == []


def test_a_call_gets_its_answer() -> None:
    one, other = open_pair()
    assert do(one, CallOut("question")) == [CallNumbered(1), Send(Call(1, "question"))]
    assert do(other, ItemsReceived([Call(1, "question")])) == [Deliver([Call(1, "question")])]
    assert do(other, AnswerCall(1, "answer")) == [Send(Reply(1, "answer"))]
    assert do(one, ItemsReceived([Reply(1, "answer")])) == [CallAnswered(1, "answer")]


def test_a_refused_call_gets_its_reason() -> None:
    one, other = open_pair()
    do(one, CallOut("question"))
    do(other, ItemsReceived([Call(1, "question")]))
    assert do(other, RefuseCall(1, "ValueError", "no")) == [Send(Failure(1, "ValueError", "no"))]
    assert do(one, ItemsReceived([Failure(1, "ValueError", "no")])) == [CallFailed(1, "ValueError", "no")]


def test_calls_beyond_the_credit_wait_and_go_when_answers_come() -> None:
    one, _ = open_pair(FEW)
    do(one, CallOut("a"))
    do(one, CallOut("b"))
    assert do(one, CallOut("c")) == [CallNumbered(3)]
    assert do(one, CallOut("d")) == [CallNumbered(4)]
    with pytest.raises(IllegalEvent, match="make fewer at a time"):
        do(one, CallOut("e"))
    assert do(one, ItemsReceived([Reply(2, "B")])) == [CallAnswered(2, "B"), Send(Call(3, "c"))]


def test_an_abandoned_call_keeps_its_credit_until_its_answer_comes() -> None:
    one, _ = open_pair(FEW)
    do(one, CallOut("a"))
    do(one, CallOut("b"))
    do(one, CallOut("c"))
    assert do(one, CallAbandoned(1)) == []
    assert do(one, ItemsReceived([Reply(1, "A")])) == [Send(Call(3, "c"))]


def test_an_abandoned_call_that_still_waits_is_never_sent() -> None:
    one, _ = open_pair(FEW)
    for body in "abc":
        do(one, CallOut(body))
    assert do(one, CallAbandoned(3)) == []
    assert do(one, ItemsReceived([Reply(1, "A")])) == [CallAnswered(1, "A")]
    with pytest.raises(IllegalEvent):
        do(one, CallAbandoned(3))


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        (
            [Reply(1, "x")],
            "the other side sent an answer to the call 1, which was not made or had its answer",
        ),
        (
            [Failure(9, "E", "m")],
            "the other side sent an answer to the call 9, which was not made or had its answer",
        ),
        ([Call(1, "a"), Call(1, "a")], "the other side sent the call number 1 again"),
        ([Call(0, "a")], "the other side sent the call number 0 again"),
        ([Call(1, "a"), Call(2, "b"), Call(3, "c")], "the other side sent more than 2 calls at a time"),
    ],
)
def test_nonsense_ends_the_session(items: list[Any], reason: str) -> None:
    _, session = open_pair(FEW)
    assert do(session, ItemsReceived(items))[-1] == Dead("protocol", reason)


def test_an_undecodable_frame_ends_the_session() -> None:
    _, session = open_pair()
    assert do(session, Garbled("a text frame")) == [Dead("protocol", "the other side sent a text frame")]


def test_a_second_answer_is_our_own_error_and_changes_nothing() -> None:
    _, session = open_pair()
    do(session, ItemsReceived([Call(1, "a")]))
    do(session, AnswerCall(1, "b"))
    for event in (AnswerCall(1, "b"), RefuseCall(1, "E", "m"), AnswerCall(5, "x")):
        with pytest.raises(IllegalEvent):
            do(session, event)


def test_a_heartbeat_is_sent_only_when_nothing_else_was() -> None:
    one, _ = open_pair(now=100.0)
    assert one.deadline() == 102.0
    do(one, Sent(), 101.0)
    do(one, Heard(), 101.0)
    assert one.deadline() == 103.0
    assert do(one, Tick(), 102.5) == []
    assert do(one, Tick(), 103.0) == [Send(Beat())]
    assert one.deadline() == 105.0


def test_silence_for_a_lease_is_death() -> None:
    one, _ = open_pair(now=100.0)
    do(one, Heard(), 103.0)
    for now in (102.0, 104.0, 106.0):
        assert do(one, Tick(), now) == [Send(Beat())]
    do(one, Sent(), 107.5)
    assert one.deadline() == 109.0
    assert do(one, Tick(), 109.0) == [Dead("silent", "nothing heard for 6 s")]
    assert one.deadline() is None


def test_who_is_allowed_more_silence_than_a_lease_is_gone_after_that() -> None:
    one, _ = open_pair(now=100.0)
    one.lease_s = 7.0
    for now in (102.0, 104.0, 106.0):
        assert do(one, Tick(), now) == [Send(Beat())]
    assert one.deadline() == 107.0
    assert do(one, Tick(), 107.0) == [Dead("silent", "nothing heard for 7 s")]


def test_who_was_stopped_itself_looks_again_before_it_calls_the_other_dead() -> None:
    one, _ = open_pair(now=100.0)
    assert do(one, Tick(), 200.0) == [Send(Beat())]
    assert one.deadline() == 202.0
    again = Heard()
    do(one, again, 200.1)
    assert do(one, Tick(), 202.0) == [Send(Beat())]
    assert do(one, Tick(), 204.0) == [Send(Beat())]
    assert do(one, Tick(), 206.1) == [Dead("silent", "nothing heard for 6 s")]


def test_who_was_stopped_for_little_more_than_the_lease_knows_that_too() -> None:
    """By the heartbeat that it did not send in time."""
    one, _ = open_pair(now=100.0)
    assert do(one, Tick(), 102.0) == [Send(Beat())]
    assert do(one, Tick(), 107.0) == [Send(Beat())]
    assert one.deadline() == 109.0
    assert do(one, Tick(), 109.0) == [Dead("silent", "nothing heard for 6 s")]


def test_who_was_stopped_while_it_sent_knows_that_too() -> None:
    """What it was sending goes out before it looks at the clock."""
    one, _ = open_pair(now=100.0)
    do(one, Sent(), 107.0)
    assert do(one, Tick(), 107.0) == []
    assert one.deadline() == 109.0
    assert do(one, Tick(), 109.0) == [Dead("silent", "nothing heard for 6 s")]


def test_a_session_in_one_process_needs_no_sign_of_life() -> None:
    session = Session.opened(dialer(), "rts", "main")
    assert session.deadline() is None
    assert do(session, Tick(), 1e9) == []
    assert do(session, CallOut("a")) == [CallNumbered(1), Send(Call(1, "a"))]


def test_once_over_nothing_is_kept_and_only_ticks_are_taken() -> None:
    one, _ = open_pair()
    do(one, CallOut("a"))
    do(one, ItemsReceived([Call(1, "b")]))
    assert do(one, Lost("cut")) == [Dead("lost", "cut")]
    assert do(one, Tick(), 50.0) == []
    events = [Lost("again"), CallOut("a"), CallAbandoned(1), AnswerCall(1, "b"), ItemsReceived(["a"])]
    for event in [*events, Garbled("x"), BeginSession()]:
        with pytest.raises(IllegalEvent):
            do(one, event)


def test_an_unknown_event_is_illegal() -> None:
    one, _ = open_pair()
    with pytest.raises(IllegalEvent, match="str is no event of a session"):
        one.handle("hello", 0)
