"""The interface of ``multiprocessing.Pool``."""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from gspc_trio import ExecutorBroken, Pool, TaskFailed
from gspc_trio.executor.process_pool import IMapIterator
from tests.executor.support import add, double, fail

PATIENCE_S = 60.0

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(2) as shared:
        yield shared


def test_functions_are_called_as_the_standard_pool_calls_them(pool: Pool) -> None:
    assert pool._processes == 2
    assert pool.apply(add, (1, 2), {"more": 3}) == 6
    for chunksize in (None, 1, 7):
        assert pool.map(double, range(30), chunksize) == list(range(0, 60, 2))
        assert pool.starmap(add, [(1, 2), (3,)], chunksize) == [3, 3]
    assert pool.map(double, []) == []
    numbers = pool.imap(double, itertools.count())
    assert [next(numbers) for _ in range(5)] == [0, 2, 4, 6, 8]
    assert list(pool.imap(double, range(9), 4)) == list(range(0, 18, 2))
    assert sorted(pool.imap_unordered(double, range(9), 2)) == list(range(0, 18, 2))


def test_errors_come_from_results_and_to_callbacks(pool: Pool) -> None:
    told: list[Any] = []
    result = pool.map_async(int, ["1", "2"], callback=told.append, error_callback=fail)
    result.wait(PATIENCE_S)
    assert (told, result.ready(), result.successful()) == ([[1, 2]], True, True)
    failed = pool.map_async(int, ["1", "a", "2"], 1, callback=fail, error_callback=told.append)
    with pytest.raises(ValueError, match="'a'"):
        failed.get(PATIENCE_S)
    assert not failed.successful()
    assert type(told[1]) is ValueError
    numbers = pool.imap(int, ["1", "a", "2"])
    assert numbers.next(PATIENCE_S) == 1
    with pytest.raises(ValueError, match="'a'"):
        next(numbers)
    assert list(numbers) == [2]
    with pytest.raises(ValueError, match="cannot be sent to another process"):
        pool.apply(double, (threading.Lock(),))
    with pytest.raises(SystemExit):
        pool.apply(sys.exit, (3,))


def test_a_worker_that_dies_is_told_and_time_outs_are_the_standard_ones(pool: Pool) -> None:
    with pytest.raises(TaskFailed, match="killed by SIGKILL"):
        pool.apply(signal.raise_signal, (signal.SIGKILL,))
    slow = pool.apply_async(time.sleep, (1000,))
    with pytest.raises(multiprocessing.TimeoutError):
        slow.get(0.01)
    with pytest.raises(ValueError, match="not ready"):
        slow.successful()
    slow._futures[0].cancel()
    with pytest.raises(CancelledError):
        slow.get(PATIENCE_S)


def test_it_ends_as_the_standard_pool_does() -> None:
    with pytest.raises(ValueError, match="processes must be at least 1, not 0"):
        Pool(0)
    pool = Pool(1)
    with pytest.raises(ValueError, match="still running"):
        pool.join()
    results = pool.imap(double, range(50))
    pool.close()
    with pytest.raises(ValueError, match="Pool not running"):
        pool.apply(double, (1,))
    pool.join()
    assert list(results) == list(range(0, 100, 2))
    with Pool(1) as pool:
        hangs = pool.apply_async(time.sleep, (1000,))
        endless = pool.imap_unordered(time.sleep, itertools.repeat(1000))
    with pytest.raises(ExecutorBroken, match="its workers were killed"):
        hangs.get(PATIENCE_S)
    with pytest.raises(ExecutorBroken):
        endless.next(PATIENCE_S)
    pool.join()


@pytest.mark.parametrize("is_ordered", [True, False])
def test_an_imap_whose_items_cannot_be_submitted_any_more_says_so_and_ends(is_ordered: bool) -> None:
    results: IMapIterator[int] = IMapIterator(is_ordered, False)

    def refuse() -> Any:
        raise ExecutorBroken("the run-time system is gone")

    results.feed(iter([refuse]))
    with pytest.raises(ExecutorBroken, match="is gone"):
        results.next(0)
    with pytest.raises(StopIteration):
        results.next(0)
