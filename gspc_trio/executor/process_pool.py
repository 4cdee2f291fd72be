"""The interface of ``multiprocessing.Pool`` on a run-time system."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from itertools import islice
from multiprocessing.pool import CLOSE, RUN, TERMINATE
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NoReturn, TypeVar

from gspc_trio.components.job.shell.output import OutputMode
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.compute.code import call_each
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Shape, TaskOptions
from gspc_trio.executor.facade import Executor
from gspc_trio.executor.futures import Deadline, SomeFuture, SomeTaskFuture
from gspc_trio.workflow.call_options import checked_count

T = TypeVar("T")

Callback = Callable[[Any], object]

CHUNKS_PER_WORKER = 4
"""A map without a size of chunks makes so many for each worker, as the standard library does."""

UNFINISHED_MAX = 1_000
"""Chunks of an ``imap`` that have not been computed, at most; its items are read no further meanwhile."""


class Pool:
    """A pool of workers with the interface of ``multiprocessing.Pool``.

    Leaving its block terminates it, as there: take the results before.

    Args:
        processes: number of workers; None for what this machine has and this process may use.
        initializer: called in each compute process before its first task. If it fails, the pool is broken.
        initargs: its arguments.
        maxtasksperchild: after so many tasks a compute process is replaced by a fresh one; None: never.
        context: refused unless None: compute processes are always forked from a fresh interpreter.
        connection_file: use the running run-time system that published this file instead of starting one.
        rts: use this one, which ``open_rts`` has opened in another thread of this program.
        threads: compute in threads of one process instead of a process per core.
        shape: what each task needs to run; one core by default.
        options: what each task states about itself (attempts, time-out, ...).
        output: what becomes of what tasks print; as with ``Executor``.

    Raises:
        ValueError: fewer than 1 worker; there is a context.
        Exception: as ``Executor``.
    """

    def __init__(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[object] = (),
        maxtasksperchild: int | None = None,
        context: None = None,
        *,
        connection_file: Path | str | None = None,
        rts: RunTimeSystem | None = None,
        threads: bool = False,
        shape: Shape = CORE,
        options: TaskOptions = DEFAULT_OPTIONS,
        output: OutputMode | None = None,
    ) -> None:
        self._state = CLOSE  # until it is there
        if context is not None:
            raise ValueError(
                "context has no meaning here: compute processes are always forked from a fresh interpreter "
                "that has never seen this program; leave it out"
            )
        if processes is not None and processes < 1:
            raise ValueError(f"processes must be at least 1, not {processes}")
        self._executor = Executor(
            processes,
            initializer=initializer,
            initargs=initargs,
            max_tasks_per_child=maxtasksperchild,
            connection_file=connection_file,
            rts=rts,
            threads=threads,
            shape=shape,
            options=options,
            output=output,
        )
        self._feeders: list[threading.Thread] = []
        self._pid = os.getpid()
        self._state = RUN

    @property
    def _processes(self) -> int:
        """How many tasks can run at a time: libraries look for it under this name."""
        return self._executor._max_workers

    def apply(
        self,
        func: Callable[..., T],
        args: Iterable[object] = (),
        kwds: Mapping[str, object] | None = None,
    ) -> T:
        """Return ``func(*args, **kwds)``, computed by a worker."""
        return self.apply_async(func, args, kwds).get()

    def apply_async(
        self,
        func: Callable[..., T],
        args: Iterable[object] = (),
        kwds: Mapping[str, object] | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult[T]:
        """Have ``func(*args, **kwds)`` computed by a worker, and return what will have the result.

        Args:
            func: what to call.
            args, kwds: its arguments.
            callback: called with the result, in another thread.
            error_callback: called with the exception if it fails.

        Raises:
            ExecutorBroken: the run-time system has gone.
            ValueError: the pool was closed.
        """
        self._check_running()
        future = self._executor.submit(func, *args, **(kwds or {}))
        return AsyncResult([future], _only, callback, error_callback)

    def map(self, func: Callable[..., T], iterable: Iterable[Any], chunksize: int | None = None) -> list[T]:
        """Return a list of ``func(item)`` for each item, in order.

        Args:
            func: of one item.
            iterable: read at once.
            chunksize: items that one task computes; None: so many that each worker has four tasks.
        """
        return self.map_async(func, iterable, chunksize).get()

    def map_async(
        self,
        func: Callable[..., T],
        iterable: Iterable[Any],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult[list[T]]:
        """As :meth:`map`, and return what will have the results; callbacks as in :meth:`apply_async`.

        If a task fails, the result is the exception that came first; it is there when all have ended.
        """
        items = [(item,) for item in iterable]
        return self._map_async(func, items, chunksize, callback, error_callback)

    def starmap(
        self, func: Callable[..., T], iterable: Iterable[Iterable[Any]], chunksize: int | None = None
    ) -> list[T]:
        """Return a list of ``func(*item)`` for each item, in order; the rest as :meth:`map`."""
        return self.starmap_async(func, iterable, chunksize).get()

    def starmap_async(
        self,
        func: Callable[..., T],
        iterable: Iterable[Iterable[Any]],
        chunksize: int | None = None,
        callback: Callback | None = None,
        error_callback: Callback | None = None,
    ) -> AsyncResult[list[T]]:
        """As :meth:`starmap`, and return what will have the results; the rest as :meth:`map_async`."""
        return self._map_async(func, [tuple(item) for item in iterable], chunksize, callback, error_callback)

    def _map_async(
        self,
        func: Callable[..., T],
        items: list[tuple[Any, ...]],
        chunksize: int | None,
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> AsyncResult[list[T]]:
        self._check_running()
        if chunksize is None:
            chunksize = max(1, -(-len(items) // (self._processes * CHUNKS_PER_WORKER)))
        if checked_count("chunksize", chunksize) == 1:
            futures: list[Any] = self._executor._submit_all(func, iter(items))
            return AsyncResult(futures, _each, callback, error_callback)
        chunks = (items[begin : begin + chunksize] for begin in range(0, len(items), chunksize))
        futures = self._executor._submit_all(call_each, ((func, chunk) for chunk in chunks))
        return AsyncResult(futures, _flat, callback, error_callback)

    def imap(self, func: Callable[..., T], iterable: Iterable[Any], chunksize: int = 1) -> IMapIterator[T]:
        """Return an iterator over ``func(item)`` for each item, in order, as they are there.

        Args:
            func: of one item.
            iterable: may be without end; another thread reads it while less than 1,000 tasks have not ended.
            chunksize: items that one task computes.
        """
        return self._imap(func, iterable, chunksize, is_ordered=True)

    def imap_unordered(
        self, func: Callable[..., T], iterable: Iterable[Any], chunksize: int = 1
    ) -> IMapIterator[T]:
        """As :meth:`imap`, with results in the order in which they come."""
        return self._imap(func, iterable, chunksize, is_ordered=False)

    def _imap(
        self, func: Callable[..., T], iterable: Iterable[Any], chunksize: int, *, is_ordered: bool
    ) -> IMapIterator[T]:
        self._check_running()
        size = checked_count("chunksize", chunksize)
        items = ((item,) for item in iterable)
        if size == 1:
            calls: Iterator[partial[SomeTaskFuture]] = (
                partial(self._executor.submit, func, *item) for item in items
            )
        else:
            chunks = iter(lambda: list(islice(items, size)), [])
            calls = (partial(self._executor.submit, call_each, func, chunk) for chunk in chunks)
        results: IMapIterator[T] = IMapIterator(is_ordered, size > 1)
        feeder = threading.Thread(target=results.feed, args=(calls,), name="gspc-pool-imap", daemon=True)
        self._feeders = [other for other in self._feeders if other.is_alive()]
        self._feeders.append(feeder)
        feeder.start()
        return results

    def _check_running(self) -> None:
        if self._state != RUN:
            raise ValueError("Pool not running")  # as the standard one says

    def close(self) -> None:
        """Take no more tasks; those that there are still run."""
        if self._state == RUN:
            self._state = CLOSE

    def terminate(self) -> None:
        """End all that runs at once, with everything that tasks have started."""
        if os.getpid() != self._pid:
            return  # a fork of the program: the workers are its parent's
        self._state = TERMINATE
        self._executor.kill_workers()

    def join(self) -> None:
        """Wait for the end of all tasks, and of the pool.

        Raises:
            ValueError: it was neither closed nor terminated.
        """
        if self._state == RUN:
            raise ValueError("Pool is still running")
        for feeder in self._feeders:
            feeder.join()
        self._executor.shutdown()

    def __enter__(self) -> Pool:
        self._check_running()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.terminate()

    def __reduce__(self) -> NoReturn:
        raise NotImplementedError("pool objects cannot be passed between processes or pickled")

    def __del__(self) -> None:
        if self._state == RUN:
            warnings.warn(
                f"unclosed running multiprocessing pool {self!r}", ResourceWarning, source=self, stacklevel=2
            )

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} state={self._state}>"


def _only(futures: Sequence[SomeFuture]) -> Any:
    return futures[0].result()


def _each(futures: Sequence[SomeFuture]) -> Any:
    return [future.result() for future in futures]


def _flat(futures: Sequence[SomeFuture]) -> Any:
    return [value for future in futures for value in future.result()]


class AsyncResult(Generic[T]):
    """The result of tasks, when they have ended.

    Args:
        futures: of the tasks.
        join: makes their results one.
        callback: called with the result.
        error_callback: called with the exception of the task that has failed first.
    """

    def __init__(
        self,
        futures: list[Any],
        join: Callable[[Sequence[SomeFuture]], T],
        callback: Callback | None,
        error_callback: Callback | None,
    ) -> None:
        self._futures: list[SomeTaskFuture] = futures
        self._join = join
        self._callbacks = (callback, error_callback)
        self._lock = threading.Lock()
        self._left = len(futures)
        self._error: BaseException | None = None
        self._ready = threading.Event()
        for future in futures:
            future.add_done_callback(self._ended)
        if not futures:
            self._finish()

    def _ended(self, future: SomeFuture) -> None:
        error = CancelledError() if future.cancelled() else future.exception()
        with self._lock:
            self._left -= 1
            is_last = not self._left
            if self._error is None:
                self._error = error
        if is_last:
            self._finish()

    def _finish(self) -> None:
        callback, error_callback = self._callbacks
        try:
            if self._error is None and callback is not None:
                callback(self._join(self._futures))
            elif self._error is not None and error_callback is not None:
                error_callback(self._error)
        finally:
            self._ready.set()

    def ready(self) -> bool:
        """Return whether all tasks have ended."""
        return self._ready.is_set()

    def successful(self) -> bool:
        """Return whether none has failed.

        Raises:
            ValueError: they have not ended.
        """
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._error is None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until all have ended, or for so many seconds."""
        if timeout is None and not self.ready():
            self._futures[0]._owner.check_may_wait()
        self._ready.wait(timeout)

    def get(self, timeout: float | None = None) -> T:
        """Return the result; wait up to ``timeout`` seconds for it.

        Raises:
            multiprocessing.TimeoutError: it was not there in time.
            Exception: what the task raised that failed first; as ``TaskFuture.result``.
        """
        self.wait(timeout)
        if not self.ready():
            raise multiprocessing.TimeoutError
        if self._error is not None:
            raise self._error
        return self._join(self._futures)


