"""Calls that a program sends to a compute process itself, simulated from a seed, in one thread.

Both ends are the real ones, and so is the socket between them: ``executor.direct`` and ``compute.direct``.
Callers and the executor's loop go on while the compute process calls something, sends or waits. It is killed,
goes idle, cannot be reached; calls fail; callers cancel, are interrupted, and submit other calls; executors
are stopped, or break. What is not kept is said by :class:`BrokenDirect`.
"""

from __future__ import annotations

import socket
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from random import Random
from types import SimpleNamespace
from typing import cast

from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.compute.code import CALL_BYTES_MAX, CallsAnswer
from gspc_trio.compute.direct import connect_to, serve_line
from gspc_trio.compute.errors import describe
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, LastAttempt, Outcome, Reason, TaskError, TaskState
from gspc_trio.executor.bulk import Maps
from gspc_trio.executor.bulk import Owner as MapsOwner
from gspc_trio.executor.call_table import CallTable
from gspc_trio.executor.codes import CodeTable
from gspc_trio.executor.direct import DirectCalls
from gspc_trio.executor.futures import NOTHING, PENDING, Call, SomeTaskFuture, TaskFuture, TaskOwner
from gspc_trio.executor.singles import Owner, SingleCalls
from gspc_trio.executor.submitted import SubmittedCalls
from gspc_trio.protocol.values import dumps
from gspc_trio.workflow.failures import ExecutorBroken

CODE, OF_CALLS = 1, 2
FAILS_EACH, LARGE_EACH = 7, 11
"""Of so many calls one fails, or returns what is too long for the socket."""

STEPS_MAX = 20_000
"""A world that is not done by then hangs."""


class BrokenDirect(AssertionError):
    """What is promised of direct calls does not hold."""


class Killed(BaseException):
    """The compute process was killed."""


class _Line:
    """The compute process's end of the socket: others go on while it sends or waits."""

    def __init__(self, world: DirectWorld, line: socket.socket) -> None:
        self._world, self._line = world, line
        line.setblocking(False)
        self._is_shut = False

    def send(self, data: bytes, flags: int) -> int:
        try:
            self._world.pass_on()
        except Killed:
            self._world.lose()
            raise
        return self._line.send(data, flags)

    def recv(self, size: int) -> bytes:
        while True:
            with suppress(BlockingIOError):
                return self._line.recv(size)
            if self._is_shut:
                return b""
            self._world.pass_on()
            if self._world.random.random() < 0.02:
                raise BlockingIOError  # none has come for a while

    def shutdown(self, how: int) -> None:
        self._world.step()  # a call may cross it
        self._is_shut = True
        self._line.shutdown(how)


