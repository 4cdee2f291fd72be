"""What an executor's tasks may be, take and return."""

from __future__ import annotations

import concurrent.futures
import functools
import gc
import inspect
import os
import pickle
import re
import signal
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gspc_trio import Executor, Program, TaskFailed, TaskFuture, Variant, Variants
from gspc_trio.executor import RemoteTraceback
from tests.e2e.support import wait_until
from tests.executor.support import (
    Holder,
    Stubborn,
    add,
    crash,
    double,
    exit_hard,
    fail,
    fail_stubbornly,
    loaded_modules,
    note,
    pid_of_task,
    say_and_hang,
    use_memory,
    wait_for,
)

PATIENCE_S = 60.0


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return str(path)


def hanging(executor: Executor, fifo: str) -> TaskFuture[None]:
    """Return the future of a task that runs now and will not end."""
    future = executor.submit(say_and_hang, fifo)
    assert Path(fifo).read_text()
    return future


def test_it_is_an_executor_of_the_standard_library(executor: Executor) -> None:
    assert isinstance(executor, concurrent.futures.Executor)
    theirs = inspect.signature(concurrent.futures.Executor.map).parameters
    assert set(theirs) <= {*inspect.signature(Executor.map).parameters, "buffersize"}


def test_results_come_back(executor: Executor) -> None:
    futures = [executor.submit(double, value) for value in range(100)]
    assert [future.result(PATIENCE_S) for future in futures] == [2 * value for value in range(100)]
    assert executor.submit(add, 1, 2, more=3).result() == 6


