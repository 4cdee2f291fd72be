"""The executor of a task: it starts tasks of the same job, and lends the core of its own while it waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor as ExecutorInterface
from concurrent.futures import Future
from contextlib import contextmanager
from copy import copy
from itertools import islice
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar, Unpack

from gspc_trio.compute.code import call_each, call_filled, calls_of_chunks, flat
from gspc_trio.compute.task_session import NestedFuture, TaskSession
from gspc_trio.core.current import ComputePlace, current_place
from gspc_trio.core.nested import DEPTH_MAX
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS
from gspc_trio.workflow.call_options import CallOptions, checked_count, with_stated
from gspc_trio.workflow.containers import futures_in, make_holes

T = TypeVar("T")


class TaskExecutor(ExecutorInterface):
    """The executor of a task, as :func:`current_executor` returns it: ``concurrent.futures.Executor``.

    What it runs belongs to the job of the task, and runs on the same run-time system, on any of its hosts.
    While the task waits for a result, other tasks use its core. What has not ended when the task ends is
    cancelled.
    """

    def __init__(self, session: TaskSession) -> None:
        self._session = session
        self._shape, self._options = CORE, DEFAULT_OPTIONS
        self._is_shut_down = False

    def with_options(self, **stated: Unpack[CallOptions]) -> TaskExecutor:
        """Return this executor for tasks that need or state something else, more attempts for instance.

        Args:
            stated: any of the fields of ``TaskOptions`` and ``Shape``; ``requires``, a resource class or a
                list of them; or ``shape`` and ``options`` as a whole.

        Raises:
            TypeError: there is no such option.
            WorkflowError: what is stated makes no sense.
        """
        other = copy(self)
        other._shape, other._options = with_stated(self._shape, self._options, stated)
        return other

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        """Run ``fn(*args, **kwargs)`` as a task of the same job and return its future.

        A future among the arguments stands for its result, also in lists, tuples, sets and dicts; the task
        waits for it. A task that is nested ``DEPTH_MAX`` deep calls the function itself, at once. While
        ``UNFINISHED_MAX`` tasks of this one have not ended it waits until there are fewer.

        Raises:
            ExecutorBroken: the task can start no more tasks.
            RuntimeError: the executor was shut down, or the task has ended.
        """
        self._session.check()
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if not callable(fn):
            raise TypeError(f"{fn!r} is not callable, so it cannot be the code of a task")
        if self._session.depth >= DEPTH_MAX:
            return _called(self._session, fn, args, kwargs)
        return self._session.submit(_name_of(fn), fn, args, kwargs, self._shape, self._options)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[object],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Run ``fn`` on each item and return an iterator over the results in order.

        Args:
            fn: takes as many arguments as there are iterables.
            iterables: read at once, or as far as ``buffersize`` says; they end with the shortest.
            timeout: seconds from now in which every result must be there, or None.
            chunksize: items that one task computes.
            buffersize: so many tasks are submitted whose results have not been asked for; None: all.

        Raises:
            TypeError, ValueError: the size of chunks or buffer is no whole number, or not positive.
            TimeoutError: (from the iterator) a result was not there in time.
            Exception: (from the iterator) what the function raised.
        """
        items = zip(*iterables, strict=False)
        return self.starmap(fn, items, timeout=timeout, chunksize=chunksize, buffersize=buffersize)

    def starmap(
        self,
        fn: Callable[..., T],
        iterable: Iterable[Iterable[object]],
        *,
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Run ``fn`` on the arguments in each item, ``fn(*item)``; the rest as :meth:`map`."""
        size = checked_count("chunksize", chunksize)
        ahead = None if buffersize is None else checked_count("buffersize", buffersize)
        end_s = None if timeout is None else monotonic() + timeout
        items = map(tuple, iterable)
        if size == 1:
            calls = (self.submit(fn, *item) for item in items)
            return _results(deque(islice(calls, ahead)), calls, end_s)
        parts = (self.submit(call_each, *chunk) for chunk in calls_of_chunks(fn, items, size))
        return flat(_results(deque(islice(parts, ahead)), parts, end_s))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; with ``wait``, return when all have ended.

        Args:
            wait: wait for the end; the core is lent meanwhile.
            cancel_futures: cancel those that have not ended.
        """
        self._is_shut_down = True
        if cancel_futures:
            self._session.cancel_waiting()
        if wait:
            for future in self._session.futures:
                future._wait(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(wait=True)


def _results(futures: deque[Future[T]], more: Iterator[Future[T]], end_s: float | None) -> Iterator[T]:
    """Yield the results in order, submitting another call for each; whoever stops early cancels the rest."""
    try:
        while futures:
            futures.extend(islice(more, 1))
            left_s = None if end_s is None else max(0.0, end_s - monotonic())
            yield futures.popleft().result(left_s)
    finally:
        for future in futures:
            future.cancel()


def _called(
    session: TaskSession, fn: Callable[..., T], args: Iterable[object], kwargs: dict[str, object]
) -> Future[T]:
    """Call the function here and return the future of its result."""
    future: NestedFuture[T] = NestedFuture(session)
    values, counts = list[object](), list[int]()
    for value in (*args, *kwargs.values()):
        futures = [] if isinstance(value, Future) else futures_in(value)
        counts.append(len(futures) if futures else -1)
        values += [make_holes(value, futures) if futures else value, *futures]
    try:
        opened = [value.result() if isinstance(value, Future) else value for value in values]
        result: Any = call_filled(fn, list(kwargs), counts, *opened)
        future.set_result(result)
    except Exception as error:
        future.set_exception(error)
    return future


def _name_of(fn: Callable[..., object]) -> str:
    name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) else type(fn).__name__


_sessions = threading.Lock()


def current_executor() -> TaskExecutor:
    """Return the executor of the task whose code calls this: it runs tasks of the same job.

    No file name is needed, and it works on every host of the run-time system.

    Raises:
        RuntimeError: this is not the code of a task, or the host does not answer.
    """
    return TaskExecutor(_session_of(_place()))


def _place() -> ComputePlace:
    place = current_place()
    if place is None or not place.task_id:
        raise RuntimeError(
            "current_executor() is for the code of tasks, and no task runs here: make an Executor() instead"
        )
    return place


_open: dict[ComputePlace, tuple[tuple[int, int], TaskSession]] = {}


def _session_of(place: ComputePlace) -> TaskSession:
    """Return the session of the task that runs now."""
    with _sessions:
        task = (place.task_id, place.attempt)
        known = _open.get(place)
        if known is None or known[0] != task:
            known = _open[place] = (task, TaskSession(place))
        return known[1]


@contextmanager
def lending() -> Iterator[None]:
    """Lend the core of the task whose code is in this block; elsewhere nothing happens.

    It is for tasks that wait for tasks of another executor on their own run-time system.
    """
    place = current_place()
    if place is None or not place.task_id:
        yield
        return
    with _session_of(place).waiting():
        yield