class IMapIterator(Iterator[T], Generic[T]):
    """The results of an ``imap``.

    Args:
        is_ordered: they come in the order of the items.
        has_chunks: each task returns a list of them.
    """

    def __init__(self, is_ordered: bool, has_chunks: bool) -> None:
        self._is_ordered = is_ordered
        self._has_chunks = has_chunks
        self._changed = threading.Condition()
        self._futures: deque[SomeFuture] = deque()
        self._computing = 0
        self._chunk: Iterator[T] = iter(())
        self._has_more = True
        self._error: BaseException | None = None

    def feed(self, calls: Iterator[Callable[[], SomeTaskFuture]]) -> None:
        """Submit calls as there is room for them, until there are no more; in a thread of its own."""
        error: BaseException | None = None
        try:
            for call in calls:
                with self._changed:
                    self._changed.wait_for(lambda: self._computing < UNFINISHED_MAX)
                future = call()
                with self._changed:
                    self._computing += 1
                    if self._is_ordered:
                        self._futures.append(future)
                future.add_done_callback(self._ended)
        except BaseException as problem:
            error = problem
        with self._changed:
            self._has_more, self._error = False, error
            self._changed.notify_all()

    def _ended(self, future: SomeFuture) -> None:
        with self._changed:
            self._computing -= 1
            if not self._is_ordered:
                self._futures.append(future)
            self._changed.notify_all()

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """Return the next result; wait up to ``timeout`` seconds for it.

        Raises:
            StopIteration: there are no more.
            multiprocessing.TimeoutError: it was not there in time.
            Exception: what the task raised, or reading the items; one may go on after a task that failed.
        """
        deadline = Deadline(timeout)
        for found in self._chunk:
            return found
        future = self._next_future(deadline)
        if not self._has_chunks:
            value: T = future.result()
            return value
        self._chunk = iter(future.result())
        return self.next(deadline.left_s())

    def _next_future(self, deadline: Deadline) -> SomeFuture:
        with self._changed:
            if not self._changed.wait_for(self._is_decided, deadline.left_s()):
                raise multiprocessing.TimeoutError
            if self._futures:
                return self._futures.popleft()
            error, self._error = self._error, None
            raise StopIteration if error is None else error

    def _is_decided(self) -> bool:
        if self._futures:
            return self._futures[0].done()
        return not (self._has_more or self._computing)
