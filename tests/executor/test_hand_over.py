"""When whoever submits many calls lets the executor's loop look at them."""

from __future__ import annotations

from gspc_trio.executor.waiting import (
    FIRST_CALLS,
    FIRST_S,
    PAUSE_CALLS,
    PAUSE_GROWTH,
    PAUSE_SOON,
    HandOver,
)


class Future:
    """A future that notes how long it was waited for."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def wait_ended(self, timeout: float) -> None:
        self.waited.append(timeout)


def test_who_submits_waits_for_the_first_result_and_then_for_the_loop_less_and_less_often() -> None:
    hand_over, first = HandOver(), Future()
    count = PAUSE_GROWTH * (PAUSE_CALLS + PAUSE_SOON)
    due = [hand_over.is_due(1, None if number else first) for number in range(count)]
    times = [number for number, is_due in enumerate(due, 1) if is_due]
    assert times == [FIRST_CALLS, PAUSE_CALLS, PAUSE_CALLS + PAUSE_SOON, count]
    assert not hand_over.is_due(FIRST_CALLS - 1, Future())
    assert hand_over.is_due(1, None)
    assert hand_over.is_due(PAUSE_CALLS, first)
    hand_over.looked()
    for _ in range(2):
        hand_over.wait(for_first=True)
    assert first.waited == [FIRST_S]
    assert hand_over.is_due(FIRST_CALLS, first)
    hand_over.wait(for_first=False)
    assert first.waited == [FIRST_S]
