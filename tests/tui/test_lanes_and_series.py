"""The lanes of workers, and values over time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.tui.lanes import SENT_MAX, SPANS_MAX, Lanes, Span, busy_share, draw
from gspc_trio.tui.model import SECONDS_KEPT, Series
from tests.tui.support import FAILED, FINISHED, RUNNING, SUBMITTED, task


def span(begin_s: float, end_s: float | None, task_id: int = 1) -> Span:
    return Span(task_id, "j1", "work", begin_s, end_s, FINISHED)


def test_a_task_is_on_its_way_in_computes_and_is_on_its_way_out() -> None:
    lanes = Lanes()
    lanes.apply(task(1.0, 7, SUBMITTED, "r1.core0"), 100.0)
    lanes.apply(task(2.0, 7, RUNNING, "r1.core0"), 100.0)
    lanes.apply(task(4.5, 7, FINISHED, "r1.core0", started_s=103.0, duration_s=1.0), 100.0)
    found = [[(it.begin_s, it.end_s) for it in lane] for lane in lanes.workers["r1.core0"].spans]
    assert found == [[(101.0, 103.0)], [(103.0, 104.0)], [(104.0, 104.5)]]


def test_the_lanes_tell_when_data_was_fetched_and_stored() -> None:
    lanes = Lanes()
    lanes.apply(task(1.0, 7, SUBMITTED, "r1.core0"), 100.0)
    times = {"started_s": 103.5, "duration_s": 1.0, "staged_s": (102.0, 103.0, 104.6, 105.0)}
    lanes.apply(task(5.5, 7, FINISHED, "r1.core0", **times), 100.0)
    found = [[(it.begin_s, it.end_s, it.staging) for it in lane] for lane in lanes.workers["r1.core0"].spans]
    assert found == [
        [(101.0, 102.0, False), (102.0, 103.0, True)],
        [(103.5, 104.5, False)],
        [(104.6, 105.0, True), (105.0, 105.5, False)],
    ]
    lanes.apply(task(7.0, 8, FAILED, "r1.core1", staged_s=(106.0, 107.0, 0.0, 0.0)), 100.0)
    found = [[(it.begin_s, it.end_s, it.staging) for it in lane] for lane in lanes.workers["r1.core1"].spans]
    assert found == [[(106.0, 107.0, True)], [], []]


def test_what_is_at_a_worker_is_there_since_it_was_sent() -> None:
    lanes = Lanes()
    queued = task(1.0, 8, SUBMITTED, "r1.core0")
    lanes.apply(queued, 100.0)
    again = task(3.0, 8, SUBMITTED, "r1.core0")
    lanes.apply(again, 100.0)
    assert lanes.span_of(again, 100.0) == Span(8, "j1", "work", 101.0, None, SUBMITTED)
    runs = task(4.0, 8, RUNNING, "r1.core0")
    assert lanes.span_of(runs, 100.0) == Span(8, "j1", "work", 104.0, None, RUNNING)


def test_memory_is_bounded() -> None:
    lanes = Lanes()
    for n in range(SENT_MAX + 10):
        lanes.apply(task(1.0, n, SUBMITTED, "r1.core0"), 0.0)
    assert len(lanes._sent) == SENT_MAX
    for n in range(SPANS_MAX + 10):
        lanes.apply(task(5.0, n, FINISHED, "r1.core0", started_s=2.0, duration_s=1.0), 0.0)
    assert len(lanes.workers["r1.core0"].spans[1]) == SPANS_MAX


def test_spans_are_drawn_to_scale_and_short_ones_are_seen() -> None:
    columns = draw([span(0.0, 5.0, 1), span(7.0, 7.01, 2), span(9.0, None, 3)], 0.0, 10.0, 10)
    assert [it.task_id if it else 0 for it in columns] == [1, 1, 1, 1, 1, 0, 0, 2, 0, 3]
    assert draw([span(20.0, 30.0)], 0.0, 10.0, 4) == [None] * 4
    assert draw([span(0.0, 1.0)], 5.0, 5.0, 4) == [None] * 4


def test_the_busy_share_is_that_of_the_window() -> None:
    assert busy_share([span(-5.0, 5.0), span(8.0, None)], 0.0, 10.0) == pytest.approx(0.7)
    assert busy_share([], 0.0, 10.0) == 0.0


@given(st.lists(st.tuples(st.integers(0, 2000), st.floats(0, 10)), max_size=50))
def test_a_series_has_one_value_a_second(points: list[tuple[int, float]]) -> None:
    series = Series()
    told: list[tuple[int, float]] = []
    for second, value in points:
        if told and second < told[-1][0]:
            told.clear()
        if told and told[-1][0] == second:
            told.pop()
        told.append((second, value))
        series.note(second, value)
    naive: list[float] = []
    for position, (second, value) in enumerate(told):
        if position:
            naive += [told[position - 1][1]] * (second - told[position - 1][0] - 1)
        naive.append(value)
    assert series.last(SECONDS_KEPT) == naive[-SECONDS_KEPT:]
    assert series.now == (naive[-1] if naive else 0.0)
    assert series.copy().last(9) == series.last(9)
