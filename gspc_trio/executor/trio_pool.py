"""A pool for programs that run under trio: ``await pool.run_sync(function, value)`` runs it as a task.

    async with open_pool() as pool:
        print(await pool.run_sync(pow, 2, 10))
        async for square in pool.map(compute_square, range(1000)):
            print(square)

It needs no thread: the job server runs in the program's own trio, beside its tasks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, SupportsIndex, TypeVar, TypeVarTuple, cast

import trio
from msgspec.structs import replace

from gspc_trio.components.embed import open_rts
from gspc_trio.components.job.result import JobFailed
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.output import OutputMode, print_lines, treat_output
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.core.code import Variants
from gspc_trio.core.imports import refuse_in_imports_of_tasks
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Shape, TaskOptions, TaskVariants
from gspc_trio.executor.call_table import CallTable, call_settings, capacity, count_resources, output_mode
from gspc_trio.executor.calls import sized, variants_of
from gspc_trio.executor.codes import CodeTable, name_of
from gspc_trio.executor.flight import IN_FLIGHT_FACTOR, IN_FLIGHT_MIN, Flight, PoolCall
from gspc_trio.executor.futures import Argument
from gspc_trio.executor.waiting import wait_ended
from gspc_trio.nursery.scopes.loop import require_trio
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.policies.scheduling import USUAL_OF_PROGRAMS, SchedulingPolicy, find_policy
from gspc_trio.protocol.values import dumps, is_reference, loads
from gspc_trio.workflow.call_options import checked_count
from gspc_trio.workflow.failures import ExecutorBroken
from gspc_trio.workflow.settings import checked_needs

A = TypeVar("A")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CANCEL_S = 10.0
"""How long cancelled tasks are waited for; by then their host has ended them, or is not there any more."""


@asynccontextmanager
async def open_pool(
    rts: RunTimeSystem | Path | str | None = None,
    cores: int = 0,
    *,
    shape: Shape = CORE,
    options: TaskOptions = DEFAULT_OPTIONS,
    threads: bool = False,
    output: OutputMode | None = None,
    data_bytes: int = 0,
    priority: int = 0,
    placement: str = "",
    assign: str = "",
    policy: SchedulingPolicy | str = "default",
    records: Path | str | None = None,
) -> AsyncIterator[TaskPool]:
    """A pool that runs functions as tasks, for as long as the block runs.

    Leaving the block waits for the tasks that run. When it is left by an exception, or cancelled, they end.

    Args:
        rts: where tasks run: the connection file of a running run-time system, or one that ``open_rts`` has
            opened in this run of trio; None: one is started here, and ends with the block.
        cores: how many cores the one that is started offers; 0 for what this machine has and this process
            may use.
        shape: what each task needs to run; one core by default.
        options: what each task states about itself (attempts, time-out, ...).
        threads: compute in threads of one process instead of a process per core.
        output: what becomes of what tasks print; as with ``Executor``.
        data_bytes: shared memory for large arguments and results; 0: none.
        priority: on a run-time system with other jobs, those of a higher priority get resources first.
        placement: which free resource is used next; as with ``Executor``.
        assign: whether each resource has a queue; as with ``Executor``.
        policy: how tasks are scheduled, or the name of a way; as with ``Executor``.
        records: file to which all that happens is written, as lines of JSON.

    Raises:
        ConnectionFileError, ConnectFailed: there is no such running run-time system.
        NotInTrio: this is no task of trio.
        OSError: the file for the records cannot be written.
        PolicyError: there is no such policy.
        StartedAtImport: a compute process is importing the module that calls this.
        TypeError, ValueError: an argument makes no sense, or excludes another.
        WorkflowError: shape or options make no sense.
    """
    require_trio("open_pool")
    refuse_in_imports_of_tasks()
    needs = checked_needs(shape, options)
    mode = output_mode(output)
    settings = replace(call_settings("pool"), threads=threads, priority=priority, placement=placement)
    settings = replace(settings, policy=find_policy(policy, assign))
    file = None if records is None else Path(records)
    async with (
        _opened(rts, cores, data_bytes) as system,
        _running(TaskPool(*needs), system, settings, mode, file) as pool,
    ):
        yield pool


@asynccontextmanager
async def open_command_pool(rts: RunTimeSystem) -> AsyncIterator[TaskPool]:
    """A pool for as long as the block runs, whose tasks run programs, and no code of users.

    They may not speak to managers of this process (``multiprocessing.Manager``), and what that needs is not
    loaded. What programs print comes with their results.
    """
    settings = call_settings("pool", USUAL_OF_PROGRAMS, only_programs=True)
    async with _running(TaskPool(CORE, DEFAULT_OPTIONS), rts, settings, "keep", None) as pool:
        yield pool


@asynccontextmanager
async def _running(
    pool: TaskPool, system: RunTimeSystem, settings: JobSettings, output: OutputMode, records: Path | None
) -> AsyncIterator[TaskPool]:
    """Run the job of a pool for as long as the block runs."""
    is_left = False
    try:
        async with (
            pool._table.run(pool._codes.data, system, settings, records) as job,
            treat_output(job, output, print_lines),
            open_scope() as nursery,
        ):
            await pool._begin(job, system, nursery)
            yield pool
            is_left = True
            await pool._close()
            nursery.cancel_scope.cancel()
    except JobFailed:
        if not is_left:  # it is not of this job, but came out of the block
            raise


def _opened(
    rts: RunTimeSystem | Path | str | None, cores: int, data_bytes: int
) -> AbstractAsyncContextManager[RunTimeSystem]:
    """Return the run-time system of a pool, to be opened.

    Raises:
        TypeError, ValueError: it is none, or has settings of its own.
    """
    if rts is None or isinstance(rts, str | Path):
        return open_rts(cores=cores, connection_file=rts, data_bytes=data_bytes)
    home = getattr(rts, "home", None)
    if home is None:
        raise TypeError(f"rts is a connection file, or what open_rts has opened, not {rts!r}")
    if home.token is not trio.lowlevel.current_trio_token():
        raise RuntimeError(
            "rts was opened in another run of trio: open the pool there, or give open_pool none"
        )
    for name, value in (("cores", cores), ("data_bytes", data_bytes)):
        if value:
            raise ValueError(f"{name} is an option of open_rts; rts is open already: leave {name} out")
    return _open_already(rts)


@asynccontextmanager
async def _open_already(rts: RunTimeSystem) -> AsyncIterator[RunTimeSystem]:
    yield rts


class TaskPool:
    """Runs functions as tasks of a job; :func:`open_pool` opens it.

    Args:
        shape: what each task needs to run.
        options: what each task states about itself.
    """

    def __init__(self, shape: Shape, options: TaskOptions) -> None:
        self._shape, self._options = shape, options
        self._codes = CodeTable()
        self._table: CallTable[PoolCall] = CallTable("pool", self._break)
        self._resources: dict[str, int] = {}
        self._token = trio.lowlevel.current_trio_token()
        self._broken: BaseException | None = None
        self._closed = False
        self._looks_soon = False
        self._job: Job
        self._nursery: trio.Nursery

    def capacity(self, shape: Shape | None = None) -> int:
        """Return how many tasks of a shape could run at a time when the pool was opened; at least 1."""
        return capacity(self._resources, self._shape if shape is None else shape)

    async def run_sync(
        self,
        sync_fn: Callable[[*Ts], T] | Variants,
        *args: *Ts,
        shape: Shape | None = None,
        options: TaskOptions | None = None,
    ) -> T:
        """Run ``sync_fn(*args)`` on a worker and return what it returns, as ``trio.to_thread.run_sync``.

        If this is cancelled, the task ends with all that it has started, and then this returns.

        Args:
            sync_fn: any function, or Variants; ``functools.partial`` gives it arguments by name.
            args: its arguments.
            shape, options: what this task needs and states, in place of what the pool says.

        Raises:
            BadCode, BadValue: function or arguments cannot be sent to another process.
            ExecutorBroken: the run-time system has gone, or somebody has stopped the pool's job.
            RuntimeError: the pool's block was left.
            WorkflowError: shape or options make no sense.
            Exception: what the function raised, with the traceback of the task as its cause; TaskFailed if
                there is no such exception.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        ended = trio.Event()
        needs = self._needs(shape, options)
        call = await self._send(sync_fn, args, needs, lambda _: ended.set())
        self._job.look()
        try:
            await ended.wait()
        except BaseException:
            await self._end([call])
            raise
        value: T = await self._open(call)
        return value

    def map(
        self,
        sync_fn: Callable[[A], T] | Variants,
        items: Iterable[A] | AsyncIterable[A],
        *,
        ordered: bool = True,
        in_flight: SupportsIndex | None = None,
        shape: Shape | None = None,
        options: TaskOptions | None = None,
    ) -> PoolResults[T]:
        """Run ``sync_fn`` on each item and return an asynchronous iterator over the results.

        If a task fails, the iterator raises its exception; when it ends so, or is cancelled, it ends the
        tasks that are on their way. ``aclose`` does that, too, and so does leaving ``async for``.

        Args:
            sync_fn: a function of one item.
            items: may be without end; an item is read when there is room for its task. A plain iterable is
                read while a result is awaited, an asynchronous one in a task of the pool.
            ordered: results come in the order of the items; False: as they are there.
            in_flight: so many items are at most on their way: read, and their results not taken.
            shape, options: what these tasks need and state, in place of what the pool says.

        Raises:
            TypeError, ValueError: ``in_flight`` is no whole number, or not positive.
            WorkflowError: shape or options make no sense.
            Exception: (from the iterator) as :meth:`run_sync`, and what reading the items raises.
        """
        return PoolResults(self, self._fly(sync_fn, items, ordered, in_flight, shape, options))

    def outcomes(
        self,
        sync_fn: Callable[[A], T] | Variants,
        items: Iterable[A] | AsyncIterable[A],
        *,
        ordered: bool = True,
        in_flight: SupportsIndex | None = None,
        shape: Shape | None = None,
        options: TaskOptions | None = None,
    ) -> PoolOutcomes[A, T]:
        """As :meth:`map`, with each item beside what came of it: its result, or its exception.

        A task that fails ends no other.
        """
        return PoolOutcomes(self, self._fly(sync_fn, items, ordered, in_flight, shape, options))

    def _fly(
        self,
        sync_fn: Callable[[A], object] | Variants,
        items: Iterable[A] | AsyncIterable[A],
        ordered: bool,
        in_flight: SupportsIndex | None,
        shape: Shape | None,
        options: TaskOptions | None,
    ) -> Flight:
        needs = self._needs(shape, options)
        limit = max(IN_FLIGHT_MIN, IN_FLIGHT_FACTOR * self.capacity(needs[0]))
        if in_flight is not None:
            limit = checked_count("in_flight", in_flight)
        plain = None if isinstance(items, AsyncIterable) else iter(items)
        flight = Flight(plain, limit, ordered, partial(self._send_item, sync_fn, needs))
        if isinstance(items, AsyncIterable):
            self._check_open()
            self._nursery.start_soon(flight.feed, items)
        return flight

    def _needs(self, shape: Shape | None, options: TaskOptions | None) -> tuple[Shape, TaskOptions]:
        if shape is None and options is None:
            return self._shape, self._options
        return checked_needs(
            self._shape if shape is None else shape, self._options if options is None else options
        )

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the pool takes no more calls: its block was left")
        if self._broken is None and self._job.is_over:
            self._broken = RuntimeError("its job has ended")
        if self._broken is not None:
            raise ExecutorBroken(f"the pool can run no more tasks: {self._broken}") from self._broken

    async def _send_item(
        self,
        sync_fn: Callable[..., object] | Variants,
        needs: tuple[Shape, TaskOptions],
        item: object,
        on_end: Callable[[PoolCall], object],
    ) -> PoolCall:
        call = await self._send(sync_fn, (item,), needs, on_end)
        call.item = item
        if not self._looks_soon:  # once for all that are sent in this turn
            self._looks_soon = True
            self._token.run_sync_soon(self._look)
        return call

    def _look(self) -> None:
        self._looks_soon = False
        self._job.look()

    async def _send(
        self,
        sync_fn: Callable[..., object] | Variants,
        args: tuple[object, ...],
        needs: tuple[Shape, TaskOptions],
        on_end: Callable[[PoolCall], object],
    ) -> PoolCall:
        """Send a call on its way: once it is, this is not cancelled."""
        self._check_open()
        variants: TaskVariants | None = None
        if isinstance(sync_fn, Variants):
            variants = sized(variants_of(self._codes, sync_fn, *needs), sync_fn, args, {})
            code_id, leading = variants.ways[0].code_id, list[Argument]()
            needs = variants.ways[0].shape, needs[1]
        else:
            code_id, leading = self._codes.entry(sync_fn)
        if self._job.data is None:
            encoded = [dumps(value) for value in args]
        else:  # it may wait for room
            encoded = [await trio.to_thread.run_sync(self._job.encode, value) for value in args]
            self._check_open()
        call = PoolCall(name_of(sync_fn), on_end)  # from here on nothing is awaited
        encoded[:0] = cast(list[bytes], leading)
        call.task_id = self._table.graph.add(call.name, code_id, encoded, *needs, variants=variants)
        self._table.receivers[call.task_id] = call
        return call

    async def _open(self, call: PoolCall) -> Any:
        """Return the result of a call that has ended.

        Raises:
            Exception: it failed.
        """
        if call.error is not None:
            try:
                raise call.error
            finally:
                call.error = None  # they would keep each other alive through the traceback
        assert call.data is not None
        if is_reference(call.data):  # it may have to be fetched from another host
            return await trio.to_thread.run_sync(loads, call.data)
        return loads(call.data)

    async def _end(self, calls: Iterable[PoolCall]) -> None:
        """End the tasks of these calls; return when they have ended, also if this is cancelled."""
        left = self._abandon(calls)
        if not left:
            return
        ended = trio.Event()
        number = len(left)

        def count(_: PoolCall) -> None:
            nonlocal number
            number -= 1
            if not number:
                ended.set()

        for call in left:
            call.on_end = count
        with trio.CancelScope(shield=True), trio.move_on_after(CANCEL_S):
            await ended.wait()

    def _abandon(self, calls: Iterable[PoolCall]) -> list[PoolCall]:
        """Cancel the tasks of these calls; return those that have not ended yet."""
        known = {call.task_id: call for call in calls if not call.ended}
        submitted = [known[task_id] for task_id in self._table.cancel(known)]
        return [call for call in submitted if not call.ended]  # some have ended at once

    def _drop(self, flight: Flight) -> None:
        """Nobody wants the results of a map any more."""
        flight.feeding.cancel()
        self._abandon(flight.calls)

    # For open_pool

    async def _begin(self, job: Job, rts: RunTimeSystem, nursery: trio.Nursery) -> None:
        self._job = self._table.job = job
        self._nursery = nursery
        self._resources = await count_resources(rts)
        nursery.start_soon(self._watch, rts)

    async def _watch(self, rts: RunTimeSystem) -> None:
        """When the job has ended, or nobody drives it any more, tell who waits for results."""
        why: BaseException = RuntimeError("it was cancelled")
        try:
            result = await wait_ended(self._job, rts, "gspc_trio.open_pool")
            told = self._table.describe_stop() if self._table.was_stopped else result.detail
            why = RuntimeError(told or "its job has ended")
        finally:
            self._broken = self._broken or why
            self._table.fail_all(self._broken)

    def _break(self, reason: ExecutorBroken) -> bool:
        if self._broken is not None:
            return False
        self._broken = reason
        self._table.fail_all(reason)
        self._job.stop(str(reason))
        return True

    async def _close(self) -> None:
        """Take no more calls, and wait for those that are on their way."""
        self._closed = True
        self._job.look()
        self._job.close()
        await self._job.wait_ended()


