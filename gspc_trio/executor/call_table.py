"""The calls of a job that have not ended, and who waits for them: what executors and pools have in common."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NotRequired, Protocol, SupportsIndex, TypedDict, TypeVar, get_args
from weakref import WeakKeyDictionary

from gspc_trio.components.embed import open_prepared_rts, open_rts, process_key
from gspc_trio.components.job.engine_wrapper import FlowEngine
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.output import OutputMode
from gspc_trio.components.job.shell.server import run_job
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.several import ConnectionFiles
from gspc_trio.components.rts.shell.system import SitesGiven
from gspc_trio.components.worker.shell.template_process import StartedTemplate
from gspc_trio.compute.channel import INITIALIZER
from gspc_trio.core.ids import TaskId
from gspc_trio.core.task import FailedThrough, LastAttempt, Shape, TaskError, TaskState
from gspc_trio.policies.scheduling import DEFAULT, SchedulingPolicy, find_policy
from gspc_trio.workflow.call_options import checked_count
from gspc_trio.workflow.failures import ExecutorBroken, RemoteTraceback, exception_of
from gspc_trio.workflow.graph import TaskGraph

if TYPE_CHECKING:
    from gspc_trio.workflow.flow import Flow

_standard_log = logging.getLogger("concurrent.futures")
"""Where programs look that know the standard executors."""

FAILED_MAX = 100
"""Failed tasks that are remembered, for whoever looks at the job: its graph of tasks has forgotten them."""

_FINISHED, _CANCELLED = TaskState.FINISHED, TaskState.CANCELLED


class Receiver(Protocol):
    """Who waits for the result of a call. One of these is called, once."""

    def finish(self, data: bytes) -> object:
        """The task has returned this, encoded."""
        ...

    def fail(self, error: BaseException) -> object:
        """The task has failed."""
        ...

    def give_up(self) -> object:
        """The task was cancelled."""
        ...


class Part(Receiver, Protocol):
    """Who waits for a task of a map over many items, and wants to know more of it.

    Attributes:
        task_id: of the task.
        ended: how it has ended; set before one of the others is called, unless it was cancelled unseen.
    """

    task_id: TaskId
    ended: TaskDone | None


R = TypeVar("R", bound=Receiver)


class CallTable(Generic[R]):
    """The tasks of a job that are calls of functions, with the receiver of each.

    Args:
        owner: what people call it whose calls these are: ``executor``.
        end: called when the initializer has failed in a process, which is the end of all; returns False if
            the end has begun already.

    Attributes:
        graph: the tasks.
        receivers: of those that have not ended.
        parts: the same of those that compute many items of a map, or one of them.
        job: which runs them, when it is there.
        is_stopped: whether its owner has stopped the job.
        taken: receiver -> tasks whose results have become arguments of its own; None: nobody wants to know.
    """

    def __init__(self, owner: str, end: Callable[[ExecutorBroken], bool]) -> None:
        self.graph: TaskGraph = TaskGraph()
        self.receivers: dict[TaskId, R] = {}
        self.parts: dict[TaskId, Part] = {}
        self.job: Job | None = None
        self.is_stopped = False
        self.taken: WeakKeyDictionary[R, list[TaskId]] | None = None  # some never become tasks
        self._owner = owner
        self._end = end

    def run(
        self,
        code: Callable[[int], bytes],
        rts: RunTimeSystem,
        settings: JobSettings,
        records: Path | None = None,
    ) -> AbstractAsyncContextManager[Job]:
        """Return the block of the job that runs the calls; :attr:`job` is to be set in it.

        Args:
            code: returns an entry of the code table, encoded.
            rts: where to run.
            settings: of the job.
            records: file for its records, which tell of each task whose results it takes; None: none.
        """
        if records is not None:
            return self._run_recorded(code, rts, settings, records)
        return run_job(self.graph, code, dict, rts, settings, open_ended=True, on_done=self.done)

    @asynccontextmanager
    async def _run_recorded(
        self, code: Callable[[int], bytes], rts: RunTimeSystem, settings: JobSettings, records: Path
    ) -> AsyncIterator[Job]:
        engine = FlowEngine(self.graph, self)
        running = run_job(
            engine, code, dict, rts, settings, open_ended=True, on_done=self.done, records_path=records
        )
        async with running as job:
            machine = job.machine
            job.records.more = engine.begin(job.job_id, lambda: machine.now)
            yield job

    def note_flow(self) -> None:
        """Note from now on whose results become arguments."""
        from gspc_trio.workflow.flow import Flow  # an executor without records has no nets

        self.taken = WeakKeyDictionary()
        self._flow, self._no_flow = Flow, Flow()

    def flow(self, task_id: TaskId) -> Flow:
        """Return from which tasks one that is under way takes its arguments."""
        references = self.graph.references(task_id)
        if self.taken:
            receiver = self.receivers.get(task_id)
            before = [] if receiver is None else self.taken.pop(receiver, [])
            references = tuple(dict.fromkeys((*references, *before)))
        return self._flow(tuple(references)) if references else self._no_flow

    def done(self, done: TaskDone) -> None:
        """Tell the receiver of a task how it has ended."""
        receiver: R | Part | None = self.receivers.pop(done.task_id, None)
        if receiver is None:
            part = self.parts.pop(done.task_id, None)
            if part is None:
                return
            part.ended = done
            receiver = part
        if done.state is _FINISHED:
            receiver.finish(done.outcome.values[0][0])  # decoded where it is wanted
        elif self.was_stopped and (done.state is _CANCELLED or done.outcome.attempt == 0):
            receiver.fail(ExecutorBroken(self.describe_stop(" before the task ended")))
        elif done.state is _CANCELLED:
            receiver.give_up()
        else:
            error = done.outcome.error
            if error is not None and error.kind == INITIALIZER:
                receiver.fail(self._initializer_failed(error))
            else:
                assert self.job is not None
                receiver.fail(exception_of(error, self.job.last_attempt(done)))

    def _initializer_failed(self, error: TaskError) -> ExecutorBroken:
        """The initializer fails in a process: as with the standard executors, that is the end."""
        reason = ExecutorBroken(f"the initializer failed: {error.message}")
        reason.__cause__ = RemoteTraceback(error.traceback)
        if self._end(reason):
            _standard_log.critical("Exception in initializer:\n%s", error.traceback or error.message)
        return reason

    @property
    def was_stopped(self) -> bool:
        """Whether somebody else, a client of the job, has stopped it."""
        return not self.is_stopped and self.job is not None and bool(self.job.machine.stopped_for)

    def describe_stop(self, when: str = "") -> str:
        """Say that somebody has stopped the job."""
        assert self.job is not None
        job = self.job
        return f"the {self._owner}'s job {job.job_id} was stopped{when}: {job.machine.stopped_for}"

    def cancel(self, task_ids: Iterable[TaskId]) -> list[TaskId]:
        """End these tasks, those that the scheduler has not seen in the graph alone.

        Returns:
            those of which their receivers will be told; those of the others are told nothing.
        """
        assert self.job is not None
        submitted = []
        there = self.receivers, self.parts
        for task_id in [task_id for task_id in task_ids if any(task_id in those for those in there)]:
            if task_id not in self.graph:
                continue  # it has failed through another one
            if self.graph.state(task_id) is TaskState.READY:
                self.receivers.pop(task_id, None)
                self.parts.pop(task_id, None)
                for failed in self.graph.cancelled(task_id):
                    self._failed_through(failed)
            else:
                submitted.append(task_id)
        if submitted:
            self.job.cancel(submitted)
        return submitted

    def _failed_through(self, failed: FailedThrough) -> None:
        receiver = self.receivers.pop(failed.task_id, None)
        if receiver is not None:
            receiver.fail(exception_of(failed.error, LastAttempt(failed.name)))

    def ended_before(self, reason: BaseException) -> ExecutorBroken:
        """Return what who waits is told when all is over."""
        error = ExecutorBroken(f"the {self._owner} ended before the task did: {reason}")
        error.__cause__ = reason.__cause__
        return error

    def fail_all(self, reason: BaseException) -> None:
        """Tell all receivers that all is over: nobody may wait for ever."""
        receivers: list[Receiver] = [*self.receivers.values(), *self.parts.values()]
        for receiver in receivers:
            receiver.fail(self.ended_before(reason))


class RtsOptions(TypedDict):
    """Arguments of ``open_rts``."""

    cores: int
    connection_file: ConnectionFiles | None
    data_bytes: int
    sites: NotRequired[SitesGiven]


@asynccontextmanager
async def _open_already(rts: RunTimeSystem) -> AsyncIterator[RunTimeSystem]:
    yield rts


def open_system(
    rts: RtsOptions | RunTimeSystem, template: StartedTemplate | None
) -> AbstractAsyncContextManager[RunTimeSystem]:
    """Return a run-time system, to be opened.

    Args:
        rts: arguments of ``open_rts``; or what another thread has opened.
        template: forks its compute processes, if it was started before.
    """
    if isinstance(rts, RunTimeSystem):
        return _open_already(rts)
    if template is None:
        return open_rts(**rts)
    return open_prepared_rts(template, cores=rts["cores"], data_bytes=rts["data_bytes"])


async def count_resources(rts: RunTimeSystem) -> dict[str, int]:
    """Return resource class -> number of them."""
    classes = (await rts.status()).classes
    return {name: resources.total for name, resources in classes.items()}


def capacity(resources: dict[str, int], shape: Shape) -> int:
    """Return how many tasks of a shape can run at a time with these resources; at least 1."""
    needed = Counter(requirement.resource_class for requirement in shape.requirements)
    return max(1, min(resources.get(name, 0) // number for name, number in needed.items()))


def call_settings(
    owner: str,
    policy: SchedulingPolicy | str = DEFAULT,
    assign: str = "",
    *,
    only_programs: bool = False,
) -> JobSettings:
    """Return the settings of a job that runs calls: each is a task of its own, whatever becomes of others.

    Args:
        owner: whose calls they are; the job is called after it.
        policy, assign: of the job.
        only_programs: no code of users runs that might speak to managers of this process.

    Raises:
        PolicyError: there is no such scheduling policy, or it cannot be used.
    """
    return JobSettings(
        f"{owner}-{os.getpid()}",
        keep_going=True,
        fate=False,
        failed_max=FAILED_MAX,
        process_key=None if only_programs else process_key(),
        policy=find_policy(policy, assign),
        assign=assign,
    )


def process_tasks_max(max_tasks_per_child: SupportsIndex | None, threads: bool) -> int:
    """Return after how many tasks a compute process is replaced, 0 for never.

    Raises:
        TypeError, ValueError: it is no whole number, or too small; tasks compute in threads.
    """
    if max_tasks_per_child is None:
        return 0
    if threads:
        raise ValueError("max_tasks_per_child is for processes, and threads=True computes in threads of one")
    return checked_count("max_tasks_per_child", max_tasks_per_child)


def output_mode(output: OutputMode | None) -> OutputMode:
    """Return what becomes of what tasks print; None: it is shown if a person sees it.

    Raises:
        ValueError: it is none of the modes.
    """
    mode = output or ("show" if _is_watched() else "keep")
    if mode not in get_args(OutputMode):
        offered = ", ".join(map(repr, get_args(OutputMode)))
        raise ValueError(f"output={output!r}: it is one of {offered}, or None")
    return mode


def _is_watched() -> bool:
    """Whether a person sees what this program prints: in a terminal, or in a notebook."""
    streams = (sys.stdout, sys.stderr)
    return "ipykernel" in sys.modules or any(stream is not None and stream.isatty() for stream in streams)
