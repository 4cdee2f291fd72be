"""Results of a map, in order, while its tasks run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

from gspc_trio.executor.futures import Deadline, TaskFuture

T = TypeVar("T")


def results(futures: list[TaskFuture[T]], deadline: Deadline) -> Iterator[T]:
    """Yield the results in order, keeping none; whoever stops early cancels the rest."""
    futures.reverse()
    try:
        while futures:
            yield result_or_cancel(futures.pop(), deadline)
    finally:
        for future in futures:
            future.cancel()


def results_as_read(
    futures: list[TaskFuture[T]], submit: Callable[[], list[TaskFuture[T]]], deadline: Deadline
) -> Iterator[T]:
    """The same, submitting another call for each result that is asked for.

    Args:
        futures: of the first calls.
        submit: submits the next call, and returns its future, or none at the end.
        deadline: of all results.
    """
    ahead = deque(futures)
    futures.clear()
    try:
        while ahead:
            ahead.extend(submit())
            yield result_or_cancel(ahead.popleft(), deadline)
    finally:
        for future in ahead:
            future.cancel()


def within(block: AbstractContextManager[object], found: Iterator[T]) -> Iterator[T]:
    """Yield the same in a block, which begins when the first one is asked for."""
    with block:
        yield from found


def result_or_cancel(future: TaskFuture[T], deadline: Deadline) -> T:
    """Return the result; cancel the task if it does not come in time."""
    try:
        return future.result(deadline.left_s())
    except BaseException:
        future.cancel()
        raise
    finally:
        del future  # what is raised would keep it alive, and it what is raised
