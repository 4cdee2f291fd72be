"""A worker of one's own to speak to, under a grant that one holds (RIF-4)."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from gspc_trio.components.rif.messages import OpenEndpoint
from gspc_trio.components.rts.shell.acquire import HeldGrant, Resources
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.messages import (
    Begun,
    Cancel,
    DefineCode,
    Finished,
    FromTask,
    OpenJob,
    Submission,
    Submit,
    ToTask,
)
from gspc_trio.compute.code import function_code, program_code
from gspc_trio.core.code import Program
from gspc_trio.core.ids import JobId, ResourceId, TaskId
from gspc_trio.core.nested import AT_BARRIER, BarrierPlace, NestedBroken, encode
from gspc_trio.core.task import Outcome, Reason
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import CLOSED_HERE, Peer, PeerGone
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.values import dumps, loads

STOP_S = 5.0
"""So long a call that is cancelled waits until the worker says that nothing of it runs any more."""


class CallFailed(Exception):
    """A call at a worker did not finish.

    Attributes:
        kind: type of the error, or ``lost`` or ``refused``.
        outcome: how it ended, with what it has printed.
    """

    def __init__(self, outcome: Outcome) -> None:
        error = outcome.error
        self.kind: str = error.kind if error is not None else outcome.reason.value
        self.outcome = outcome
        super().__init__(f"{self.kind}: {error.message}" if error is not None else self.kind)


class _Call:
    def __init__(self) -> None:
        self.over = trio.Event()
        self.outcome: Outcome | None = None


class DirectWorker:
    """One worker, reached over a connection of its own; made by :func:`open_worker`.

    Attributes:
        resource_id: of the worker.
        address: of its endpoint.
        on_barrier: called when a program has called its barrier, with a function that takes the answer; None:
            there is no barrier.
    """

    def __init__(
        self, peer: Peer, job: JobId, held: HeldGrant, resource_id: ResourceId, address: str
    ) -> None:
        self.resource_id: ResourceId = resource_id
        self.address = address
        self._peer = peer
        self._job = job
        self._grant_id = held.grant_id
        self._codes: dict[bytes, int] = {}
        self._recent: tuple[Program | None, tuple[str, ...], int] = (None, (), 0)
        self._calls: dict[TaskId, _Call] = {}
        self._last = 0
        self.on_barrier: Callable[[Callable[[bytes], None]], None] | None = None
        self._closed = False

    @property
    def codes(self) -> int:
        """How many functions and programs the worker remembers of this connection."""
        return len(self._codes)

    async def run(
        self,
        function: Callable[..., object] | Program,
        *arguments: object,
        named: Mapping[str, object] | None = None,
    ) -> Any:
        """Run a function or program at the worker, and return what it returns; cancelled, stop it first.

        Calls that wait at the same time run one after the other. A program returns a dictionary with
        ``exit_status``, ``stdout`` and ``stderr``.

        Args:
            function: what runs.
            arguments: of a function.
            named: values of the placeholders of a program.

        Raises:
            BadCode, BadValue: the function or an argument cannot be sent.
            CallFailed: it raised, or was lost or refused.
            PeerGone: the endpoint was closed: the grant is over, the host is gone, or the block of
                :func:`open_worker` was left.
        """
        if self._closed or self._peer.reason:
            await trio.lowlevel.checkpoint()
            raise self._gone()
        names = tuple(named or ())
        if isinstance(function, Program):
            arguments = tuple((named or {}).values())
        recent, recent_names, number = self._recent
        if recent is not function or recent_names != names:  # else it is the program that ran here last
            number = self._number_of(function, names)
            if isinstance(function, Program):
                self._recent = function, names, number
        self._last += 1
        task_id, call = self._last, _Call()
        self._calls[task_id] = call
        submission = Submission(task_id, 1, number, tuple(map(dumps, arguments)))
        try:
            self._peer.post(Submit(self._job, self._grant_id, (self.resource_id,), (submission,)))
            await call.over.wait()
        except trio.Cancelled:
            if not self._peer.reason:
                self._peer.post(Cancel(self._job, self.resource_id, ((task_id, 1),)))
                with trio.move_on_after(STOP_S, shield=True):
                    await call.over.wait()
            raise
        finally:
            del self._calls[task_id]
        if call.outcome is None:
            raise self._gone()
        if call.outcome.reason is not Reason.FINISHED:
            raise CallFailed(call.outcome)
        return loads(call.outcome.values[0][0])

    def _number_of(self, function: Callable[..., object] | Program, names: tuple[str, ...]) -> int:
        """Return the number of a function or program at the worker, which is told of a new one."""
        code = program_code(function, names) if isinstance(function, Program) else function_code(function)
        number = self._codes.get(code)
        if number is None:
            number = self._codes[code] = len(self._codes) + 1
            self._peer.post(DefineCode(self._job, number, code))
        return number

    async def wait_gone(self) -> None:
        """Wait until the connection to the worker is over."""
        await self._peer.lost.wait()

    def barrier_place(self, address: str) -> BarrierPlace:
        """Return where the program of the next call calls its barrier.

        Args:
            address: of the socket of its host, as ``current_address`` returns it there.
        """
        return BarrierPlace(address, self._job, self._last + 1)

    async def listen(self) -> None:
        """Take what the worker says, until its endpoint is closed."""
        try:
            while True:
                for message in await self._peer.receive():
                    if isinstance(message, Finished):
                        for outcome in message.outcomes:
                            self._end(outcome.task_id, outcome)
                    elif isinstance(message, FromTask):
                        self._from_task(message)
                    elif not isinstance(message, Begun):
                        self._peer.drop(f"a worker does not say {type(message).__name__}")
        except PeerGone:
            pass
        finally:
            self._closed = True
            for call in self._calls.values():
                call.over.set()

    def _gone(self) -> PeerGone:
        return PeerGone(self._peer.reason or CLOSED_HERE)

    def _from_task(self, message: FromTask) -> None:
        """Take that a program is at its barrier; tell a task that calls current_executor() that nobody here
        could run others for it."""
        if self.on_barrier is not None and message.data:
            if message.data == AT_BARRIER:  # else it says which program it is
                self.on_barrier(lambda answer: self._peer.post(ToTask(message.job, message.session, answer)))
        elif message.data:
            refusal = encode(NestedBroken("it was called by open_worker, at one worker alone"))
            for data in (refusal, b""):
                self._peer.post(ToTask(message.job, message.session, data))

    def _end(self, task_id: TaskId, outcome: Outcome) -> None:
        call = self._calls.get(task_id)
        if call is not None:  # else nobody waits for it any more
            call.outcome = outcome
            call.over.set()


@asynccontextmanager
async def open_worker(
    rts: RunTimeSystem,
    resources: Resources,
    held: HeldGrant,
    resource_id: ResourceId = "",
    *,
    directory: str = "",
) -> AsyncIterator[DirectWorker]:
    """Speak to the worker of a resource that is held, over a connection of its own, while the block runs.

    The worker's endpoint has an address and a secret for this grant alone. It is closed at the end of the
    block, and when the grant ends: what runs there is stopped then.

    Args:
        rts: the run-time system.
        resources: by which the resource was acquired.
        held: the grant.
        resource_id: which of its resources; "" if it is of one.
        directory: working directory, where it exists there; "": that of this process.

    Raises:
        ValueError: the grant is over, or is not of this resource, or of several if none is named.
        RemoteError: the host has gone, or does not honour the grant.
        ConnectionProblem: the endpoint cannot be reached from here.
    """
    if held.lapsed.is_set() or (len(held.resources) != 1 and not resource_id):
        raise ValueError(f"{held} is over, or of several resources: an endpoint is for a grant of one")
    name = resource_id or held.resources[0]
    if name not in held.resources:
        raise ValueError(f"{held} is not of {name}")
    asked = OpenEndpoint(resources.job, name, held.grant_id)
    endpoint = await rts.peer.call(asked)
    network = rts.network
    if not endpoint.address.startswith("memory:"):
        network = Network(
            wire_codec, endpoint.token, credentials=network.credentials, buffers=network.buffers
        )
    connection = network.connect(endpoint.address, role="job", name="direct", expect="worker")
    async with connection as peer, open_scope() as nursery:
        peer.post(OpenJob(endpoint.job, tuple(filter(None, sys.path)), directory or os.getcwd()))
        worker = DirectWorker(peer, endpoint.job, held, name, endpoint.address)
        nursery.start_soon(worker.listen)
        for end in (held.lapsed, held.released):
            nursery.start_soon(_close_after, end, peer)
        try:
            yield worker
        finally:
            nursery.cancel_scope.cancel()


async def _close_after(end: trio.Event, peer: Peer) -> None:
    await end.wait()
    peer.drop("its grant is over")
