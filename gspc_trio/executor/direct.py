"""Single calls that the caller's thread sends to a compute process itself, and whose results it takes itself.

Who waits for each short call before it makes the next pays mostly for waking up threads and for the way
through all machines. After some such calls a task is submitted that takes more of them (``compute.direct``).
For scheduler and graph it is one task that runs. What is not quickly done and well is told by its result.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import threading
from contextlib import suppress
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from gspc_trio.compute.code import CALL_BYTES_MAX, REPLY_HEAD, CallsAnswer
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import DEFAULT_OPTIONS, LastAttempt, Shape, TaskError, TaskState
from gspc_trio.executor.futures import PENDING, Call, SomeTaskFuture
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.failures import ExecutorBroken, exception_of

if TYPE_CHECKING:
    from gspc_trio.components.job.scheduler.interface import TaskDone
    from gspc_trio.executor.bulk import Maps
    from gspc_trio.executor.codes import CodeTable

IDLE_S = 0.01
"""The task ends when no call has come for so long: its core is for others."""

LIMIT_S = 0.1
"""It ends after so long in any case."""

LOCKED_S = 1.0
"""At the end the loop waits no longer for the lock: who holds it calls callbacks, or was interrupted."""

_CREDENTIALS = Struct("iII")

_POLL_MS_MAX = 2**31 - 1
"""No wait for a socket can take longer; the loop tells whoever waits for so long."""

_AFTER_LOSS = replace(DEFAULT_OPTIONS, loss_attempts=DEFAULT_OPTIONS.loss_attempts - 1)
"""Of a call in which the compute process was lost once."""


class Owner(Protocol):
    """What direct calls ask of those that come one at a time.

    Attributes:
        maps: of the executor; they count what has ended.
        codes: its code table.
        computing: those whose tasks have not ended.
    """

    maps: Maps
    codes: CodeTable
    computing: set[DirectCalls]

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of that of the executor."""
        ...

    def forget(self, direct: DirectCalls, are_possible: bool = True) -> None:
        """These take no more calls; whether others may, later; in any thread."""
        ...

    def ended(self, direct: DirectCalls, are_possible: bool = True) -> None:
        """The task of these has ended; the rest as :meth:`forget`, in the loop's thread."""
        ...

    def submit_again(self, call: Call) -> None:
        """Run a call as a task of its own; in the loop's thread."""
        ...


