"""joblib's backend ``gspc``: its batches are tasks of an executor."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from joblib.externals.loky.process_executor import TerminatedWorkerError
from joblib.parallel import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
    cpu_count,
    register_parallel_backend,
)

from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.executor import Executor, ExecutorBroken, TaskFailed, TaskFuture
from gspc_trio.integrations.joblib_batches import (
    LARGE_BYTES_MIN,
    Batches,
    JoblibCall,
    results_of,
    run_batch,
    run_call,
)
from gspc_trio.integrations.own_executor import open_own_executor, set_variables

Callback: TypeAlias = Callable[[Future[object]], object]

RunningSystem: TypeAlias = RunTimeSystem | Path | str
"""A run-time system that runs: what ``open_rts`` has opened in another thread, or a connection file."""


class Batch(Protocol):
    """What joblib submits: some calls."""

    items: Sequence[JoblibCall]


def register() -> None:
    """Make ``"gspc"`` a backend of joblib: ``joblib.parallel_config("gspc", n_jobs=2)``.

    The backend takes ``rts``, a run-time system that runs already: a connection file, or what ``open_rts``
    has opened in another thread; ``iml``, the connection file of its memory layer; and
    ``inner_max_num_threads``. Without ``rts`` this process has a run-time system of its own, which is kept
    for later calls.
    """
    register_parallel_backend("gspc", _GspcBackend)


class _GspcBackend(AutoBatchingMixin, ParallelBackendBase):
    """The backend.

    Args:
        nesting_level: how deep parallel calls are nested, None for what joblib sees.
        inner_max_num_threads: so many threads may the libraries of a task use; None for a fair share.
        rts: a run-time system that runs; None for one of this process.
        iml: the connection file of its memory layer, which has large arguments.
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    default_n_jobs = -1

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        rts: RunningSystem | None = None,
        iml: Path | str | None = None,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._rts = rts
        self._iml = iml
        self._running: RunningCall | None = None
        self._n_jobs = 1
        self._nested: Any = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return how many batches run at a time; -1 stands for all cores of the run-time system."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs > 0:
            return n_jobs
        cores = cpu_count() if self._rts is None else self._executor(1)._max_workers
        return max(1, int(cores) + 1 + n_jobs)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_others: object) -> int:
        """Prepare for a call, or for those of a block; return how many batches run at a time."""
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self.parallel = parallel
        self._n_jobs = n_jobs
        return n_jobs

    def get_nested_backend(self) -> Any:
        """Return what joblib puts into each batch: found once, for a batch that is a task finds its own."""
        if self._nested is None:
            self._nested = super().get_nested_backend()
        return self._nested

    def start_call(self) -> None:
        """A call begins."""
        executor = self._executor(self._n_jobs)
        self._running = RunningCall(executor, self._n_jobs, self.nesting_level + 1)

    def stop_call(self) -> None:
        """The call is over."""
        if self._running is not None:
            self._running.close()
            self._running = None

    def submit(self, func: Batch, callback: Callback | None = None) -> None:
        """Run a batch; the callback gets its future when that has ended."""
        assert self._running is not None, "joblib starts a call before it submits"
        self._running.submit(func.items, callback)

    def retrieve_result_callback(self, out: Future[object]) -> Any:
        """Return the results of a batch.

        Raises:
            TerminatedWorkerError: its worker, or the run-time system, has gone.
            Exception: what one of its calls raised.
        """
        try:
            return results_of(out.result())
        except (ExecutorBroken, TaskFailed) as error:
            raise TerminatedWorkerError(str(error)) from error

    def terminate(self) -> None:
        """Calls are over for now: the run-time system stays."""
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:  # noqa: ARG002
        """End all batches of the call, those that run too, with all that they have started."""
        if self._running is not None:
            self._running.abort()

    def _executor(self, n_jobs: int) -> Executor:
        variables = self._prepare_worker_env(n_jobs=n_jobs)
        return _kept.get(self._rts, self._iml, n_jobs, variables)


