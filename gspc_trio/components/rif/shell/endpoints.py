"""Endpoints of single workers, opened on request (RIF-4): an address and a secret for one grant.

Whoever has it speaks to that worker over a connection of its own, beside the one connection of a scheduler
that reaches all workers of the host. It may do there what its grant allows, and nothing else: the same fence
watches. The endpoint closes with its connection, with its job, when the grant is revoked, and when a newer
grant is used on the resource.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

import trio
from msgspec import Struct, field

from gspc_trio.components.rif.messages import Endpoint, OpenEndpoint
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.messages import Cancel, DefineCode, OpenJob, Submit, TakeBack, ToTask
from gspc_trio.core.ids import GrantId, JobId, ResourceId
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, drop_offender
from gspc_trio.protocol.address import MemoryAddress, WebSocketAddress, parse_address

UNUSED_S = 10.0
"""An endpoint to which nobody connects for so long is closed."""

ENDPOINTS_MAX = 1024
"""So many are open at a time."""


class WorkerEndpoint(Struct, eq=False):
    """What may come over the connection to one worker.

    Attributes:
        owner: the job whose grant it is.
        job: as which its work goes here, so that it mixes with nobody's.
        resource_id, grant_id: of the worker, and the grant.
        scope: in which it listens.
        peer: its connection, once there is one.
        reason: why it was closed, or "".
    """

    owner: JobId
    job: JobId
    resource_id: ResourceId
    grant_id: GrantId
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    peer: Peer | None = None
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.resource_id} under {self.grant_id}"

    def allows(self, message: object) -> bool:
        """Return whether this may be said here."""
        if isinstance(message, OpenJob):
            return message.job == self.job and not message.adopts and not message.grace_s
        if isinstance(message, Submit):
            return message.resources == (self.resource_id,) and message.grant_id == self.grant_id
        if isinstance(message, Cancel | TakeBack):
            return message.resource_id == self.resource_id
        if isinstance(message, ToTask):
            return message.job == self.job
        return isinstance(message, DefineCode)

    def close(self, reason: str) -> None:
        """End it, and its connection."""
        self.reason = reason
        if self.peer is not None:
            self.peer.drop(reason)
        self.scope.cancel()


class Endpoints:
    """The endpoints of one RIF's workers.

    Args:
        network, address: of the RIF: endpoints listen where it does.
        objection: returns why a grant is not honoured on a resource, or "".
        serve: serves a connection over an endpoint.
    """

    def __init__(
        self,
        network: Network,
        address: str,
        objection: Callable[[ResourceId, GrantId], str],
        serve: Callable[[Peer, WorkerEndpoint], Awaitable[None]],
    ) -> None:
        self._network = network
        self._where = parse_address(address)
        self._objection = objection
        self._serve = serve
        self._open: dict[JobId, WorkerEndpoint] = {}

    async def open(self, call: IncomingCall, asked: OpenEndpoint) -> None:
        """Open an endpoint, tell how it is reached, and serve it until it is closed."""
        problem = self._objection(asked.resource_id, asked.grant_id)
        if problem or len(self._open) >= ENDPOINTS_MAX:
            problem = problem or f"there may be {ENDPOINTS_MAX} endpoints at one time, and there are"
            call.fail(PermissionError(problem))
            return
        name = f"{asked.job}.{secrets.token_hex(4)}"
        endpoint = self._open[name] = WorkerEndpoint(asked.job, name, asked.resource_id, asked.grant_id)
        await self._listen(call, endpoint)

    async def _listen(self, call: IncomingCall, endpoint: WorkerEndpoint) -> None:
        """Answer the call, and serve the endpoint until it is closed."""
        network, where = self._network, f"memory:{endpoint.job}"
        token = b""
        if isinstance(self._where, WebSocketAddress):
            token = secrets.token_bytes(32)
            network = Network(
                wire_codec,
                token,
                credentials=network.credentials,
                limits=network.limits,
                buffers=network.buffers,
            )
            where = str(WebSocketAddress(self._where.host, 0, self._where.secure))
        else:
            assert isinstance(self._where, MemoryAddress)

        async def serve(peer: Peer) -> None:
            if peer.role != "job" or endpoint.peer is not None:
                drop_offender(peer, f"an endpoint of {endpoint.resource_id} serves one job, once")
                return
            endpoint.peer, endpoint.scope.deadline = peer, float("inf")
            try:
                await self._serve(peer, endpoint)
            finally:
                endpoint.scope.cancel()

        answered = False
        async with trio.open_nursery() as nursery:
            with endpoint.scope:
                try:
                    address = await _listening(network, where, serve, nursery)
                    await trio.lowlevel.checkpoint_if_cancelled()  # closed just when it had opened
                    endpoint.scope.deadline = trio.current_time() + UNUSED_S
                    call.reply(Endpoint(address, token, endpoint.job))
                    answered = True
                    await trio.sleep_forever()
                except OSError as error:
                    call.fail(error)
                    answered = True
                finally:
                    del self._open[endpoint.job]
            if not answered:  # it was closed while it opened
                call.fail(PermissionError(endpoint.reason))
            nursery.cancel_scope.cancel()

    def check_fences(self) -> None:
        """Close those whose grant is not honoured any more."""
        for endpoint in list(self._open.values()):
            problem = self._objection(endpoint.resource_id, endpoint.grant_id)
            if problem:
                endpoint.close(problem)

    def close_of(self, job: JobId) -> None:
        """Close those of a job that is over."""
        for endpoint in list(self._open.values()):
            if endpoint.owner == job:
                endpoint.close(f"job {job} is over")


async def _listening(
    network: Network, where: str, serve: Callable[[Peer], Awaitable[None]], nursery: trio.Nursery
) -> str:
    """Listen in a nursery, and return at which address."""

    async def listen(task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        await network.listen(where, serve, role="worker", name="worker", task_status=task_status)

    address: str = await nursery.start(listen)
    return address
