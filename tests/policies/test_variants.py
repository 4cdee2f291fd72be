"""The choice among variants: what is expected to end first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job.scheduler.interface import VariantCost
from gspc_trio.policies.variants import LeastTime

SECONDS = st.integers(0, 100).map(float)
COSTS = st.lists(
    st.none() | st.builds(VariantCost, SECONDS, SECONDS, st.none() | SECONDS), min_size=1, max_size=4
)
POLICY = LeastTime()


def test_a_stated_time_counts_as_three_measurements() -> None:
    assert POLICY.run_s(None, 0, 0.0) is None
    assert POLICY.run_s(None, 2, 0.5) == 0.5
    assert POLICY.run_s(4.0, 0, 0.0) == 4.0
    assert POLICY.run_s(4.0, 3, 2.0) == 3.0


@given(costs=COSTS, in_order=st.booleans())
def test_the_least_sum_is_taken_and_the_first_of_equal_ones(
    costs: list[VariantCost | None], in_order: bool
) -> None:
    """What nobody knows is taken for the shortest run; in order, waiting alone counts."""
    left = [(number, cost) for number, cost in enumerate(costs) if cost is not None]
    known = [cost.run_s for _, cost in left if cost.run_s is not None]
    fastest_s = min(known) if known else 0.0
    best, best_s = None, 1e9
    for number, cost in left:
        run_s = fastest_s if cost.run_s is None else cost.run_s
        sum_s = cost.wait_s + (0.0 if in_order else cost.transfer_s + run_s)
        if sum_s < best_s:
            best, best_s = number, sum_s
    assert POLICY.choose(costs, in_order) == best
    if best is not None:
        assert not any(POLICY.moves(costs, best, to, in_order) for to in range(len(costs)))
