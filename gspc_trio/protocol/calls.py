"""The calls of one session, in both directions, and the credit that bounds them.

Each side tells the other in the handshake how many unanswered calls it may have here. Calls beyond that wait
where they are made. A call that its caller has given up uses its credit until its answer comes: the other
side still works on it.
"""

from __future__ import annotations

from collections import deque

from gspc_trio.core.machine import IllegalEvent
from gspc_trio.protocol.envelope import Call, Failure, Reply
from gspc_trio.protocol.limits import Limits
from gspc_trio.protocol.signals import CallAnswered, CallFailed, Send, SessionAction


class Calls:
    """Part of a session: numbers calls, matches answers.

    Attributes:
        credit: unanswered calls that the other side takes.
    """

    def __init__(self, limits: Limits) -> None:
        self.credit = 0
        self._limits = limits
        self._last_made = 0
        self._pending: set[int] = set()
        self._abandoned: set[int] = set()
        self._waiting: deque[Call] = deque()
        self._last_taken = 0
        self._unanswered: set[int] = set()

    @property
    def is_empty(self) -> bool:
        """Whether no call is under way in any direction."""
        return not (self._pending or self._abandoned or self._waiting or self._unanswered)

    # Ours ----

    def make(self, body: object) -> tuple[Call, bool]:
        """Number a call; return it and whether it may go at once.

        Raises:
            IllegalEvent: too many wait already.
        """
        waiting = len(self._waiting)
        if waiting >= self._limits.calls_waiting_max:
            raise IllegalEvent(
                f"{waiting} calls wait already for the answers to earlier ones: make fewer at a time"
            )
        self._last_made += 1
        call = Call(self._last_made, body)
        if self._used() >= self.credit:
            self._waiting.append(call)
            return call, False
        self._pending.add(call.call_id)
        return call, True

    def abandon(self, call_id: int) -> None:
        """Nobody waits for the answer any more.

        Raises:
            IllegalEvent: there is no such call, or it has its answer.
        """
        if call_id in self._pending:
            self._pending.discard(call_id)
            self._abandoned.add(call_id)
            return
        for call in self._waiting:
            if call.call_id == call_id:
                self._waiting.remove(call)
                return
        raise IllegalEvent(f"no call {call_id} awaits its answer")

    def take_answer(self, answer: Reply | Failure, actions: list[SessionAction]) -> str:
        """Match an answer to its call, add what follows to the actions; return what is wrong, or ""."""
        call_id = answer.call_id
        if call_id in self._abandoned:
            self._abandoned.discard(call_id)
        elif call_id in self._pending:
            self._pending.discard(call_id)
            if isinstance(answer, Reply):
                actions.append(CallAnswered(call_id, answer.body))
            else:
                actions.append(CallFailed(call_id, answer.kind, answer.message))
        else:
            return f"an answer to the call {call_id}, which was not made or had its answer"
        if self._waiting:
            call = self._waiting.popleft()
            self._pending.add(call.call_id)
            actions.append(Send(call))
        return ""

    def _used(self) -> int:
        return len(self._pending) + len(self._abandoned)

    # Theirs ----

    def take_call(self, call: Call) -> str:
        """Note a call of the other side; return what is wrong with it, or ""."""
        if call.call_id <= self._last_taken:
            return f"the call number {call.call_id} again"
        if len(self._unanswered) >= self._limits.calls_max:
            return f"more than {self._limits.calls_max} calls at a time"
        self._last_taken = call.call_id
        self._unanswered.add(call.call_id)
        return ""

    def answer(self, call_id: int) -> None:
        """A call of the other side is answered.

        Raises:
            IllegalEvent: it was never made or is answered already.
        """
        if call_id not in self._unanswered:
            raise IllegalEvent(f"the call {call_id} was never made or is answered already")
        self._unanswered.discard(call_id)

    # All ----

    def clear(self) -> None:
        """The session is over."""
        self._pending.clear()
        self._abandoned.clear()
        self._waiting.clear()
        self._unanswered.clear()

    def check(self) -> None:
        """Assert that the credit is kept, no number is in two places, and no call waits without need."""
        if self.is_empty:
            return  # as most often
        mine = [*self._pending, *self._abandoned, *(call.call_id for call in self._waiting)]
        assert len(set(mine)) == len(mine), "a call counted twice"
        assert all(0 < call_id <= self._last_made for call_id in mine), "a call that was never made"
        assert 0 <= self._used() <= self.credit or not mine, "more calls than credit"
        assert not self._waiting or self._used() == self.credit, "a call waits though there is credit"
        assert len(self._waiting) <= self._limits.calls_waiting_max, "more calls wait than may"
        assert len(self._unanswered) <= self._limits.calls_max, "more calls taken than allowed"
        assert all(0 < call_id <= self._last_taken for call_id in self._unanswered), "a call that never came"
