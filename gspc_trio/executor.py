"""The blocking facade: ``concurrent.futures`` for people without trio.

    from gspc_trio import Executor

    with Executor() as executor:
        total = executor.submit(sum, [executor.submit(pow, 2, 10), 1])   # a future in a list is not looked into
        double = executor.submit(lambda x: 2 * x, executor.submit(pow, 2, 10))
        print(double.result())

A future of this executor may be an argument of a later ``submit``, which then waits for it without a thread of its own.
"""

from __future__ import annotations

import atexit
import os
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import Executor as ExecutorInterface
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import trio

from gspc_trio.components.embed import open_rts
from gspc_trio.components.job import Job
from gspc_trio.components.jobserver import JobSettings, run_job
from gspc_trio.core.scheduler import TaskDone
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Shape, TaskError, TaskOptions, TaskState
from gspc_trio.protocol.code import function_code
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.graph import Ref, TaskGraph

T = TypeVar("T")

ENCODED_KEPT_BYTES_MAX = 65_536
"""A result larger than this is kept once: encoded until it is asked for, decoded after."""

_UNDECODED = object()


class TaskFailed(RuntimeError):
    """The task failed with an exception that could not be brought here, or without one (lost, refused, timed out)."""


class RemoteTraceback(Exception):
    """Cause of an exception that was raised by a task: its traceback where it ran."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return "\n" + self.text


class TaskFuture(Future[T]):
    """A future whose task runs elsewhere: ``cancel`` really cancels, and its result is decoded when first asked for."""

    def __init__(self, executor: Executor) -> None:
        super().__init__()
        self._executor = executor
        self._task_id = 0
        self._decoded: Any = _UNDECODED
        self._encoded: bytes | None = None

    def cancel(self) -> bool:
        """Cancel the task, also when it is running: what computes it is stopped. Return False if it had ended."""
        if not super().cancel():
            return False
        if self.set_running_or_notify_cancel():  # pragma: no branch  (it was cancelled: always False)
            raise AssertionError("a cancelled future was set running")
        self._executor._cancel(self)
        return True

    def result(self, timeout: float | None = None) -> T:
        """Return what the task returned; wait up to ``timeout`` seconds for it.

        Raises:
            CancelledError: the task was cancelled.
            TimeoutError: it did not end in time.
            Exception: what the task raised, with its traceback as cause; TaskFailed if that cannot be had.
        """
        data: Any = super().result(timeout)
        if self._decoded is _UNDECODED:
            self._decoded = loads(data)
            if len(data) > ENCODED_KEPT_BYTES_MAX:
                self._encoded = self._result = None  # type: ignore[assignment]
        decoded: T = self._decoded
        return decoded

    def encoded(self) -> bytes:
        """Return the result of a task that finished as it travels."""
        data: Any = self._encoded
        return dumps(self._decoded) if data is None else data


class _Call:
    """A submission on its way from the caller's thread to the loop."""

    __slots__ = ("arguments", "code_id", "future", "name", "options", "shape")

    def __init__(
        self,
        future: TaskFuture[Any],
        code_id: int,
        name: str,
        arguments: list[bytes | TaskFuture[Any]],
        shape: Shape,
        options: TaskOptions,
    ) -> None:
        self.future = future
        self.code_id = code_id
        self.name = name
        self.arguments = arguments
        self.shape = shape
        self.options = options


