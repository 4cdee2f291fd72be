"""The thread of an executor: a job on a run-time system in a trio loop of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import trio

from gspc_trio.components.job.cache import CacheCounts
from gspc_trio.components.job.result import JobFailed
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.output import Flush, OutputMode, print_lines, treat_output
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.several import check_location
from gspc_trio.components.worker.shell.template_process import StartedTemplate
from gspc_trio.core.task import Shape, TaskState
from gspc_trio.executor.arguments import check_other_thread
from gspc_trio.executor.bulk import ItemsMap, Maps
from gspc_trio.executor.call_table import CallTable, RtsOptions, capacity, count_resources, open_system
from gspc_trio.executor.codes import CodeTable
from gspc_trio.executor.futures import PENDING, Call, SomeFuture, SomeTaskFuture, TaskFuture, value_of
from gspc_trio.executor.notebook import Cells
from gspc_trio.executor.singles import SingleCalls
from gspc_trio.executor.submitted import SubmittedCalls
from gspc_trio.executor.waiting import HandOver, first_of, loops, wait_ended
from gspc_trio.nursery.scopes.collector import tuned_collector
from gspc_trio.protocol.values import dumps
from gspc_trio.workflow.failures import ExecutorBroken
from gspc_trio.workflow.graph import Ref

TAKEN_MAX = 2_000
"""Calls taken at a time; the first of very many then run while the others are taken."""

STOP_S = 10.0
"""How long an interrupted executor may take to stop what runs; then it is left behind."""

_CLOSED = RuntimeError("the run-time system was closed")


class Loop:
    """What an executor and its futures share: nobody else keeps the executor itself alive.

    Args:
        rts: arguments of ``open_rts``; or the run-time system of another thread, in whose trio it then runs.
        settings: of the job.
        codes: its code table.
        tune_gc: tune the garbage collector while it runs.
        output: what becomes of what tasks print.
        template: forks its compute processes, if it was started before; it is this loop's from now on.
        records: file for the records of the job; None: none.

    Attributes:
        forked: whether this process is a fork of the one that it belongs to; nothing works then.
        interpreter_ends: whether it was closed because the interpreter ends.
        is_elsewhere: whether it has joined a run-time system that runs.
        cells: of the notebook in which it is, if it is in one.
        is_watched: whether its progress is shown.
        closed: whether it takes no more calls.
        maps: those over many items.
        singles: calls of which each is waited for.
        was_awaited: whether a thread has waited for a result since a call was made that was alone.
    """

    def __init__(
        self,
        rts: RtsOptions | RunTimeSystem,
        settings: JobSettings,
        codes: CodeTable,
        tune_gc: bool = False,
        output: OutputMode = "keep",
        template: StartedTemplate | None = None,
        records: Path | None = None,
    ) -> None:
        self.forked = False
        self.interpreter_ends = False
        self.is_elsewhere: bool = isinstance(rts, dict) and rts["connection_file"] is not None
        self._rts = rts
        self._settings, self._codes = settings, codes
        self._tune_gc = tune_gc
        self._output = output
        self._template = template
        self._records = records
        self._table: CallTable[SomeTaskFuture] = CallTable("executor", self._break)
        self._graph, self._futures = self._table.graph, self._table.receivers
        self.maps: Maps = Maps(self, self._table, settings, output == "files")
        self._submitted = SubmittedCalls(self.maps, codes, self._take_rested)
        self._calls: deque[Call] = deque()
        self._cancelled: deque[SomeTaskFuture] = deque()
        self._parked: dict[Call, None] = {}
        self._lock = threading.Lock()
        self._waking = False
        self._is_resting = False  # it looks at new calls after a while
        self._hand_over = HandOver()
        own_host = isinstance(rts, dict) and not (self.is_elsewhere or "sites" in rts)
        self.singles: SingleCalls = SingleCalls(self, self.maps, codes, own_host)
        self.was_awaited: bool = False
        self.closed: bool = False
        self._closing = False
        self._broken: BaseException | None = None
        self._why = ""
        self.resources: dict[str, int] = {}
        self.job: Job | None = None
        self._system: RunTimeSystem | None = None
        self.cells: Cells | None = None
        self.is_watched = False
        self._flush: Flush | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._up = threading.Event()
        self._gone = threading.Event()
        self._thread_id = 0  # of the loop's thread, when it runs
        self._thread: threading.Thread | None = None

    # Any thread

    def start(self, at: str = "") -> None:
        """Return when the job is there.

        Args:
            at: name of the run-time system for its tasks, if there are several.

        Raises:
            LocationError: there is none of this name.
            Exception: what kept it from starting.
        """
        if isinstance(self._rts, RunTimeSystem):
            self._start_in_its_thread(self._rts)
        else:
            self._thread = threading.Thread(target=self._run, name="gspc-executor", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:  # there is no room for another thread
                if self._template is not None:
                    self._template.abandon()
                raise
        loops.add(self)
        try:
            self._up.wait()
        except BaseException:  # Ctrl-C
            self.stop()
            raise
        if self.job is None:
            assert self._broken is not None
            self._wait_gone()
            raise self._broken
        try:
            self.check_location(at)
        except ValueError:
            self.stop()
            raise

    def _start_in_its_thread(self, rts: RunTimeSystem) -> None:
        """Start in the thread of a run-time system."""
        token, nursery = check_other_thread(rts)

        def begin() -> None:
            try:
                nursery.start_soon(self._run_in, rts)
            except RuntimeError:  # its block was left
                self._end(_CLOSED)

        try:
            token.run_sync_soon(begin)
        except trio.RunFinishedError:
            self._end(_CLOSED)

    def put(self, calls: Sequence[Call]) -> None:
        """Take these.

        Raises:
            ExecutorBroken: the run-time system has gone.
            RuntimeError: it was closed, or belongs to another process.
        """
        if self.forked:
            self.check_process()
        if self.singles.direct is not None:
            self.singles.close(calls)
        with self._lock:
            self.singles.close()
            if self.closed or self._broken is not None:
                self._check_takes()
            if self.cells is not None:
                self.cells.note(calls)
            is_idle = not (self._waking or self._futures or self.maps.active)
            if is_idle and self.cells is None:
                self.singles.look(calls)
            is_due = self._hand_over.is_due(len(calls), is_idle)
            self._calls.extend(calls)
            if is_due or not self._waking:
                self._wake()
        if is_due and threading.get_ident() != self._thread_id:
            self._hand_over.wait()

    def put_items(self, items: ItemsMap) -> None:
        """Look at a map that has more items; raises as :meth:`put`."""
        self.check_process()
        with self._lock:
            self.singles.close()
            self._check_takes()
            items.cell = 0 if self.cells is None else self.cells.current()
            self.maps.active[items] = None
            self._wake()

    def stir(self) -> None:
        """Look at all maps."""
        with self._lock:
            self._wake()

    def _check_takes(self) -> None:
        if self.closed:
            when = "interpreter shutdown" if self.interpreter_ends else "shutdown"
            raise RuntimeError(f"cannot schedule new futures after {when}")  # as the standard ones say
        if self._broken is not None:
            raise ExecutorBroken(f"the executor can run no more tasks: {self._broken}") from self._broken

    def encode(self, value: object) -> bytes:
        """Return an argument as it travels; a large one goes into the job's memory layer.

        Raises:
            RuntimeError: it belongs to another process.
            BadValue: the value cannot be sent to another process.
        """
        self.check_process()
        job = self.job
        return dumps(value) if job is None else job.encode(value)

    def check_process(self) -> None:
        """Raise RuntimeError in a fork of the process that it belongs to."""
        if self.forked:
            raise RuntimeError(
                "this executor belongs to the process from which this one was forked; make another one here"
            )

    def cancel(self, future: SomeTaskFuture) -> None:
        """End the task of a future that was cancelled."""
        with self._lock:
            self._cancelled.append(future)
            self._wake()

    def is_running(self, future: SomeTaskFuture) -> bool:
        """Return whether a worker computes the future's task now."""
        return self._submitted.is_running(future)

    def capacity(self, shape: Shape) -> int:
        """Return how many tasks of a shape could run at a time when the executor was made; at least 1."""
        return capacity(self.resources, shape)

    def cache_counts(self) -> CacheCounts:
        """Return what the job's cache was good for so far."""
        return (None if self.job is None else self.job.cache_counts()) or CacheCounts()

    @property
    def broken(self) -> str | bool:
        """Why it can take no more calls, False if it can."""
        return False if self._broken is None else str(self._broken)

    def check_location(self, at: str) -> None:
        """Raise LocationError if ``at`` names none of the run-time systems."""
        if self._system is not None:
            check_location(at, self._system)

    def close(self, cancel_waiting: bool = False) -> None:
        """Take no more calls, and end when those taken have ended.

        Args:
            cancel_waiting: cancel what has not begun.
        """
        if self.forked:
            return
        with self._lock:
            first, self.closed = not self.closed, True
        self.singles.close()
        if first or cancel_waiting:
            self._soon(self._close, cancel_waiting)

    def stop(self) -> None:
        """End now: whatever has not ended is cancelled."""
        with self._lock:
            self.closed = True
        self.singles.close()
        self._soon(self._stop)

    def end_workers(self) -> None:
        """End now: the workers are killed, and whatever has not ended fails."""
        self.check_process()
        with self._lock:
            self.closed = True
        self.singles.close()
        self._soon(self._break, ExecutorBroken("its workers were killed"))

    def join(self) -> None:
        """Wait for the end; when that is interrupted, have it come at once.

        Raises:
            RuntimeError: this is the loop's own thread, or a fork of its process.
        """
        self.check_process()
        if threading.get_ident() == self._thread_id:
            raise RuntimeError("a callback of a future cannot wait for the end of the executor")
        try:
            self._wait_gone()
        except BaseException:  # Ctrl-C
            self.stop()
            self._wait_gone(STOP_S)
            raise

    def _wait_gone(self, timeout_s: float | None = None) -> None:
        if self._thread is None:
            self._gone.wait(timeout_s)
        else:
            self._thread.join(timeout_s)

    def flush_output(self) -> None:
        """Return when what ended tasks have printed is shown, in 2 s at most; not in the loop's thread."""
        if self._flush is not None:
            self._ask(trio.from_thread.run, self._flush)

    def cancel_cell(self, cell: int) -> None:
        """Cancel what a cell of a notebook has submitted and has not ended; not in the loop's thread."""
        self._ask(trio.from_thread.run_sync, self._cancel_cell, cell)

    def counts(self) -> Mapping[TaskState, int] | None:
        """Return the number of tasks in each state, None if it has ended; not in the loop's thread."""
        if trio.lowlevel.in_trio_run():
            return None
        counts: Mapping[TaskState, int] | None = self._ask(trio.from_thread.run_sync, self._count)
        return counts

    def _ask(self, ask: Callable[..., Any], function: Callable[..., object], *args: object) -> Any:
        """Return what a function returns in the loop's thread, None if it has ended."""
        token = self._token
        if token is not None and not self.forked:
            with suppress(trio.RunFinishedError, trio.Cancelled):
                return ask(function, *args, trio_token=token)
        return None

    def check_may_wait(self) -> None:
        """Raise RuntimeError in the thread that all results come through: it would wait for ever."""
        if threading.get_ident() == self._thread_id:
            raise RuntimeError(
                "the result is not there, and this thread cannot wait for it: results come through it. "
                "A callback can submit a call with the future as an argument; under trio, wait in another "
                "thread (await trio.to_thread.run_sync(future.result))"
            )

    def _wake(self) -> None:
        """Have the loop look at calls and cancellations; the lock is held."""
        if (self._is_resting or not self._waking) and self._token is not None:
            self._waking, self._is_resting = True, False
            self._soon(self._take)

    def _soon(self, function: Callable[..., object], *args: object) -> None:
        if self._token is not None and not self.forked:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(function, *args)

    # The loop's thread

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            with tuned_collector(self._tune_gc):
                trio.run(self._main, open_system(self._rts, self._template))
        except BaseException as error:
            failure = first_of(error)
        if self._template is not None:
            self._template.abandon()
        self._end(failure)

    async def _run_in(self, rts: RunTimeSystem) -> None:
        failure: BaseException | None = None
        try:
            with tuned_collector(self._tune_gc):
                await self._main(open_system(rts, None))
        except BaseException as error:
            failure = first_of(error)
            if not isinstance(failure, Exception):
                failure = _CLOSED
                raise
        finally:
            self._end(failure)

    def _end(self, failure: BaseException | None) -> None:
        """All is over: whoever waits is told."""
        if self._why:
            failure = RuntimeError(self._why)
        with self._lock:
            self._broken = failure or RuntimeError("it was shut down")
            self._token = None
        self._end_all(self._broken)
        self._thread_id = 0
        self._up.set()
        self._gone.set()

    async def _main(self, opening: AbstractAsyncContextManager[RunTimeSystem]) -> None:
        self._thread_id = threading.get_ident()
        async with opening as rts:
            try:
                async with self._table.run(self._codes.data, rts, self._settings, self._records) as job:
                    self.job, self._system = job, rts
                    self._table.job = job
                    job.take_items = self._submitted.take_first
                    job.machine.count_more = self.maps.count
                    self.maps.begin(job, self._records is not None)
                    self.resources = await count_resources(rts)
                    self._token = trio.lowlevel.current_trio_token()
                    if self._table.is_stopped or self.closed:
                        self._stop()
                    self._up.set()
                    async with treat_output(job, self._output, print_lines) as self._flush:
                        result = await wait_ended(job, rts, beside=self._submitted.keep_time)
                    if self._table.was_stopped:
                        self._why = self._table.describe_stop()
                    elif not (self._closing or self._table.is_stopped):
                        self._why = result.detail
            except* JobFailed:
                pass  # some of its tasks failed, which their futures say

    def _take_rested(self) -> None:
        """Take what has come, if nobody has done that meanwhile."""
        if self._is_resting:
            self._take()

    def _take(self) -> None:
        """Take calls and cancellations."""
        with self._lock:
            self._waking = self._is_resting = False
            cancelled, self._cancelled = self._cancelled, deque()
        assert self.job is not None
        calls, submitted = self._calls, self._submitted
        submitted.gather(calls, min(len(calls), TAKEN_MAX), self._add)
        if cancelled:
            submitted.end_cancelled(cancelled)
        self.maps.look()
        self.job.look()
        self._hand_over.looked()
        with self._lock:
            if calls:
                self._wake()
                return
        if self._closing:
            self._finish_closing()
        if submitted.may_rest():
            with self._lock:
                self._is_resting = not self._waking
                self._waking = True

    def _add(self, call: Call) -> None:
        """Add a task to the graph, or have it wait for an argument whose task is not in the graph."""
        future, futures = call.future, self._futures
        if future._state is not PENDING:  # cancelled
            return
        if future._direct is not None and future._direct.begin():
            return
        given: Sequence[Any] = call.arguments
        arguments: list[Any] = call.arguments
        if call.values:
            given, arguments = (), [dumps(value) for value in call.values]
        for position, argument in enumerate(given):
            if type(argument) is bytes or isinstance(argument, bytes):  # a reference is bytes, too
                continue
            if arguments is given:  # futures give way to what the graph takes; who is parked has them again
                arguments = list(given)
            ours = type(argument) is TaskFuture and futures.get(argument._task_id) is argument
            if ours and argument._state is PENDING:
                ref = argument._ref
                if ref is None:
                    ref = argument._ref = Ref(argument._task_id)
                arguments[position] = ref
            elif argument.done():
                try:
                    arguments[position] = value_of(argument, call.name)
                    if self._table.taken is not None:
                        self._note_taken(future, argument)
                except BaseException as error:
                    future.fail(error)
                    return
            else:
                self._parked[call] = None
                argument.add_done_callback(lambda _: self._unpark(call))
                return
        task_id = self._graph.add(
            call.name, call.code_id, arguments, call.shape, call.options, variants=call.variants
        )
        future._task_id = task_id
        futures[task_id] = future

    def submit_again(self, call: Call) -> None:
        """Run a call as a task of its own; in the loop's thread."""
        self.singles.close()
        self._add(call)

    def _note_taken(self, future: SomeTaskFuture, argument: SomeFuture) -> None:
        """Note that the result of a task has become an argument of another one."""
        taken = self._table.taken
        if taken is not None and type(argument) is TaskFuture and argument._owner is future._owner:
            taken.setdefault(future, []).extend(filter(None, [argument._task_id]))

    def _unpark(self, call: Call) -> None:
        """The future that a call waited for has ended (in any thread)."""
        with self._lock:
            self.singles.close()
            self._parked.pop(call, None)
            self._calls.append(call)
            self._wake()

    def _break(self, reason: ExecutorBroken) -> bool:
        """Stop now; whatever has not ended fails. Return False if it has broken before."""
        with self._lock:
            if self._broken is not None:
                return False
            self._broken = reason
        self._why = str(reason)
        self._end_all(reason)
        assert self.job is not None
        self.job.stop(self._why)
        return True

    def _close(self, cancel_waiting: bool) -> None:
        assert self.job is not None
        self._closing = True
        while self._calls:
            self._take()
        if cancel_waiting:
            running = self.job.machine.scheduler.is_running
            waiting = [future for task_id, future in self._futures.items() if not running(task_id)]
            waiting += self.singles.waiting(running)
            self._cancel_all([*waiting, *(call.future for call in self._parked)])
            self.maps.cancel_waiting()
        self._finish_closing()

    def _cancel_all(self, futures: Sequence[SomeTaskFuture]) -> None:
        for future in futures:
            future.give_up()
        self._submitted.end_cancelled(futures)

    def _cancel_cell(self, cell: int) -> None:
        futures = [*self._futures.values(), *(call.future for call in (*self._calls, *self._parked))]
        futures += self._submitted.pending()
        self._cancel_all([future for future in futures if future._cell == cell])
        self.maps.cancel_waiting(cell)

    def _count(self) -> Mapping[TaskState, int]:
        """Return the number of tasks in each state; those that were not taken yet are ready."""
        assert self.job is not None
        counts = dict(self.job.machine.counts())
        counts[TaskState.READY] = counts.get(TaskState.READY, 0) + len(self._calls) + len(self._parked)
        return counts

    def _finish_closing(self) -> None:
        """Let the job end with its tasks, unless one may still come out of a call that waits."""
        assert self.job is not None
        waiting = any(not call.future.done() for call in tuple(self._parked))
        if not (self.maps.active or self.singles.computing or waiting):
            self.job.close()

    def _stop(self) -> None:
        self._table.is_stopped = True
        if self.job is not None:
            for call in (*self._calls, *self._parked):
                call.future.give_up()
            for future in tuple(self._futures.values()):
                future.give_up()
            self.maps.end(CancelledError())
            self.job.stop("the executor was interrupted")

    def _end_all(self, reason: BaseException) -> None:
        """No future may wait for ever."""
        for call in (*self._calls, *tuple(self._parked)):
            call.future.fail(self._table.ended_before(reason))
        self.maps.end(self._table.ended_before(reason))
        self._table.fail_all(reason)
