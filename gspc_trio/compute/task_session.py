"""The connection of a task to its job server, by way of its host, and the futures of what it starts.

It is a socket, which is opened at the first use. A thread hears what becomes of the tasks.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from time import monotonic
from typing import Any, TypeVar

from gspc_trio.compute.channel import FRAME_HEADER
from gspc_trio.core.current import ComputePlace
from gspc_trio.core.nested import (
    CALL_FILLED,
    CALL_FIRST,
    CALL_NAMED,
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
from gspc_trio.core.task import Shape, TaskOptions
from gspc_trio.protocol.limits import DEFAULT_LIMITS
from gspc_trio.protocol.values import BadValue, dumps, loads, refuse_future
from gspc_trio.workflow.containers import futures_in, make_holes
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

UNFINISHED_MAX = 10_000
UNFINISHED_BYTES_MAX = 256 << 20
"""So many nested tasks of a task, and so many bytes of their arguments, are under way at a time: ``submit``
waits while there are more."""

_ENDED = "the task has ended: what it has not waited for is cancelled"


class NestedFuture(Future[T]):
    """The future of a nested task; its result is decoded when it is asked for.

    Attributes:
        number: of the task in its session; 0: it runs in no other process.
        size_bytes: of its arguments.
    """

    _decoded: Any = None
    _is_decoded = False

    __reduce__ = refuse_future

    def __init__(self, session: TaskSession) -> None:
        super().__init__()
        self._session = session
        self.number = 0
        self.size_bytes = 0
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
        self.set: Callable[[], None] = event.set
        self.clear: Callable[[], None] = event.clear
        self.is_set: Callable[[], bool] = event.is_set

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
        self._size_bytes = 0  # of the arguments of those that have not ended
        self._has_room = threading.Condition()
        self._last = 0
        self._heard: list[int] = []  # ends that the job server may forget
        self._submitting = 0  # their arguments may hold numbers of tasks that end meanwhile
        self._waits = 0
        self._broken = ""
        self._welcome = threading.Event()
        self.depth: int = 0
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
        place.behind.clear()
        if not self._welcome.wait(ANSWER_S):
            self.close()
            raise RuntimeError(f"current_executor(): the job server did not answer within {ANSWER_S:g} s")

    def submit(
        self,
        name: str,
        fn: Callable[..., object],
        args: Sequence[object],
        kwargs: Mapping[str, object],
        shape: Shape,
        options: TaskOptions,
    ) -> NestedFuture[Any]:
        """Start a task and return its future; wait first while too many have not ended."""
        self.check()
        self._wait_for_room()
        future: NestedFuture[Any] = NestedFuture(self)
        with self._forgetting_later():
            try:
                code_id, arguments = self._call(fn, args, kwargs)
                future.size_bytes = self._checked_size(arguments)
            except Exception as error:
                future.set_exception(error)
                return future
            with self._lock:
                if self._broken:
                    raise ExecutorBroken(f"the task can start no more tasks: {self._broken}")
                self._last += 1
                future.number = self._last
                self._futures[future.number] = future
                self._size_bytes += future.size_bytes
                self._say(StartNested(future.number, name, code_id, arguments, shape, options))
        return future

    def _wait_for_room(self) -> None:
        """Wait while too many nested tasks have not ended, until there is room for many; the core is lent."""
        if len(self._futures) < UNFINISHED_MAX and self._size_bytes < UNFINISHED_BYTES_MAX:
            return
        if threading.current_thread() is self._reader:  # a callback of a future: here the ends are heard
            return

        def has_room() -> bool:
            few = len(self._futures) <= UNFINISHED_MAX // 2
            return bool(self._broken) or (few and self._size_bytes <= UNFINISHED_BYTES_MAX // 2)

        with self.waiting(), self._has_room:
            self._has_room.wait_for(has_room)

    def _taken_out(self, number: int) -> NestedFuture[Any] | None:
        """A task is not under way any more: return its future, None if that is known."""
        with self._lock:
            future = self._futures.pop(number, None)
            if future is not None:
                self._size_bytes -= future.size_bytes
        with self._has_room:
            self._has_room.notify_all()
        return future

    def _call(
        self, fn: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[int, tuple[bytes | int, ...]]:
        """Return the number and the arguments of a call as they travel.

        The number of a task stands for its result, also where that belongs into a list, tuple, set or dict.
        """
        values = (*args, *kwargs.values())
        try:
            arguments = tuple(map(self._encoded, values))
        except Exception:
            within = [() if isinstance(value, Future) else futures_in(value) for value in values]
            if not any(within):
                raise
        else:
            leading = (dumps(fn), dumps(tuple(kwargs))) if kwargs else (dumps(fn),)
            return CALL_NAMED if kwargs else CALL_FIRST, (*leading, *arguments)
        counts = [len(futures) if futures else -1 for futures in within]
        filled: list[bytes | int] = [dumps(fn), dumps(list(kwargs)), dumps(counts)]
        for value, futures in zip(values, within, strict=True):
            filled.append(dumps(make_holes(value, list(futures))) if futures else self._encoded(value))
            filled += map(self._encoded, futures)
        return CALL_FILLED, tuple(filled)

    @staticmethod
    def _checked_size(arguments: tuple[bytes | int, ...]) -> int:
        size_bytes = sum(len(one) for one in arguments if isinstance(one, bytes))
        if size_bytes > ARGUMENTS_BYTES_MAX:
            raise BadValue(
                f"arguments of {size_bytes} bytes, {ARGUMENTS_BYTES_MAX} can travel with a nested task: "
                "pass less, or write it to a file and pass its name"
            )
        return size_bytes

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
        if self._taken_out(number) is not None:
            with self._lock:
                if not self._broken:
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
        except ConnectionResetError:  # it is over as well: what was said last had not been read there
            pass
        except (OSError, ValueError) as error:
            why = f"{why}: {error}"
        if not self._broken:
            self._place.cut_off = why
        self._break(why)
        self._welcome.set()

    def _ended(self, word: NestedEnded) -> None:
        future = self._taken_out(word.number)
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
                future.set_exception(exception_of(word.error, word.last))
            else:
                future.set_exception(ExecutorBroken("the task was cancelled"))

    def _break(self, reason: str) -> None:
        with self._lock:
            if self._broken:
                return
            self._broken = reason
            futures, self._futures = self._futures, {}
        with self._has_room:
            self._has_room.notify_all()
        for future in futures.values():
            with suppress(Exception):
                future.set_exception(ExecutorBroken(f"the nested task cannot be run: {reason}"))
