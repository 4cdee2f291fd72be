"""The executor: the interface of ``concurrent.futures.Executor`` on a run-time system."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor as ExecutorInterface
from concurrent.futures import Future
from copy import copy
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from gspc_trio.components.embed import process_key
from gspc_trio.components.job.shell.server import JobSettings
from gspc_trio.compute.code import call_each
from gspc_trio.core.imports import refuse_in_imports_of_tasks
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Shape, TaskOptions
from gspc_trio.executor.codes import CodeTable
from gspc_trio.executor.futures import Deadline, TaskFuture
from gspc_trio.executor.loop import Call, Loop
from gspc_trio.protocol.values import dumps
from gspc_trio.workflow.settings import checked_needs

T = TypeVar("T")

OFTEN = 16
"""Calls of one map from which on its function gets an entry of its own in the code table."""

FAILED_MAX = 100
"""Failed tasks that are remembered, for whoever looks at the job: its graph of tasks has forgotten them."""

PUT_MAX = 500
"""Calls of a map that are put at a time, so that the first are on their way while the others are made."""


class Executor(ExecutorInterface):
    """An executor on an embedded run-time system, or on a running one.

    Args:
        cores: number of cores to offer; 0 for what this machine has and this process may use.
        connection_file: use the running RTS that published this file instead of starting one.
        threads: compute in threads of one process instead of a process per core.
        shape: what each task needs to run; one core by default.
        options: what each task states about itself (attempts, time-out, ...).
        tune_gc: tune this process's garbage collector for many tasks until shutdown: about twice as fast.
        data_bytes: shared memory for large arguments and results, mapped by the tasks that get them; 0: none.
        iml: connection file of a running memory layer, in which they are kept instead; ``Named(name)`` among
            the arguments is data that was published there.
        priority: on a run-time system with other jobs, those of a higher priority get resources first.

    Raises:
        ConnectionFileError, ConnectFailed: there is no running RTS to use.
        StartedAtImport: a compute process is importing the module that calls this.
        TypeError, ValueError: the number of cores is no whole number, or negative.
        WorkflowError: shape or options make no sense.
    """

    def __init__(
        self,
        *,
        cores: int = 0,
        connection_file: Path | str | None = None,
        threads: bool = False,
        shape: Shape = CORE,
        options: TaskOptions = DEFAULT_OPTIONS,
        tune_gc: bool = False,
        data_bytes: int = 0,
        iml: Path | str | None = None,
        priority: int = 0,
    ) -> None:
        refuse_in_imports_of_tasks()  # here, for the run-time system starts in another thread
        data = None
        if iml is not None:
            from gspc_trio.iml.shell.layer import published_layer  # only here: few need it

            data = published_layer(Path(iml))
        settings = JobSettings(
            f"executor-{os.getpid()}",
            keep_going=True,
            fate=False,
            threads=threads,
            failed_max=FAILED_MAX,
            data=data,
            process_key=process_key(),
            priority=priority,
        )
        self._shape, self._options = checked_needs(shape, options)
        self._codes = CodeTable()
        rts = {"cores": cores, "connection_file": connection_file, "data_bytes": data_bytes}
        self._loop = Loop(rts, settings, self._codes, tune_gc)
        self._loop.start()
        self._encode = self._loop.encode if data_bytes or iml is not None else dumps
        self._origin: Executor | None = None
        weakref.finalize(self, self._loop.close).atexit = False

    def stating(self, *, shape: Shape | None = None, options: TaskOptions | None = None) -> Executor:
        """Return this executor for tasks that need or state something else, a higher priority for instance.

        It has the same workers, and is shut down with this one.

        Args:
            shape: what each of these tasks needs; as here if None.
            options: what each of them states about itself; as here if None.

        Raises:
            WorkflowError: shape or options make no sense.
        """
        other = copy(self)
        other._shape, other._options = checked_needs(shape or self._shape, options or self._options)
        other._origin = self  # which must not be collected before: that would shut it down
        return other

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> TaskFuture[T]:
        """Run ``fn(*args, **kwargs)`` on a worker and return its future.

        Futures among the arguments, of whatever executor, are waited for and stand for their results.

        Raises:
            ExecutorBroken: the run-time system has gone.
            RuntimeError: the executor was shut down, or belongs to the process that this one was forked from.
        """
        loop, encode = self._loop, self._encode
        future: TaskFuture[T] = TaskFuture(loop)
        try:
            code_id, arguments = self._codes.entry(fn, tuple(kwargs) if kwargs else ())
            for value in (*args, *kwargs.values()) if kwargs else args:
                arguments.append(value if isinstance(value, Future) else encode(value))
        except Exception as error:
            loop.check_process()
            future.set_exception(error)
            return future
        loop.put((Call(future, code_id, _name(fn), arguments, self._shape, self._options),))
        return future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Run ``fn`` on each item, all at once, and return an iterator over the results in order.

        Args:
            fn: takes as many arguments as there are iterables.
            iterables: read at once; they end with the shortest. Futures in them are waited for.
            timeout: seconds from now in which every result must be there, or None.
            chunksize: items that one task computes.

        Raises:
            ValueError: the chunk size is not positive.
            TimeoutError: (from the iterator) a result was not there in time.
            Exception: as submit; (from the iterator) what the function raised.
        """
        if chunksize < 1:
            raise ValueError(f"a chunk has at least one item, not {chunksize}")
        deadline = Deadline(timeout)
        items = zip(*iterables, strict=False)
        if chunksize == 1:
            return _results(self._submit_each(fn, items), deadline)
        chunks = iter(lambda: list(islice(items, chunksize)), [])
        return _flat(_results(self._submit_each(call_each, ((fn, chunk) for chunk in chunks)), deadline))

    def _submit_each(self, fn: Callable[..., Any], items: Iterable[tuple[Any, ...]]) -> list[TaskFuture[Any]]:
        """Submit a call for each item: what they have in common is found out once."""
        loop, shape, options, name = self._loop, self._shape, self._options, _name(fn)
        encode = self._encode
        items = iter(items)
        first = list(islice(items, OFTEN))
        try:
            code_id, leading = self._codes.entry(fn, (), often=len(first) == OFTEN)
        except Exception as error:
            loop.check_process()
            return [_failed(loop, error)]
        futures: list[TaskFuture[Any]] = []
        while first:
            calls = []
            for item in first:
                future: TaskFuture[Any] = TaskFuture(loop)
                futures.append(future)
                try:
                    arguments = [*leading, *[v if isinstance(v, Future) else encode(v) for v in item]]
                except Exception as error:
                    future.set_exception(error)
                else:
                    calls.append(Call(future, code_id, name, arguments, shape, options))
            loop.put(calls)
            first = list(islice(items, PUT_MAX))
        return futures

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; with ``wait``, return when all have ended and everything is taken down.

        Args:
            wait: wait for the end; an interrupt while waiting stops everything.
            cancel_futures: cancel those that have not begun.
        """
        self._loop.close(cancel_futures)
        if wait:
            self._loop.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self._loop.stop()  # Ctrl-C: what runs is stopped instead of waited for
        self.shutdown(wait=True)


def _name(fn: Callable[..., Any]) -> str:
    try:
        return fn.__name__
    except Exception:  # a callable object may have none, and say so in its own way
        return type(fn).__name__


def _failed(loop: Loop, error: Exception) -> TaskFuture[Any]:
    future: TaskFuture[Any] = TaskFuture(loop)
    future.set_exception(error)
    return future


def _results(futures: list[TaskFuture[Any]], deadline: Deadline) -> Iterator[Any]:
    """Yield the results in order, keeping none; whoever stops early cancels the rest."""
    futures.reverse()
    try:
        while futures:
            yield _result_or_cancel(futures.pop(), deadline)
    finally:
        for future in futures:
            future.cancel()


def _result_or_cancel(future: TaskFuture[Any], deadline: Deadline) -> Any:
    """Return the result; cancel the task if it does not come in time."""
    try:
        return future.result(deadline.left_s())
    except BaseException:
        future.cancel()
        raise
    finally:
        del future  # what is raised would keep it alive, and it what is raised


def _flat(parts: Iterator[list[Any]]) -> Iterator[Any]:
    """Yield the elements of each part, keeping none; nor does ``parts`` keep the part."""
    for part in parts:
        part.reverse()
        while part:
            yield part.pop()
