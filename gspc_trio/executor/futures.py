"""Futures of tasks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, suppress
from time import monotonic
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from gspc_trio.components.job.item_values import ITEM_BYTES_MAX
from gspc_trio.core.current import current_place
from gspc_trio.core.html import facts_table, short
from gspc_trio.core.task import Shape, TaskOptions, TaskVariants
from gspc_trio.protocol.values import RAW, TrackedReference, dumps, gather, loads, refuse_future
from gspc_trio.workflow.failures import TaskFailed

T = TypeVar("T")

_log = logging.getLogger(__name__)

ENCODED_KEPT_BYTES_MAX = 65_536
"""A result larger than this is kept once: encoded until it is asked for, decoded after."""

PENDING, _FINISHED = "PENDING", "FINISHED"  # as the base class calls these states
_CANCELLED = frozenset({"CANCELLED", "CANCELLED_AND_NOTIFIED"})
_UNDECODED = object()
_locks = threading.Lock()
"""Held for a moment by whoever makes the condition of a future, or finishes one that has none."""


class _MadeLate:
    """An attribute of the base class that most futures never need: it is made when it is first asked for.

    A method ``__getattr__`` would do, but then each look at any attribute takes twice as long.

    Args:
        make: returns it, of a future.
    """

    def __init__(self, make: Callable[[SomeTaskFuture], object]) -> None:
        self._make = make
        self._name = ""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, future: SomeTaskFuture | None, _owner: type) -> Any:
        if future is None:
            return self
        if self._name == "_condition":
            future._leave_to_loop()
        with _locks:
            return vars(future).setdefault(self._name, self._make(future))


def _condition_of(future: SomeTaskFuture) -> threading.Condition:
    future._has_condition = True
    return threading.Condition()


def _waiters_of(future: SomeTaskFuture) -> list[object]:
    return _lending_waiters() if future._lends else []


def lending() -> AbstractContextManager[None]:
    """Return the block in which a task waits, and lends its core."""
    from gspc_trio.compute.nested import lending  # only in tasks

    return lending()


def _lending_waiters() -> list[Any]:
    from gspc_trio.compute.task_session import Waiters

    return Waiters(lending)


class TaskOwner(Protocol):
    """What a future asks of the executor's loop."""

    forked: bool
    is_elsewhere: bool
    """Whether it has joined a run-time system that runs: a task that waits may hold a core of that."""
    was_awaited: bool
    """Whether a thread has waited for a result since this was set to False."""

    def cancel(self, future: SomeTaskFuture) -> None:
        """End the task of a future that was cancelled."""
        ...

    def is_running(self, future: SomeTaskFuture) -> bool:
        """Whether a worker computes it."""
        ...

    def check_may_wait(self) -> None:
        """Raise RuntimeError in a thread that would wait for ever."""
        ...


class Direct(Protocol):
    """Takes the result of a call that the caller's thread has sent to the compute process itself."""

    def wait(self, future: SomeTaskFuture, timeout_s: float | None) -> None:
        """Wait for the end of the call, if it is to be had here."""
        ...

    def close(self) -> None:
        """Leave it to the executor's loop."""
        ...

    def begin(self) -> bool:
        """Become a task with it as first call; return False if it has to be one of its own."""
        ...


