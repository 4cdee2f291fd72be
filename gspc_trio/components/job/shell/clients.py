"""The clients of a job server: what they ask, and that each has its answer before the server goes."""

from __future__ import annotations

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
from gspc_trio.components.job.shell.details import describe_at_work, describe_workflow, find_tasks
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.core.ids import TaskId
from gspc_trio.core.messages import Done, Status
from gspc_trio.core.task import TaskState
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.records.messages import Watch
from gspc_trio.records.shell.stream import Watcher


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
            call.reply(Status(await job.memory_status()))
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