class RunningCall:
    """A call of joblib under way.

    joblib reads the user's iterable, and takes results, where the backend calls back. The executor's own
    thread must not wait for either, so there is one for it.

    Args:
        executor: runs the batches.
        n_jobs: so many at a time.
        level: how deep its calls are nested.
    """

    def __init__(self, executor: Executor, n_jobs: int, level: int) -> None:
        whole: Callable[..., object] = run_batch
        self._submit = executor._calls_of(whole).submit_one
        self._submit_small = executor._calls_of(run_call).submit_encoded
        self._room = n_jobs if executor._max_workers > n_jobs else -1
        self._held: deque[tuple[Sequence[JoblibCall], Callback | None]] = deque()
        self._batches = Batches(executor.share, level)
        self._futures: dict[Future[object], Callback | None] = {}
        self._lock = threading.Lock()
        self._aborted = False
        self._ended: SimpleQueue[Future[object] | None] = SimpleQueue()
        threading.Thread(target=self._call_back, name="gspc-joblib", daemon=True).start()

    def submit(self, calls: Sequence[JoblibCall], callback: Callback | None) -> None:
        """Run a batch, now or when there is room."""
        with self._lock:
            if self._aborted:
                return
            if self._room == 0:
                self._held.append((calls, callback))
                return
            self._room -= 1
        self._start(calls, callback)

    def _start(self, calls: Sequence[JoblibCall], callback: Callback | None) -> None:
        future: Future[object]
        try:
            small = self._batches.encode_small(calls)
            if small is not None:
                future = self._submit_small(small)
            else:
                batch, beside = self._batches.encode(calls)
                future = self._submit((batch, *beside))
        except Exception as error:  # joblib expects no error here
            future = Future()
            future.set_exception(error)
        with self._lock:
            self._futures[future] = callback
            aborted = self._aborted
        if isinstance(future, TaskFuture):
            future.tell_end(self._ended.put)
        else:
            self._ended.put(future)
        if aborted:
            future.cancel()

    def _call_back(self) -> None:
        while (future := self._ended.get()) is not None:
            with self._lock:
                callback = self._futures.pop(future)
                next_one = self._held.popleft() if self._held and not self._aborted else None
                if next_one is None:
                    self._room += 1
                aborted = self._aborted
            if next_one is not None:
                self._start(*next_one)
            if callback is not None and not aborted:
                callback(future)

    def abort(self) -> None:
        """Kill what runs, and forget what waits."""
        with self._lock:
            self._aborted = True
            self._held.clear()
            futures = tuple(self._futures)
        for future in futures:
            future.cancel()

    def close(self) -> None:
        """The call is over."""
        self._batches.clear()
        self._ended.put(None)


class _KeptExecutor:
    """The executor that later calls use again, as long as they want the same.

    An executor that nobody uses any more ends by itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted: object = None
        self._executor: Executor | None = None

    def get(
        self, rts: RunningSystem | None, iml: Path | str | None, n_jobs: int, variables: dict[str, str]
    ) -> Executor:
        """Return an executor on a run-time system, or one with so many cores.

        Args:
            rts: a run-time system, None for one of this process.
            iml: the connection file of its memory layer.
            n_jobs: cores of one of this process.
            variables: of the environment of its compute processes.
        """
        wanted = os.getpid(), rts, iml, 0 if rts is not None else n_jobs, tuple(sorted(variables.items()))
        with self._lock:
            executor = self._executor
            if executor is None or wanted != self._wanted or executor._broken:
                self._executor = None  # which ends, unless a call still uses it
                self._executor = executor = _open(rts, iml, n_jobs, variables)
                self._wanted = wanted
            return executor


def _open(
    rts: RunningSystem | None, iml: Path | str | None, n_jobs: int, variables: dict[str, str]
) -> Executor:
    if rts is None:
        return open_own_executor(n_jobs, variables, LARGE_BYTES_MIN)
    joined = {"rts": rts} if isinstance(rts, RunTimeSystem) else {"connection_file": rts}
    return Executor(
        initializer=set_variables, initargs=(variables,), large_bytes_min=LARGE_BYTES_MIN, iml=iml, **joined
    )


_kept = _KeptExecutor()
"""joblib knows backends by name, and makes one for each call: what they share is here."""
