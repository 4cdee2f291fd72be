"""The clients of a job server: what they ask of its tasks and its workflow, and the answers."""

from __future__ import annotations

import functools
import inspect
import json
import reprlib
from collections.abc import Callable

import trio
from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.job.messages import (
    ApplicationCall,
    ApplicationReply,
    AskWorkflow,
    CancelTask,
    ClosePort,
    DumpPart,
    GetDump,
    GetFunctions,
    GetJobStatus,
    GetMemory,
    GetNet,
    GetOutput,
    GetTask,
    GetTaskOutput,
    LocationStatus,
    OfferedFunction,
    OfferedFunctions,
    PutToken,
    RetryFailed,
    StopJob,
    TaskDetails,
    WaitJob,
)
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.output import OutputFollower
from gspc_trio.core.frames import innermost_line
from gspc_trio.core.ids import TaskId
from gspc_trio.core.messages import Done
from gspc_trio.core.task import Shape, TaskState
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone
from gspc_trio.protocol.values import RAISED_BY_USERS, dumps, loads
from gspc_trio.records.facts import TaskChanged
from gspc_trio.records.messages import Watch
from gspc_trio.records.progress import JobProgress
from gspc_trio.records.shell.stream import Watcher
from gspc_trio.workflow.tokens import Plain

LAST_QUESTION_S = 1.0
"""How long whoever follows the output may take to ask for the end of it, when the job is over."""

DUMP_PART_BYTES = 1024 * 1024
"""Bytes of a dump that travel at a time."""

INPUTS_SHOWN_MAX = 20
"""Arguments of a task that are shown."""

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 300
_brief.maxlist = _brief.maxtuple = _brief.maxdict = 20


class NotServed(LookupError):
    """The job offers no function of that name."""


class _Client(Struct, eq=False):
    """One connection, and how many of its questions wait for an answer."""

    peer: Peer
    open_calls: int = 0
    idle: trio.Event = field(default_factory=trio.Event)
    follows: bool = False
    told_all: trio.Event = field(default_factory=trio.Event)
    dump: bytes = b""

    def told(self, over: bool) -> None:
        """It has been told of output; unless that was the end, it will ask for what follows."""
        self.follows = not over
        if over:
            self.told_all.set()

    async def see_off(self) -> None:
        """Wait until it has all its answers, and close its connection."""
        if self.follows:
            with trio.move_on_after(LAST_QUESTION_S):
                await self.told_all.wait()
        if self.open_calls:
            self.idle = trio.Event()
            await self.idle.wait()
        await self.peer.aclose()


