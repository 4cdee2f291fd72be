"""Nested tasks of a job on trio: what tasks say by way of their RIFs, and the job beside that runs them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio
from msgspec.structs import replace

from gspc_trio.components.job.nested import (
    STARVED_S,
    CancelNestedTasks,
    NestedAction,
    NestedDone,
    NestedEvent,
    NestedOver,
    NestedTasks,
    RunNested,
    TaskSaid,
    TaskSilent,
    TaskSpeaks,
    TellTask,
)
from gspc_trio.components.job.scheduler.interface import TaskDone
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.output import nested_name, show_beside
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.components.rts.messages import Lend
from gspc_trio.components.worker.messages import FromTask, ToTask
from gspc_trio.compute.code import call_filled, call_first, call_named, function_code
from gspc_trio.core.ids import Counter, JobId, TaskId
from gspc_trio.core.machine import Performer, performs
from gspc_trio.core.nested import ItemsEnded, NestedBroken, TaskHello, decode_said, encode
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.policies.lookahead import WorkAhead
from gspc_trio.policies.scheduling import SchedulingPolicy
from gspc_trio.protocol.envelope import EncodeError
from gspc_trio.workflow.graph import TaskGraph

if TYPE_CHECKING:
    from gspc_trio.components.job.tracing import JobTracer

log: logging.Logger = logging.getLogger(__name__)

NESTED_FAILED_MAX = 100
"""So many nested tasks that have failed are remembered, for whoever looks."""


def nested_code(code_id: int) -> bytes:
    """Return an entry of the code table of nested tasks (``core.nested``)."""
    return function_code((call_first, call_named, call_filled)[code_id])


async def lend_while_starved(job: Job) -> None:
    """Lend the core of the task whose code runs this job while none of its tasks can run, until it has ended.

    The task may wait for the job in whatever way. If it has the only core, the job would never run.
    """
    from gspc_trio.compute.nested import lending  # only here: few jobs are those of tasks

    starved_since_s, is_lent = math.inf, False
    with ExitStack() as lent:
        while not job.has_ended:
            counts = job.machine.counts()
            waiting, running = (
                counts[TaskState.READY] + counts[TaskState.SUBMITTED],
                counts[TaskState.RUNNING],
            )
            if is_lent and not (waiting or running):
                lent.close()
                is_lent = False
            starved_since_s = (
                min(starved_since_s, trio.current_time()) if waiting and not running else math.inf
            )
            if not is_lent and trio.current_time() >= starved_since_s + STARVED_S:
                lent.enter_context(lending())
                is_lent = True
            await trio.sleep(STARVED_S / 4)


class Speaker(Protocol):
    """A connection over which a task is spoken to, by way of its RIF."""

    def post(self, message: ToTask) -> None:
        """Send what is said to it."""
        ...


class OpenBeside(Protocol):
    """Opens the job that runs nested tasks."""

    def __call__(
        self, graph: TaskGraph, /, *, on_done: Callable[[TaskDone], None], nested: NestedHub
    ) -> AbstractAsyncContextManager[Job]:
        """Return the block of the job; its tasks speak to the same hub."""
        ...


class NestedHub(Performer[NestedAction]):
    """What the tasks of a job, and those that they start, say to its job server.

    Args:
        job: the first job.
        nursery: in which nested tasks are run.
        open_beside: opens the job that runs them.
        lend: tells the run-time system which cores are lent.
    """

    def __init__(
        self,
        job: Job,
        nursery: trio.Nursery,
        open_beside: OpenBeside,
        lend: Callable[[Lend], None],
    ) -> None:
        self._first = job
        self._job = job.job_id
        self._nursery = nursery
        self._open_beside = open_beside
        self._lend = lend
        self._graph = TaskGraph()
        self._machine = NestedTasks(job.job_id, self._graph, self._runs)
        self._inbox: Inbox[NestedEvent] = Inbox()
        self._numbers = Counter()
        self._sessions: dict[tuple[Speaker, int], int] = {}
        self._tasks: dict[int, tuple[Speaker, JobId, int]] = {}
        self._began = False
        self._opened = False
        self._beside: Job | None = None

    def take(self, peer: Speaker, message: FromTask) -> None:
        """Take what a task says, by way of its RIF."""
        if not self._began:
            self._began = True
            self._nursery.start_soon(self._drive)
        key = (peer, message.session)
        session = self._sessions.get(key)
        if not message.data:
            self._silence(key)
            return
        try:
            word = decode_said(message.data)
        except msgspec.DecodeError as error:
            log.warning("job %s: task %d says what nobody understands: %s", self._job, message.task_id, error)
            peer.post(ToTask(message.job, message.session, b""))
            return
        if isinstance(word, ItemsEnded):
            if self._first.take_items is not None and message.job == self._job:
                self._first.take_items(message.task_id, word.answer)
            return
        if session is None:
            session = self._sessions[key] = self._numbers.next()
            self._tasks[session] = (peer, message.job, message.session)
            nested = message.task_id if message.job != self._job else 0
            self._inbox.put(TaskSpeaks(session, message.resource_id, nested))
        if not isinstance(word, TaskHello):
            self._inbox.put(TaskSaid(session, word))

    async def _drive(self) -> None:
        await drive(self._machine, self._inbox, self)

    def forget(self, peer: Speaker) -> None:
        """A RIF cannot be heard any more."""
        for key in [key for key in self._sessions if key[0] is peer]:
            self._silence(key)

    def _silence(self, key: tuple[Speaker, int]) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            del self._tasks[session]
            self._inbox.put(TaskSilent(session))

    def restate(self, job: JobId) -> None:
        """Say again what the first job lends, to a run-time system that was started again."""
        if job == self._job:
            for lent in self._machine.lent:
                self._lend(lent)

    @performs(RunNested)
    def _run(self, _: RunNested) -> None:
        if self._beside is not None:
            self._beside.look()
        elif not self._opened:
            self._opened = True
            self._nursery.start_soon(self._run_beside)

    async def _run_beside(self) -> None:
        """Run nested tasks until the job beside this one ends."""
        reason = "the job of the nested tasks has ended"
        try:
            async with self._open_beside(self._graph, on_done=self._done, nested=self) as job:
                self._beside = job
                show_beside(job, self._first)
                job.look()
                result = await job.wait_ended()
                reason = f"{reason}: {result.detail or result.state}"
        except Exception as error:
            log.info("job %s: %s", self._job, reason, exc_info=True)
            self._beside = None
            self._inbox.put(NestedOver(f"{reason}: {error}"))
        else:
            self._inbox.put(NestedOver(reason))

    def _runs(self, task_id: TaskId) -> bool:
        return self._beside is not None and self._beside.machine.scheduler.is_running(task_id)

    def _done(self, done: TaskDone) -> None:
        last = None
        if self._beside is not None and done.state is TaskState.FAILED:
            last = self._beside.last_attempt(done)
        self._inbox.put(NestedDone(done, last))

    @performs(CancelNestedTasks)
    def _cancel(self, action: CancelNestedTasks) -> None:
        if self._beside is not None:
            self._beside.cancel(action.task_ids)

    @performs(TellTask)
    def _tell(self, action: TellTask) -> None:
        task = self._tasks.get(action.session)
        if task is not None:
            peer, job, session = task
            try:
                peer.post(ToTask(job, session, encode(action.word)))
            except EncodeError as error:
                peer.post(ToTask(job, session, encode(NestedBroken(str(error)))))

    @performs(Lend)
    def _lend_core(self, action: Lend) -> None:
        self._lend(action)


def beside_settings(settings: JobSettings, policy: SchedulingPolicy, tracer: JobTracer | None) -> JobSettings:
    """Return the settings of the job that runs the nested tasks of another.

    Args:
        settings: of the other one.
        policy: of the other one.
        tracer: of the other one, if it sends spans.
    """
    return replace(
        settings,
        name=nested_name(settings.name),
        keep_going=True,
        fate=False,
        listen="",
        failed_max=NESTED_FAILED_MAX,
        cache=None,
        model="",
        plan="",
        tightness=0.0,
        traceparent="" if tracer is None else str(tracer.context),
        otel=tracer is not None,
        policy=replace(policy, assign=None, work_ahead=WorkAhead(longest_s=0.0)),
        assign="",  # none waits behind another
        priority=settings.priority + 1,
    )
