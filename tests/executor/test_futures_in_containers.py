"""Futures in lists, tuples, sets and dicts stand for their results, too."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque, namedtuple
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from gspc_trio import Executor, TaskFailed
from tests.executor.support import Counter, add, double, fail, same, say_and_hang

PATIENCE_S = 60.0

pytestmark = pytest.mark.process

Pair = namedtuple("Pair", "first second")


def test_they_are_waited_for_and_stand_for_their_results(executor: Executor) -> None:
    two, text = executor.submit(double, 1), executor.submit(double, "ab")
    late: Future[int] = Future()
    given: list[Any] = [
        [two, 1, two],
        (two, [text, {"deep": [(two,)]}]),
        {two, 5},
        frozenset([text]),
        {"value": text, two: "key"},
        OrderedDict(a=two),
        Pair(two, text),
        [late],
        [Counter(3), two],
    ]
    expected: list[Any] = [
        [2, 1, 2],
        (2, ["abab", {"deep": [(2,)]}]),
        {2, 5},
        frozenset(["abab"]),
        {"value": "abab", 2: "key"},
        OrderedDict(a=2),
        Pair(2, "abab"),
        [7],
        [Counter(3), 2],
    ]
    futures = [executor.submit(same, value) for value in given]
    late.set_result(7)
    results = [future.result(PATIENCE_S) for future in futures]
    assert results == expected
    assert list(map(type, results)) == list(map(type, expected))


def test_beside_other_arguments_and_in_maps(executor: Executor) -> None:
    two = executor.submit(double, 1)
    assert executor.submit(same, two, [two], 3, more={"x": two}).result(PATIENCE_S) == (
        2,
        [2],
        3,
        {"more": {"x": 2}},
    )
    assert executor.submit(lambda a, *, b: a + b, [two], b=[1]).result(PATIENCE_S) == [2, 1]
    items = [[two, value] for value in range(20)]
    assert list(executor.map(sum, items)) == [2 + value for value in range(20)]
    assert list(executor.map(sum, items, chunksize=6)) == [2 + value for value in range(20)]
    assert list(executor.map(add, [two, 5], [1, two], chunksize=2)) == [3, 7]


def test_a_container_that_holds_itself(executor: Executor) -> None:
    ring: list[Any] = [executor.submit(double, 2)]
    ring.append(ring)
    assert executor.submit(_first_of_ring, ring).result(PATIENCE_S) == (4, True)


def _first_of_ring(ring: list[Any]) -> tuple[int, bool]:
    return ring[0], ring[1] is ring


def test_one_that_fails_or_is_cancelled_fails_the_task(executor: Executor, tmp_path: Path) -> None:
    error = executor.submit(sum, [executor.submit(fail, "deep"), 1]).exception(PATIENCE_S)
    assert (type(error), str(error)) == (LookupError, "deep")
    os.mkfifo(tmp_path / "fifo")
    hanging = executor.submit(say_and_hang, str(tmp_path / "fifo"))
    assert (tmp_path / "fifo").read_text()
    waiting = executor.submit(same, {"it": hanging})
    assert hanging.cancel()
    with pytest.raises(TaskFailed, match="cancelled"):
        waiting.result(PATIENCE_S)


def test_what_cannot_be_sent_is_told_as_ever(executor: Executor) -> None:
    two = executor.submit(double, 1)
    with pytest.raises(ValueError, match=r"type list with futures in it cannot be sent .*lock"):
        executor.submit(same, [two, threading.Lock()]).result(PATIENCE_S)
    with pytest.raises(ValueError, match=r"type list cannot be sent .*lock"):
        executor.submit(same, [threading.Lock()]).result(PATIENCE_S)
    in_a_container = "future of a task, which stands for its result only as an argument"
    for function, value in ((double, _Holder(two)), (lambda _: two.result(), 1), (sum, deque([two]))):
        with pytest.raises(ValueError, match=f"cannot be sent .*{in_a_container}"):
            executor.submit(function, value).result(PATIENCE_S)


class _Holder:
    """No container: what it does with its future is its own business."""

    def __init__(self, future: Future[int]) -> None:
        self.future = future


def test_large_results_stay_where_they_are() -> None:
    with Executor(1, data_bytes=1 << 26) as executor:
        blob = executor.submit(os.urandom, 1 << 20)
        assert executor.submit(_sizes, [blob, {"again": blob}], b"x" * 100_000).result(PATIENCE_S) == (
            1 << 20,
            1 << 20,
            100_000,
        )


def _sizes(values: list[Any], other: bytes) -> tuple[int, int, int]:
    return len(values[0]), len(values[1]["again"]), len(other)
