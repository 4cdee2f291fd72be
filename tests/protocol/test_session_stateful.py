"""Two sessions and a network that delays: calls are answered once, order and credit are kept."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.protocol.envelope import Call
from gspc_trio.protocol.limits import Limits
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
    ItemsReceived,
    Lost,
    RefuseCall,
    Send,
    Sent,
)
from tests.protocol.support import open_pair

LIMITS = Limits(calls_max=3, calls_waiting_max=4)
SIDES = st.sampled_from((0, 1))


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.sessions = open_pair(LIMITS)
        self.lines: tuple[list[Any], list[Any]] = ([], [])  # on their way to each side
        self.asked: tuple[dict[int, Any], dict[int, Any]] = (
            {},
            {},
        )  # calls of each side whose answer is awaited
        self.to_answer: tuple[list[Call], list[Call]] = ([], [])
        self.posted: tuple[list[int], list[int]] = ([], [])
        self.got: tuple[list[int], list[int]] = ([], [])
        self.count = 0

    def feed(self, side: int, event: Any) -> list[Any]:
        session: Session = self.sessions[side]
        actions = session.handle(event, self.now)
        for action in actions:
            if isinstance(action, Send):
                self.lines[1 - side].append(action.envelope)
            elif isinstance(action, Deliver):
                self.got[side].extend(item for item in action.items if isinstance(item, int))
                self.to_answer[side].extend(item for item in action.items if isinstance(item, Call))
            elif isinstance(action, CallAnswered):
                assert self.asked[side].pop(action.call_id) == action.body
            elif isinstance(action, CallFailed):
                assert self.asked[side].pop(action.call_id) == action.message
        return actions

    def over(self, side: int) -> bool:
        return self.sessions[side].phase is Phase.OVER

    @rule(side=SIDES)
    def post(self, side: int) -> None:
        if not self.over(side):
            self.count += 1
            self.posted[side].append(self.count)
            self.lines[1 - side].append(self.count)

    @rule(side=SIDES)
    def call(self, side: int) -> None:
        if self.over(side):
            return
        self.count += 1
        try:
            actions = self.feed(side, CallOut(f"text {self.count}"))
        except IllegalEvent:
            assert len(self.asked[side]) >= LIMITS.calls_waiting_max
            return
        assert isinstance(actions[0], CallNumbered)
        self.asked[side][actions[0].call_id] = f"text {self.count}"

    @rule(side=SIDES, data=st.data())
    def give_up(self, side: int, data: st.DataObject) -> None:
        if self.asked[side] and not self.over(side):
            call_id = data.draw(st.sampled_from(sorted(self.asked[side])))
            del self.asked[side][call_id]
            assert self.feed(side, CallAbandoned(call_id)) == []

    @rule(side=SIDES, data=st.data(), refuse=st.booleans())
    def answer(self, side: int, data: st.DataObject, refuse: bool) -> None:
        if self.to_answer[side] and not self.over(side):
            call = data.draw(st.sampled_from(self.to_answer[side]))
            self.to_answer[side].remove(call)
            event = (
                RefuseCall(call.call_id, "E", call.body) if refuse else AnswerCall(call.call_id, call.body)
            )
            self.feed(side, event)

    @rule(side=SIDES, count=st.integers(1, 5))
    def arrive(self, side: int, count: int) -> None:
        items = self.lines[side][:count]
        if items and not self.over(side):
            del self.lines[side][:count]
            actions = self.feed(side, ItemsReceived(items))
            assert not any(isinstance(action, Dead) for action in actions), (
                "honest sides do not offend each other"
            )

    @rule(seconds=st.floats(0, 3), side=SIDES)
    def time_passes(self, seconds: float, side: int) -> None:
        self.now += seconds
        if not self.over(side):
            actions = self.feed(side, Tick())
            if any(isinstance(action, Dead) for action in actions):
                self.asked[side].clear()
            else:
                self.feed(side, Sent())

    @rule(side=SIDES)
    def lose(self, side: int) -> None:
        if not self.over(side) and self.count > 20:
            assert self.feed(side, Lost("cut")) == [Dead("lost", "cut")]
            self.asked[side].clear()

    @invariant()
    def all_is_well(self) -> None:
        for side in (0, 1):
            self.sessions[side].check()
            assert self.got[side] == self.posted[1 - side][: len(self.got[side])], (
                "in order, none lost, none twice"
            )


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=60, stateful_step_count=40)