class Executor(ExecutorInterface):
    """An executor on an embedded run-time system, or on a running one.

    Args:
        cores: number of cores to offer; 0 for what this machine has and this process may use.
        connection_file: use the running RTS that published this file instead of starting one.
        threads: compute in threads of one process instead of a process per core.
        shape: what each task needs to run; one core by default.
        options: what each task states about itself (attempts, time-out, ...).

    Raises:
        ConnectionFileError, ConnectFailed: there is no running RTS to use.
    """

    def __init__(
        self,
        *,
        cores: int = 0,
        connection_file: Path | str | None = None,
        threads: bool = False,
        shape: Shape = CORE,
        options: TaskOptions = DEFAULT_OPTIONS,
    ) -> None:
        self._open_rts = {"cores": cores, "connection_file": connection_file}
        self._settings = JobSettings(
            name=f"executor-{os.getpid()}", keep_going=True, fate=False, threads=threads
        )
        self._shape = shape
        self._options = options
        self._codes = _CodeTable()
        self._graph = TaskGraph()
        self._futures: dict[int, TaskFuture[Any]] = {}
        self._calls: deque[_Call] = deque()
        self._waking = False
        self._closed = False
        self._lock = threading.Lock()
        self._job: Job | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gspc-executor", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        _close_at_exit(self)

    # The caller's threads -------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> TaskFuture[T]:
        """Run ``fn(*args, **kwargs)`` on a worker and return its future; futures among the arguments are waited for.

        Raises:
            RuntimeError: the executor was shut down, or its run-time system has gone.
        """
        future: TaskFuture[T] = TaskFuture(self)
        try:
            code_id, leading = self._codes.entry(fn, tuple(kwargs))
            arguments: list[bytes | TaskFuture[Any]] = leading
            for value in (*args, *kwargs.values()) if kwargs else args:
                arguments.append(value if isinstance(value, TaskFuture) else dumps(value))
        except Exception as error:
            future.set_exception(error)
            return future
        name = getattr(fn, "__name__", type(fn).__name__)
        call = _Call(future, code_id, name, arguments, self._shape, self._options)
        with self._lock:
            if self._closed:
                raise RuntimeError("cannot submit to an executor that was shut down")
            if self._failure is not None:
                raise RuntimeError(f"the executor can no longer run tasks: {self._failure}") from self._failure
            self._calls.append(call)
            self._wake()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; with ``wait``, return when all have ended and everything is taken down.

        Args:
            wait: wait for the end.
            cancel_futures: cancel those that have not begun.
        """
        with self._lock:
            first, self._closed = not self._closed, True
        if first or cancel_futures:
            self._in_loop(self._close, cancel_futures)
        if wait:
            self._thread.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self._in_loop(self._stop)  # Ctrl-C: stop what runs instead of waiting for it
        self.shutdown(wait=True)

    def _wake(self) -> None:
        """Have the loop take the calls; the lock is held."""
        if not self._waking and self._token is not None:
            self._waking = True
            self._token.run_sync_soon(self._take_calls)

    def _in_loop(self, function: Callable[..., object], *args: Any) -> None:
        assert self._token is not None
        try:
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            pass

    def _cancel(self, future: TaskFuture[Any]) -> None:
        self._in_loop(self._cancel_task, future)

    # The loop's thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._failure = _first_of(error)
        finally:
            with self._lock:
                self._failure = self._failure or RuntimeError("it was shut down")
            self._fail_all(self._failure)
            self._ready.set()

    async def _main(self) -> None:
        async with open_rts(**self._open_rts) as rts:  # type: ignore[arg-type]
            async with run_job(
                self._graph, self._codes.data, dict, rts, self._settings, open_ended=True, on_done=self._done
            ) as job:
                self._job = job
                self._token = trio.lowlevel.current_trio_token()
                self._ready.set()
                await job.wait_ended()
                job.machine.failures.clear()

    def _take_calls(self) -> None:
        self._waking = False  # before looking: a call that comes now wakes the loop again
        calls, graph, futures = self._calls, self._graph, self._futures
        assert self._job is not None
        while calls:
            call = calls.popleft()
            future = call.future
            if future.cancelled():
                continue
            try:
                arguments = tuple(map(_resolved, call.arguments))
            except (Exception, CancelledError) as error:
                future.set_exception(error)
                continue
            task_id = graph.add(call.name, call.code_id, arguments, call.shape, call.options)
            future._task_id = task_id
            futures[task_id] = future
        self._job.look()

    def _done(self, done: TaskDone) -> None:
        future = self._futures.pop(done.task_id, None)
        if future is None or future.cancelled():
            return
        if done.state is TaskState.FINISHED:
            data = done.outcome.values[0][0]
            future._encoded = data
            future.set_result(data)  # decoded in the caller's thread
        elif done.state is TaskState.CANCELLED:
            future.cancel()
        else:
            future.set_exception(_exception_of(done.outcome.error))

    def _cancel_task(self, future: TaskFuture[Any]) -> None:
        if self._job is not None and future._task_id in self._futures:
            self._job.cancel((future._task_id,))

    def _close(self, cancel_futures: bool) -> None:
        assert self._job is not None
        self._take_calls()
        if cancel_futures:
            for future in list(self._futures.values()):
                if not self._job.machine.scheduler.is_running(future._task_id):
                    future.cancel()
        self._job.close()

    def _stop(self) -> None:
        assert self._job is not None
        self._job.stop("the executor was left by an interrupt")

    def _fail_all(self, reason: BaseException) -> None:
        """No future may wait for ever."""
        error = TaskFailed(f"the executor ended before the task did: {reason}")
        for future in [*self._futures.values(), *(call.future for call in self._calls)]:
            if not future.done():
                future.set_exception(error)


class _CodeTable:
    """The functions that were submitted, by number.

    An importable function, and one by value that comes a second time, gets a number; a function by value that is seen for the first time
    travels as an argument, so that a million lambdas leave nothing behind.
    """

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._ids: dict[Any, int] = {}
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def data(self, code_id: int) -> bytes:
        """Return entry ``code_id``."""
        return self._data[code_id]

    def entry(self, fn: Callable[..., Any], parameters: tuple[str, ...]) -> tuple[int, list[Any]]:
        """Return the number under which to call ``fn``, and the arguments that must come before the caller's."""
        try:
            code_id = self._ids.get((fn, parameters))
        except TypeError:  # not hashable
            return self._by_value(fn, parameters)
        if code_id is not None:
            return code_id, []
        if not _importable(fn) and not self._seen_before(fn):
            return self._by_value(fn, parameters)
        return self._add((fn, parameters), fn, parameters), []

    def _seen_before(self, fn: Callable[..., Any]) -> bool:
        try:
            if fn in self._seen:
                return True
            self._seen.add(fn)
        except TypeError:  # no weak references to it
            pass
        return False

    def _by_value(self, fn: Callable[..., Any], parameters: tuple[str, ...]) -> tuple[int, list[Any]]:
        code_id = self._ids.get((call_first, parameters))
        if code_id is None:
            code_id = self._add((call_first, parameters), call_first, parameters)
        return code_id, [dumps(fn)]

    def _add(self, key: Any, fn: Callable[..., Any], parameters: tuple[str, ...]) -> int:
        self._data.append(function_code(fn, parameters))
        code_id = self._ids[key] = len(self._data) - 1
        return code_id