class DirectCalls:
    """Calls of one function, one at a time; and who waits for the task that computes them.

    Whoever holds the lock reads the socket: the caller that waits for a result, or the loop at the end.

    Args:
        owner: whose calls they are.
        call: the first one, which becomes the task.

    Attributes:
        task_id: of the task; 0 before it is one.
        ended: how its task has ended.
        sent: how many calls there were.

    Raises:
        OSError: there is no room for another descriptor.
    """

    def __init__(self, owner: Owner, call: Call) -> None:
        self.task_id: TaskId = 0
        self.ended: TaskDone | None = None
        self.sent: int = 1
        self._owner = owner
        self._maps = owner.maps
        self._call = call
        self._lock = threading.Lock()
        self._future: SomeTaskFuture | None = call.future
        self._values = call.values
        self._buffer = bytearray(REPLY_HEAD.size + CALL_BYTES_MAX)
        self._line: socket.socket | None = None
        self._is_closing = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._address = f"gspc-{os.urandom(16).hex()}"
        self._listener.bind("\0" + self._address)
        self._listener.listen(1)
        call.future._direct = self

    # The caller's thread

    def take(self, future: SomeTaskFuture, code_id: int, values: tuple[object, ...], shape: Shape) -> bool:
        """Send a call to the compute process; return False if it has to be a task of its own."""
        line, call = self._line, self._call
        if (
            line is None
            or self._future is not None
            or self._is_closing
            or code_id != call.code_id
            or shape is not call.shape
            or self._owner.forked
        ):
            return False
        data = pickle.dumps(values, 5)
        if len(data) > CALL_BYTES_MAX or not self._lock.acquire(blocking=False):
            return False
        try:
            if self._future is not None or self._is_closing:
                return False
            future._direct, future._task_id = self, self.task_id
            self._future, self._values = future, values
            self.sent += 1
            try:
                line.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except OSError:  # the task has ended
                self.sent -= 1
                self._future = future._direct = None
                future._task_id = 0
                self._is_closing = True
                return False
        finally:
            self._lock.release()
        return True

    def wait(self, future: SomeTaskFuture, timeout_s: float | None) -> None:
        """Wait for the end of a call, if it is to be had here: the future may be pending after this."""
        if not self._lock.acquire(blocking=False):
            return  # another thread waits for it
        try:
            end_s = None if timeout_s is None else monotonic() + timeout_s
            if self._future is not future:
                return
            if self._line is None and (not _is_readable(self._listener, end_s) or not self._accept()):
                return
            line = self._line
            assert line is not None
            if (end_s is None or _is_readable(line, end_s)) and self._receive(line):
                self._end_call(future)
        finally:
            self._lock.release()

    @property
    def last(self) -> SomeTaskFuture | None:
        """Future of the call that has not ended, None if there is none."""
        return self._future

    def close(self) -> None:
        """Take no more calls; the task ends after the one that runs. In any thread."""
        self._is_closing = True
        future, line = self._future, self._line
        if not self.task_id and future is not None:
            future._direct = None  # it is no task yet, and will be one of its own
        with suppress(OSError):
            if line is not None:
                line.shutdown(socket.SHUT_WR)
            elif not self.task_id:
                self._listener.shutdown(socket.SHUT_RDWR)
        self._owner.forget(self)

    def _accept(self) -> bool:
        """Take the connection of the task; return False if there is none."""
        try:
            line, _ = self._listener.accept()
        except OSError:  # nobody listens any more
            return False
        _, uid, _ = _CREDENTIALS.unpack(
            line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid != os.geteuid():
            line.close()
            return False
        line.setblocking(True)  # whatever the program has set for its sockets
        self._line = line
        self._listener.close()
        if self._is_closing:
            self.close()
        return True

    def _receive(self, line: socket.socket, flags: int = 0) -> bool:
        """Have the last call's result in the buffer; return False if it does not come on the socket.

        It may be there already: whoever received it was interrupted at that very moment.
        """
        if REPLY_HEAD.unpack_from(self._buffer)[0] == self.sent:
            return True
        with suppress(OSError):
            return line.recv_into(self._buffer, 0, flags) > 0
        return False

    def _end_call(self, future: SomeTaskFuture) -> None:
        number, size = REPLY_HEAD.unpack_from(self._buffer)
        assert number == self.sent, "each call waits for the one before"
        future.finish(bytes(memoryview(self._buffer)[REPLY_HEAD.size : REPLY_HEAD.size + size]))
        self._future = future._direct = None

    # The loop's thread

    def begin(self) -> bool:
        """Become a task; return False if the first call has to be one of its own."""
        call, table = self._call, self._maps.table
        code_id = None if self._is_closing else self._owner.codes.calls_entry_of(call.code_id)
        if code_id is None:
            self._owner.forget(self, self._is_closing)
            self._taken_back()
            return False
        arguments = [*map(dumps, (self._address, IDLE_S, LIMIT_S, call.values))]
        options = replace(call.options, loss_attempts=1)
        self.task_id = table.graph.add(f"{call.name} (calls)", code_id, arguments, call.shape, options)
        table.parts[self.task_id] = self
        self._owner.computing.add(self)
        call.future._task_id = self.task_id
        return True

    def finish(self, data: bytes) -> None:
        """The task has ended, and tells of what was not told on the socket."""
        answer: CallsAnswer = loads(data)
        reached, begun, result, error = answer
        self._owner.ended(self, reached or self._is_closing)
        future = self._taken_back()
        extra = self._maps.extra
        extra[TaskState.FINISHED] += self.sent - 1
        if future is None:
            return
        if begun < self.sent or (result is None and error is None):
            extra[TaskState.FINISHED] -= 1
            self._submit_again(future)
        elif result is not None:
            future.finish(result)
        else:
            assert error is not None
            extra[TaskState.FINISHED] -= 1
            extra[TaskState.FAILED] += 1
            ended, last = self.ended, LastAttempt(self._call.name, 1)
            if ended is not None:
                last = replace(last, stdout=ended.outcome.stdout, stderr=ended.outcome.stderr)
            future.fail(exception_of(TaskError(*error), last))

    def fail(self, error: BaseException) -> None:
        """The task was lost, or all is over."""
        self._owner.ended(self)
        future = self._taken_back()
        extra = self._maps.extra
        extra[TaskState.FAILED] -= 1
        extra[TaskState.FINISHED] += self.sent - (future is not None)
        if future is None:
            return
        if isinstance(error, ExecutorBroken):
            future.fail(error)
        else:
            self._submit_again(future, lost=True)

    def give_up(self) -> None:
        """The task was cancelled: that of a call was, or all are."""
        self._owner.ended(self)
        future = self._taken_back()
        self._maps.extra[TaskState.FINISHED] += self.sent - 1
        if future is None or future._state is not PENDING:
            return
        if self._maps.table.is_stopped:
            future.give_up()
        else:
            self._maps.extra[TaskState.CANCELLED] -= 1
            self._submit_again(future)

    def _submit_again(self, future: SomeTaskFuture, lost: bool = False) -> None:
        call = self._call
        options = _AFTER_LOSS if lost else call.options
        again = Call(future, call.code_id, call.name, call.arguments, call.shape, options, self._values)
        self._owner.submit_again(again)

    def _taken_back(self) -> SomeTaskFuture | None:
        """Return the future of the last call, None if the result was told on the socket."""
        is_held = self._lock.acquire(blocking=False)
        if not is_held:
            self._hang_up()
            is_held = self._lock.acquire(timeout=LOCKED_S)
        try:
            future, self._is_closing = self._future, True
            if not is_held and future is not None and future._state is not PENDING:
                future = None
            if future is not None:
                if self._line is None and _is_readable(self._listener, monotonic()):
                    self._accept()
                if self._line is not None and self._receive(self._line, socket.MSG_DONTWAIT):
                    self._end_call(future)
                    future = None
                else:
                    self._future = future._direct = None
                    future._task_id = 0
            if self._line is not None:
                self._line.close()
            self._listener.close()
            return future
        finally:
            if is_held:
                self._lock.release()

    def _hang_up(self) -> None:
        """Wake up who waits here."""
        with suppress(OSError):
            (self._line or self._listener).shutdown(socket.SHUT_RDWR)


def _is_readable(line: socket.socket, end_s: float | None) -> bool:
    """Wait until there is something to read, or the time has come; return whether there is."""
    if line.fileno() < 0:  # it was closed
        return False
    poll = select.poll()
    poll.register(line, select.POLLIN)
    left_ms = None if end_s is None else min(max(0.0, 1e3 * (end_s - monotonic())), _POLL_MS_MAX)
    return bool(poll.poll(left_ms))