class TaskFuture(Future[T]):
    """A future whose task runs elsewhere: ``cancel`` really cancels, results are decoded when asked for."""

    _task_id = 0
    _ref: Any = None
    _decoded: Any = _UNDECODED
    _encoded: bytes | None = None
    _told = False
    _has_condition = False
    _waker: Any = None
    _tell: Callable[[TaskFuture[T]], object] | None = None
    _direct: Direct | None = None
    _cell = 0
    """Number of the notebook's cell that has submitted it; 0: none has."""

    _is_awaited = False
    """Whether somebody may have to be told of its end, without a condition."""

    _condition: Any = _MadeLate(_condition_of)
    _waiters: Any = _MadeLate(_waiters_of)
    _done_callbacks = _MadeLate(lambda _: [])

    _state = PENDING
    _result: Any = None
    _exception: BaseException | None = None

    __reduce__ = refuse_future

    def __init__(self, owner: TaskOwner) -> None:
        # Not the base class's: that makes a condition and two lists at once, which cost more than all else of
        # a future; here they are made when they are first used, which is seldom, for :meth:`result` does not.
        self._owner = owner

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x} state={self._describe()}>"

    def _repr_html_(self) -> str:
        state, failure = self._describe(), self._exception
        result = "" if self._decoded is _UNDECODED else short(self._decoded)
        error = "" if failure is None else str(failure)
        return facts_table("Future", state=state, task=str(self._task_id or ""), error=error, result=result)

    def _describe(self) -> str:
        if self._state is PENDING:
            return "running" if not self._owner.forked and self.running() else "pending"
        if self.cancelled():
            return "cancelled"
        if self._exception is not None:
            return f"finished raised {type(self._exception).__name__}"
        data = self._result  # none if another thread has just looked at it
        if self._decoded is _UNDECODED and data is not None and len(data) > ENCODED_KEPT_BYTES_MAX:
            return f"finished returned {len(data)} bytes that nobody has opened yet"
        try:
            return f"finished returned {type(self.result(0)).__name__}"
        except Exception as error:
            return f"finished returned what cannot be opened here: {error}"

    @property
    def _lends(self) -> bool:
        """Whether it is a task that waits for it, and perhaps on the cores of its own run-time system."""
        return self._owner.is_elsewhere and current_place() is not None

    def cancel(self) -> bool:
        """Cancel the task, also when it is running; return False if it had ended."""
        if self.give_up():
            self._owner.cancel(self)
        return self.cancelled()

    def done(self) -> bool:
        """Return whether it was cancelled or has ended."""
        return self._state is not PENDING

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self._state in _CANCELLED

    def running(self) -> bool:
        """Return whether a worker computes the task now."""
        return not self.done() and self._owner.is_running(self)

    def result(self, timeout: float | None = None) -> T:
        """Return what the task returned; wait up to ``timeout`` seconds for it.

        Raises:
            CancelledError: the task was cancelled.
            RuntimeError: a callback waits, or another function in the thread that results come through.
            TimeoutError: it did not end in time.
            Exception: what the task raised, with its traceback as cause; TaskFailed if that cannot be had.
        """
        if self._state is PENDING and not self._owner.forked:
            self._wait(timeout)
        data: Any
        if self._state == _FINISHED and self._exception is None:
            data = self._result
        elif self._owner.forked:
            raise RuntimeError("the task of this future belongs to the process that this one was forked from")
        else:
            error = self.exception(0)  # not the base class's result: that takes a false exception for none
            if error is not None:
                try:
                    raise error
                finally:
                    del error, self  # they would keep each other alive through the traceback
            data = self._result
        if self._decoded is _UNDECODED:
            self._decoded = loads(data)
            if len(data) > ENCODED_KEPT_BYTES_MAX:
                self._encoded = self._result = None
        decoded: T = self._decoded
        return decoded

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the task raised, None if it returned; the rest as :meth:`result`."""
        if timeout is None and self._state is PENDING:
            self._owner.check_may_wait()
        return super().exception(timeout)

    def _wait(self, timeout: float | None) -> None:
        """Wait for the end: for a lock that is let go then, which costs less than a condition."""
        if timeout is None:
            self._owner.check_may_wait()
        self._owner.was_awaited = True
        direct = self._direct
        if direct is not None:
            begun_s = monotonic()
            direct.wait(self, timeout)
            if timeout is not None:
                timeout -= monotonic() - begun_s
        with _locks:
            if self._state is not PENDING:
                return
            waker = self._waker
            if waker is None:
                waker = self._waker = threading.Lock()
                waker.acquire()
                self._is_awaited = True
        limit_s = -1 if timeout is None else max(0.0, timeout)
        if not self._lends:
            acquired = waker.acquire(True, limit_s)
        else:
            with lending():
                acquired = waker.acquire(True, limit_s)
        if acquired:
            waker.release()  # for the next one who waits

    def _leave_to_loop(self) -> None:
        """Somebody is to be told of the end who does not wait for it in :meth:`result`."""
        direct = self._direct
        if direct is not None:
            direct.close()

    def _wake(self) -> None:
        """Let those go on who wait for the end."""
        with _locks:
            waker, self._waker = self._waker, None
        if waker is not None:
            waker.release()

    def _invoke_callbacks(self) -> None:
        """Wake who waits, then call the callbacks: the base class does this when the future has ended.

        What a callback raises is logged, also SystemExit: it must not end the loop that runs all tasks. Only
        Ctrl-C in the main thread, where ``cancel`` may call callbacks, is nothing that a callback raises.
        """
        self._wake()
        if self._state == "CANCELLED":
            self.set_running_or_notify_cancel()
        self._tell_end()
        for callback in self._done_callbacks:
            try:
                callback(self)
            except BaseException as error:
                interrupted = isinstance(error, KeyboardInterrupt)
                if interrupted and threading.current_thread() is threading.main_thread():
                    raise
                _log.exception("a callback of %r raised an exception", self)

    def tell_end(self, tell: Callable[[TaskFuture[T]], object]) -> None:
        """Have this called with the future when it has ended: one at most, which raises nothing.

        It costs a tenth of what ``add_done_callback`` does.
        """
        self._tell = tell
        self._is_awaited = True
        self._leave_to_loop()
        with _locks:
            is_pending = self._state is PENDING
        if not is_pending:
            self._tell_end()

    def _tell_end(self) -> None:
        with _locks:  # it may end in one thread while another one asks
            tell, self._tell = self._tell, None
        if tell is not None:
            tell(self)

    def encoded(self) -> bytes:
        """Return the result of a task that finished as it travels."""
        data: bytes | None = self._encoded
        return dumps(self._decoded) if data is None else data

    # For the executor's loop ----

    def finish(self, data: bytes) -> bool:
        """The task has returned this; return False if it was cancelled meanwhile."""
        with _locks:
            is_simple = not self._has_condition
            if is_simple:  # so it was not cancelled, and nobody has added a callback
                self._encoded = self._result = data
                self._state = _FINISHED
        if is_simple:
            if self._waker is not None:
                self._wake()
            if self._tell is not None:
                self._tell_end()
            return True
        self._encoded = data
        try:
            self.set_result(data)  # type: ignore[arg-type]
        except InvalidStateError:
            return False
        return True

    def fail(self, error: BaseException) -> None:
        """The task has failed, unless the future was cancelled meanwhile."""
        with suppress(InvalidStateError):
            self.set_exception(error)

    def give_up(self) -> bool:
        """Become cancelled and tell those who wait; return False if it was or had ended."""
        if not super().cancel():
            return False
        with _locks:
            told, self._told = self._told, True
        return not told


def _share_names() -> None:
    """Have the class know what most of its instances will have, by one that has it.

    CPython keeps attributes without a dictionary if one of the first instances had them, too. Here thousands
    are made before one has a result: each would get a dictionary for that, which takes eight times as long,
    and which the garbage collector has to look at.
    """
    first: SomeTaskFuture = TaskFuture.__new__(TaskFuture)
    results = ("_state", "_decoded", "_encoded", "_result")
    for name in ("_owner", *results, "_task_id", "_ref", "_direct", "_is_awaited", "_waker"):
        setattr(first, name, None)


_share_names()


def finish_all(futures: Sequence[SomeTaskFuture], values: Sequence[object]) -> None:
    """The tasks have returned these values, which are not encoded, and which nobody can change."""
    awaited, late = [], []
    with _locks:
        for future, value in zip(futures, values, strict=True):
            if future._has_condition:  # as in :meth:`TaskFuture.finish`
                late.append((future, value))
                continue
            future._decoded = value
            future._state = _FINISHED
            if future._is_awaited:
                awaited.append(future)
    for future in awaited:
        future._wake()
        if future._tell is not None:
            future._tell_end()
    for future, value in late:
        future.finish(dumps(value))


LOOK_INTERVAL_S = 0.1
"""Who waits for many looks so often whether one has failed."""


def wait_finished(futures: Sequence[SomeTaskFuture]) -> None:
    """Return when all of these have finished.

    Raises:
        CancelledError: one was cancelled.
        Exception: what one of them raised, soon after that, also while others run.
    """
    for future in futures:
        if future._state == _FINISHED and future._exception is None:
            continue
        while not future.done():
            future._wait(LOOK_INTERVAL_S)
            if not future.done():
                failed = (one for one in futures if one.cancelled() or one._exception is not None)
                future = next(failed, future)
        if future.cancelled() or future._exception is not None:
            future.result(0)


def own_value(future: TaskFuture[T]) -> T:
    """Return the result of a task that has finished, in memory of its own: arrays can be written."""
    data = future._encoded  # None if it came decoded
    if type(data) is not TrackedReference or data.reference.kind == RAW:
        return future.result()
    view = data.open_data(data.reference.data_id)
    value: T = gather(data.reference, memoryview(bytearray(view)))
    return value


SomeFuture: TypeAlias = Future[Any]
"""A future of whatever executor and value."""

Argument: TypeAlias = bytes | SomeFuture
"""An argument of a task: encoded, or the future of a result that it waits for."""

SomeTaskFuture: TypeAlias = TaskFuture[Any]
"""A future of an executor of ours."""


def value_of(future: SomeFuture, name: str) -> bytes:
    """Return the encoded value of a future that has ended, an argument of the task of that name.

    Raises:
        TaskFailed: it was cancelled.
        Exception: what it raised; BadValue if its value cannot be sent.
    """
    if future.cancelled():
        why = "cancelled: an argument is the future of a task that was cancelled"
        raise TaskFailed(why, "cancelled", name)
    error = future.exception(0)
    if error is not None:
        raise error
    return future.encoded() if isinstance(future, TaskFuture) else dumps(future.result(0))


NUMBERS = frozenset({type(None), bool, int, float})
_TEXTS = frozenset({str, bytes})


def may_share(values: Sequence[Any]) -> bool:
    """Whether these may be arguments of a call that travels with others: not long, and never changed."""
    for value in values:
        kind = type(value)
        if kind not in NUMBERS and (kind not in _TEXTS or len(value) > ITEM_BYTES_MAX):
            return False
    return True


NOTHING: list[Argument] = []
"""What calls have in common whose arguments are not encoded; nobody changes it."""


class Call(Struct, eq=False):
    """A submission on its way from the caller's thread to the loop.

    Attributes:
        future: of the result.
        code_id: number of the code.
        name: for people.
        arguments: each encoded, or a future.
        shape, options: what it needs and states about itself.
        values: the arguments as they are, if they are numbers and texts alone, none of them long; then
            ``arguments`` is empty. () otherwise.
        variants: ways to run it, if there are several; then code and shape are those of the first one.
    """

    future: SomeTaskFuture
    code_id: int
    name: str
    arguments: list[Argument]
    shape: Shape
    options: TaskOptions
    values: tuple[object, ...] = ()
    variants: TaskVariants | None = None


def variant_call(
    future: SomeTaskFuture,
    name: str,
    arguments: list[Argument],
    options: TaskOptions,
    variants: TaskVariants,
) -> Call:
    """Return a submission of code with variants."""
    first = variants.ways[0]
    return Call(future, first.code_id, name, arguments, first.shape, options, variants=variants)


class Deadline:
    """Seconds that are left of a time-out that several waits share."""

    def __init__(self, timeout: float | None) -> None:
        self._end_s = None if timeout is None else monotonic() + timeout

    def left_s(self) -> float | None:
        """Return what is left, at least 0, or None for ever."""
        return None if self._end_s is None else max(0.0, self._end_s - monotonic())
