"""Separate calls that wait in great numbers: each as if it were a task of its own."""

from __future__ import annotations

import os
import time
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio import Executor
from gspc_trio.components.job.item_values import ITEM_BYTES_MAX
from gspc_trio.core.task import TaskState
from gspc_trio.executor.submitted import MANY
from gspc_trio.workflow.failures import ExecutorBroken, RemoteTraceback

CALLS = 2 * MANY


@pytest.fixture(scope="module", autouse=True)
def _warm(executor: Executor) -> None:
    """The first range comes after the first results, so the code has run before."""
    assert len(list(executor.map(of_kind, [0] * MANY))) == MANY


def of_kind(kind: int, text: str = "") -> Any:
    """Return a value of one of several types, or raise."""
    if kind == 5:
        raise LookupError(text)
    return [kind, 1 << 70, "\udcff", [kind, {"of": (kind,)}], {kind}, None, 0.5, text, True, (kind, text)][
        kind
    ]


def after(path: str, value: int = 0) -> int:
    """Return a value when there is a file."""
    while path and not os.path.exists(path):
        time.sleep(0.001)
    return value


def once(value: int, directory: str) -> int:
    os.close(os.open(f"{directory}/{value}", os.O_CREAT | os.O_EXCL))
    return value


def tasks_of(executor: Executor) -> int:
    """How many tasks there have been."""
    return executor._loop._table.graph.last_task_id


def test_many_calls_are_few_tasks_and_counted_as_calls(executor: Executor) -> None:
    calls, few = 6 * MANY, False
    for _ in range(5):  # where others have the cores, calls may take so long that they are tasks
        before, counted = tasks_of(executor), executor._loop.counts() or {}
        futures = [executor.submit(of_kind, 0, str(number)) for number in range(calls)]
        assert [future.result() for future in futures] == [0] * calls
        assert not any(future.running() for future in futures[-10:])
        few = few or tasks_of(executor) - before < calls // 2
        counts = executor._loop.counts() or {}
        assert counts[TaskState.FINISHED] - counted[TaskState.FINISHED] == calls
        assert not counts.get(TaskState.READY)
        if few:
            break
    assert few
    for _ in range(10_000):
        assert executor.submit(of_kind, 0).result() == 0
        if not executor._loop.maps.active:
            return
    raise AssertionError("some calls have not ended")