class JobClients:
    """Answers the clients of one job server.

    Args:
        job: of which they ask.
        follower: tells what tasks print.
        explain: says how the run-time systems are for tasks of a shape, in a job on several; or None.
        locations: returns how each of them is, in such a job; or None.
    """

    def __init__(
        self,
        job: Job,
        follower: OutputFollower,
        explain: Callable[[Shape], str] | None = None,
        locations: Callable[[], tuple[LocationStatus, ...]] | None = None,
    ) -> None:
        self.job = job
        self._follower = follower
        self._explain = explain
        self._locations = locations
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
            if isinstance(call.body, GetOutput | GetTaskOutput):
                await self._tell_output(client, call, call.body)
            elif isinstance(call.body, GetDump):
                await self._tell_state(client, call, call.body.seen)
            else:
                await self._reply(call)
        finally:
            client.open_calls -= 1
            if not client.open_calls:
                client.idle.set()

    async def _tell_output(
        self, client: _Client, call: IncomingCall, asked: GetOutput | GetTaskOutput
    ) -> None:
        found = (
            await self._follower.lines_for(asked)
            if isinstance(asked, GetOutput)
            else await self._follower.task_output(asked)
        )
        call.reply(found)
        client.told(found.over or not asked.wait)

    async def _tell_state(self, client: _Client, call: IncomingCall, seen: int) -> None:
        try:
            if not seen:
                state = await self.job.dump()
                client.dump = await trio.to_thread.run_sync(_json_of, state)
        except ValueError as error:
            call.fail(error)
            return
        end = seen + DUMP_PART_BYTES
        over = end >= len(client.dump)
        call.reply(DumpPart(client.dump[seen:end], over))
        if over:
            client.dump = b""

    async def _reply(self, call: IncomingCall) -> None:
        body, job = call.body, self.job
        if isinstance(body, GetJobStatus):
            told_of = () if self._locations is None else self._locations()
            call.reply(replace(job.status(), locations=told_of))
        elif isinstance(body, StopJob):
            job.stop("a client asked it to stop", drain=body.drain)
            call.reply(Done())
        elif isinstance(body, CancelTask):
            job.cancel(body.task_ids)
            call.reply(Done())
        elif isinstance(body, RetryFailed):
            self._retry(call, body.task_id)
        elif isinstance(body, GetTask):
            told = await describe_at_work(job, body.task_id, self._follower)
            task = job.machine.scheduler.task(body.task_id)
            if task is not None and self._explain is not None:
                told = replace(told, why=f"{told.why}; {self._explain(task.shape)}")
            call.reply(told)
        elif isinstance(body, GetNet):
            call.reply(job.machine.engine.describe())
        elif isinstance(body, GetMemory):
            call.reply(await job.memory_status())
        elif isinstance(body, WaitJob):
            await job.wait_ended()
            call.reply(job.status())
        elif isinstance(body, PutToken | AskWorkflow | ClosePort):
            await self._move_tokens(call, body)
        elif isinstance(body, ApplicationCall):
            await self._call_application(call, body)
        elif isinstance(body, GetFunctions):
            served = sorted(job.functions.items())
            call.reply(OfferedFunctions(tuple(describe_function(*named) for named in served)))
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

    async def _move_tokens(self, call: IncomingCall, body: PutToken | AskWorkflow | ClosePort) -> None:
        from gspc_trio.workflow.ports import JsonNotation  # only here: an executor has no ports

        job = self.job
        notation = job.notation or JsonNotation()
        try:
            if isinstance(body, ClosePort):
                job.close(body.port)
                await job.wait_journaled()
                call.reply(Done())
                return
            value = notation.parse_value(body.port, body.text)
            if isinstance(body, PutToken):
                job.put(body.port, [value])
                await job.wait_journaled()
                call.reply(Done())
            else:
                answer = await job.ask(body.port, value, shown=body.text)
                await job.wait_journaled()
                call.reply(ApplicationReply(dumps(notation.show_value(body.port, answer))))
        except (ValueError, LookupError) as error:  # closed, unknown, badly written, not answered
            call.fail(error)

    async def _call_application(self, call: IncomingCall, body: ApplicationCall) -> None:
        functions = self.job.functions
        function = functions.get(body.name)
        if function is None:
            offered = ", ".join(sorted(functions)) or "nothing"
            call.fail(NotServed(f"this job does not serve {body.name!r}; it serves {offered}"))
            return
        try:
            positional, by_name = loads(body.arguments)
            value = function(*positional, **by_name)
            if hasattr(value, "__await__"):
                value = await value
            call.reply(ApplicationReply(dumps(value)))
        except RAISED_BY_USERS as error:
            call.fail(error, innermost_line(error))


def _json_of(state: dict[str, Plain]) -> bytes:
    return json.dumps(state, indent=1).encode()


def describe_function(name: str, function: Callable[..., object]) -> OfferedFunction:
    """Return what people need to know to call a function that a job serves."""
    try:
        parameters = str(inspect.signature(function))
    except (TypeError, ValueError):  # one of C that does not tell
        parameters = "(...)"
    while isinstance(function, functools.partial):
        function = function.func
    return OfferedFunction(name, parameters, next(iter((inspect.getdoc(function) or "").splitlines()), ""))


def describe_task(job: Job, task_id: TaskId) -> TaskDetails:
    """Return everything that is still known of a task."""
    scheduler, progress = job.machine.scheduler, job.records.progress.jobs.get(job.job_id)
    record = _last_word(progress, task_id) if progress is not None else None
    task = scheduler.task(task_id)
    stdout, stderr = job.printed.of(task_id)
    errors = (it.outcome.error for it in job.machine.failures if it.task_id == task_id)
    error = next(filter(None, errors), None)
    return TaskDetails(
        task_id,
        why=job.machine.explain(task_id),
        record=record,
        host=job.host_of(record.resource_id) if record is not None else "",
        name=task.name if task is not None else record.name if record is not None else "",
        shape=str(task.shape) if task is not None else "",
        inputs=tuple(map(_text, task.arguments[:INPUTS_SHOWN_MAX])) if task is not None else (),
        stdout=stdout,
        stderr=stderr,
        error=f"{error.kind}: {error.message}" if error is not None else "",
        traceback=error.traceback if error is not None else "",
    )


async def describe_at_work(job: Job, task_id: TaskId, follower: OutputFollower) -> TaskDetails:
    """Return :func:`describe_task`; of a task at a worker also what that tells of it now."""
    told = await follower.ask(task_id)
    details = describe_task(job, task_id)
    return details if told is None else replace(details, phase=told.phase, pid=told.pid)


def _last_word(progress: JobProgress, task_id: TaskId) -> TaskChanged | None:
    for known in (progress.live, progress.failures):
        if task_id in known:
            return known[task_id]
    return next((record for record in progress.lately if record.task_id == task_id), None)


def _text(argument: bytes) -> str:
    """Return an argument as people read it; whatever its own code does wrong is no trouble of ours."""
    try:
        return _brief.repr(loads(argument))
    except Exception as error:
        return f"<{len(argument)} bytes that cannot be shown: {type(error).__name__}>"
