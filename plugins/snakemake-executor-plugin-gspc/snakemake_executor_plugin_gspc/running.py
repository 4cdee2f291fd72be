"""The run-time system on which jobs run, and what it calls back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias

from gspc_trio import Executor, ExecutorBroken, Requirement, Shape, TaskFailed, TaskOptions
from gspc_trio.compute.programs import signal_name
from snakemake_executor_plugin_gspc.jobs import JobCommand, import_snakemake, run_job
from snakemake_executor_plugin_gspc.needs import JobNeeds


class Ended(NamedTuple):
    """How a job has ended.

    Attributes:
        why: it has failed; "" if it has not.
        is_over: whether nothing can run any more: the run-time system has gone.
    """

    why: str
    is_over: bool = False


OnEnd: TypeAlias = Callable[[Ended], None]


class Running:
    """A run-time system that runs jobs.

    Snakemake works on what is reported to it, for seconds if it waits for files. What the run-time system
    says must not wait for that, so there is a thread that reports.

    Args:
        rts: connection file of one that runs; None: one is started.
        cores: that this one has; 0: those of this machine.
        spawn: whether jobs have interpreters of their own.

    Raises:
        ConnectionFileError, ConnectFailed: there is no running one.

    Attributes:
        resources: class -> how many there are.
    """

    def __init__(self, rts: Path | None, cores: int, spawn: bool) -> None:
        self._executor = Executor(
            cores=cores if rts is None else 0,
            connection_file=rts,
            initializer=None if spawn else import_snakemake,
            output="keep",
        )
        self.resources = self._executor.resources()
        self._ended: SimpleQueue[tuple[OnEnd, Future[int]] | None] = SimpleQueue()
        self._stopped = False
        threading.Thread(target=self._report, name="gspc-snakemake", daemon=True).start()

    def submit(self, name: str, job: JobCommand, needs: JobNeeds, on_end: OnEnd) -> None:
        """Run a job; a thread calls ``on_end`` when it has ended.

        Args:
            name: for people.
            job: what to run.
            needs: what it needs.
            on_end: told how it ended, once, unless all is stopped before.

        Raises:
            ExecutorBroken: the run-time system has gone.
        """
        shape = Shape(
            tuple(map(Requirement, needs.requires)),
            needs.memory_bytes,
            same_host=len(needs.requires) > 1,
        )
        options = TaskOptions(
            loss_attempts=1,  # Snakemake knows how often to try again
            timeout_s=needs.timeout_s,
            memory_bytes=needs.memory_bytes,
        )
        with self._executor.with_options(shape=shape, options=options).calls_together() as calls:
            future = calls.submit(name, run_job, job)
        future.add_done_callback(lambda ended: self._ended.put((on_end, ended)))

    def close(self) -> None:
        """End, when all jobs have."""
        self._executor.shutdown()
        self._ended.put(None)

    def stop(self) -> None:
        """End all jobs at once, with all that they have started."""
        self._stopped = True
        self._executor.kill_workers()
        self._ended.put(None)

    def _report(self) -> None:
        while (item := self._ended.get()) is not None:
            on_end, future = item
            ended = how(future)
            if not self._stopped:
                on_end(ended)


def how(future: Future[int]) -> Ended:
    """Return how a job has ended."""
    try:
        status = future.result(0)
    except ExecutorBroken as error:
        return Ended(str(error), is_over=True)
    except CancelledError:
        return Ended("cancelled")
    except TaskFailed as error:
        return Ended(str(error))
    except Exception as error:
        return Ended(f"{type(error).__name__}: {error}")
    if status < 0:
        return Ended(f"ended by signal {signal_name(-status)}")
    return Ended(f"ended with exit status {status}" if status else "")
