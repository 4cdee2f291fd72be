"""Maps over many short items: each as if it were a task of its own."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio import Executor
from gspc_trio.core.task import TaskState
from gspc_trio.workflow.failures import RemoteTraceback

MANY = 3_000


@pytest.fixture(scope="module", autouse=True)
def _warm(executor: Executor) -> None:
    """The first range comes after the first results, so the code has run before."""
    assert list(executor.map(square, range(MANY))) == [value * value for value in range(MANY)]


def square(value: int) -> int:
    return value * value


def of_kind(kind: int) -> Any:
    """Return a value of one of several types, or raise."""
    if kind == 5:
        raise LookupError(kind)
    return [kind, 1 << 70, "\udcff", [kind, {"of": (kind,)}], {kind}, None, 0.5, b"x", True][kind]


def change(value: int) -> tuple[str, str | None]:
    before = os.getcwd(), os.environ.get("GSPC_CHANGED")
    os.chdir("/usr")
    os.environ["GSPC_CHANGED"] = str(value)
    return before


def print_some(value: int) -> int:
    if value >= MANY // 2:
        print(value)
    return value


def kill_at(value: int, at: int, note: str) -> int:
    """End the process at one item, the first two times."""
    if value == at:
        with open(note, "a+") as file:
            file.write("x")
            file.seek(0)
            if len(file.read()) < 3:
                os.kill(os.getpid(), signal.SIGKILL)
    return value


def once(value: int, directory: str) -> int:
    os.close(os.open(f"{directory}/{value}", os.O_CREAT | os.O_EXCL))
    return value


def fork_at(value: int) -> int:
    if value == MANY // 2 and (child := os.fork()):
        os.waitpid(child, 0)
    return value


def tasks_of(executor: Executor) -> int:
    """How many tasks there have been."""
    return executor._loop._table.graph.last_task_id


def until_it_has_ended(executor: Executor) -> None:
    """Run tasks until no map is left: what a worker has of one ends beside them."""
    for _ in range(10_000):
        assert executor.submit(square, 2).result() == 4
        if not executor._loop.maps.active:
            return
    raise AssertionError("a map has not ended")


def test_many_items_are_few_tasks_and_counted_as_items(executor: Executor) -> None:
    items, few = 50_000, False
    for _ in range(5):  # where others have the cores, items may take so long that they are tasks
        before, counted = tasks_of(executor), executor._loop.counts() or {}
        assert sum(executor.map(square, range(items))) == sum(value * value for value in range(items))
        few = few or tasks_of(executor) - before < items // 2
        counts = executor._loop.counts() or {}
        assert counts[TaskState.FINISHED] - counted[TaskState.FINISHED] == items
        assert not counts.get(TaskState.READY)
        assert not executor._loop.maps.active
        if few:
            break
    assert few


@settings(max_examples=15)
@given(st.data())
def test_results_and_errors_are_those_of_a_loop(executor: Executor, data: st.DataObject) -> None:
    kinds = st.sampled_from([0, 1, 2, 3, 4, 6, 7, 8])
    pattern = data.draw(st.lists(kinds, min_size=1, max_size=20))
    items = (pattern * MANY)[:MANY]
    if data.draw(st.booleans()):
        items[data.draw(st.integers(0, MANY - 1))] = 5
    results = executor.map(of_kind, data.draw(st.sampled_from([items, iter(items), tuple(items)])))
    for item in items:
        if item == 5:
            with pytest.raises(LookupError) as caught:
                next(results)
            assert isinstance(caught.value.__cause__, RemoteTraceback)
            assert "in of_kind" in str(caught.value.__cause__)
            assert "call_items" not in str(caught.value.__cause__)
            break
        result, expected = next(results), of_kind(item)
        assert result == expected
        assert type(result) is type(expected)
    assert next(results, None) is None
    results.close()


def test_futures_containers_and_what_cannot_be_sent_are_told_of_alone(executor: Executor) -> None:
    future = executor.submit(square, 3)
    arguments: list[Any] = [
        *range(MANY),
        future,
        [future],
        *[(1, 2)] * 10_000,
        deque([0]),
        (each for each in []),
    ]
    results = executor.map(repr, arguments)
    expected = [*map(repr, range(MANY)), "9", "[9]", *["(1, 2)"] * 10_000, "deque([0])"]
    assert list(islice(results, len(expected))) == expected
    with pytest.raises(ValueError, match="generator cannot be sent"):
        next(results)


def test_what_an_item_changes_or_prints_is_its_own(executor: Executor) -> None:
    assert len(set(executor.map(change, range(MANY)))) == 1
    before = tasks_of(executor)
    assert list(executor.map(print_some, range(3 * MANY))) == [*range(3 * MANY)]
    assert tasks_of(executor) - before > MANY  # who prints is a task, once that is known
    assert list(executor.map(fork_at, range(MANY))) == [*range(MANY)]


def test_each_item_runs_once_and_whoever_loses_its_worker_again(executor: Executor, tmp_path: Path) -> None:
    assert list(executor.map(once, range(MANY), [str(tmp_path)] * MANY)) == [*range(MANY)]
    note = tmp_path / "note"
    at, items = 20_000, 30_000
    assert list(executor.map(kill_at, range(items), [at] * items, [str(note)] * items)) == [*range(items)]
    assert note.read_text() == "xxx"


def test_an_item_much_longer_than_those_before_holds_up_few(executor: Executor) -> None:
    times = [0.0] * MANY + [0.05] * 20 + [0.0] * MANY
    assert list(executor.map(time.sleep, times)) == [None] * len(times)


def test_whoever_stops_early_cancels_the_rest(executor: Executor) -> None:
    results = executor.map(square, range(3_000_000))
    assert list(islice(results, 1_000)) == [value * value for value in range(1_000)]
    assert isinstance(results, Iterator)
    results.close()  # type: ignore[attr-defined]
    until_it_has_ended(executor)
    with pytest.raises(TimeoutError):
        list(executor.map(time.sleep, [0.002] * 10_000, timeout=0.05))
    assert executor.submit(square, 2).result() == 4


def wrong(value: int) -> Iterator[int]:
    yield from range(value)
    raise KeyError(value)


def test_what_reading_the_items_raises_ends_the_map(executor: Executor) -> None:
    with pytest.raises(KeyError):
        executor.map(square, wrong(20_000))
    until_it_has_ended(executor)


def test_at_the_end_of_an_executor_maps_end_too() -> None:
    with Executor(cores=1) as ended:
        results = ended.map(square, range(200_000))
    assert sum(results) == sum(value * value for value in range(200_000))
    with Executor(cores=1) as cancelled:
        results = cancelled.map(time.sleep, [0.01] * 100_000)
        cancelled.shutdown(wait=False, cancel_futures=True)
        with pytest.raises(CancelledError):
            list(results)
    assert list(results) == []


def seen_variable(item: int) -> bool:
    """Return whether another item's variable is there; some set it."""
    is_there = "ITEM_OF_A_ROW" in os.environ
    if item % 97 == 0:
        os.environ["ITEM_OF_A_ROW"] = str(item)
    return is_there


def test_what_a_quick_item_changes_is_undone_before_the_next_one(executor: Executor) -> None:
    assert not any(executor.map(seen_variable, range(50_000)))
