"""A running job as its owner and its clients see it."""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import trio
from msgspec.structs import replace

from gspc_trio.components.job.cache import CacheCounts
from gspc_trio.components.job.machine import Close, JobEnded, JobEvent, JobMachine, Look
from gspc_trio.components.job.messages import JobStatus, MemoryStatus
from gspc_trio.components.job.output import KeptOutput, Printed
from gspc_trio.components.job.result import JobFailed, JobResult, RtsLost, describe_failures
from gspc_trio.components.job.scheduler.interface import (
    CancelTasks,
    EndedItems,
    Restored,
    RetryTask,
    Stop,
    TaskDone,
    Watched,
)
from gspc_trio.components.job.scheduler.status import ItemCounts
from gspc_trio.components.job.shell.streams import (
    OpenQuestion,
    OutputPorts,
    StreamReader,
    checked_port,
    open_token,
    results_of,
)
from gspc_trio.core.ids import JobId, TaskId
from gspc_trio.core.published import NO_LAYER, NoNamedData
from gspc_trio.core.similar import did_you_mean
from gspc_trio.core.task import LastAttempt
from gspc_trio.iml.errors import ImlError
from gspc_trio.nursery.scopes.drive import Inbox
from gspc_trio.protocol.values import dumps, is_reference, loads
from gspc_trio.records.backlog import Mode, Watching
from gspc_trio.records.shell.stream import RecordStream
from gspc_trio.version import VERSION
from gspc_trio.workflow.tokens import Asker, Outputs, Plain, Value

if TYPE_CHECKING:
    from gspc_trio.components.job.shell.cache import ResultCache
    from gspc_trio.components.job.shell.data import JobData
    from gspc_trio.components.job.tracing import JobTracer
    from gspc_trio.workflow.ports import Notation

_PROCESS_END = re.compile(r"compute process \d+ (?:exited with status (\d+)|was killed by (SIG\w+))")

RESULTS_INTERVAL_S = 0.1
"""Whoever reads results looks again after so many seconds, whatever is told."""

GLANCE_INTERVAL_S = 0.2
"""Seconds between two glances at the tasks of a job that is too fast to tell of each."""

MEMORY_TIMEOUT_S = 2.0
"""How long the memory layer may take to tell how it is."""

GLANCE_TASKS_MAX = 50
"""Running tasks, and others, that are named at a glance."""