def test_a_search_path_may_have_what_is_no_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python passes over it: whoever puts a Path there sees no error."""
    monkeypatch.setattr(sys, "path", [tmp_path, *sys.path])
    with Executor(cores=1) as executor:
        assert executor.submit(double, 2).result(PATIENCE_S) == 4


def test_of_variants_one_runs_whose_class_is_there(executor: Executor) -> None:
    """Functions that travel by value, arguments by name and futures in lists are as with one function."""
    there, gpu = 3, Variant(fail, requires="gpu")
    variants = Variants(gpu=gpu, cpu=lambda *items, more=0: there * add(*items, more=more))
    first = executor.submit(variants, 1, more=1)
    assert first.result() == 6
    assert list(executor.map(variants, [1, 2], [3, 4])) == [12, 18]
    sums = Variants.by_order(gpu=gpu, cpu=lambda items: sum(items))
    assert executor.submit(sums, [first, 1]).result() == 7
    with pytest.raises(TaskFailed, match="none of its variants can run: a: asked for gpu, but there is"):
        executor.submit(Variants(a=gpu, b=Variant(add, requires="tpu"))).result()
    with pytest.raises(TypeError, match="variant 'a': an executor calls functions, not Program"):
        executor.submit(Variants(a=Program(["true"]))).result()


def test_closures_lambdas_partials_and_methods_travel_by_value(executor: Executor) -> None:
    offset = 5
    futures = [
        executor.submit(lambda x: x + offset, 1),
        executor.submit(functools.partial(add, 1), 2),
        executor.submit("-".join, ["a", "b"]),
        executor.submit(len, {1, 2}),
    ]
    assert [future.result(PATIENCE_S) for future in futures] == [6, 3, "a-b", 2]


def test_a_closure_is_taken_as_it_is_when_it_is_submitted(executor: Executor) -> None:
    seen: list[int] = []

    def count() -> int:
        return len(seen)

    futures = []
    for value in range(4):
        futures.append(executor.submit(count))
        seen.append(value)
    assert [future.result(PATIENCE_S) for future in futures] == [0, 1, 2, 3]


def test_lambdas_leave_nothing_in_the_code_table(executor: Executor) -> None:
    executor.submit(lambda: 0).result(PATIENCE_S)
    before = len(executor._codes._data)
    assert [executor.submit(lambda i=i: i).result(PATIENCE_S) for i in range(5)] == list(range(5))
    assert len(executor._codes._data) == before


def test_a_compute_process_loads_nothing_of_ours_that_it_does_not_need(executor: Executor) -> None:
    for function in (lambda: set(sys.modules), loaded_modules):
        loaded = executor.submit(function).result(PATIENCE_S)
        ours = {"trio", "gspc_trio.executor", "gspc_trio.components", "gspc_trio.nursery", "gspc_trio.iml"}
        assert not ours & loaded


def test_an_exception_comes_with_its_traceback(executor: Executor) -> None:
    error = executor.submit(fail, "nothing there").exception(PATIENCE_S)
    assert type(error) is LookupError
    assert error.args == ("nothing there",)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "raise LookupError(text)" in str(error.__cause__)
    assert "gspc_trio/compute" not in str(error.__cause__)


def test_an_exception_that_cannot_travel_is_described(executor: Executor) -> None:
    error = executor.submit(fail_stubbornly).exception(PATIENCE_S)
    assert type(error) is TaskFailed
    assert str(error) == f"{Stubborn.__name__}: 1 and 2"


def test_what_cannot_be_sent_fails_its_own_future_alone(executor: Executor) -> None:
    bad = executor.submit(double, threading.Lock())
    assert executor.submit(double, 1).result(PATIENCE_S) == 2
    with pytest.raises(ValueError, match="lock"):
        bad.result(PATIENCE_S)
    with pytest.raises(ValueError, match="lock"):
        executor.submit(threading.Lock).result(PATIENCE_S)


def test_a_lost_process_costs_its_task_the_attempts_and_no_other_task_anything(executor: Executor) -> None:
    lost = executor.submit(exit_hard)
    others = [executor.submit(double, value) for value in range(50)]
    assert [future.result(PATIENCE_S) for future in others] == [2 * value for value in range(50)]
    error = lost.exception(PATIENCE_S)
    assert isinstance(error, TaskFailed)
    assert "3 times" in str(error)
    assert "exited with status 3" in str(error)


def test_a_failure_says_what_failed_where_and_how(executor: Executor) -> None:
    future = executor.with_options(loss_attempts=1).submit(exit_hard)
    dependent = executor.submit(double, future).exception(PATIENCE_S)
    assert isinstance(dependent, TaskFailed)
    assert (dependent.kind, dependent.name, dependent.attempt) == ("lost", "double", 0)
    lost = future.exception(PATIENCE_S)
    assert isinstance(lost, TaskFailed)
    assert (lost.kind, lost.name, lost.attempt, lost.exit_status) == ("lost", "exit_hard", 1, 3)
    assert lost.host
    raised = executor.submit(fail_stubbornly, "printed").exception(PATIENCE_S)
    assert isinstance(raised, TaskFailed)
    assert (raised.kind, raised.stdout, raised.exit_status) == ("Stubborn", "printed\n", None)
    again = pickle.loads(pickle.dumps(raised))
    assert (str(again), vars(again)) == (str(raised), vars(raised))


def test_a_crash_says_where_in_the_code_it_was(executor: Executor) -> None:
    error = executor.with_options(loss_attempts=1).submit(crash).exception(PATIENCE_S)
    assert isinstance(error, TaskFailed)
    assert error.exit_status == -signal.SIGABRT
    assert re.search(r"killed by SIGABRT; Aborted in crash \(/.*tests/executor/support.py:\d+\)$", str(error))


def test_a_task_that_needs_more_memory_says_which_limit_it_had(executor: Executor) -> None:
    limited = executor.with_options(memory_bytes=50_000_000)
    with pytest.raises(MemoryError, match="needed more than its memory_bytes of 50000000"):
        limited.submit(use_memory, 1 << 30).result(PATIENCE_S)


def test_futures_are_arguments(executor: Executor) -> None:
    one = executor.submit(double, 1)
    two = executor.submit(add, one, one, more=executor.submit(double, 4))
    assert two.result(PATIENCE_S) == 12
    assert executor.submit(double, one).result(PATIENCE_S) == 4, "one that has ended will do, too"


def test_futures_of_other_executors_are_arguments(executor: Executor, fifo: str) -> None:
    with Executor(cores=1) as other, ThreadPoolExecutor(1) as threads:
        late = threads.submit(wait_for, fifo)
        first = executor.submit(double, late)
        second = other.submit(double, first)
        third = executor.submit(add, more=executor.submit(double, second))
        assert not first.done()
        Path(fifo).write_text("ab")
        assert second.result(PATIENCE_S) == "abababab"
        assert isinstance(third.exception(PATIENCE_S), TypeError)


def test_a_call_waits_for_a_task_and_for_a_future_of_others(executor: Executor, fifo: str) -> None:
    foreign: Future[str] = Future()
    late = executor.submit(wait_for, fifo)
    both = executor.submit(max, late, foreign)
    assert executor.submit(double, 2).result(PATIENCE_S) == 4  # the calls were looked at
    Path(fifo).write_text("a")
    assert late.result(PATIENCE_S) == "a"
    foreign.set_result("b")
    assert both.result(PATIENCE_S) == "b"


def test_a_failed_argument_fails_what_depends_on_it(executor: Executor) -> None:
    before = executor.submit(double, executor.submit(fail, "deep"))
    assert type(before.exception(PATIENCE_S)) is LookupError
    assert type(executor.submit(double, before).exception(PATIENCE_S)) is LookupError
    foreign: Future[int] = Future()
    waiting = executor.submit(double, foreign)
    foreign.set_exception(KeyError("elsewhere"))
    assert type(waiting.exception(PATIENCE_S)) is KeyError


def test_a_running_task_is_cancelled(executor: Executor, fifo: str) -> None:
    future = hanging(executor, fifo)
    assert future.running()
    followers = [executor.submit(double, future), executor.submit(double, 3)]
    assert future.cancel()
    assert future.cancel(), "again is no error"
    assert future.cancelled()
    assert future.done()
    assert not future.running()
    with pytest.raises(CancelledError):
        future.result(PATIENCE_S)
    assert followers[1].result(PATIENCE_S) == 6
    for dependent in (followers[0], executor.submit(double, future)):
        with pytest.raises(TaskFailed, match="cancelled"):
            dependent.result(PATIENCE_S)


def test_a_task_that_waits_for_another_is_cancelled(executor: Executor, fifo: str) -> None:
    first = executor.submit(wait_for, fifo)
    second = executor.submit(double, first)
    third = executor.submit(double, second)
    assert second.cancel()
    with pytest.raises(TaskFailed, match="cancelled"):
        third.result(PATIENCE_S)
    Path(fifo).write_text("x")
    assert first.result(PATIENCE_S) == "x"
    assert not first.cancel(), "it has ended"
    assert executor.submit(double, 1).result(PATIENCE_S) == 2


def test_cancellation_is_told_to_those_who_wait(executor: Executor, fifo: str) -> None:
    future = hanging(executor, fifo)
    told: list[Future[None]] = []
    future.add_done_callback(told.append)
    waiting = threading.Thread(target=concurrent.futures.wait, args=([future],))
    waiting.start()
    threads = [threading.Thread(target=future.cancel) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in (*threads, waiting):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert told == [future]


def test_the_standard_tools_work(executor: Executor) -> None:
    futures = {executor.submit(double, value): value for value in range(50)}
    for future in concurrent.futures.as_completed(futures, PATIENCE_S):
        assert future.result() == 2 * futures[future]
    more = [executor.submit(double, 1), executor.submit(fail, "x")]
    done, left = concurrent.futures.wait(more, PATIENCE_S)
    assert done == set(more)
    assert not left
    called = threading.Event()
    executor.submit(double, 1).add_done_callback(lambda _: called.set())
    assert called.wait(PATIENCE_S)


def test_a_future_has_what_the_standard_one_has(executor: Executor) -> None:
    plain = executor.submit(double, 1)
    with plain._condition:  # made when it is first used
        assert all(hasattr(plain, name) for name in vars(Future()))
    assert "FINISHED" not in repr(Future())
    plain.result(PATIENCE_S)
    assert "finished" in repr(plain)


def test_a_callback_may_submit(executor: Executor) -> None:
    results: list[Future[int]] = []
    chained = threading.Event()

    def follow(future: Future[int]) -> None:
        results.append(executor.submit(double, future))
        chained.set()

    executor.submit(double, 1).add_done_callback(follow)
    assert chained.wait(PATIENCE_S)
    assert results[0].result(PATIENCE_S) == 4


def test_a_result_that_does_not_come_in_time(executor: Executor, fifo: str) -> None:
    future = hanging(executor, fifo)
    for wait in (future.result, future.exception):
        with pytest.raises(TimeoutError):
            wait(0.001)
    with pytest.raises(TimeoutError):
        list(executor.map(wait_for, [fifo], timeout=0.001))
    future.cancel()
    assert executor.submit(double, 1).result(PATIENCE_S) == 2


def test_map(executor: Executor) -> None:
    assert list(executor.map(add, range(100), range(1000))) == [2 * value for value in range(100)]
    assert list(executor.map(lambda x: -x, range(50), chunksize=7)) == [-value for value in range(50)]
    assert list(executor.map(double, [])) == []
    assert list(executor.map(double, [executor.submit(double, 1)])) == [4]
    with pytest.raises(ValueError, match="must be >= 1, not 0"):
        executor.map(double, [1], chunksize=0)
    results = executor.map(fail, ["a", "b"])
    with pytest.raises(LookupError, match="a"):
        next(results)


def test_who_leaves_a_map_early_cancels_the_rest(executor: Executor, fifo: str) -> None:
    never = f"{fifo}.never"
    os.mkfifo(never)
    results = executor.map(wait_for, [fifo, *[never] * 5])
    Path(fifo).write_text("first")
    assert next(results) == "first"
    results.close()  # type: ignore[attr-defined]
    assert executor.submit(double, 1).result(PATIENCE_S) == 2


def test_large_values_come_back_and_are_kept_once(executor: Executor) -> None:
    blob = os.urandom(1 << 22)
    future = executor.submit(double, blob)
    again = executor.submit(len, future)
    assert future.result(PATIENCE_S) == 2 * blob
    assert again.result(PATIENCE_S) == 2 * len(blob)
    assert executor.submit(len, future).result(PATIENCE_S) == 2 * len(blob)


def test_memory_that_a_task_has_freed_is_given_back_when_nothing_is_to_be_done(executor: Executor) -> None:
    def resident_bytes() -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    pid = executor.submit(use_memory, 200_000_000).result(PATIENCE_S)
    wait_until(lambda: resident_bytes() < 100_000_000, "the memory is given back")


def test_many_threads_submit(executor: Executor) -> None:
    results: dict[int, list[int]] = {}

    def work(number: int) -> None:
        futures = [executor.submit(add, number, value) for value in range(200)]
        results[number] = [future.result(PATIENCE_S) for future in futures]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert results == {number: [number + value for value in range(200)] for number in range(6)}


def test_tasks_run_in_other_processes_on_both_cores(executor: Executor, fifo: str) -> None:
    future = hanging(executor, fifo)
    assert executor.submit(pid_of_task).result(PATIENCE_S) != os.getpid(), "the other core is free"
    future.cancel()


@pytest.mark.parametrize("function", [double, fail])
def test_a_task_that_has_ended_leaves_nothing_behind(
    executor: Executor, function: Callable[[str], Any]
) -> None:
    def run() -> int:
        concurrent.futures.wait([executor.submit(function, "text") for _ in range(300)])
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    run()
    gc.freeze()  # what was there before, which is much, need not be looked at each time
    tracemalloc.start()
    try:
        sizes = (run() for _ in range(12))
        assert any(after - before < 300 * 50 for before, after in pairwise(sizes))
    finally:
        tracemalloc.stop()
        gc.unfreeze()


@pytest.mark.parametrize("chunksize", [1, 3])
def test_a_map_keeps_no_result_that_it_has_yielded(executor: Executor, chunksize: int) -> None:
    results = executor.map(Holder, range(6), chunksize=chunksize)
    for number in range(6):
        held = next(results)
        kept = weakref.ref(held)
        assert held.value == number
        del held
        wait_until(lambda it=kept: it() is None, "it is gone")  # the thread that brought it may just return


def test_of_the_tasks_that_wait_those_with_the_highest_priority_run_first(tmp_path: Path) -> None:
    gate, order = tmp_path / "gate", tmp_path / "order"
    os.mkfifo(gate)
    with Executor(cores=1) as executor:
        urgent = executor.with_options(priority=10)
        blocker = executor.submit(wait_for, str(gate))
        notes = [executor.submit(note, str(order), "low") for _ in range(50)]
        notes.append(urgent.submit(note, str(order), "high"))
        notes += [urgent.submit(note, str(order), "depends", notes[0])]
        gate.write_text("go")
        assert blocker.result(PATIENCE_S) == "go"
        concurrent.futures.wait(notes)
    words = order.read_text().split()
    assert words[0] == "high"
    assert words.index("depends") < 10, "it waits for the first of the others, and for few sent ahead"
    assert len(words) == 52


def test_a_chain_that_is_sent_ahead_ends_as_its_links_do(executor: Executor) -> None:
    def chain(middle: Callable[..., int]) -> list[TaskFuture[int]]:
        futures = [executor.submit(add, 0, 1)]
        for number in range(1, 200):
            futures.append(executor.submit(middle if number == 100 else add, futures[-1], 1))
        return futures

    assert [future.result(PATIENCE_S) for future in chain(add)] == list(range(1, 201))
    for middle, error in ((fail_at, LookupError), (exit_at, TaskFailed)):
        futures = chain(middle)
        assert [future.result(PATIENCE_S) for future in futures[:100]] == list(range(1, 101))
        assert all(isinstance(future.exception(PATIENCE_S), error) for future in futures[100:])


def fail_at(value: int, more: int) -> int:
    raise LookupError(f"at {value}, {more}")


def exit_at(value: int, more: int) -> int:
    os._exit(value and more)