def call_first(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the first argument with the others: how a function travels by value."""
    return function(*args, **kwargs)


def _importable(fn: Callable[..., Any]) -> bool:
    name = getattr(fn, "__qualname__", "<")
    return getattr(fn, "__module__", "__main__") not in (None, "__main__") and "<" not in name


def _resolved(argument: bytes | TaskFuture[Any]) -> bytes | Ref:
    """Return what stands for an argument in the task graph; raise what a future among them has raised."""
    if type(argument) is bytes:
        return argument
    assert isinstance(argument, TaskFuture)
    if not argument.done():
        return Ref(argument._task_id)
    error = argument.exception(0)
    if error is not None:
        raise error
    return argument.encoded()


def _exception_of(error: TaskError | None) -> BaseException:
    if error is None:
        return TaskFailed("the task failed without saying why")
    raised: BaseException | None = None
    if error.pickled:
        try:
            raised = pickle.loads(error.pickled)
        except Exception as unpickling:
            raised = TaskFailed(f"{error.kind}: {error.message} (its exception cannot be unpickled: {unpickling})")
    if not isinstance(raised, BaseException):
        raised = TaskFailed(f"{error.kind}: {error.message}")
    if error.traceback:
        raised.__cause__ = RemoteTraceback(error.traceback)
    return raised


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _close_at_exit(executor: Executor) -> None:
    """At the end of the interpreter, wait for an executor that was not shut down, as the standard ones do."""
    reference = weakref.ref(executor)

    def close() -> None:
        left = reference()
        if left is not None:
            left.shutdown(wait=True)

    atexit.register(close)
    weakref.finalize(executor, atexit.unregister, close)
