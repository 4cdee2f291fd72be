"""When whoever submits many calls lets the executor's loop look at them."""

from __future__ import annotations

from gspc_trio.executor.waiting import PAUSE_CALLS, PAUSE_GROWTH, PAUSE_SOON, HandOver


def test_who_submits_waits_for_the_loop_less_and_less_often() -> None:
    hand_over = HandOver()
    due = [hand_over.is_due(1, number == 0) for number in range(PAUSE_GROWTH * (PAUSE_CALLS + PAUSE_SOON))]
    times = [number for number, is_due in enumerate(due, 1) if is_due]
    assert times == [PAUSE_CALLS, PAUSE_CALLS + PAUSE_SOON, PAUSE_GROWTH * (PAUSE_CALLS + PAUSE_SOON)]
    assert not hand_over.is_due(PAUSE_CALLS - 1, is_idle=True)
    assert hand_over.is_due(1, is_idle=False)
