"""Tasks that start tasks. Every process that runs one imports this file, so it imports little."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import FIRST_COMPLETED, as_completed, wait
from pathlib import Path

from gspc_trio import current_executor
from tests.executor.support import add, double, fail

HANG_S = 60.0


def fibonacci(number: int) -> int:
    if number < 2:
        return number
    executor = current_executor()
    first, second = (executor.submit(fibonacci, number - less) for less in (1, 2))
    return first.result() + second.result()


def opened(value: object, more: object = None) -> object:
    return value, more


def depth(number: int) -> int:
    """Nest so deep."""
    return 1 + current_executor().submit(depth, number - 1).result() if number else 0


def wait_in_all_ways() -> list[object]:
    executor = current_executor()
    futures = [executor.submit(double, number) for number in range(4)]
    done, _ = wait(futures, return_when=FIRST_COMPLETED)
    assert done
    found: list[object] = [sorted(future.result() for future in as_completed(futures))]
    found.append(list(executor.map(double, range(3))))
    found.append(list(executor.map(add, range(5), range(5), chunksize=2, buffersize=1)))
    found.append(list(executor.starmap(add, [(1, 2), (3, 4)], chunksize=2)))
    found.append(executor.submit(add, executor.submit(double, 3), 1, more=10).result())
    nested = {"all": [executor.submit(double, number) for number in range(3)], "more": (1, [futures[2]])}
    found.append(executor.submit(opened, nested, more=[executor.submit(double, 5)]).result())
    found.append(executor.with_options(attempts=2).submit(double, 4).result())
    try:
        executor.submit(fail, "no").result()
    except LookupError as error:
        found.append(repr(error))
    with executor:
        left = executor.submit(double, 5)
    found.append(left.done())
    return found


def say_within(text: str) -> None:
    print("outer")
    current_executor().submit(print, text).result()


def wait_for_one_that_hangs(folder: str) -> None:
    current_executor().submit(hang, folder).result()


def hang(folder: str) -> None:
    Path(folder, str(os.getpid())).touch()
    time.sleep(HANG_S)


def die_once(path: str) -> str:
    """Die at the first call."""
    try:
        Path(path).touch(exist_ok=False)
    except FileExistsError:
        return "lives"
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def need_one_that_dies() -> None:
    current_executor().with_options(loss_attempts=1).submit(die).result()


def start_those_that_die(path: str) -> tuple[str, str, int]:
    executor = current_executor()
    lives = executor.submit(die_once, path).result()
    dies = executor.with_options(loss_attempts=1).submit(die)
    error = dies.exception()
    said = f"{type(error).__name__}: {error}".split(": task")[0]
    return lives, said, executor.submit(double, 21).result()