class _Outcomes(ABC, Generic[T]):
    """What comes of the items of a map, by ``async for``. When it is dropped, or closed, its tasks end.

    Args:
        pool: which runs them.
        flight: the calls.
    """

    def __init__(self, pool: TaskPool, flight: Flight) -> None:
        self._pool = pool
        self._flight = flight
        self._is_over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._is_over:
            raise StopAsyncIteration
        try:
            call = await self._flight.next()
            if call is not None:
                return await self._outcome(call)
        except BaseException:
            await self.aclose()
            raise
        self._is_over = True
        raise StopAsyncIteration

    @abstractmethod
    async def _outcome(self, call: PoolCall) -> T:
        """Return what came of a call."""

    async def aclose(self) -> None:
        """End the tasks that are on their way, with all that they have started; return when they are gone."""
        self._is_over = True
        self._flight.feeding.cancel()
        calls, self._flight.calls = self._flight.calls, {}
        await self._pool._end(calls)

    def __del__(self) -> None:
        if not self._is_over:
            with suppress(trio.RunFinishedError):
                self._pool._token.run_sync_soon(self._pool._drop, self._flight)


class PoolResults(_Outcomes[T]):
    """The results of a map of a pool; :meth:`TaskPool.map` returns it."""

    async def _outcome(self, call: PoolCall) -> T:
        value: T = await self._pool._open(call)
        return value


class PoolOutcomes(_Outcomes[tuple[A, T | BaseException]], Generic[A, T]):
    """Items with their results or exceptions; :meth:`TaskPool.outcomes` returns it."""

    async def _outcome(self, call: PoolCall) -> tuple[A, T | BaseException]:
        item = cast(A, call.item)
        if call.error is not None:
            return item, call.error
        try:
            return item, await self._pool._open(call)
        except Exception as error:  # it cannot be opened here
            return item, error
