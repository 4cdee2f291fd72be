"""The choice among variants: what is expected to end first, and when what nobody knows is tried."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.components.job.scheduler.interface import VariantCost
from gspc_trio.policies.variants import LeastTime

SECONDS = st.integers(0, 100).map(float)
COSTS = st.lists(
    st.none()
    | st.builds(VariantCost, SECONDS, SECONDS, SECONDS, st.integers(1, 5), st.booleans())
    | st.builds(VariantCost, SECONDS, SECONDS, st.none(), st.just(0), st.booleans()),
    min_size=1,
    max_size=4,
)
POLICY = LeastTime()


@given(costs=COSTS, in_order=st.booleans())
def test_the_least_sum_is_taken_and_the_first_of_equal_ones(
    costs: list[VariantCost | None], in_order: bool
) -> None:
    """Of the trusted ones, and of those that may be tried, which take no time then; in order, waiting counts.

    If none is trusted, what nobody knows is taken for the shortest run.
    """
    left = [(number, cost) for number, cost in enumerate(costs) if cost is not None]
    measured = [cost.run_s for _, cost in left if cost.run_s is not None]
    fastest_s = min(measured) if measured else 0.0
    some_trusted = any(cost.run_s is not None and cost.samples >= 3 for _, cost in left)
    best, best_s = None, 1e9
    for number, cost in left:
        run_s = fastest_s if cost.run_s is None else cost.run_s
        if some_trusted and (cost.run_s is None or cost.samples < 3):
            run_s = 0.0 if cost.may_try else 2e9
        sum_s = cost.wait_s + (0.0 if in_order else cost.transfer_s + run_s)
        if sum_s < best_s:
            best, best_s = number, sum_s
    assert POLICY.choose(costs, in_order) == best
    if best is not None:
        assert not any(POLICY.moves(costs, best, to, in_order) for to in range(len(costs)))
