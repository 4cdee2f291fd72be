"""The executor of a task: it starts tasks of the same job, and lends the core of its own while it waits.

It speaks with the host of the task over a socket, which is opened at the first use. A thread hears what
becomes of the tasks.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor as ExecutorInterface
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import copy
from itertools import islice
from time import monotonic
from types import TracebackType
from typing import Any, TypeVar, Unpack

from gspc_trio.compute.channel import FRAME_HEADER
from gspc_trio.compute.code import call_each
from gspc_trio.core.current import ComputePlace, current_place
from gspc_trio.core.nested import (
    CALL_FIRST,
    CALL_NAMED,
    DEPTH_MAX,
    CancelNested,
    ForgetNested,
    FromTaskProcess,
    NestedBroken,
    NestedDepth,
    NestedEnded,
    StartNested,
    TaskHello,
    TaskWaits,
    decode_heard,
    encode,
)
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Shape, TaskOptions
from gspc_trio.protocol.limits import DEFAULT_LIMITS
from gspc_trio.protocol.values import BadValue, dumps, loads
from gspc_trio.workflow.call_options import CallOptions, checked_count, with_stated
from gspc_trio.workflow.failures import ExecutorBroken, exception_of

T = TypeVar("T")

ANSWER_S = 30.0
"""How long the first answer of the job server may take."""

ARGUMENTS_BYTES_MAX = DEFAULT_LIMITS.message_bytes_max - 65_536
"""So much may the arguments of a nested task have together."""

PATIENCE_S = 0.001
"""A result that comes within so long is waited for without lending the core."""

END_S = 1.0
"""How long the thread that hears may take to end with its task."""

_ENDED = "the task has ended: what it has not waited for is cancelled"


class NestedFuture(Future[T]):
    """The future of a nested task; its result is decoded when it is asked for."""

    _decoded: Any = None
    _is_decoded = False

    def __init__(self, session: TaskSession, number: int = 0) -> None:
        super().__init__()
        self._session = session
        self.number = number
        self._waiters: list[Any] = Waiters(session.waiting)

    def cancel(self) -> bool:
        """Cancel the task, also when it is running; return False if it had ended."""
        if self.done():
            return self.cancelled()
        if super().cancel():
            self.set_running_or_notify_cancel()
            self._session.cancel(self.number)
        return self.cancelled()

    def result(self, timeout: float | None = None) -> T:
        """Return what the task returned; the core is lent meanwhile.

        Raises:
            CancelledError: the task was cancelled.
            TimeoutError: it did not end in time.
            ExecutorBroken: it cannot be run.
            Exception: what the task raised; TaskFailed if that cannot be had.
        """
        self._wait(timeout)
        value: Any = super().result(0)
        if not self._is_decoded and isinstance(value, _Encoded):
            self._decoded, self._is_decoded = loads(value), True
        decoded: T = self._decoded if self._is_decoded else value
        return decoded

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the task raised, None if it returned; the rest as :meth:`result`."""
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        """Wait for the end, or until the time is over."""
        end_s = None if timeout is None else monotonic() + timeout
        for patience_s, lending in ((PATIENCE_S, nullcontext()), (None, self._session.waiting())):
            left_s = None if end_s is None else max(0.0, end_s - monotonic())
            limits = [one for one in (patience_s, left_s) if one is not None]
            if self.done() or left_s == 0.0:
                return
            with lending, self._condition:
                if not self.done():
                    self._condition.wait_for(self.done, min(limits, default=None))

    def encoded(self) -> bytes:
        """Return the result as it travels."""
        value: Any = super().result(0)
        return bytes(value) if isinstance(value, _Encoded) else dumps(value)


class _Encoded(bytes):
    """A result as it has come."""


