"""Batches of joblib: what is large is beside them, once for each call, and as long as it lives."""

from __future__ import annotations

import gc
import pickle
import threading
from operator import add

import pytest

from gspc_trio.integrations.joblib_batches import (
    LARGE_BYTES_MIN,
    OPENED_MAX,
    RECENT_MAX,
    Batches,
    JoblibCall,
    _opened,
    open_batch,
    results_of,
    run_call,
)
from gspc_trio.protocol.values import BadValue, loads


def shared(value: object) -> tuple[str, object]:
    """Stand for a future: a new one for each value that is shared."""
    return "shared", value


def test_large_texts_are_beside_the_batch_once() -> None:
    batches = Batches(shared, 1)
    large, small = b"x" * LARGE_BYTES_MIN, "small"
    calls = [(max, (large, large), {"key": len}), (abs, (-1,), {}), (len, (small,), {})]
    batch, beside = batches.encode(calls)
    assert len(batch) < 200
    assert beside == [("shared", large)]
    _, again = batches.encode([(len, (large,), {})])
    assert again[0] is beside[0]
    _, opened = open_batch(batch, [large])
    assert [function(*args, **kwargs) for function, args, kwargs in opened] == [large, 1, 5]


def test_of_many_large_texts_the_last_ones_are_kept() -> None:
    batches = Batches(shared, 1)
    texts = [str(number % 10) * LARGE_BYTES_MIN for number in range(RECENT_MAX + 1)]
    first = [batches.encode([(len, (text,), {})])[1][0] for text in texts]
    assert batches.encode([(len, (texts[-1],), {})])[1][0] is first[-1]
    assert batches.encode([(len, (texts[0],), {})])[1][0] is not first[0]


def test_arrays_are_shared_by_their_memory_while_it_lives() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy is not installed: make bridges")
    batches = Batches(shared, 1)
    array = numpy.ones(LARGE_BYTES_MIN // 8 + 1)
    _, beside = batches.encode([(len, ([array], array[:-1]), {"x": array[:5]})])
    assert len(beside) == 2
    assert batches.encode([(len, (array,), {})])[1][0] is beside[0]
    assert batches.encode([(len, (array[:-1],), {})])[1][0] is beside[1], "a new view of the same memory"
    assert len(batches._arrays) == 2
    del array, beside
    gc.collect()
    batches._recent.clear()
    assert not [one for one in batches._arrays.values() if one[0]() is None]


def test_what_cannot_be_sent_is_told_with_the_call() -> None:
    with pytest.raises(
        BadValue, match=r"joblib: calls of print cannot be sent: cannot pickle '_thread.lock'"
    ):
        Batches(shared, 1).encode([(print, (threading.Lock(),), {})])


def test_a_small_call_travels_with_its_function_encoded_once() -> None:
    batches = Batches(shared, 1)
    first, second = (batches.encode_small([(add, (number, 2.5), {})]) for number in (1, 10**30))
    assert first is not None
    assert second is not None
    assert first[0] is second[0]
    assert pickle.loads(loads(first[0])) == (1, add)
    assert [loads(one) for one in second[1:]] == [10**30, 2.5]


@pytest.mark.parametrize(
    "calls",
    [
        [(abs, (1,), {}), (abs, (2,), {})],
        [(int, ("1",), {"base": 8})],
        [(len, ("text",), {})],
        [(lambda number: number, (1,), {})],
    ],
)
def test_other_batches_are_no_small_calls(calls: list[JoblibCall]) -> None:
    assert Batches(shared, 1).encode_small(calls) is None


def test_a_small_call_gives_what_its_function_returns() -> None:
    pytest.importorskip("joblib", reason="joblib is not installed: make bridges")
    for function, value, expected in ((abs, -3, 3), (hex, 2, "0x2"), (divmod, True, (1, 0))):
        small = Batches(shared, 1).encode_small([(function, (value, 1)[: 1 + (function is divmod)], {})])
        assert small is not None
        assert results_of(run_call(*map(loads, small))) == [expected]


def test_heads_of_small_calls_are_not_kept_for_ever() -> None:
    pytest.importorskip("joblib", reason="joblib is not installed: make bridges")
    for level in range(2 * OPENED_MAX):
        assert run_call(pickle.dumps((level, abs)), -1) == 1
    assert len(_opened) <= OPENED_MAX
