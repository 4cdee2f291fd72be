"""A worker of one's own to speak to, under a grant that one holds (RIF-4)."""

from __future__ import annotations

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

GRANT_OVER = "its grant is over"
"""Why the connection to a worker ends when its grant does."""


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
    """A call that a task waits for."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.outcome: Outcome | None = None

    def end(self, outcome: Outcome | None) -> None:
        self.outcome = outcome
        self.over.set()


def result_of(outcome: Outcome) -> Any:
    """Return what a call has returned.

    Raises:
        CallFailed: it raised, or was lost or refused.
    """
    if outcome.reason is not Reason.FINISHED:
        raise CallFailed(outcome)
    return loads(outcome.values[0][0])


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
        self._held = held
        self._codes: dict[bytes, int] = {}
        self._recent: tuple[Program | None, tuple[str, ...], int] = (None, (), 0)
        self._calls: dict[TaskId, Callable[[Outcome | None], None]] = {}
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
        if self._over():
            await trio.lowlevel.checkpoint()
            raise self._gone()
        call = _Call()
        task_id = self._submit(function, arguments, named or {}, call.end)
        try:
            await call.over.wait()
        except trio.Cancelled:
            self.cancel(task_id)
            if not self._peer.reason:
                with trio.move_on_after(STOP_S, shield=True):
                    await call.over.wait()
            raise
        finally:
            self._calls.pop(task_id, None)
        if call.outcome is None:
            raise self._gone()
        return result_of(call.outcome)

    def begin(
        self, program: Program, named: Mapping[str, object], ended: Callable[[Outcome | None], None]
    ) -> TaskId:
        """Run a program at the worker as :meth:`run` does, without a task that waits.

        Args:
            program: what runs.
            named: values of its placeholders.
            ended: called once with how it has ended, None if the connection is over.

        Returns:
            TaskId: for :meth:`cancel`.

        Raises:
            BadCode, BadValue: it cannot be sent.
            PeerGone: the endpoint was closed.
        """
        if self._over():
            raise self._gone()
        return self._submit(program, (), named, ended)

    def cancel(self, task_id: TaskId) -> None:
        """Have what :meth:`begin` has begun stopped; that it has ended is told as ever."""
        if task_id in self._calls and not self._peer.reason:
            self._peer.post(Cancel(self._job, self.resource_id, ((task_id, 1),)))

    def _submit(
        self,
        function: Callable[..., object] | Program,
        arguments: tuple[object, ...],
        named: Mapping[str, object],
        ended: Callable[[Outcome | None], None],
    ) -> TaskId:
        names = tuple(named)
        if isinstance(function, Program):
            arguments = tuple(named.values())
        recent, recent_names, number = self._recent
        if recent is not function or recent_names != names:  # else it is the program that ran here last
            number = self._number_of(function, names)
            if isinstance(function, Program):
                self._recent = function, names, number
        submission = Submission(self._last + 1, 1, number, tuple(map(dumps, arguments)))
        self._last += 1
        self._calls[self._last] = ended
        self._peer.post(Submit(self._job, self._held.grant_id, (self.resource_id,), (submission,)))
        return submission.task_id

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
            await self._peer.listen(self._take)
        except PeerGone:
            pass
        finally:
            self._closed = True
            while self._calls:
                self._calls.popitem()[1](None)

    def _take(self, message: object) -> None:
        if isinstance(message, Finished):
            for outcome in message.outcomes:
                ended = self._calls.pop(outcome.task_id, None)
                if ended is not None:  # else nobody waits for it any more
                    ended(outcome)
        elif isinstance(message, FromTask):
            self._from_task(message)
        elif not isinstance(message, Begun):
            self._peer.drop(f"a worker does not say {type(message).__name__}")

    def _over(self) -> bool:
        """Return whether nothing can begin here any more; a grant that has ended closes the connection."""
        if _is_over(self._held):
            self._peer.drop(GRANT_OVER)
        return self._closed or bool(self._peer.reason)

    @property
    def reason(self) -> str:
        """Why the connection to the worker is over, if it is."""
        return self._peer.reason or CLOSED_HERE

    def _gone(self) -> PeerGone:
        return PeerGone(self.reason)

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
    if _is_over(held) or (len(held.resources) != 1 and not resource_id):
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
        here = network.process_info()
        peer.post(OpenJob(endpoint.job, tuple(filter(None, here.search_path)), directory or here.directory))
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
    peer.drop(GRANT_OVER)


def _is_over(held: HeldGrant) -> bool:
    return held.lapsed.is_set() or held.released.is_set()
