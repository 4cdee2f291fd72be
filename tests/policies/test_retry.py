"""When something is tried again."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.core.task import TaskOptions
from gspc_trio.policies.retry import Retry, back_off_s


def test_the_pause_doubles_up_to_its_bound() -> None:
    pauses = [back_off_s(number, 0.1, 10.0) for number in range(1, 10)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


@given(st.integers(1, 10_000), st.integers())
def test_the_pause_is_spread_over_its_upper_half(number: int, seed: int) -> None:
    full_s = back_off_s(number, 0.1, 10.0)
    assert full_s / 2 <= back_off_s(number, 0.1, 10.0, Random(seed)) <= full_s <= 10.0


@pytest.mark.parametrize(("attempts", "delays"), [(1, [None]), (3, [0.1, 0.2, None])])
def test_a_failure_is_tried_again_while_attempts_last(attempts: int, delays: list[float | None]) -> None:
    options = TaskOptions(attempts=attempts)
    assert [Retry().after_failure(options, n + 1, None) for n in range(attempts)] == delays


def test_a_task_that_may_not_run_again_has_one_attempt_whatever_it_states() -> None:
    assert Retry().after_failure(TaskOptions(attempts=3, may_rerun=False), 1, None) is None


def test_a_refused_grant_rests_ever_longer_and_then_goes_back() -> None:
    retry = Retry(refusals_max=4, elsewhere_s=0.05)
    assert [retry.after_refusal(refusals) for refusals in range(1, 6)] == [0.01, 0.02, 0.04, 0.05, None]


def test_what_needs_lost_data_is_tried_ever_more_seldom() -> None:
    assert [Retry().after_wait(waits) for waits in (1, 2, 3, 99)] == [0.1, 0.2, 0.4, 10.0]


def test_a_loss_is_tried_again_at_once_while_loss_attempts_last() -> None:
    assert [Retry().after_loss(TaskOptions(), losses) for losses in (1, 2, 3)] == [0.0, 0.0, None]


def test_what_workers_keep_giving_back_runs_alone_then_with_pauses_then_fails() -> None:
    retry = Retry(returns_free=2, returns_max=5)
    assert [retry.after_return(returns) for returns in range(1, 6)] == [0.0, 0.0, 0.1, 0.2, None]
    assert [retry.alone_after(returns) for returns in range(1, 4)] == [False, True, True]
