"""The executor: the interface of ``concurrent.futures.Executor`` on a run-time system."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor as ExecutorInterface
from concurrent.futures import Future
from contextlib import AbstractContextManager
from copy import copy
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, Unpack, overload

from msgspec.structs import replace

from gspc_trio.compute.code import call_each, calls_of_chunks, flat
from gspc_trio.core.code import Variants
from gspc_trio.core.html import facts_table
from gspc_trio.core.imports import collector_paused, refuse_in_imports_of_tasks
from gspc_trio.core.published import NO_LAYER, NoNamedData
from gspc_trio.core.task import CORE, DEFAULT_OPTIONS, Shape, TaskOptions
from gspc_trio.executor.arguments import (
    cache_settings,
    checked_bytes_min,
    checked_workers,
    initializer_code,
    layer_at,
    open_systems,
    rts_options,
)
from gspc_trio.executor.calls import (
    CallsTogether,
    ManyCalls,
    VariantCalls,
    entry_with_holes,
)
from gspc_trio.executor.codes import CodeTable, name_of
from gspc_trio.executor.futures import NOTHING, Call, Deadline, TaskFuture, may_share
from gspc_trio.executor.results import results, results_as_read, within
from gspc_trio.protocol.values import dumps
from gspc_trio.workflow.call_options import CallOptions, checked_count, with_stated
from gspc_trio.workflow.settings import checked_needs

if TYPE_CHECKING:
    from gspc_trio.components.job.cache import CacheCounts, CacheSettings
    from gspc_trio.components.job.shell.data import JobData
    from gspc_trio.components.job.shell.output import OutputMode
    from gspc_trio.components.rts.shell.client import RunTimeSystem
    from gspc_trio.components.rts.shell.system import SitesGiven
    from gspc_trio.policies.scheduling import SchedulingPolicy

T = TypeVar("T")


class Executor(ExecutorInterface):
    """An executor on an embedded run-time system, or on a running one.

    Args:
        max_workers: number of cores to offer; None for what this machine has and this process may use.
        mp_context: refused unless None: compute processes are always forked from a fresh interpreter.
        initializer: called in each compute process, or thread, before its first task. If it fails, the
            executor is broken.
        initargs: its arguments.
        max_tasks_per_child: after so many tasks a compute process is replaced by a fresh one; None: never.
        cores: the same as ``max_workers``; 0 for what this machine has and this process may use.
        connection_file: use the running RTS that published this file instead of starting one.
        rts: use this one, which ``open_rts`` has opened in another thread of this program; or several, name
            -> connection file, or name -> run-time system. ``with_options(at=name)`` binds tasks to one.
        threads: compute in threads of one process instead of a process per core.
        shape: what each task needs to run; one core by default.
        options: what each task states about itself (attempts, time-out, ...).
        tune_gc: tune this process's garbage collector for many tasks until shutdown: about twice as fast.
        data_bytes: shared memory for large arguments and results, mapped by the tasks that get them; 0: none.
        iml: connection file of a running memory layer, in which they are kept instead; ``Named(name)`` among
            the arguments is data that was published there.
        output: what becomes of what tasks print. ``"show"`` prints it here as it comes, by whole lines, with
            the task before each; ``"files"`` writes it to the directory ``gspc-output``, two files for each
            task; ``"keep"`` keeps it for ``gspc-jobserver log`` alone. By default it is shown in a terminal
            and in a notebook, and kept otherwise.
        cache: directory, or settings, of a cache: results are kept there for later runs, and what was
            computed before with the same code, arguments and files is not computed again.
        model: file in which the run times of variants are kept for later runs; None: they are forgotten.
        priority: on a run-time system with other jobs, those of a higher priority get resources first.
        placement: which free resource is used next: ``fifo``, ``compact``, ``fair`` or ``progressive`` (see
            ``JobSettings``); "": as the run-time system does.
        assign: ``queues``: each resource has a queue of tasks, and idle ones steal (see ``JobSettings``).
        large_bytes_min: arguments and results of so many bytes or more go into the memory layer, smaller ones
            travel with their tasks; None: 65,536.
        policy: how tasks are tried again, sent ahead and asked for: a ``SchedulingPolicy``, or the name of
            one that an installed package offers.
        sites: batch systems that are asked for hosts as tasks need them: a file of sites, its tables, or an
            address such as ``dask://host:8786``. Nothing is computed here then, unless cores are stated.
        plan: plans tasks when they are submitted: ``"move"`` moves little data, ``"heft"`` ends soon.
        tightness: of the plan ``move``: weight of the mean distance to the other planned tasks.
        records: file to which all that happens is written, as lines of JSON: also whose results each task
            takes, as far as they are futures among its arguments.
        otel: whether spans of the tasks go to a collector by OpenTelemetry; None: if the variable
            ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set.

    Raises:
        BadCode: the initializer cannot be sent to another process.
        BadModel, CacheError: the performance model, or the directory of the cache, cannot be used.
        OSError: the file for the records cannot be written.
        OtelMissing: spans are asked for, and OpenTelemetry is not installed.
        ConnectionFileError, ConnectFailed: there is no running RTS to use.
        PlanError, PolicyError: there is no such plan or scheduling policy, or it cannot be used.
        RuntimeError: ``rts`` runs in this thread, or was closed.
        StartedAtImport: a compute process is importing the module that calls this.
        TypeError, ValueError: a number is no whole number, or too small; there is an ``mp_context``; options
            exclude each other; output is none of these.
        WorkflowError: shape or options make no sense.
    """

    _origin: Executor | None = None  # of one with other options

    def __init__(
        self,
        max_workers: SupportsIndex | None = None,
        mp_context: None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[object] = (),
        *,
        max_tasks_per_child: SupportsIndex | None = None,
        cores: int = 0,
        connection_file: Path | str | None = None,
        rts: RunTimeSystem | Mapping[str, RunTimeSystem | Path | str] | None = None,
        threads: bool = False,
        shape: Shape = CORE,
        options: TaskOptions = DEFAULT_OPTIONS,
        tune_gc: bool = False,
        data_bytes: int = 0,
        iml: Path | str | None = None,
        output: OutputMode | None = None,
        cache: CacheSettings | Path | str | None = None,
        model: Path | str | None = None,
        priority: int = 0,
        placement: str = "",
        assign: str = "",
        policy: SchedulingPolicy | str = "default",
        large_bytes_min: SupportsIndex | None = None,
        sites: SitesGiven | None = None,
        plan: str = "",
        tightness: float = 0.0,
        records: Path | str | None = None,
        otel: bool | None = None,
    ) -> None:
        refuse_in_imports_of_tasks()  # here, for the run-time system starts in another thread
        is_running = connection_file is not None or rts is not None
        cores = checked_workers(max_workers, cores, is_running, mp_context)
        opened, files = open_systems(rts, connection_file, data_bytes)
        self._shape, self._options = checked_needs(shape, options)
        self._codes = CodeTable()
        from gspc_trio.components.worker.shell.template_process import early_template

        with early_template(not is_running and sites is None) as template, collector_paused():
            # Not at the top: each compute process imports the program, which imports this module.
            from gspc_trio.executor.call_table import call_settings, output_mode, process_tasks_max
            from gspc_trio.executor.loop import Loop
            from gspc_trio.executor.notebook import follow_cells

            settings = replace(
                call_settings("executor", policy, assign),
                threads=threads,
                data=layer_at(iml),
                priority=priority,
                placement=placement,
                plan=plan,
                tightness=tightness,
                large_bytes_min=checked_bytes_min(large_bytes_min),
                initializer=initializer_code(initializer, initargs),
                process_tasks_max=process_tasks_max(max_tasks_per_child, threads),
                cache=cache_settings(cache),
                otel=otel,
                model="" if model is None else str(Path(model).absolute()),
            )
            opening = rts_options(cores, files, data_bytes, sites, is_running)
            mode, noted = output_mode(output), None if records is None else Path(records)
            self._loop = Loop(opened or opening, settings, self._codes, tune_gc, mode, template, noted)
        self._loop.start(self._shape.at)
        follow_cells(self._loop, mode == "show")
        has_layer = data_bytes or iml is not None or (opened is not None and opened.data is not None)
        self._known = self._codes.known
        self._encode = self._loop.encode if has_layer else dumps
        self._may_share = not has_layer and self._options == DEFAULT_OPTIONS
        weakref.finalize(self, self._loop.close).atexit = False

    @property
    def _max_workers(self) -> int:
        """How many tasks can run at a time: libraries look for it under this name."""
        return self._loop.capacity(self._shape)

    @property
    def _broken(self) -> str | bool:
        """Why no task can be submitted any more, False if one can: libraries look for it under this name."""
        return self._loop.broken

    def resources(self) -> dict[str, int]:
        """Return how many resources of each class there were when the executor was made."""
        return dict(self._loop.resources)

    def _repr_html_(self) -> str:
        loop = self._loop
        cache = None if loop.job is None else loop.job.cache_counts()
        counts = loop.counts() or {}
        state = "takes no more tasks" if loop.closed else "takes tasks"
        return facts_table(
            "Executor",
            state=f"can run no more tasks: {loop.broken}" if loop.broken else state,
            job="" if loop.job is None else loop.job.job_id,
            resources=", ".join(f"{number:,} {name}" for name, number in loop.resources.items()),
            tasks=", ".join(f"{number:,} {state.value}" for state, number in counts.items() if number),
            cache="" if cache is None else str(cache),
        )

    def progress(self, title: str = "") -> AbstractContextManager[None]:
        """Return a block that shows, while it runs, how far the executor's tasks are.

        Counted are all tasks that have not ended when this is called, and all that are submitted later. The
        bar is below the cell of a notebook, or on standard error if that is a terminal; where nobody would
        see it there is none. How far they are is looked at ten times a second: a task costs no more.

        Args:
            title: before the bar.
        """
        from gspc_trio.executor.progress import show_progress  # what draws takes a moment to load

        return show_progress(self._loop, title)

    def cache_counts(self) -> CacheCounts:
        """Return what the cache was good for so far: results found and kept, and tasks that it cannot know.

        Once the executor was shut down all is counted.
        """
        return self._loop.cache_counts()

    def with_options(self, **stated: Unpack[CallOptions]) -> Executor:
        """Return this executor for tasks that need or state something else, more attempts for instance.

        It has the same workers, and is shut down with this one. What is not stated is as here.

        Args:
            stated: any of the fields of ``TaskOptions`` and ``Shape``; ``requires``, a resource class or a
                list of them; or ``shape`` and ``options`` as a whole.

        Raises:
            TypeError: there is no such option.
            WorkflowError: what is stated makes no sense.
            LocationError: ``at`` names none of its run-time systems.
        """
        other = copy(self)
        other._shape, other._options = with_stated(self._shape, self._options, stated)
        other._may_share = self._encode is dumps and other._options == DEFAULT_OPTIONS
        if other._shape.at:
            self._loop.check_location(other._shape.at)
        other._origin = self  # which must not be collected before: that would shut it down
        return other

    @overload
    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> TaskFuture[T]: ...

    @overload
    def submit(self, fn: Variants, /, *args: object, **kwargs: object) -> TaskFuture[Any]: ...

    def submit(
        self, fn: Callable[..., T] | Variants, /, *args: object, **kwargs: object
    ) -> TaskFuture[T] | TaskFuture[Any]:
        """Run ``fn(*args, **kwargs)`` on a worker and return its future; of Variants, run one of them.

        Futures among the arguments, of whatever executor, are waited for and stand for their results, also in
        lists, tuples, sets and dicts, and in those in them.

        Raises:
            ExecutorBroken: the run-time system has gone.
            RuntimeError: the executor was shut down, or belongs to the process that this one was forked from.
        """
        loop, encode, shape = self._loop, self._encode, self._shape
        future: TaskFuture[T] = TaskFuture(loop)
        known = self._known.get(id(fn)) if self._may_share and args and not kwargs else None
        quick: Call | None = None
        if isinstance(fn, Variants):
            return self._submit_variants(future, fn, args, kwargs)
        try:
            if known is not None and known.code_id is not None and may_share(args) and known.holds():
                quick = Call(future, known.code_id, known.name, NOTHING, shape, self._options, args)
            else:
                code_id, arguments = self._codes.entry(fn, tuple(kwargs) if kwargs else ())
                for value in (*args, *kwargs.values()) if kwargs else args:
                    arguments.append(value if isinstance(value, Future) else encode(value))
        except Exception as error:
            try:
                code_id, arguments = entry_with_holes(self._codes, encode, fn, args, kwargs, error)
            except Exception as problem:
                loop.check_process()
                future.set_exception(problem)
                return future
        if quick is None:
            loop.put((Call(future, code_id, name_of(fn), arguments, shape, self._options),))
            return future
        direct = loop.singles.direct
        if direct is None or not direct.take(future, quick.code_id, args, shape):
            loop.put((quick,))
        return future

    def _submit_variants(
        self,
        future: TaskFuture[T],
        fn: Variants,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
    ) -> TaskFuture[T]:
        try:
            calls = VariantCalls(self._codes, self._encode, fn, self._shape, self._options, tuple(kwargs))
            call = calls.made(future, args, kwargs)
        except Exception as problem:
            self._loop.check_process()
            future.set_exception(problem)
        else:
            self._loop.put((call,))
        return future

    def map(
        self,
        fn: Callable[..., T] | Variants,
        *iterables: Iterable[object],
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        show_progress: bool = False,
    ) -> Iterator[T]:
        """Run ``fn`` on each item, all at once, and return an iterator over the results in order.

        Args:
            fn: takes as many arguments as there are iterables.
            iterables: read at once; they end with the shortest. Futures in them are waited for.
            timeout: seconds from now in which every result must be there, or None.
            chunksize: items that one task computes; of Variants, a task computes one. With 1, short items
                travel together if there are many, and behave as if they were tasks.
            buffersize: so many tasks are submitted whose results have not been asked for; the iterables are
                read no further, and may be without end. None: all are read at once.
            show_progress: show how far the executor's tasks are, as :meth:`progress` does, until the last
                result was asked for.

        Raises:
            TypeError, ValueError: the size of chunks or buffer is no whole number, or not positive.
            TimeoutError: (from the iterator) a result was not there in time.
            Exception: as submit; (from the iterator) what the function raised.
        """
        if chunksize == 1 and buffersize is None and not show_progress:
            many = self._calls_of(fn).of_items(iterables)
            if many is not None:
                return many.results(Deadline(timeout))
        return self.starmap(
            fn,
            zip(*iterables, strict=False),
            timeout=timeout,
            chunksize=chunksize,
            buffersize=buffersize,
            show_progress=show_progress,
        )

    def starmap(
        self,
        fn: Callable[..., T] | Variants,
        iterable: Iterable[Iterable[object]],
        *,
        timeout: float | None = None,
        chunksize: int = 1,
        buffersize: int | None = None,
        show_progress: bool = False,
    ) -> Iterator[T]:
        """Run ``fn`` on the arguments in each item, ``fn(*item)``; the rest as :meth:`map`."""
        chunksize = checked_count("chunksize", chunksize)
        buffersize = None if buffersize is None else checked_count("buffersize", buffersize)
        deadline = Deadline(timeout)
        items = map(tuple, iterable)
        bar = self.progress(name_of(fn)) if show_progress else None
        if chunksize == 1 or isinstance(fn, Variants):
            found = self._results(fn, items, deadline, buffersize)
        else:
            chunks = calls_of_chunks(fn, items, chunksize)
            found = flat(self._results(call_each, chunks, deadline, buffersize))
        return found if bar is None else within(bar, found)

    def _results(
        self,
        fn: Callable[..., T] | Variants,
        items: Iterator[tuple[object, ...]],
        deadline: Deadline,
        buffersize: int | None,
    ) -> Iterator[T]:
        calls = self._calls_of(fn)
        if buffersize is None:
            return results(calls.submit(items), deadline)
        futures = calls.submit(islice(items, buffersize))
        return results_as_read(futures, lambda: calls.submit(islice(items, 1)), deadline)

    def calls_together(self, *, are_independent: bool = False) -> CallsTogether:
        """Return a block whose ``submit(name, fn, *args, **kwargs)`` adds calls that all go at its end.

        ``submit_rows(name, fn, rows)`` adds one for each row of arguments.

        Whole graphs are submitted like this: a call may have the futures of earlier ones as arguments.

        Args:
            are_independent: none has. Then short calls of a function travel in ranges if there are many.
        """
        may_share = are_independent and self._may_share
        return CallsTogether(self._loop, self._codes, self._encode, self._shape, self._options, may_share)

    def share(self, value: T) -> TaskFuture[T]:
        """Return a future that has ended with a value, to be an argument of many tasks.

        The value is encoded once. In an executor with a memory layer (``data_bytes``, ``iml``, ``rts``) a
        large one lies once in shared memory, read-only, until the future and the tasks with it are gone.

        Raises:
            BadValue: it cannot be sent to another process.
            RuntimeError: the executor belongs to the process that this one was forked from.
        """
        future: TaskFuture[T] = TaskFuture(self._loop)
        future.finish(self._encode(value))
        return future

    def _calls_of(self, fn: Callable[..., T] | Variants) -> ManyCalls[T]:
        return ManyCalls(self._loop, self._codes, self._encode, fn, self._shape, self._options)

    def _submit_all(self, fn: Callable[..., T], items: Iterator[tuple[object, ...]]) -> list[TaskFuture[T]]:
        """Run ``fn(*item)`` for each item and return the futures."""
        return self._calls_of(fn).submit(items)

    def publish(self, name: str, value: object) -> None:
        """Keep a value in the executor's memory layer under a name; tasks read it with ``read_published``.

        Publishing again under the same name replaces the value.

        Args:
            name: of the data.
            value: ``bytes`` and memory are kept as they are, other values encoded.

        Raises:
            BadValue: the value cannot be sent to another process.
            NoNamedData: the executor has no memory layer (``data_bytes``, ``iml``).
            NoRoom: it has no room.
        """
        self._named_data().publish(name, value)

    def read_published(self, name: str) -> Any:
        """Return the value that a task, or anybody else, has published under a name.

        Of ``bytes`` it is a read-only memoryview.

        Raises:
            NoNamedData: the executor has no memory layer (``data_bytes``, ``iml``).
            UnknownName: nothing was published under this name.
        """
        return self._named_data().read_published(name)

    def _named_data(self) -> JobData:
        self._loop.check_process()
        job = self._loop.job
        if job is None:
            raise NoNamedData(NO_LAYER)
        return job.named_data

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; with ``wait``, return when all have ended and everything is taken down.

        Args:
            wait: wait for the end; an interrupt while waiting stops everything.
            cancel_futures: cancel those that have not begun.
        """
        self._loop.close(cancel_futures)
        if wait:
            self._loop.join()

    def kill_workers(self) -> None:
        """End all that runs at once, with everything that tasks have started, and take no more tasks.

        Futures that have not ended fail with ``ExecutorBroken``.
        """
        self._loop.end_workers()
        self._loop.join()

    terminate_workers = kill_workers

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self._loop.stop()  # Ctrl-C: what runs is stopped instead of waited for
        self.shutdown(wait=True)
