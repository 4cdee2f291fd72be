"""Frames of 5 s: each amount is in one, sums agree, and a clock that is set back opens no old one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.monitor.frames import (
    FRAME_S,
    Frame,
    FrameClock,
    OpenFrames,
    add_up,
    frame_of,
    pieces,
)


def test_frames_begin_at_multiples_of_5_s() -> None:
    assert [frame_of(at_s) for at_s in (0.0, 4.999, 5.0, 1_000_000_003.2)] == [0, 0, 5, 1_000_000_000]
    assert list(pieces(3.0, 11.0)) == [(0, 2.0), (5, 5.0), (10, 1.0)]
    assert list(pieces(5.0, 5.0)) == []


def test_a_frame_is_closed_a_moment_after_its_end_and_told_once() -> None:
    frames = OpenFrames[str](late_s=1.0)
    frames.cover("a", 3.0, 8.0)
    frames.add("a", 4.9, {"reads": 1, "read_bytes": 10})
    frames.add("a", 4.5, {"reads": 2})
    frames.add("a", 5.0, {"reads": 4})
    assert frames.close(5.9) == []
    assert frames.close(6.0) == [Frame(0, "a", 2.0, {"reads": 3, "read_bytes": 10})]
    frames.add("a", 4.95, {"reads": 8})  # too late for its own
    assert frames.close(6.5) == []
    frames.cover("b", 0.0, 6.0)
    assert frames.close(math.inf) == [Frame(5, "a", 3.0, {"reads": 12}), Frame(5, "b", 1.0, {})]
    assert frames.close(math.inf) == []


def test_what_is_told_after_all_was_closed_opens_none_of_these() -> None:
    frames = OpenFrames[str]()
    frames.add("a", 7.0, {"reads": 1})
    assert frames.close(math.inf) == [Frame(5, "a", 0.0, {"reads": 1})]
    frames.add("a", 7.0, {"reads": 2})
    assert frames.close(math.inf) == [Frame(10, "a", 0.0, {"reads": 2})]


def test_a_clock_that_is_set_back_goes_half_as_fast_until_it_agrees() -> None:
    clock = FrameClock()
    assert clock.read(100.0, 0.0) == 100.0
    assert clock.read(92.0, 2.0) == 101.0  # it was set back by 10 s
    assert clock.read(102.0, 12.0) == 106.0
    assert clock.read(110.0, 20.0) == 110.0
    assert clock.read(111.0, 21.0) == 111.0
    assert clock.read(5000.0, 22.0) == 5000.0


@given(
    st.lists(
        st.tuples(
            st.integers(-8, 12),
            st.sampled_from("ab"),
            st.dictionaries(st.sampled_from("rw"), st.integers(0, 9)),
        )
    )
)
def test_sums_agree_whatever_the_clock_does(steps: list[tuple[int, str, dict[str, int]]]) -> None:
    frames, clock, wall_s, told = OpenFrames[str](), FrameClock(), 1000.0, []
    for now, (step_s, key, amounts) in enumerate(steps):
        wall_s += step_s
        frames.add(key, wall_s, amounts)
        told += frames.close(clock.read(wall_s, now))
    told += frames.close(math.inf)
    places = [(frame.begin_s, frame.key) for frame in told]
    assert len(set(places)) == len(places)
    assert [place[0] for place in places] == sorted(place[0] for place in places)
    assert all(frame.begin_s % FRAME_S == 0 for frame in told)
    assert add_up(frame.amounts for frame in told) == add_up(amounts for _, _, amounts in steps)
    for one in "ab":
        of_one = add_up(frame.amounts for frame in told if frame.key == one)
        assert of_one == add_up(amounts for _, key, amounts in steps if key == one)


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 20))), st.floats(0.0, 80.0))
def test_no_frame_is_covered_for_longer_than_it_lasts(
    stretches: list[tuple[float, float]], begin_s: float
) -> None:
    frames = OpenFrames[None]()
    for first_s, length_s in stretches:
        frames.cover(None, first_s, first_s + length_s)
    assert all(frame.covered_s <= FRAME_S for frame in frames.close(math.inf))
    assert sum(covered_s for _, covered_s in pieces(begin_s, begin_s + 7.5)) == pytest.approx(7.5)


def test_a_clock_that_is_set_forward_by_years_makes_no_frames_of_these() -> None:
    frames = OpenFrames[str]()
    frames.cover("a", 1.0, 4.0)
    frames.add("a", 4.0, {"n": 1})
    later_s = 50 * 365 * 86400.0 + 2.0
    frames.cover("a", 4.0, later_s)
    frames.add("a", later_s, {"n": 2})
    assert frames.close(math.inf) == [
        Frame(0, "a", 3.0, {"n": 1}),
        Frame(int(later_s) - 2, "a", 2.0, {"n": 2}),
    ]
