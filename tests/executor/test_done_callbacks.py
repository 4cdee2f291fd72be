"""Who is told first that a future has ended, and what a callback can do to the others: nothing."""

from __future__ import annotations

import concurrent.futures
import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gspc_trio import Executor, TaskFuture
from tests.executor.support import double, fail, wait_for

PATIENCE_S = 60.0

Submit = Callable[[], TaskFuture[Any]]


class Waiting:
    """Has tasks wait until they are let go."""

    def __init__(self, executor: Executor, folder: Path) -> None:
        self._executor = executor
        self._folder = folder
        self._fifos: list[Path] = []

    def submit(self) -> TaskFuture[str]:
        """Return the future of a task that has not ended."""
        fifo = self._folder / f"fifo{len(self._fifos)}"
        os.mkfifo(fifo)
        self._fifos.append(fifo)
        return self._executor.submit(wait_for, str(fifo))

    def go(self) -> None:
        """Have the tasks end."""
        for fifo in self._fifos:
            fifo.write_text("went")


@pytest.fixture
def waiting(executor: Executor, tmp_path: Path) -> Waiting:
    return Waiting(executor, tmp_path)


def test_a_result_does_not_wait_for_callbacks(waiting: Waiting) -> None:
    future = waiting.submit()
    called, seen = threading.Event(), threading.Event()
    future.add_done_callback(lambda _: (called.set(), seen.wait(PATIENCE_S)))
    waiting.go()
    assert called.wait(PATIENCE_S)
    got: list[str] = []
    threads = [
        threading.Thread(target=lambda: got.append(future.result())),
        threading.Thread(target=lambda: got.append(str(future.exception()))),
        threading.Thread(target=lambda: got.extend(f.result() for f in concurrent.futures.wait([future])[0])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S / 6)
    assert sorted(got) == ["None", "went", "went"]
    seen.set()


def test_who_waits_already_does_not_wait_for_callbacks(waiting: Waiting) -> None:
    future = waiting.submit()
    got, seen = threading.Event(), threading.Event()

    def wait() -> None:
        future.result()
        got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    future.add_done_callback(lambda _: seen.wait(PATIENCE_S))
    waiting.go()
    assert got.wait(PATIENCE_S / 2)
    seen.set()
    thread.join()


def test_a_cancelled_future_tells_who_waits_before_callbacks(waiting: Waiting) -> None:
    future = waiting.submit()
    told, seen = threading.Event(), threading.Event()

    def wait() -> None:
        concurrent.futures.wait([future])
        told.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    future.add_done_callback(lambda _: seen.wait(PATIENCE_S))
    canceller = threading.Thread(target=future.cancel)
    canceller.start()
    assert told.wait(PATIENCE_S / 2)
    assert future.cancelled()
    seen.set()
    for thread in (waiter, canceller):
        thread.join()


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError("mine")])
def test_what_a_callback_raises_is_logged_and_harms_nobody(
    executor: Executor, waiting: Waiting, caplog: pytest.LogCaptureFixture, raised: BaseException
) -> None:
    futures = [waiting.submit(), executor.submit(double, waiting.submit())]
    called = threading.Event()

    def throw(_: object) -> None:
        raise raised

    with caplog.at_level(logging.ERROR):
        for future in futures:
            future.add_done_callback(throw)
        futures[1].add_done_callback(lambda _: called.set())
        waiting.go()
        assert [future.result(PATIENCE_S) for future in futures] == ["went", "wentwent"]
        assert called.wait(PATIENCE_S), "the others are called all the same"
    assert executor.submit(double, 4).result(PATIENCE_S) == 8, "the executor lives on"
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert logged == [raised, raised]


def test_ctrl_c_in_a_callback_that_the_main_thread_calls_interrupts(waiting: Waiting) -> None:
    future = waiting.submit()

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    future.add_done_callback(interrupt)
    with pytest.raises(KeyboardInterrupt):
        future.cancel()
    assert future.cancelled()


class Falsy(Exception):
    """An exception that is false."""

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0


def throw_falsy() -> None:
    raise Falsy("nothing")


def test_an_exception_that_is_false_is_one(executor: Executor) -> None:
    future = executor.submit(throw_falsy)
    for _ in range(2):
        with pytest.raises(Falsy, match="nothing"):
            future.result(PATIENCE_S)
    with pytest.raises(Falsy):
        list(executor.map(fail_with, [Falsy("a")]))
    assert type(executor.submit(double, future).exception(PATIENCE_S)) is Falsy


def fail_with(error: BaseException) -> None:
    raise error


class Exits:
    """Ends its process, or so it thinks, whenever it is to be pickled."""

    def __reduce__(self) -> Any:
        sys.exit(3)

    def __call__(self) -> None:
        """Be callable."""


class ExitsWhenRaised(Exits, Exception):
    """The same as an exception; nor can it be printed."""

    def __str__(self) -> str:
        sys.exit(4)


class ExitsWhenOpened(Exception):
    """Ends the process that opens it, except where it was made."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        if pid != os.getpid():
            sys.exit(5)


def give_back_exits() -> Exits:
    return Exits()


def raise_exits() -> None:
    raise ExitsWhenRaised


def raise_exits_when_opened() -> None:
    raise ExitsWhenOpened(os.getpid())


def test_an_object_that_exits_when_it_is_pickled_fails_its_own_task(executor: Executor) -> None:
    futures = [
        executor.submit(double, Exits()),
        executor.submit(Exits()),
        executor.submit(give_back_exits),
        executor.submit(raise_exits),
        executor.submit(raise_exits_when_opened),
        executor.submit(fail, "as usual"),
    ]
    errors = [str(future.exception(PATIENCE_S)) for future in futures]
    assert errors[:3] == ["a value of type Exits cannot be sent to another process: 3"] * 3
    assert errors[3] == "ExitsWhenRaised: (its text cannot be shown: SystemExit)"
    assert errors[4].startswith("ExitsWhenOpened: ")
    assert errors[4].endswith("(the exception itself cannot be opened here: SystemExit: 5)")
    assert errors[5] == "as usual"
    assert [type(error) for error in executor.map(double, [2])] == [int]
