from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.core.current import ComputePlace, current_traceparent, offer_place
from gspc_trio.core.trace_context import TraceContext, parse_traceparent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN = f"00-{TRACE}-00f067aa0ba902b7-01"
ATTEMPTS = st.tuples(st.integers(1, 2**40 - 1), st.integers(1, 2**20 - 1), st.integers(0, 3))


def test_a_context_is_read_as_it_is_written() -> None:
    assert parse_traceparent(GIVEN) == TraceContext(TRACE, 0xF067AA0BA902B7, True)
    assert str(parse_traceparent(GIVEN)) == GIVEN
    assert parse_traceparent(GIVEN[:-1] + "0") == TraceContext(TRACE, 0xF067AA0BA902B7, False)
    later = GIVEN.replace("00-", "01-", 1) + "-more"
    assert parse_traceparent(later) == parse_traceparent(GIVEN), "what a later version adds is skipped"


@pytest.mark.parametrize(
    "text",
    [
        *("", "no context", GIVEN[:-1], GIVEN.upper(), GIVEN + "-more", "ff" + GIVEN[2:]),
        *(f"00-{'0' * 32}-00f067aa0ba902b7-01", f"00-{TRACE}-{'0' * 16}-01"),
    ],
)
def test_what_is_no_context_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


@given(st.integers(1, 2**64 - 1), st.sets(ATTEMPTS, min_size=2, max_size=20))
def test_attempts_and_their_parts_have_spans_of_their_own(
    span_id: int, attempts: set[tuple[int, int, int]]
) -> None:
    job = TraceContext(TRACE, span_id)
    found = {job.span_of(*attempt) for attempt in attempts}
    assert len(found) == len(attempts)
    assert all(0 < number < 2**64 for number in found)


def test_code_of_a_task_finds_the_context_of_its_attempt() -> None:
    place = ComputePlace("", "j1", GIVEN)
    place.task_id, place.attempt = 7, 2
    try:
        offer_place(lambda: place)
        found = parse_traceparent(current_traceparent())
        offer_place(lambda: ComputePlace("", "j1"))
        assert current_traceparent() == ""
    finally:
        offer_place(lambda: None)
    job = parse_traceparent(GIVEN)
    assert job is not None
    assert found == TraceContext(TRACE, job.span_of(7, 2))
    assert current_traceparent() == ""
