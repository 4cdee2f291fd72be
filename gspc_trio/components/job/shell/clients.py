"""The clients of a job server: what they ask of its tasks and its workflow, and the answers."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from typing import Any

import trio
from attrs import define, field

from gspc_trio.components.job.messages import (
    ApplicationCall,
    ApplicationReply,
    CancelTask,
    FindTasks,
    GetJobStatus,
    GetMemory,
    GetNet,
    GetTask,
    RetryFailed,
    StopJob,
    WaitJob,
)
from gspc_trio.components.job.shell.handle import Job, decoded
from gspc_trio.components.worker.messages import AttemptStatus, GetAttempt
from gspc_trio.core.ids import TaskId
from gspc_trio.core.messages import Done, Status
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.records.facts import TaskChanged
from gspc_trio.records.messages import Watch
from gspc_trio.records.progress import JobProgress
from gspc_trio.records.shell.stream import Watcher

INPUTS_SHOWN_MAX = 20
"""Arguments of a task that are shown."""

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 300
_brief.maxlist = _brief.maxtuple = _brief.maxdict = 20


@define(eq=False)
class _Client:
    """One connection, and how many of its questions wait for an answer."""

    peer: Peer
    open_calls: int = 0
    idle: trio.Event = field(factory=trio.Event)

    async def see_off(self) -> None:
        """Wait until it has all its answers, and close its connection."""
        if self.open_calls:
            self.idle = trio.Event()
            await self.idle.wait()
        await self.peer.aclose()


class JobClients:
    """Answers the clients of one job server.

    Args:
        job: of which they ask.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._clients: dict[_Client, None] = {}

    async def serve(self, peer: Peer) -> None:
        """Answer one client until it goes."""
        client = _Client(peer)
        watcher = Watcher()
        self._clients[client] = None
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    for message in await peer.receive():
                        if isinstance(message, Watch):
                            if not watcher.fed:
                                watcher.fed = True
                                nursery.start_soon(self.job.records.feed, peer, watcher)
                            watcher.add_credit(message.credit)
                        elif isinstance(message, IncomingCall):
                            client.open_calls += 1
                            nursery.start_soon(self._answer, client, message)
        except* PeerGone:
            pass
        finally:
            self._clients.pop(client, None)

    async def see_off(self) -> None:
        """Wait until all clients have their answers, and close their connections."""
        async with trio.open_nursery() as nursery:
            for client in list(self._clients):
                nursery.start_soon(client.see_off)

    async def _answer(self, client: _Client, call: IncomingCall) -> None:
        try:
            await self._reply(call)
        finally:
            client.open_calls -= 1
            if not client.open_calls:
                client.idle.set()

    async def _reply(self, call: IncomingCall) -> None:
        body, job = call.body, self.job
        if isinstance(body, GetJobStatus):
            call.reply(Status(job.status()))
        elif isinstance(body, StopJob):
            job.stop("a client asked it to stop", drain=body.drain)
            call.reply(Done())
        elif isinstance(body, CancelTask):
            job.cancel(body.task_ids)
            call.reply(Done())
        elif isinstance(body, RetryFailed):
            self._retry(call, body.task_id)
        elif isinstance(body, GetTask):
            call.reply(Status(await describe_at_work(job, body.task_id)))
        elif isinstance(body, FindTasks):
            call.reply(Status(find_tasks(job, body.text, body.states, body.limit)))
        elif isinstance(body, GetNet):
            call.reply(Status(describe_workflow(job)))
        elif isinstance(body, GetMemory):
            call.reply(await job.memory_status())
        elif isinstance(body, WaitJob):
            await job.wait_ended()
            call.reply(Status(job.status()))
        elif isinstance(body, ApplicationCall):
            await self._call_application(call, body)
        else:
            call.fail(ValueError(f"a job server does not answer {type(body).__name__}"))

    def _retry(self, call: IncomingCall, task_id: TaskId) -> None:
        job = self.job
        state = job.machine.scheduler.state_of(task_id)
        if job.has_ended or state is not TaskState.FAILED:
            why = "the job is over" if job.has_ended else f"it is {state or 'not there any more'}"
            call.fail(ValueError(f"task {task_id} gets no new attempt: {why}"))
            return
        job.retry(task_id)
        call.reply(Done())

    async def _call_application(self, call: IncomingCall, body: ApplicationCall) -> None:
        functions = self.job.functions
        function = functions.get(body.name)
        if function is None:
            offered = ", ".join(sorted(functions)) or "nothing"
            call.fail(LookupError(f"this job does not serve {body.name!r}; it serves {offered}"))
            return
        try:
            value = function(loads(body.argument))
            if hasattr(value, "__await__"):
                value = await value
            call.reply(ApplicationReply(dumps(value)))
        except Exception as error:
            call.fail(error)


