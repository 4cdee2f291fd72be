"""The RIF's end of the channels of one compute process or thread: what it is handed, its results, its end."""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgpack
import trio
from msgspec import Struct

from gspc_trio.components.worker.messages import Submission
from gspc_trio.components.worker.shell.compute_tasks import CodeTimes, TaskChannel
from gspc_trio.components.worker.shell.task_listener import TaskConnection
from gspc_trio.components.worker.verdict import NOTHING_PRINTED
from gspc_trio.compute.channel import FRAME_HEADER, UNDEFINED, UNMADE, unpack_results
from gspc_trio.core.ids import Attempt, TaskId
from gspc_trio.core.task import Outcome, Reason, TaskError

if TYPE_CHECKING:  # few hosts count
    from gspc_trio.components.worker.shell.io_watch import ProcessWatch

READ_BYTES = 1 << 18
"""Read at most so much of the results at once."""

UNREAD_BYTES_MAX = 1 << 20
"""About so much of tasks may be unread, where the system allows it. The kernel says that there is room again
when three quarters are read: with its usual size, a process that gets 10 KiB with each task has nothing to do
until then.
"""

EXIT_S = 1.0
"""A process that has closed its results but does not exit within this is killed."""

_FINISHED = Reason.FINISHED

_log = logging.getLogger(__name__)


class ComputeState(StrEnum):
    """Where the compute of a worker is in its life, from the fork on."""

    RUNNING = "running"
    """It takes tasks and sends results."""
    KILLING = "killing"
    """It was asked to end: what is below it is ended, then itself; results that were written still count."""
    LOST = "lost"
    """It has closed its results without being asked: what it has left behind is ended."""
    GONE = "gone"
    """Nothing is left of it; its backend may be closed under it, too."""


TRANSITIONS: dict[ComputeState, frozenset[ComputeState]] = {
    ComputeState.RUNNING: frozenset({ComputeState.KILLING, ComputeState.LOST, ComputeState.GONE}),
    ComputeState.LOST: frozenset({ComputeState.KILLING, ComputeState.GONE}),
    ComputeState.KILLING: frozenset({ComputeState.GONE}),
    ComputeState.GONE: frozenset(),
}
"""Where compute may go from where it is; a lost one that somebody asks to end meanwhile is not reported."""


class ComputeEvents(Protocol):
    """Told by a compute, from a trio task; must not block."""

    def computed(self, outcomes: tuple[Outcome, ...]) -> None:
        """These attempts finished or failed, in this order."""
        ...

    def compute_lost(
        self, detail: str, begun: bool = True, printed: tuple[bytes, bytes] = NOTHING_PRINTED
    ) -> None:
        """The process is gone without being asked; what was handed and not reported has been lost with it.

        ``begun``: it may have begun the first of that, for it has read it. ``printed``: by that one.
        """
        ...

    def speaks(self, line: TaskConnection) -> None:
        """The process of a task has connected, to say something to its job server."""
        ...


class Printed(NamedTuple):
    """What a task has printed so far: the last of both streams, and how many bytes there were of each."""

    stdout: bytes = b""
    stderr: bytes = b""
    stdout_bytes: int = 0
    stderr_bytes: int = 0


class Origin(Protocol):
    """Where a compute comes from: a process of its own, or a thread."""

    @property
    def pid(self) -> int:
        """The process that computes."""
        ...

    @property
    def exited(self) -> trio.Event:
        """Set when the process has ended."""
        ...

    async def end(self, drained: trio.Event) -> None:
        """End it with all that it has started; ``drained`` is set when its results have ended."""
        ...

    async def printed(self, seen: tuple[int, int]) -> Printed:
        """Return the last of what it has printed so far, as far as that can be seen from outside."""
        ...

    def close(self) -> None:
        """Close what it has open; it has ended, or nobody wants to know."""
        ...

    @property
    def left(self) -> tuple[bytes, bytes]:
        """When it is closed: the last of standard output and error of the attempt that was in compute."""
        ...

    def why(self) -> str:
        """Say in one line how it ended."""
        ...