def test_texts_that_are_not_long_travel_with_their_calls(executor: Executor) -> None:
    texts = [f"{number:08}" * (ITEM_BYTES_MAX // 8) for number in range(CALLS)]
    for _ in range(5):  # as above
        before = tasks_of(executor)
        assert [call.result() for call in [executor.submit(of_kind, 7, text) for text in texts]] == texts
        if tasks_of(executor) - before < CALLS:
            return
    raise AssertionError("each call was a task")


@settings(max_examples=3)
@given(st.lists(st.sampled_from(range(10)), min_size=1, max_size=20), st.booleans())
def test_results_and_errors_are_those_of_a_loop(executor: Executor, pattern: list[int], named: bool) -> None:
    kinds = (pattern * CALLS)[:CALLS]
    stated: dict[str, str] = {"text": "why"} if named else {}
    futures = [executor.submit(of_kind, kind, **stated) for kind in kinds]
    for kind, future in zip(kinds, futures, strict=True):
        if kind == 5:
            with pytest.raises(LookupError) as caught:
                future.result()
            assert caught.value.args == (stated.get("text", ""),)
            assert isinstance(caught.value.__cause__, RemoteTraceback)
            assert "in of_kind" in str(caught.value.__cause__)
            continue
        result, expected = future.result(), of_kind(kind, **stated)
        assert result == expected
        assert type(result) is type(expected)


def test_calls_together_may_be_none(executor: Executor) -> None:
    for _ in range(100):  # the executor has no other calls at most of these times
        with executor.calls_together():
            pass
        assert executor.submit(of_kind, 0).result() == 0


def test_calls_together_that_need_no_other_are_few_tasks(executor: Executor) -> None:
    numbers = range(3 * CALLS)
    for _ in range(5):  # as above
        before = tasks_of(executor)
        with executor.calls_together(are_independent=True) as calls:
            futures = [calls.submit("pow", pow, number, 2) for number in numbers]
        assert [future.result() for future in futures] == [number**2 for number in numbers]
        if tasks_of(executor) - before < len(numbers):
            return
    raise AssertionError("each call was a task")


@pytest.mark.parametrize("are_independent", [True, False])
def test_rows_of_arguments_are_calls_as_others_are(executor: Executor, are_independent: bool) -> None:
    added = [1, 2]
    rows = [(number, 2) for number in range(CALLS)]
    long = [(bytes([number % 256]) * (1 << (number % 20)),) for number in range(40)]
    with executor.calls_together(are_independent=are_independent) as calls:
        squares = calls.submit_rows("pow", pow, rows)
        alone = calls.submit("pow", pow, 2, 5)
        lengths = calls.submit_rows("len", len, long)
        sums = calls.submit_rows("more", lambda *more: sum(more, sum(added)), [(), (4,), (5, 6)])
        assert calls.submit_rows("none", pow, []) == []
    assert [future.result() for future in squares] == [number**2 for number, _ in rows]
    assert alone.result() == 32
    assert [future.result() for future in lengths] == [len(value) for (value,) in long]
    assert [future.result() for future in sums] == [3, 7, 14]


def test_results_are_arguments_of_further_calls(executor: Executor) -> None:
    values = [executor.submit(of_kind, 0) for _ in range(CALLS)]
    futures = [executor.submit(pow, 2, value) for value in values]
    assert [future.result() for future in futures] == [1] * CALLS


def test_a_call_that_waits_for_what_the_program_does_keeps_no_result(
    executor: Executor, tmp_path: Path
) -> None:
    path = tmp_path / "go"
    before = [executor.submit(after, "", number) for number in range(CALLS)]
    waiting = executor.submit(after, str(path), -1)
    behind = [executor.submit(after, "", number) for number in range(MANY)]
    assert [future.result(60) for future in before] == [*range(CALLS)]
    path.touch()
    assert [future.result(60) for future in (waiting, *behind)] == [-1, *range(MANY)]


def test_a_long_call_that_is_cancelled_ends_and_the_others_run(executor: Executor, tmp_path: Path) -> None:
    before = [executor.submit(after, "", number) for number in range(CALLS)]
    waiting = executor.submit(after, str(tmp_path / "never"), -1)
    behind = [executor.submit(after, "", number) for number in range(MANY)]
    assert before[-1].result(60) == CALLS - 1
    assert waiting.cancel()
    assert [future.result(60) for future in (*before, *behind)] == [*range(CALLS), *range(MANY)]
    with pytest.raises(CancelledError):
        waiting.result()


def test_what_is_cancelled_before_it_begins_never_runs(executor: Executor, tmp_path: Path) -> None:
    busy = [executor.submit(after, str(tmp_path / "go")) for _ in range(MANY)]
    futures = [executor.submit(once, number, str(tmp_path)) for number in range(CALLS)]
    assert all(future.cancel() for future in futures[::2])
    (tmp_path / "go").touch()
    assert [future.result() for future in futures[1::2]] == [*range(1, CALLS, 2)]
    assert len(busy) == sum(future.result() == 0 for future in busy)
    assert len(list(tmp_path.iterdir())) == 1 + CALLS // 2


def test_at_the_end_of_an_executor_calls_end_too() -> None:
    with Executor(cores=1) as ended:
        futures = [ended.submit(of_kind, 0) for _ in range(CALLS)]
    assert [future.result() for future in futures] == [0] * CALLS
    with Executor(cores=1) as cancelled:
        futures = [cancelled.submit(time.sleep, 0.01) for _ in range(CALLS)]
        cancelled.shutdown(wait=False, cancel_futures=True)
    assert sum(future.cancelled() for future in futures) > CALLS - MANY
    assert all(future.done() for future in futures)
    with Executor(cores=1) as killed:
        futures = [killed.submit(time.sleep, 0.01) for _ in range(CALLS)]
        killed.kill_workers()
    assert isinstance(futures[-1].exception(), ExecutorBroken)
    assert all(future.done() for future in futures)
