"""How much is sent ahead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.policies.lookahead import WorkAhead


def test_an_unmeasured_code_is_sent_alone() -> None:
    assert WorkAhead().depth(0, 0.0, False) == (1, 1)


def test_few_measurements_allow_little() -> None:
    assert [WorkAhead().depth(samples, 3e-6, False)[1] for samples in (1, 2, 4, 100, 1000)] == [
        2,
        4,
        8,
        200,
        668,
    ]


@pytest.mark.parametrize(
    ("average_s", "depth"),
    [
        (0.0, (2, 1025)),
        (1e-6, (2, 1025)),
        (1e-5, (2, 201)),
        (1e-3, (2, 3)),
        (0.002, (2, 2)),
        (0.05, (2, 2)),
        (0.2, (1, 1)),
    ],
)
def test_about_two_milliseconds_of_work_are_sent_ahead(average_s: float, depth: tuple[int, int]) -> None:
    assert WorkAhead().depth(10_000, average_s, False) == depth


@pytest.mark.parametrize(("samples", "average_s"), [(0, 0.0), (1, 5.0), (10_000, 5.0), (10_000, 0.001)])
def test_a_task_that_stages_data_has_one_in_each_phase_and_one_more_beside_it(
    samples: int, average_s: float
) -> None:
    assert WorkAhead().depth(samples, average_s, True) == (4, 4)


@given(st.integers(0, 10**6), st.floats(0, 1e6), st.booleans())
def test_the_depth_is_bounded(samples: int, average_s: float, staged: bool) -> None:
    at_least, at_most = WorkAhead().depth(samples, average_s, staged)
    assert 1 <= at_least <= at_most <= 1025


@given(st.floats(0, 1e3), st.integers(1, 100), st.floats(0, 1e3), st.integers(1, 1000))
def test_learning_a_batch_equals_learning_its_mean_one_by_one(
    average_s: float, samples: int, mean_s: float, count: int
) -> None:
    policy = WorkAhead()
    at_once = policy.learn(average_s, samples, mean_s, count)
    for _ in range(count):
        average_s = policy.learn(average_s, samples, mean_s, 1)
    assert at_once == pytest.approx(average_s, rel=1e-6, abs=1e-6)


def test_the_first_measurement_is_the_average() -> None:
    assert WorkAhead().learn(0.0, 0, 0.25, 3) == 0.25


def test_little_work_stays_where_it_is() -> None:
    assert [WorkAhead().worth_taking_back(work_s) for work_s in (0.0, 0.0004, 0.0005, 1.0)] == [
        False,
        False,
        True,
        True,
    ]
