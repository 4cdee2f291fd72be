"""Functions that block, in a simulation: each in a thread that runs only while trio's waits for it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import trio

T = TypeVar("T")


class Unwound(BaseException):
    """The task for which a function runs was cancelled, so that what it waits for never comes."""


class _Thread(threading.Thread):
    """A thread that takes turns with trio's."""

    def __init__(self) -> None:
        super().__init__(name="thread", daemon=True)
        self.request: Callable[[], Awaitable[object]] | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self._function: Callable[[], object] | None = None
        self._answer: Any = None
        self._problem: BaseException | None = None
        self._mine = threading.Semaphore(0)
        self._theirs = threading.Semaphore(0)
        self.start()

    def run(self) -> None:
        """Run one function after another, until there is none."""
        while True:
            self._mine.acquire()
            if self._function is None:
                return
            self.result = self.error = None
            try:
                self.result = self._function()
            except BaseException as error:
                self.error = error
            self._function = None
            self._theirs.release()

    # In trio's thread ----

    def begin(self, function: Callable[[], object]) -> None:
        """Run a function until it asks for something, or is through."""
        self._function = function
        self._go_on()

    def answer(self, answer: object, problem: BaseException | None) -> None:
        """Give it what it has asked for; it goes on until it asks again, or is through."""
        self.request, self._answer, self._problem = None, answer, problem
        self._go_on()

    def end(self) -> None:
        """End the thread."""
        self._mine.release()
        self.join()

    def _go_on(self) -> None:
        self._mine.release()
        self._theirs.acquire()

    # In its own ----

    def ask(self, request: Callable[[], Awaitable[T]]) -> T:
        """Have something awaited."""
        self.request = request
        self._theirs.release()
        self._mine.acquire()
        answer: T
        answer, problem, self._answer, self._problem = self._answer, self._problem, None, None
        try:
            if problem is not None:
                raise Unwound if isinstance(problem, trio.Cancelled) else problem
            return answer
        finally:
            del problem  # else it would keep itself, and what is mapped here


def in_thread() -> bool:
    """Return whether this is not trio's own thread."""
    return isinstance(threading.current_thread(), _Thread)


def call_trio(request: Callable[[], Awaitable[T]]) -> T:
    """Wait, in a thread, for something that takes simulated time.

    Raises:
        Unwound: whoever waits for the thread was cancelled.
    """
    thread = threading.current_thread()
    assert isinstance(thread, _Thread), "trio's own thread cannot wait"
    return thread.ask(request)


class SimulatedThreads:
    """Runs blocking functions as steps of one simulation; close it at the end."""

    def __init__(self) -> None:
        self._idle: list[_Thread] = []
        self._later: list[Callable[[], object]] = []

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what a function does; if cancelled while it waits, it gets :class:`Unwound`."""
        thread = self._idle.pop() if self._idle else _Thread()
        cancelled: trio.Cancelled | None = None
        thread.begin(partial(function, *arguments))
        while thread.request is not None:
            self._catch_up()
            answer, problem = None, None
            try:
                answer = await thread.request()
            except BaseException as error:
                problem = error
                cancelled = error if isinstance(error, trio.Cancelled) else cancelled
            thread.answer(answer, problem)
            del problem
        self._catch_up()
        result: T = thread.result
        failure, thread.result, thread.error = thread.error, None, None
        self._idle.append(thread)
        try:
            if cancelled is not None:
                raise cancelled
            if failure is not None:
                raise failure
            return result
        finally:
            del failure, cancelled  # an exception keeps its frames, and these what is mapped

    def soon(self, function: Callable[[], object], *, idempotent: bool = False) -> None:
        """Do something in trio's thread: now, or when that goes on."""
        del idempotent
        if in_thread():
            self._later.append(function)
        elif trio.lowlevel.in_trio_run():
            function()

    def _catch_up(self) -> None:
        later, self._later = self._later, []
        for function in later:
            function()

    def close(self) -> None:
        """End all threads."""
        for thread in self._idle:
            thread.end()
        self._idle.clear()