class Channels(Struct, frozen=True, eq=False):
    """Both ends of the two socket pairs.

    Attributes:
        tasks: our end of the channel of tasks.
        unread: the other end: we keep it, too, to take back what is still in it.
        results: our end of the channel of results.
        written: the other end; only the compute process keeps it, so that its end is ours to see.
    """

    tasks: socket.socket
    unread: socket.socket
    results: socket.socket
    written: socket.socket

    @classmethod
    def make(cls) -> Channels:
        """Open both pairs; OSError if there are too many open files."""
        tasks, unread = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            results, written = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError:
            tasks.close()
            unread.close()
            raise
        tasks.setblocking(False)
        tasks.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNREAD_BYTES_MAX)
        return cls(tasks, unread, results, written)

    @property
    def theirs(self) -> tuple[int, int]:
        """Descriptors for the compute process."""
        return self.unread.fileno(), self.written.fileno()

    def close(self) -> None:
        """Close what is open."""
        for each in (self.tasks, self.unread, self.results, self.written):
            each.close()


class ChannelCompute:
    """The compute of one worker for one job (``components.worker.shell.compute.Compute``)."""

    def __init__(
        self,
        nursery: trio.Nursery,
        channels: Channels,
        origin: Origin,
        times: CodeTimes,
        events: ComputeEvents,
    ) -> None:
        channels.written.close()
        self.pid: int = origin.pid
        self._nursery = nursery
        self._tasks = TaskChannel(nursery, channels.tasks, channels.unread, times)
        self._results = channels.results
        self._results.setblocking(False)
        self._origin = origin
        self._times = times
        self._events = events
        self._handed: deque[Submission] = deque()  # and not reported, in order
        self.io: ProcessWatch | None = None
        self.state: ComputeState = ComputeState.RUNNING
        self._reading = trio.CancelScope()
        self._drained = trio.Event()
        self._origin_ended = trio.Event()
        self._ended = trio.Event()

    def start(self) -> None:
        """Begin to read results."""
        self._nursery.start_soon(self._live)

    def define(self, code_id: int, data: bytes) -> None:
        """Make an entry of the code table known; it travels with the first task that uses it."""
        self._tasks.define(code_id, data)

    def hand(self, submissions: Sequence[Submission]) -> None:
        """Send these to the process, as far as there is room; the rest follows by itself.

        Raises:
            KeyError: the code of one is not defined; none of them is taken.
        """
        if self.state is not ComputeState.RUNNING:
            return  # its loss is being reported, or it is being killed: these are lost with it
        self._tasks.hand(submissions)
        self._handed.extend(submissions)

    def has(self, task_id: TaskId, attempt: Attempt) -> bool:
        """Return whether it was handed this attempt and has not reported it."""
        return any(one.task_id == task_id and one.attempt == attempt for one in self._handed)

    @property
    def running(self) -> tuple[TaskId, Attempt] | None:
        """The first attempt that it was handed and has not reported, which runs unless it waits in a pipe."""
        return (self._handed[0].task_id, self._handed[0].attempt) if self._handed else None

    def speaks(self, line: TaskConnection) -> None:
        """Take the connection of a task."""
        self._events.speaks(line)

    def retract(self) -> tuple[tuple[TaskId, Attempt], ...]:
        """Take back all that the process has not read; return which, in order."""
        if self.state is not ComputeState.RUNNING:
            return ()
        keys = self._tasks.retract()
        taken = set(keys)
        self._handed = deque(each for each in self._handed if (each.task_id, each.attempt) not in taken)
        return keys

    async def printed(self, seen: tuple[int, int] = (0, 0)) -> Printed:
        """Return the last of what the task in compute has printed so far, without what is ``seen``."""
        if self.state is not ComputeState.RUNNING:
            return Printed()
        return await self._origin.printed(seen)

    async def kill(self) -> tuple[bytes, bytes]:
        """End the process with all that it has started; return when that is done, results delivered.

        Returns:
            The last of standard output and error of the attempt that was in compute.
        """
        if self.state is ComputeState.RUNNING:
            self.retract()
            self._move(ComputeState.KILLING)
            self._nursery.start_soon(self._end)
        elif self.state is ComputeState.LOST:
            self._move(ComputeState.KILLING)
        await self._ended.wait()
        return self._origin.left

    def _move(self, state: ComputeState) -> None:
        assert state in TRANSITIONS[self.state], f"compute {self.pid} from {self.state} to {state}"
        self.state = state

    async def _live(self) -> None:
        begun = False
        try:
            with self._reading:
                await self._read_results()
            self._drained.set()
            if self.state is ComputeState.RUNNING:
                begun = self._has_read_first()
                self._move(ComputeState.LOST)
                with trio.move_on_after(EXIT_S):
                    await self._origin.exited.wait()
                await self._origin.end(self._drained)
            else:
                await self._origin_ended.wait()
        finally:
            self._drained.set()
            if self.io is not None:
                self.io.gone(self._origin.why() if self.state is ComputeState.LOST else "")
            self._tasks.close()
            self._results.close()
            self._origin.close()
            self._ended.set()
            was_lost = self.state is ComputeState.LOST
            self._move(ComputeState.GONE)
        if was_lost:
            printed = self._origin.left if begun else NOTHING_PRINTED
            self._events.compute_lost(self._origin.why(), begun, printed)

    def _has_read_first(self) -> bool:
        """Whether the process has taken the first that it has not reported; the unread rest is dropped."""
        if not self._handed:
            return False
        first = self._handed[0]
        return (first.task_id, first.attempt) not in self._tasks.retract()

    async def _end(self) -> None:
        self._tasks.close()  # a thread that waits for tasks sees that
        try:
            await self._origin.end(self._drained)
            with trio.move_on_after(EXIT_S):
                await self._drained.wait()
            self._reading.cancel()  # what cannot be ended holds it open
        finally:
            self._origin_ended.set()

    async def _read_results(self) -> None:
        received = bytearray()
        while True:
            # Waited for first: trio's own sockets try to read at once, and here nothing is there yet then.
            await trio.lowlevel.wait_readable(self._results)
            try:
                data = self._results.recv(READ_BYTES)
            except BlockingIOError:
                continue
            except ConnectionResetError:  # it has died with packets unread
                return
            if not data:
                return
            received += data
            try:
                outcomes = self._take_outcomes(received)
            except (ValueError, TypeError, IndexError, msgpack.exceptions.UnpackException):
                _log.error("compute process %d sent what is no result; it is ended", self.pid)
                return
            if outcomes:
                self._events.computed(outcomes)

    def _take_outcomes(self, received: bytearray) -> tuple[Outcome, ...]:
        """Return what is complete, and remove it."""
        outcomes: list[Outcome] = []
        begin = 0
        while len(received) - begin >= FRAME_HEADER.size:
            (size,) = FRAME_HEADER.unpack_from(received, begin)
            content = begin + FRAME_HEADER.size
            if content + size > len(received):
                break
            begin = content + size
            with memoryview(received) as view, view[content:begin] as frame:
                results = unpack_results(frame)
                if self.io is not None:
                    results = self.io.taken(results)
                outcomes += [_outcome(*fields) for fields in results]
        del received[:begin]
        self._note_times(outcomes)
        return tuple(outcomes)

    def _note_times(self, outcomes: list[Outcome]) -> None:
        if len(outcomes) == 1:
            self._times.note(self._handed.popleft().code_id, outcomes[0].duration_s)
            return
        code_id, seconds, count = -1, 0.0, 0
        for outcome in outcomes:
            its_code = self._handed.popleft().code_id
            if its_code != code_id:
                if count:
                    self._times.note(code_id, seconds / count, count)
                code_id, seconds, count = its_code, 0.0, 0
            seconds += outcome.duration_s
            count += 1
        if count:
            self._times.note(code_id, seconds / count, count)


def _outcome(
    task_id: TaskId,
    attempt: Attempt,
    values: tuple[tuple[bytes, ...], ...],
    started_s: float,
    duration_s: float,
    stdout: bytes = b"",
    stderr: bytes = b"",
    error: tuple[Any, ...] | None = None,
    first_run: bool = False,
) -> Outcome:
    """Return an attempt's outcome as the process sent it."""
    if error is None and first_run:
        times = (started_s, duration_s)
        return Outcome(task_id, attempt, _FINISHED, values, None, stdout, stderr, *times, first_run=True)
    if error is None:
        return Outcome(task_id, attempt, _FINISHED, values, None, stdout, stderr, started_s, duration_s)
    why = TaskError(*error)
    reason = Reason.RETURNED if why.kind in (UNDEFINED, UNMADE) else Reason.FAILED
    return Outcome(task_id, attempt, reason, values, why, stdout, stderr, started_s, duration_s)
