"""Functions that tests have an executor run."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any


def double(value: Any) -> Any:
    return 2 * value


def add(*values: int, more: int = 0) -> int:
    return sum(values) + more


def fail(text: str) -> None:
    raise LookupError(text)


class Counter:
    """Counts; all are equal."""

    def __init__(self, n: int = 0) -> None:
        self.n = n

    def get(self) -> int:
        return self.n

    __call__ = get

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counter)

    def __hash__(self) -> int:
        return 1

    @classmethod
    def kind(cls) -> str:
        return cls.__name__


class Holder:
    """Something that a weak reference can watch."""

    def __init__(self, value: int) -> None:
        self.value = value


class Stubborn(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fail_stubbornly(*printed: object) -> None:
    if printed:
        print(*printed)
    raise Stubborn(1, 2)


def crash() -> None:
    os.abort()


def exit_hard() -> None:
    os._exit(3)


def say_and_hang(fifo: str) -> None:
    """Tell who reads the fifo that the task runs, then run until killed."""
    Path(fifo).write_text(str(os.getpid()))
    time.sleep(600)


def wait_for(fifo: str) -> str:
    """Return what somebody writes into the fifo."""
    return Path(fifo).read_text()


def note(file: str, word: str, *_: object) -> None:
    """Append a word to a file, and take a moment for it."""
    with open(file, "a", encoding="utf-8") as it:
        it.write(f"{word}\n")
    time.sleep(0.01)


def pid_of_task() -> int:
    return os.getpid()


def use_memory(size_bytes: int) -> int:
    pieces = [bytes(100_000) for _ in range(size_bytes // 100_000)]
    del pieces
    return os.getpid()


def loaded_modules() -> set[str]:
    return set(sys.modules)


def same(*values: Any, **named: Any) -> Any:
    """Return what it is given: alone if it is one value."""
    given = (*values, named) if named else values
    return given[0] if len(given) == 1 else given


_set_for_tasks = "nothing"


def set_for_tasks(word: str) -> threading.Lock:
    """Set what :func:`seen_by_tasks` returns; what an initializer returns is nobody's."""
    global _set_for_tasks
    _set_for_tasks = word
    return threading.Lock()


def seen_by_tasks() -> str:
    return _set_for_tasks


class Terminal(io.StringIO):
    """A text that passes for a terminal."""

    def isatty(self) -> bool:
        return True