class Job:
    """A running job; :func:`open_job` returns it.

    Args:
        machine: of the job.
        outputs: returns the values at the output ports.
        hosts: resource -> its host.
        pid: of this process.
        inbox: takes events for the machine.
        encode: value -> argument of a task.
        ask_memory: asks the memory layer of the job how it is; None: there is none.
    """

    def __init__(
        self,
        machine: JobMachine,
        outputs: Callable[[], Outputs],
        hosts: Mapping[str, str],
        pid: int,
        inbox: Inbox[JobEvent],
        encode: Callable[[object], bytes] = dumps,
        ask_memory: Callable[[], Awaitable[MemoryStatus]] | None = None,
    ) -> None:
        self.machine = machine
        self._pid = pid
        self.records: RecordStream = RecordStream(VERSION, self._look)
        self._watching, self._recorded = Watching(), Watched(False)
        self._glanced_s, self._items = 0.0, ItemCounts(machine.scheduler.glance, machine)
        self.printed: KeptOutput = KeptOutput()
        self.on_printed: Callable[[Printed], None] | None = None
        self._on_output_wanted: Callable[[float], None] | None = None
        self.ask_memory = ask_memory
        self.encode = encode
        self.inbox = inbox
        self._hosts = hosts
        self._outputs = outputs
        self._output_until_s = -math.inf
        self._output_wanted = trio.Event()
        self._begun_s = trio.current_time()
        self._ended = trio.Event()
        self._result: JobResult | None = None
        self.functions: dict[str, Callable[..., object]] = {}
        self.notation: Notation | None = None
        self.journaled: Callable[[], Awaitable[None]] | None = None
        self._rts_lost = False
        self.await_rts: Callable[[], Awaitable[None]] | None = None
        self.report: str | None = None
        self.report_error = ""
        self.cache: ResultCache | None = None
        self.ports: OutputPorts | None = None
        self.data: JobData | None = None
        self.tracer: JobTracer | None = None
        self.take_items: Callable[[TaskId, bytes], None] | None = None  # of a range that goes on
        self.news: trio.Event | None = None  # set when a task has ended, if somebody waits for results

    @property
    def job_id(self) -> JobId:
        """The id that the RTS gave."""
        return self.machine.job

    def host_of(self, resource_id: str) -> str:
        """Return the host of a resource, or "" if it was never seen."""
        return self._hosts.get(resource_id, "")

    def last_attempt(self, done: TaskDone) -> LastAttempt:
        """Return what is told of a task that has failed."""
        outcome, host = done.outcome, self.host_of(done.resource_id)
        status = None if outcome.error is None else _exit_status(outcome.error.message)
        return LastAttempt(done.name, done.tries, host, outcome.stdout, outcome.stderr, status)

    async def wait(self) -> JobResult:
        """Wait for the end of the job and return its result (GSPC19 2.5 ``wait``).

        Raises:
            JobFailed: the job failed or was stopped.
        """
        result = await self.wait_ended()
        if result.state != "finished":
            raise (RtsLost if self._rts_lost else JobFailed)(result, self._describe(result))
        return result

    @property
    def named_data(self) -> JobData:
        """The data of the job, by name.

        Raises:
            NoNamedData: it has no memory layer.
        """
        if self.data is None:
            raise NoNamedData(NO_LAYER)
        return self.data

    async def publish(self, name: str, value: object) -> None:
        """Keep a value in the memory layer of the job under a name; tasks read it with ``read_published``.

        It stays when the job has ended. Publishing again under the same name replaces the value.

        Args:
            name: of the data.
            value: ``bytes`` and memory are kept as they are, other values encoded.

        Raises:
            BadValue: the value cannot be sent to another process.
            NoNamedData: the job has no memory layer.
            NoRoom: it has no room.
        """
        await trio.to_thread.run_sync(self.named_data.publish, name, value)

    async def read_published(self, name: str) -> Value:
        """Return the value that a task, or anybody else, has published under a name.

        Of ``bytes`` it is a read-only memoryview.

        Raises:
            NoNamedData: the job has no memory layer.
            UnknownName: nothing was published under this name.
        """
        return await trio.to_thread.run_sync(self.named_data.read_published, name)

    def results(self, port: str = "") -> AsyncIterator[Value]:
        """Return an asynchronous iterator over the values at an output port, in the order in which they come.

        It ends with the job. Several may be open at a time; each yields all values. At the port of a stream,
        as ``pipeline`` has it, only one may be open: it takes the values off, and who is slow to ask for the
        next one holds the stream back. What was not taken off is in the result of the job.

        Args:
            port: name of the port; "" for the only one.

        Raises:
            ValueError: there is no such port; (from the iterator) the stream is read already.
            JobFailed: (from the iterator, after the last value) the job failed or was stopped.
        """
        port = checked_port(self.ports, port)
        assert self.ports is not None
        if self.ports.ports.is_stream(port):
            return StreamReader(self, self.ports, port)
        return results_of(self, self.ports, port)

    async def wait_outputs(self) -> Outputs:
        """Wait for the end of the job and return what is at its output ports; the rest as :meth:`wait`."""
        return (await self.wait()).outputs

    async def wait_news(self) -> None:
        """Wait until there may be new results: inline transitions tell nobody, so not for long."""
        if self.news is None or self.news.is_set():
            self.news = trio.Event()
        with trio.move_on_after(RESULTS_INTERVAL_S):
            await self.news.wait()

    @property
    def has_ended(self) -> bool:
        """Whether the job is over."""
        return self._ended.is_set()

    @property
    def is_over(self) -> bool:
        """Whether the job takes nothing more: it has ended, or has just begun to."""
        return self.has_ended or self.machine.ended is not None

    async def wait_ended(self) -> JobResult:
        """Wait for the end of the job, however it ends, and return its result."""
        await self._ended.wait()
        assert self._result is not None
        return self._result

    def stop(self, reason: str = "it was asked to stop", *, drain: bool = False) -> None:
        """Cancel what runs and start nothing more (GSPC19 2.5 ``stop``); with ``drain`` let what runs end."""
        self.inbox.put(Stop(str(reason), drain))

    def cancel(self, task_ids: Sequence[TaskId]) -> None:
        """Cancel these tasks, wherever they are."""
        self.inbox.put(CancelTasks(tuple(task_ids)))

    def retry(self, task_id: TaskId) -> None:
        """Give a failed task a new attempt."""
        self.inbox.put(RetryTask(task_id))

    def look(self) -> None:
        """Tell the job that its engine has something new."""
        self.inbox.put(Look())

    def restored(self) -> None:
        """Tell the job that lost data has been made again."""
        self.inbox.put(Restored())

    def close(self, port: str = "") -> None:
        """Say that no more tokens will come to an open input port; the job ends when all are closed.

        Args:
            port: name of the port; "" for all that are open.

        Raises:
            ValueError: there is no such input port, or it was never open.
        """
        if self.ports is None:
            self.inbox.put(Close())
            return
        ports = self.ports.ports
        if port and port not in ports.received:
            there = ", ".join(ports.received) or "none"
            raise ValueError(
                f"no open input port {port!r}{did_you_mean(port, ports.received)}; there are: {there}"
            )
        for name in [port] if port else list(ports.open):
            ports.close(name)
        self.look()

    def output(self, task_id: TaskId) -> tuple[str, str]:
        """Return what is kept of what a task has printed: standard output and error, as text.

        Of each the last 1 MiB is kept, of all tasks 32 MiB, of those that failed the longest. It begins with
        what earlier attempts have printed; a line says how each of them ended. What a running
        task has printed is known while somebody follows it (``show_output``).
        """
        return self.printed.of(task_id)

    def want_output(self, until_s: float) -> None:
        """Have running tasks asked for what they print, until then (seconds of trio's clock)."""
        self._output_until_s = max(self._output_until_s, until_s)
        self._output_wanted.set()
        if self._on_output_wanted is not None:
            self._on_output_wanted(self._output_until_s)

    def tell_output_wanted(self, told: Callable[[float], None]) -> None:
        """Tell from now on whenever somebody wants to know it, and until when."""
        self._on_output_wanted = told
        told(self._output_until_s)

    def is_output_wanted(self) -> bool:
        """Return whether running tasks are asked what they print."""
        return self._output_until_s > trio.current_time()

    async def output_wanted(self) -> None:
        """Wait until somebody wants to know what running tasks print."""
        while not self.is_output_wanted():
            self._output_wanted = trio.Event()
            await self._output_wanted.wait()

    async def memory_status(self) -> MemoryStatus:
        """Return the state of the memory layer in which the job's data is."""
        if self.ask_memory is None:
            return MemoryStatus()
        with trio.move_on_after(MEMORY_TIMEOUT_S):
            with suppress(ImlError):
                return await self.ask_memory()
        return MemoryStatus()

    def put(self, port: str, values: Iterable[object]) -> None:
        """Add tokens to an input port while the job runs.

        Args:
            port: name of the port.
            values: of the tokens.

        Raises:
            ValueError: the job is over, or is no workflow's.
            WorkflowError: there is no such input port, it is closed, or ``values`` is no list.
            BadValue: one of them cannot be sent; none is added.
        """
        self._taking().put(port, values)
        self.look()

    async def wait_journaled(self) -> None:
        """Wait until the journal has what was put, closed and taken off so far, if the job has a journal."""
        if self.journaled is not None:
            await self.journaled()

    async def ask(self, port: str, value: object, *, shown: str = "") -> Value:
        """Add a token to an input port, and return what the workflow answers to it.

        A transition answers that takes this token and has the output arc ``respond(input)``.

        Args:
            port: name of the port.
            value: of the token.
            shown: the value as messages show it; by default as Python does.

        Raises:
            ValueError: the job is over, or is no workflow's.
            WorkflowError: there is no such input port, or it is closed.
            BadValue: the value cannot be sent.
            NotAnswered: no transition has answered, and none can any more.
        """
        ports = self._taking()
        question = OpenQuestion(f"{shown or repr(value):.100} at {port!r} of {self.job_id}")
        ports.put(port, [value], Asker(question.told))
        self.look()
        return await open_token(ports, await question.wait(self))

    def _taking(self) -> OutputPorts:
        """Return the ports of a job that takes tokens."""
        if self.ports is None or self.is_over:
            why = "it is over" if self.ports is not None else "it runs no workflow"
            raise ValueError(f"{self.job_id} takes no tokens: {why}")
        return self.ports

    async def results_so_far(self, port: str = "") -> list[Value]:
        """Return the values that are at an output port now, oldest first.

        Args:
            port: name of the port; "" for the only one.

        Raises:
            ValueError: there is no such port.
        """
        port = checked_port(self.ports, port)
        assert self.ports is not None
        ports = self.ports
        return [await open_token(ports, token) for token in ports.output_tokens(port, 0)]

    async def dump(self) -> dict[str, Plain]:
        """Return the state of the workflow now as plain data for JSON (WE-2).

        ``open_job(net, dump=...)`` starts a job where this one stood; tasks that have not finished are run
        again. Under ``not_said`` it lists the values that JSON cannot hold, with which no job can be
        started: objects of classes, arrays, data in a memory layer.

        Raises:
            ValueError: the job runs no workflow, but what an executor was given.
        """
        if self.ports is None:
            raise ValueError(f"{self.job_id} runs no workflow: there is no net whose state could be dumped")
        from gspc_trio.workflow.plain_dump import plain_dump  # only here: an executor has no net

        state = self.ports.dump()
        return await trio.to_thread.run_sync(plain_dump, self.machine.name, state, _loads_if_here)

    def serve(self, name: str, function: Callable[..., object]) -> None:
        """Offer a function (plain or async) to clients under ``name`` (APP-2).

        They call it with ``gspc-jobserver call`` or ``rts.call``; it runs in the process of the job server.

        Raises:
            ValueError: the name is taken.
        """
        if name in self.functions:
            raise ValueError(f"a function is served under the name {name!r} already")
        self.functions[name] = function

    def status(self) -> JobStatus:
        """Return how far the job is: its state, its tasks by state, seconds since it began."""
        ended = self._result or self.machine.ended
        return JobStatus(
            self.job_id,
            self.machine.name,
            self._pid,
            ended.state if ended else "running",
            ended.detail if ended else "",
            dict(self.machine.counts()),
            self._result.elapsed_s if self._result else trio.current_time() - self._begun_s,
        )

    def cache_counts(self) -> CacheCounts | None:
        """Return what the job's cache was good for so far; None if it has none."""
        return None if self.cache is None else self.cache.counts()

    def _counts(self) -> dict[str, int]:
        return {str(state): number for state, number in self.machine.counts().items()}

    def _describe(self, result: JobResult) -> str:
        """Say in a few lines why the job did not finish."""
        if not result.failures:
            return f"job {self.job_id} ({self.machine.name}) {result.state}: {result.detail}"
        tasks = result.tasks.get("failed", 0)
        what = f"{tasks} of its tasks failed" if tasks else "not all of its transitions could fire"
        lines = [f"job {self.job_id} ({self.machine.name}) failed: {what}"]
        lines += describe_failures(result.failures, self.host_of)
        return "\n".join(lines)

    def _look(self, to_file: bool, watched: bool) -> bool:
        """Record as closely as is worth it; return whether to look again soon though nothing was recorded."""
        now, scheduler, records = trio.current_time(), self.machine.scheduler, self.records
        ended, live = self._items.numbers(scheduler.ended, scheduler.live)
        mode = self._watching.decide(now, watched=watched, ended=ended, live=live)
        recorded = Watched(to_file or mode is Mode.EACH)
        folded = records.folds_tasks
        records.folds_tasks = mode is Mode.EACH  # before the machine tells of tasks
        if recorded != self._recorded:
            self._recorded = recorded
            self.inbox.put(recorded)
        if to_file and records.folds_tasks and not folded:
            records.renew(self._items.glance(now, None))
        if mode is Mode.GLANCES and now - self._glanced_s >= GLANCE_INTERVAL_S and self.machine.ended is None:
            self._glanced_s = now
            records.renew(self._items.glance(now, GLANCE_TASKS_MAX))
        elif mode is Mode.EACH:
            records.renew(self._items.news(now, records.progress.jobs.get(self.job_id)))
        return mode is Mode.GLANCES and self.machine.ended is None

    def items_ended(self, ended: EndedItems) -> None:
        """Tell of calls of a range, of each as if it had been a task of its own."""
        if self.tracer is not None:
            self.tracer.items_ended(ended, time.time())
        if self._recorded.on:
            from gspc_trio.components.job.items_told import records_of  # few jobs need it

            for record in records_of(self.job_id, ended, self.machine.now):
                self.records.append(record)

    def end(self, ended: JobEnded, *, rts_lost: bool = False) -> None:
        """Take down the result, and whether the run-time system has gone; whoever waits goes on."""
        self._rts_lost = rts_lost
        try:
            outputs = self._outputs()
        except ImlError as error:  # a host has gone with a result that no task needed any more
            outputs, lost = {}, f"a result was lost: {error}"
            if ended.state == "finished":
                ended = JobEnded("failed", lost)
            else:
                ended = replace(ended, detail=f"{ended.detail}; {lost}")
        self._result = JobResult(
            ended.state,
            outputs,
            self._counts(),
            trio.current_time() - self._begun_s,
            tuple(self.machine.failures),
            ended.detail,
            self.cache_counts(),
        )
        if self._watching.mode is Mode.GLANCES:  # so that those who watch know how it has ended
            self.records.renew(self._items.glance(trio.current_time(), GLANCE_TASKS_MAX))
        elif self._watching.mode is Mode.EACH:
            known = self.records.progress.jobs.get(self.job_id)
            self.records.renew(self._items.news(trio.current_time(), known))
        self._ended.set()
        if self.news is not None:
            self.news.set()


def _loads_if_here(data: bytes) -> Value:
    """Return the value that data stands for, unless that lies elsewhere."""
    if is_reference(data):
        raise ValueError("data in a memory layer")
    return loads(data)


def _exit_status(message: str) -> int | None:
    """Return the status of a compute process of whose end a message tells, less than 0 for a signal."""
    found = _PROCESS_END.search(message)
    if found is None:
        return None
    status, name = found.groups()
    return int(status) if status else -getattr(signal, name, 0) or None
