"""Class queues and credit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.core.task import CORE, Requirement, Shape, Task, TaskOptions
from gspc_trio.policies.lookahead import LookAhead, rounded_estimate_s


def test_a_task_joins_the_queue_of_its_shape() -> None:
    gpu = Shape((Requirement("gpu"),))
    assert LookAhead().shape_of(Task(1, "t", 1)) is CORE
    assert LookAhead().shape_of(Task(1, "t", 1, shape=gpu)) is gpu


@pytest.mark.parametrize(("stated_s", "rounded_s"), [(3.0, 4.0), (4.0, 4.0), (0.3, 0.5), (0.5, 0.5)])
def test_an_estimate_is_rounded_up_to_a_power_of_two(stated_s: float, rounded_s: float) -> None:
    assert rounded_estimate_s(stated_s) == rounded_s
    task = Task(1, "t", 1, options=TaskOptions(estimate_s=stated_s))
    assert LookAhead().shape_of(task) == Shape(estimate_s=rounded_s)


@pytest.mark.parametrize("stated_s", [0.0, -1.0])
def test_an_estimate_that_means_nothing_is_ignored(stated_s: float) -> None:
    task = Task(1, "t", 1, options=TaskOptions(estimate_s=stated_s))
    assert LookAhead().shape_of(task) is CORE


def test_the_estimate_of_a_shape_stands() -> None:
    shape = Shape(estimate_s=8.0)
    assert LookAhead().shape_of(Task(1, "t", 1, shape=shape, options=TaskOptions(estimate_s=1.0))) is shape


def test_the_credit_is_one_for_each_task_within_the_bound() -> None:
    assert [LookAhead(credit_max=5).credit(waiting) for waiting in (0, 3, 5, 100)] == [0, 3, 5, 5]


@pytest.mark.parametrize(
    ("told", "wanted", "worth"),
    [
        (0, 0, False),
        (0, 1, True),
        (1, 0, True),
        (7, 7, False),
        (4, 7, False),
        (4, 8, True),
        (8, 5, False),
        (8, 4, True),
    ],
)
def test_the_manager_is_told_of_large_changes(told: int, wanted: int, worth: bool) -> None:
    assert LookAhead().worth_telling(told, wanted) is worth


@given(st.integers(1, 10**6))
def test_few_messages_tell_of_a_demand_that_shrinks_one_by_one(waiting: int) -> None:
    told, messages = waiting, 0
    while told:
        wanted = max(w for w in (told // 2, 0) if LookAhead().worth_telling(told, w))
        told, messages = wanted, messages + 1
    assert messages <= 21