class DirectWorld:
    """A world of calls that come one at a time, mostly.

    Args:
        seed: of all its randomness.
        calls: how many are submitted.
        kills: probability that the compute process is killed whenever others go on.
        end: how it ends: "", "stop" or "break".

    Attributes:
        futures: of all calls.
        direct: how many calls were sent directly.
    """

    def __init__(self, seed: int, calls: int = 60, kills: float = 0.01, end: str = "") -> None:
        self.random: Random = Random(seed)
        self.futures: list[SomeTaskFuture] = []
        self.direct: int = 0
        self._calls_max, self._kills, self._end_by = calls, kills, end
        self._end_at = self.random.randint(10, 200) if end else STEPS_MAX
        self._steps = 0
        self._is_over = False
        self._calls: deque[Call] = deque()
        self._cancelled: list[SomeTaskFuture] = []
        self._stopped: set[TaskId] = set()  # the loop has asked that these tasks end
        self._running: TaskId = 0
        self._arguments: dict[TaskId, int] = {}
        self._taken = 0
        self._are_all_counted = not end
        self._number = 0  # of the call that is computed
        self._computed: Counter[int] = Counter()
        self._lost: Counter[int] = Counter()
        self._counts: Counter[TaskState] = Counter()
        self.was_awaited: bool = False
        self.forked: bool = False
        self.is_elsewhere: bool = False
        self.table: CallTable[SomeTaskFuture] = CallTable("executor", lambda _: True)
        self.table.job = cast(Job, self._job())
        settings = SimpleNamespace(may_have_ranges=True)
        self.maps: Maps = Maps(cast(MapsOwner, self), self.table, cast(JobSettings, settings), False)
        codes = SimpleNamespace(calls_entry_of=lambda _: OF_CALLS, items_entry_of=lambda _: None)
        self.singles: SingleCalls = SingleCalls(
            cast(Owner, self), self.maps, cast(CodeTable, codes), are_possible=True
        )
        self.submitted: SubmittedCalls = SubmittedCalls(self.maps, cast(CodeTable, codes), self.stir)

    def _job(self) -> SimpleNamespace:
        scheduler = SimpleNamespace(is_running=lambda task_id: task_id == self._running)
        return SimpleNamespace(
            tracer=None,
            machine=SimpleNamespace(scheduler=scheduler, stopped_for=""),
            cancel=self._stopped.update,
            last_attempt=lambda done: LastAttempt(done.name, done.tries),
        )

    # What callers do

    def pass_on(self) -> None:
        """Let callers and the loop go on for a while, and perhaps end the compute process.

        Raises:
            Killed: it was killed, or its task was cancelled.
        """
        for _ in range(self.random.randint(0, 3)):
            self.step()
        if self._running in self._stopped or self.random.random() < self._kills:
            raise Killed

    def step(self) -> None:
        """Let a caller do something, and the loop what follows."""
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise BrokenDirect("it hangs")
        if self._steps == self._end_at:
            self._end_all()
        random, last = self.random, self.futures[-1] if self.futures else None
        chance = random.random()
        if last is None or (last.done() and chance < 0.9):
            self._submit()
        elif chance < 0.9:
            self._wait(last)
        elif chance < 0.94:
            chosen = random.choice(self.futures[-3:])
            self._are_all_counted &= chosen.done()  # else it depends on who has seen it before
            chosen.cancel()
        elif chance < 0.96:
            self._submit()
        elif chance < 0.97:
            self.singles.close()
        elif chance < 0.98:
            last.tell_end(lambda _: None)
        self._take()

    def _wait(self, future: SomeTaskFuture) -> None:
        direct = future._direct
        if direct is None:
            return
        assert isinstance(direct, DirectCalls)
        receive = direct._receive
        if self.random.random() < 0.1:  # Ctrl-C at the moment at which the result has come

            def interrupted(line: socket.socket, flags: int = 0) -> bool:
                receive(line, flags)
                raise KeyboardInterrupt

            vars(direct)["_receive"] = interrupted
        try:
            direct.wait(future, 0.0)
        except KeyboardInterrupt:
            pass
        finally:
            vars(direct).pop("_receive", None)

    def _submit(self) -> None:
        if len(self.futures) >= self._calls_max or self._is_over:
            return
        number = len(self.futures)
        future: SomeTaskFuture = TaskFuture(cast(TaskOwner, self))
        self.futures.append(future)
        direct = self.singles.direct
        if direct is not None and direct.take(future, CODE, (number,), CORE):
            self.direct += 1
            self._taken += 1
            return
        call = Call(future, CODE, "work", NOTHING, CORE, DEFAULT_OPTIONS, (number,))
        self.singles.close((call,))
        is_alone = not (self._calls or self.table.receivers or self.table.parts)
        if is_alone and self.random.random() < 0.8:
            self.singles.direct = DirectCalls(self.singles, call)
        self._calls.append(call)

    # What the executor's loop does

    def stir(self) -> None:
        """Look at what is new: it does so at each step."""

    def cancel(self, future: SomeTaskFuture) -> None:
        """End the task of a future that was cancelled."""
        self._cancelled.append(future)

    def check_may_wait(self) -> None:
        """No thread waits for itself."""

    def is_running(self, future: SomeTaskFuture) -> bool:
        """Return whether a worker computes it."""
        return self.submitted.is_running(future)

    def submit_again(self, call: Call) -> None:
        """Run a call as a task of its own."""
        self.singles.close()
        self._taken -= 1  # it was before
        self._add(call)

    def _take(self) -> None:
        while self._calls:
            self._add(self._calls.popleft())
        cancelled, self._cancelled[:] = list(self._cancelled), []
        if cancelled:
            self.submitted.end_cancelled(cancelled)
        for task_id in [*self._stopped]:  # what has not begun ends at once
            if task_id != self._running:
                self._end(task_id, TaskState.CANCELLED, Outcome(task_id, 1, Reason.CANCELLED))

    def _add(self, call: Call) -> None:
        future = call.future
        if future._state is not PENDING:
            return
        self._taken += 1
        if future._direct is not None and future._direct.begin():
            self.table.graph.next()
            return
        arguments = [dumps(value) for value in call.values]
        task_id = self.table.graph.add(call.name, call.code_id, arguments, call.shape, call.options)
        future._task_id = task_id
        self.table.receivers[task_id] = future
        self._arguments[task_id] = cast(int, call.values[0])
        self.table.graph.next()

    def _end(self, task_id: TaskId, state: TaskState, outcome: Outcome) -> None:
        self._stopped.discard(task_id)
        if task_id in self.table.receivers or task_id in self.table.parts:
            self._counts[state] += 1
        self.table.done(TaskDone(task_id, state, outcome, "work"))

    def _end_all(self) -> None:
        self._is_over = True
        self.singles.close()
        if self._end_by == "break":
            reason = ExecutorBroken("it was the end")
            for call in self._calls:
                call.future.fail(reason)
            self._calls.clear()
            self.table.fail_all(reason)
        else:
            self.table.is_stopped = True
            for future in (*(call.future for call in self._calls), *self.table.receivers.values()):
                future.give_up()
            self._calls.clear()
        self._stopped.update(self.table.receivers, self.table.parts)

    # What the compute process does

    def run(self) -> None:
        """Run until all calls have ended.

        Raises:
            BrokenDirect: something does not hold.
        """
        while not (len(self.futures) == self._calls_max or self._is_over) or self._left():
            self.step()
            waiting = [*self.table.receivers, *self.table.parts]
            if waiting:
                self._compute(min(waiting))
        self._check()

    def _left(self) -> bool:
        return bool(self._calls or self.table.receivers or self.table.parts)

    def _compute(self, task_id: TaskId) -> None:
        if self._is_over:
            raise BrokenDirect(f"task {task_id} begins after the end of all")
        self._running = task_id
        part = self.table.parts.get(task_id)
        state, reason, error, data = TaskState.FINISHED, Reason.FINISHED, None, b""
        try:
            if part is None:
                data = dumps(self._call(self._number_of(task_id)))
                self.pass_on()
            else:
                assert isinstance(part, DirectCalls)
                data = dumps(self._serve(part))
        except Killed:
            is_asked = task_id in self._stopped
            if part is None:
                self.lose()
            state = TaskState.CANCELLED if is_asked else TaskState.FAILED
            reason = Reason.CANCELLED if is_asked else Reason.LOST
            error = None if is_asked else TaskError("lost", "its process was killed")
        except LookupError as problem:
            state, reason, error = TaskState.FAILED, Reason.FAILED, TaskError("LookupError", str(problem))
        self._running = 0
        self._end(task_id, state, Outcome(task_id, 1, reason, ((data,),), error))

    def lose(self) -> None:
        """The process was killed before it has said what became of the call."""
        self._lost[self._number] += 1

    def _number_of(self, task_id: TaskId) -> int:
        number = self._arguments[task_id]
        if self.futures[number] is not self.table.receivers[task_id]:
            raise BrokenDirect(f"a call is computed with the arguments of call {number}")
        return number

    def _serve(self, direct: DirectCalls) -> CallsAnswer:
        values = direct._values
        self.pass_on()
        line = connect_to(direct._address, 1.0) if self.random.random() < 0.9 else None
        if line is None:
            try:
                return False, 1, dumps(self._call(cast(int, values[0]))), None
            except LookupError as error:
                return False, 1, None, describe(error)
        due_s = self.random.choice((inf, inf, 0.0))
        try:
            return serve_line(
                cast(Callable[..., object], self._call), cast(socket.socket, _Line(self, line)), due_s, values
            )
        finally:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
            for _ in range(self.random.randint(0, 6)):  # until the loop hears of it
                self.step()

    def _call(self, number: int) -> object:
        future = self.futures[number]
        if self._computed[number] > self._lost[number] and not future.cancelled():
            raise BrokenDirect(f"call {number} runs once more, and its process was not lost")
        self._computed[number] += 1
        self._number = number
        if number % FAILS_EACH == 1:
            raise LookupError(f"call {number}")
        return [number, b"\0" * CALL_BYTES_MAX] if number % LARGE_EACH == 2 else number

    def _check(self) -> None:
        for number, future in enumerate(self.futures):
            if not future.done():
                raise BrokenDirect(f"call {number} never ends")
            if future.cancelled():
                continue
            error = future.exception(0)
            if isinstance(error, ExecutorBroken) or (error is not None and "lost" in str(error)):
                continue
            if (error is not None) != (number % FAILS_EACH == 1) or (error and str(number) not in str(error)):
                raise BrokenDirect(f"call {number} has the error {error!r}")
            if error is None and future.result(0) not in (number, [number, b"\0" * CALL_BYTES_MAX]):
                raise BrokenDirect(f"call {number} has the result of another one: {future.result(0)!r}")
        if self.singles.computing:
            raise BrokenDirect("a task that has ended is taken for one that computes")
        counted = sum(self._counts.values()) + sum(self.maps.extra.values())
        if self._are_all_counted and counted != self._taken:
            raise BrokenDirect(
                f"{self._taken} calls were taken, {self._counts} and {self.maps.extra} counted"
            )