def describe_task(job: Job, task_id: TaskId) -> dict[str, Any]:
    """Return everything that is still known of a task.

    ``task_id``, ``name``, ``state``, ``attempt``, ``resource_id``, ``host``, ``detail``, ``started_s``,
    ``duration_s``, ``why`` (what it waits for, or where it runs), ``shape``, ``inputs`` (texts), ``stdout``,
    ``stderr``, ``error``, ``traceback``. Of tasks that finished long ago little is kept.
    """
    scheduler, progress = job.machine.scheduler, job.records.progress.jobs.get(job.job_id)
    data: dict[str, Any] = {"task_id": task_id, "why": scheduler.explain(task_id)}
    record = _last_word(progress, task_id) if progress is not None else None
    if record is not None:
        data |= _row(job, record)
    task = scheduler.task(task_id)
    if task is not None:
        data |= {"name": task.name, "shape": str(task.shape)}
        data["inputs"] = [_text(argument) for argument in task.arguments[:INPUTS_SHOWN_MAX]]
    data["stdout"], data["stderr"] = job.printed.of(task_id)
    for failure in job.machine.failures:
        if failure.task_id == task_id and failure.outcome.error is not None:
            error = failure.outcome.error
            data |= {"error": f"{error.kind}: {error.message}", "traceback": error.traceback}
    return data


async def describe_at_work(job: Job, task_id: TaskId) -> dict[str, Any]:
    """Return :func:`describe_task`; of a task at a worker also what that tells of it now.

    That is ``phase`` (``waiting``, ``stage_in``, ``compute`` or ``stage_out``), ``pid`` (the process that
    computes) and what it has printed so far.
    """
    data = describe_task(job, task_id)
    at_worker = job.machine.scheduler.attempt_of(task_id)
    if at_worker is not None and job.ask_worker is not None:
        resource_id, attempt = at_worker
        told = await job.ask_worker(resource_id, GetAttempt(job.job_id, resource_id, task_id, attempt))
        if isinstance(told, AttemptStatus) and told.phase:
            data |= {"phase": told.phase, "pid": told.pid}
            if told.phase == "compute":
                data["stdout"], data["stderr"] = map(decoded, (told.stdout, told.stderr))
    return data


def find_tasks(job: Job, text: str, states: tuple[str, ...], limit: int) -> dict[str, Any]:
    """Return ``tasks``, those that are known by name and fit, and ``more``: whether there are others."""
    progress = job.records.progress.jobs.get(job.job_id)
    found: list[dict[str, Any]] = []
    for record in _known(progress) if progress is not None else ():
        if (not states or record.state.value in states) and (not text or _contains(record, text.lower())):
            if len(found) == limit:
                return {"tasks": found, "more": True}
            found.append(_row(job, record))
    return {"tasks": found, "more": False}


def describe_workflow(job: Job) -> dict[str, Any]:
    """Return the net and how far it is; ``places`` and ``transitions`` are empty where there is no net."""
    return {**job.machine.engine.describe(), "name": job.machine.name}


def _known(progress: JobProgress) -> Iterator[TaskChanged]:
    """Yield the last words on tasks, those that matter most first."""
    yield from progress.running.values()
    yield from progress.failures.values()
    yield from (record for name, record in progress.live.items() if name not in progress.running)
    yield from reversed(progress.lately)


def _last_word(progress: JobProgress, task_id: TaskId) -> TaskChanged | None:
    for known in (progress.live, progress.failures):
        if task_id in known:
            return known[task_id]
    return next((record for record in progress.lately if record.task_id == task_id), None)


def _contains(record: TaskChanged, text: str) -> bool:
    words = (str(record.task_id), record.name, record.resource_id, record.detail)
    return any(text in word.lower() for word in words)


def _row(job: Job, record: TaskChanged) -> dict[str, Any]:
    return {
        "task_id": record.task_id,
        "name": record.name,
        "state": record.state.value,
        "attempt": record.attempt,
        "resource_id": record.resource_id,
        "host": job.host_of(record.resource_id),
        "detail": record.detail,
        "at_s": record.at_s,
        "started_s": record.started_s,
        "duration_s": record.duration_s,
    }


def _text(argument: bytes) -> str:
    """Return an argument as people read it; whatever its own code does wrong is no trouble of ours."""
    try:
        return _brief.repr(loads(argument))
    except Exception as error:
        return f"<{len(argument)} bytes that cannot be shown: {type(error).__name__}>"
