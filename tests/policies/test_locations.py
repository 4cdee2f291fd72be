"""SCH-6: how a job divides what it asks for among its run-time systems."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job.locations.state import LocationLoad
from gspc_trio.policies.locations import LeastEnd

LOADS = st.lists(
    st.builds(
        LocationLoad,
        slots=st.integers(0, 5),
        held=st.integers(0, 7),
        asked_s=st.sampled_from((0.0, 0.5, 3.0)),
        transfer_s=st.sampled_from((0.0, 0.25, 4.0)),
        run_s=st.sampled_from((None, 0.125, 1.0)),
    ),
    min_size=1,
    max_size=4,
)


def one_by_one(credit: int, loads: list[LocationLoad], estimate_s: float | None) -> list[int]:
    """Give each task the location where it ends first, as a naive loop does."""
    known = [load.run_s for load in loads if load.run_s is not None]
    usual_s = sum(known) / len(known) if known else estimate_s or 0.5
    parts = [0] * len(loads)
    for _ in range(credit):
        ends = []
        for number, load in enumerate(loads):
            if load.slots:
                run_s = usual_s if load.run_s is None else load.run_s
                wait_s = max((load.held + parts[number]) // load.slots * run_s, load.asked_s)
                ends.append((wait_s + load.transfer_s + run_s, number))
        parts[min(ends)[1]] += 1
    return parts


@given(st.integers(0, 40), LOADS, st.sampled_from((None, 2.0)))
def test_each_goes_where_it_ends_first(
    credit: int, loads: list[LocationLoad], estimate_s: float | None
) -> None:
    parts = LeastEnd().divide(credit, loads, estimate_s)
    assert sum(parts) == credit
    if any(load.slots for load in loads):
        assert parts == one_by_one(credit, loads, estimate_s)


@pytest.mark.parametrize(
    ("loads", "parts"),
    [
        ([LocationLoad(2), LocationLoad(2)], [2, 1]),
        ([LocationLoad(2, held=2), LocationLoad(2)], [1, 2]),
        ([LocationLoad(1, run_s=4.0), LocationLoad(1, run_s=1.0)], [0, 3]),
        ([LocationLoad(1, run_s=1.0), LocationLoad(9, run_s=1.0, transfer_s=30.0)], [3, 0]),
        ([LocationLoad(1, run_s=1.0, asked_s=20.0), LocationLoad(1, run_s=1.0)], [0, 3]),
        ([LocationLoad(0), LocationLoad(1, run_s=9.0)], [0, 3]),
        ([LocationLoad(0), LocationLoad(0)], [2, 1]),
    ],
)
def test_waiting_transfer_and_run_count_and_the_first_of_equal_ones(
    loads: list[LocationLoad], parts: list[int]
) -> None:
    assert LeastEnd().divide(3, loads, None) == parts


def test_a_location_is_left_when_those_that_wait_end_sooner_at_the_others() -> None:
    loads = [LocationLoad(2, run_s=1.0), LocationLoad(2, run_s=1.0, transfer_s=9.0)]
    policy = LeastEnd()
    assert policy.leaves(1, 4, loads, None)
    assert not policy.leaves(1, 40, loads, None), "it takes as long to wait"
    assert not policy.leaves(0, 4, loads, None)
    assert not policy.leaves(1, 0, loads, None), "nobody waits"
    assert not policy.leaves(1, 4, [LocationLoad(0), loads[1]], None), "there is nothing else"
