"""Who waits for a future goes on when its task has ended, however that was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from gspc_trio import TaskFuture
from gspc_trio.protocol.values import dumps
from tests.e2e.support import wait_until

PATIENCE_S = 60.0
WAITING = 3


class Nobody:
    """Owns futures whose tasks the test ends."""

    forked = False
    is_elsewhere = False
    runs = False

    def cancel(self, future: TaskFuture[Any]) -> None:
        """Nothing runs."""

    def is_running(self, future: TaskFuture[Any]) -> bool:
        """Whether everything runs."""
        del future
        return self.runs


ENDS: list[tuple[Callable[[TaskFuture[Any]], Any], type[Exception] | None]] = [
    (lambda future: future.finish(dumps(7)), None),
    (lambda future: future.fail(KeyError("k")), KeyError),
    (lambda future: future.cancel(), CancelledError),
]


@pytest.mark.parametrize("has_callback", [False, True])
@pytest.mark.parametrize(("end", "raised"), ENDS)
def test_all_who_wait_go_on(
    end: Callable[[TaskFuture[Any]], Any], raised: type[Exception] | None, has_callback: bool
) -> None:
    future: TaskFuture[Any] = TaskFuture(Nobody())
    seen: list[Future[Any]] = []
    if has_callback:
        future.add_done_callback(seen.append)
    with ThreadPoolExecutor(WAITING) as threads:
        results = [threads.submit(future.result, PATIENCE_S) for _ in range(WAITING)]
        wait_until(lambda: future._waker and all(it.running() for it in results), "they wait")
        end(future)
        wait(results, PATIENCE_S)
        for result in (*results, future):
            if raised is None:
                assert result.result(0) == 7
            else:
                with pytest.raises(raised):
                    result.result(0)
    assert seen == ([future] if has_callback else [])
    assert future._waker is None


@pytest.mark.parametrize(("when", "has_callback"), [("before", False), ("before", True), ("after", False)])
@pytest.mark.parametrize("end", [end for end, _ in ENDS])
def test_one_is_told_of_the_end_once(
    end: Callable[[TaskFuture[Any]], Any], when: str, has_callback: bool
) -> None:
    future: TaskFuture[Any] = TaskFuture(Nobody())
    told: list[TaskFuture[Any]] = []
    if has_callback:
        future.add_done_callback(lambda _: None)
    if when == "before":
        future.tell_end(told.append)
    assert told == []
    end(future)
    if when == "after":
        future.tell_end(told.append)
    future.cancel()
    assert told == [future]


def test_who_waits_no_longer_does_not_keep_the_others_from_it() -> None:
    future: TaskFuture[int] = TaskFuture(Nobody())
    for timeout_s in (-1.0, 0, 0.001):
        with pytest.raises(TimeoutError):
            future.result(timeout_s)
    assert future.finish(dumps(7))
    assert future.result(0) == 7
    assert not future.cancel()


class Stubborn:
    """Cannot be opened where it comes to."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda _: None, "pending"),
        (lambda future: setattr(future._owner, "runs", True), "running"),
        (lambda future: future.cancel(), "cancelled"),
        (lambda future: future.fail(KeyError("k")), "finished raised KeyError"),
        (lambda future: future.finish(dumps(None)), "finished returned NoneType"),
        (lambda future: future.finish(dumps([1])), "finished returned list"),
        (lambda future: future.finish(dumps(bytes(100_000))), "finished returned 100005 bytes that nobody"),
        (lambda future: future.finish(dumps(Stubborn())), "finished returned what cannot be opened here: "),
    ],
)
def test_a_future_describes_itself(end: Callable[[TaskFuture[Any]], Any], told: str) -> None:
    future: TaskFuture[Any] = TaskFuture(Nobody())
    end(future)
    assert f"state={told}" in repr(future)


MANY = """
import gc
from gspc_trio.executor.futures import TaskFuture, dumps, finish_all

owner = type("Owner", (), {"forked": False})
futures = [TaskFuture(owner) for _ in range(200)]
finish_all(futures[:100], range(100))
for future in futures[100:]:
    future._task_id = 7
    future.finish(dumps(7))
assert [future.result() for future in futures] == [*range(100), *[7] * 100]
print(sum(type(it) is dict and it.get("_owner") is owner for it in gc.get_objects()))
"""


def test_futures_that_were_made_together_before_they_end_have_no_dictionaries() -> None:
    """The garbage collector would look at as many as there are futures."""
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