class Waiters(list[Any]):
    """Those who wait for a future in ``wait`` or ``as_completed``: each lends the core when it really waits.

    Args:
        waiting: returns the block in which the core is lent.
    """

    def __init__(self, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._waiting = waiting

    def append(self, waiter: Any) -> None:
        """Add one who is about to wait."""
        if not isinstance(waiter.event, LendingEvent):
            waiter.event = LendingEvent(waiter.event, self._waiting)
        super().append(waiter)


class LendingEvent:
    """An event; whoever waits for it lends the core of the task.

    Args:
        event: the event.
        waiting: returns the block in which the core is lent.
    """

    def __init__(self, event: threading.Event, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        self._event = event
        self._waiting = waiting
        self.set, self.clear, self.is_set = event.set, event.clear, event.is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait as ``threading.Event`` does."""
        if self._event.wait(PATIENCE_S if timeout is None else min(timeout, PATIENCE_S)):
            return True
        with self._waiting():
            return self._event.wait(timeout)


class TaskSession:
    """The connection of one attempt of a task to its job server.

    Args:
        place: where the task runs.

    Raises:
        RuntimeError: the host does not answer.
    """

    def __init__(self, place: ComputePlace) -> None:
        self._pid = os.getpid()
        self._place = place
        self._lock = threading.Lock()
        self._futures: dict[int, NestedFuture[Any]] = {}
        self._last = 0
        self._heard: list[int] = []  # ends that the job server may forget
        self._submitting = 0  # their arguments may hold numbers of tasks that end meanwhile
        self._waits = 0
        self._broken = ""
        self._welcome = threading.Event()
        self.depth = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect("\0" + place.address)
            self._say(TaskHello(place.job, place.task_id, place.attempt))
        except OSError as error:
            self._socket.close()
            raise RuntimeError(f"the host of the task cannot be reached: {error}") from error
        self._reader = threading.Thread(target=self._read, name="gspc-nested", daemon=True)
        self._reader.start()
        place.on_end = self.close
        if not self._welcome.wait(ANSWER_S):
            self.close()
            raise RuntimeError(f"current_executor(): the job server did not answer within {ANSWER_S:g} s")

    def submit(
        self,
        name: str,
        code_id: int,
        leading: list[bytes],
        values: Iterable[object],
        shape: Shape,
        options: TaskOptions,
    ) -> NestedFuture[Any]:
        """Start a task and return its future."""
        self.check()
        future: NestedFuture[Any] = NestedFuture(self)
        with self._forgetting_later():
            try:
                arguments = self._arguments(leading, values)
            except Exception as error:
                future.set_exception(error)
                return future
            with self._lock:
                if self._broken:
                    raise ExecutorBroken(f"the task can start no more tasks: {self._broken}")
                self._last += 1
                future.number = self._last
                self._futures[future.number] = future
                self._say(StartNested(future.number, name, code_id, arguments, shape, options))
        return future

    def _arguments(self, leading: list[bytes], values: Iterable[object]) -> tuple[bytes | int, ...]:
        """Return all arguments as they travel; the number of a task stands for its result."""
        arguments = (*leading, *map(self._encoded, values))
        size_bytes = sum(len(one) for one in arguments if isinstance(one, bytes))
        if size_bytes > ARGUMENTS_BYTES_MAX:
            raise BadValue(
                f"arguments of {size_bytes} bytes, {ARGUMENTS_BYTES_MAX} can travel with a nested task: "
                "pass less, or write it to a file and pass its name"
            )
        return arguments

    def _encoded(self, value: object) -> bytes | int:
        if not isinstance(value, Future):
            return dumps(value)
        if isinstance(value, NestedFuture) and value._session is self:
            if not value.done():
                return value.number
            return value.encoded()
        return dumps(value.result())

    def check(self) -> None:
        """Raise RuntimeError in a process that was forked from that of the task, and after its end."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                "current_executor() belongs to the process of the task: a process that the task has forked "
                "cannot use it"
            )
        if self._broken == _ENDED:
            raise RuntimeError(
                "this executor belongs to a task that has ended: call current_executor() in each task"
            )

    def cancel(self, number: int) -> None:
        """Cancel a task that was started."""
        with self._lock:
            if self._futures.pop(number, None) is not None and not self._broken:
                self._say(CancelNested(number))

    def cancel_waiting(self) -> None:
        """Cancel all that has not ended."""
        for future in tuple(self._futures.values()):
            future.cancel()

    @property
    def futures(self) -> tuple[NestedFuture[Any], ...]:
        """Those that have not ended."""
        return tuple(self._futures.values())

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The task waits in this block: its core may be used."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            before, self._waits = self._waits, self._waits + change
            if bool(before) != bool(self._waits) and not self._broken and os.getpid() == self._pid:
                self._forget()
                self._say(TaskWaits(bool(self._waits)))

    @contextmanager
    def _forgetting_later(self) -> Iterator[None]:
        """In this block no end is forgotten: what is submitted may hold its number."""
        with self._lock:
            self._submitting += 1
        try:
            yield
        finally:
            with self._lock:
                self._submitting -= 1
                if not self._broken:
                    self._forget()

    def _forget(self) -> None:
        """Say which ends have come, if nothing is being submitted; the lock is held."""
        if self._heard and not self._submitting:
            heard, self._heard = self._heard, []
            self._say(ForgetNested(tuple(heard)))

    def _say(self, word: FromTaskProcess) -> None:
        data = encode(word)
        with suppress(BrokenPipeError, ConnectionError):  # the thread that hears sees that, too
            self._socket.sendall(FRAME_HEADER.pack(len(data)))
            self._socket.sendall(data)

    def close(self) -> None:
        """The task has ended."""
        self._break(_ENDED)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if os.getpid() == self._pid and self._reader is not threading.current_thread():
            self._reader.join(END_S)
        self._socket.close()

    # The thread that hears ----

    def _read(self) -> None:
        why = "the connection to the job server is over"
        try:
            with self._socket.makefile("rb") as stream:
                while header := stream.read(FRAME_HEADER.size):
                    if len(header) < FRAME_HEADER.size:
                        break
                    (size,) = FRAME_HEADER.unpack(header)
                    word = decode_heard(stream.read(size))
                    if isinstance(word, NestedDepth):
                        self.depth = word.depth
                        self._welcome.set()
                    elif isinstance(word, NestedEnded):
                        self._ended(word)
                    else:
                        assert isinstance(word, NestedBroken)
                        self._break(word.reason)
        except (OSError, ValueError) as error:
            why = f"{why}: {error}"
        if not self._broken:
            self._place.cut_off = why
        self._break(why)
        self._welcome.set()

    def _ended(self, word: NestedEnded) -> None:
        with self._lock:
            future = self._futures.pop(word.number, None)
        if future is not None and not future.done():
            self._settle(future, word)
        with self._lock:  # only now, when nobody takes its number for an argument any more
            self._heard.append(word.number)

    @staticmethod
    def _settle(future: NestedFuture[Any], word: NestedEnded) -> None:
        with suppress(Exception):  # cancelled at this moment
            if word.value is not None:
                future.set_result(_Encoded(word.value))
            elif word.error is not None:
                future.set_exception(exception_of(word.error))
            else:
                future.set_exception(ExecutorBroken("the task was cancelled"))

    def _break(self, reason: str) -> None:
        with self._lock:
            if self._broken:
                return
            self._broken = reason
            futures, self._futures = self._futures, {}
        for future in futures.values():
            with suppress(Exception):
                future.set_exception(ExecutorBroken(f"the nested task cannot be run: {reason}"))


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

        A future among the arguments stands for its result; the task waits for it. A task that is nested
        ``DEPTH_MAX`` deep calls the function itself, at once.

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
        leading = [dumps(fn), dumps(tuple(kwargs))] if kwargs else [dumps(fn)]
        return self._session.submit(
            _name_of(fn),
            CALL_NAMED if kwargs else CALL_FIRST,
            leading,
            (*args, *kwargs.values()),
            self._shape,
            self._options,
        )

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
        size = checked_count("chunksize", chunksize)
        ahead = None if buffersize is None else checked_count("buffersize", buffersize)
        end_s = None if timeout is None else monotonic() + timeout
        items = zip(*iterables, strict=False)
        if size == 1:
            calls = (self.submit(fn, *item) for item in items)
            return _results(deque(islice(calls, ahead)), calls, end_s)
        chunks = iter(lambda: list(islice(items, size)), [])
        parts: Iterator[Future[list[T]]] = (self.submit(call_each, fn, chunk) for chunk in chunks)
        return _flat(_results(deque(islice(parts, ahead)), parts, end_s))

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


def _flat(parts: Iterator[list[T]]) -> Iterator[T]:
    for part in parts:
        yield from part


def _called(
    session: TaskSession, fn: Callable[..., T], args: Iterable[object], kwargs: dict[str, object]
) -> Future[T]:
    """Call the function here and return the future of its result."""
    future: NestedFuture[T] = NestedFuture(session)
    opened = [value.result() if isinstance(value, Future) else value for value in (*args, *kwargs.values())]
    split = len(opened) - len(kwargs)
    try:
        future.set_result(fn(*opened[:split], **dict(zip(kwargs, opened[split:], strict=True))))
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
