"""The resource manager as a process of its own.

It serves a run-time system that runs elsewhere (RTS-4), or is one of several that share hosts (ASP-11). Then
its run-time system starts it, and it reads its order, a line of JSON, on standard input.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from msgspec.structs import replace

from gspc_trio.components.managers.messages import (
    MANAGER_ROLE,
    BeginManaging,
    ManagerClaim,
    ManagerHere,
    ManagerOrder,
)
from gspc_trio.components.rm.events import Added, Awaited, Numbering, Removed, RmAction, RmEvent
from gspc_trio.components.rm.explain import Explained, ExplainJob, GetManagerStatus
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Grant, GrantsAhead, ManagerReady, Offence, Revoked, ServeRts
from gspc_trio.components.rm.shell.service import FROM_JOBS, AnsweringManager, ToRts
from gspc_trio.components.rts.events import RmAnswered
from gspc_trio.components.rts.messages import StopRts
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.messages import Done
from gspc_trio.nursery.connections.network import ConnectFailed, Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone, RemoteError, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.nursery.scopes.process import open_process
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.policies.placement import FIFO
from gspc_trio.protocol.address import BadAddress
from gspc_trio.protocol.plain import BadPlainData, from_json, to_json
from gspc_trio.records.facts import GrantChanged, ResourceChanged
from gspc_trio.records.messages import RecordBatch
from gspc_trio.version import SOURCES

log: logging.Logger = logging.getLogger(__name__)

ORDER_BYTES_MAX = 1 << 16
"""Longest order."""

TERMINATE_GRACE_S = 0.5
"""How long the process may take to end when it is told to; then it is killed."""

MANAGER_PROGRAM = f"""
import sys
sys.path.append({str(SOURCES)!r})
from gspc_trio.components.rm.shell.server import main
sys.exit(main())
"""

MANAGER_COMMAND = (sys.executable, "-P", "-c", MANAGER_PROGRAM)
"""Without the working directory on the path, in which a user's module may have the name of one of ours."""

FROM_RTS = tuple(kind for kind in RmEvent.__args__ if kind is not Tick)
"""What a run-time system may say, for its jobs and for itself."""


class ManagerServer:
    """Serves one run-time system at a time; for each connection the resource manager begins anew.

    Args:
        clock: wall-clock time in seconds: epochs grow with it.
        placement: of jobs that ask for none.

    Attributes:
        address: where it listens.
        stopped: set when a client has asked it to stop.
    """

    def __init__(self, clock: Callable[[], float], placement: str = FIFO) -> None:
        self.address = ""
        self.stopped: trio.Event = trio.Event()
        self.epoch: int = 0
        self._clock = clock
        self._placement = placement
        self._serves: Peer | None = None
        self._name = ""

    async def serve(self, peer: Peer) -> None:
        """Serve one connection until it is over."""
        if peer.role == "control":
            await self._serve_client(peer)
        elif peer.role == "rts":
            await self._serve_rts(peer)
        else:
            drop_offender(peer, f"a resource manager serves rts and control, not {peer.role}")

    async def _serve_client(self, peer: Peer) -> None:
        while True:
            for message in await peer.receive():
                if isinstance(message, IncomingCall) and isinstance(message.body, StopRts):
                    message.reply(Done())
                    await peer.aclose()  # what is said arrives before all ends
                    self.stopped.set()
                    return
                drop_offender(peer, f"a resource manager is not asked {type(message).__name__}")

    async def _serve_rts(self, peer: Peer) -> None:
        first, *more = await peer.receive()
        if not (isinstance(first, IncomingCall) and isinstance(first.body, ServeRts)):
            drop_offender(peer, "a run-time system begins with ServeRts")
            return
        before = self._serves
        if before is not None and before.is_held_by_another(peer):
            reason = f"this resource manager serves another run-time system ({self._name}), one at a time"
            first.fail(PermissionError(reason))
            await peer.receive()
            return
        if before is not None:
            before.drop("its run-time system has connected again")
        self._serves, self._name = peer, first.body.name
        self.epoch = max(int(self._clock()), self.epoch + 1, first.body.epoch + 1)
        log.info("it serves %s, with epoch %d", self._name, self.epoch)
        try:
            first.reply(ManagerReady(self.epoch))
            await ServedManager(ResourceManager(self.epoch, None, self._placement), peer).run(more)
        except PeerGone as gone:
            log.warning("no connection to %s (%s)", self._name, gone.reason)
        finally:
            if self._serves is peer:
                self._serves = None


class ServedManager:
    """A resource manager that hears and tells one run-time system.

    Args:
        machine: the resource manager.
        peer: the run-time system.
        claims: it claims what it gives.
    """

    def __init__(self, machine: ResourceManager, peer: Peer, *, claims: bool = False) -> None:
        self._machine = machine
        self._answering = AnsweringManager(machine)
        self._claiming = ClaimingManager(self._answering) if claims else None
        self._peer = peer
        self._inbox: Inbox[RmEvent] = Inbox()

    async def run(self, more: list[object]) -> None:
        """Work until the connection is over.

        Raises:
            PeerGone: always.
        """
        async with open_scope() as nursery:
            self._peer.post(GrantsAhead(self._answering.ahead.newest))
            nursery.start_soon(self._drive)
            while True:
                for message in more:
                    self._hear(message)
                more = await self._peer.receive()

    async def _drive(self) -> None:
        if self._claiming is not None:
            await drive(self._claiming, self._inbox, self._perform, refused=self._refused)
        else:
            await drive(self._answering, self._inbox, self._perform, refused=self._refused)

    def _hear(self, message: object) -> None:
        if isinstance(message, Awaited):  # it says how long: its clock is not ours
            message = replace(message, until_s=trio.current_time() + message.until_s)
        if isinstance(message, FROM_RTS):
            self._inbox.put(message)
        elif isinstance(message, IncomingCall) and isinstance(message.body, GetManagerStatus):
            message.reply(self._machine.status())
        elif isinstance(message, IncomingCall) and isinstance(message.body, ExplainJob):
            try:
                waiting = tuple(self._machine.explain(message.body.job))
                message.reply(Explained(waiting, trio.current_time()))
            except IllegalEvent as error:
                message.fail(error)
        else:
            drop_offender(self._peer, f"a run-time system does not say {type(message).__name__}")

    def _perform(self, action: RmAction | ToRts | ManagerClaim) -> None:
        if type(action) is GrantChanged or type(action) is ResourceChanged:
            self._peer.post(RecordBatch((action,)))
        else:
            self._peer.post(action)

    def _refused(self, event: RmEvent, error: IllegalEvent) -> None:
        """The event has changed nothing: tell who is to know."""
        if isinstance(event, Added | Removed):
            self._peer.post(RmAnswered(event, str(error)))
        elif isinstance(event, FROM_JOBS):
            self._peer.post(Offence(event.job, f"{type(event).__name__}: {error}"))
        elif isinstance(event, Revoked):
            log.info("%s is late: %s", event, error)
        else:
            drop_offender(self._peer, f"{type(event).__name__}: {error}")


@asynccontextmanager
async def open_manager(
    network: Network, listen: str, clock: Callable[[], float], placement: str = FIFO
) -> AsyncIterator[ManagerServer]:
    """A resource manager for a run-time system elsewhere, for as long as the block runs.

    Args:
        network: in which it listens.
        listen: address.
        clock: wall-clock time in seconds.
        placement: of jobs that ask for none, a name in ``policies.placement``.

    Raises:
        OSError: it cannot listen there.
    """
    server = ManagerServer(clock, placement)
    async with open_scope() as nursery:
        server.address = await nursery.start(_listen, network, listen, server)
        yield server
        nursery.cancel_scope.cancel()


async def _listen(
    network: Network,
    address: str,
    server: ManagerServer,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    await network.listen(address, server.serve, role="rm", name="rm", task_status=task_status)


# One of several, which its run-time system starts (ASP-11) -------------------------------------------------


class ClaimingManager:
    """The machine of a manager that claims what it gives: each claim names what it had been told by then.

    Args:
        answering: the resource manager.
    """

    def __init__(self, answering: AnsweringManager) -> None:
        self.deadline: Callable[[], float | None] = answering.deadline
        self.check: Callable[[], None] = answering.check
        self._handle = answering.handle
        self._told = 0

    def handle(self, event: RmEvent, now: float) -> list[RmAction | ToRts | ManagerClaim]:
        """Take one event; see :class:`gspc_trio.core.machine.Machine`."""
        if type(event) is not Tick:
            self._told += 1
        told = self._told
        return [ManagerClaim(told, one) if type(one) is Grant else one for one in self._handle(event, now)]


async def run_manager_process(order: ManagerOrder) -> None:
    """Run a resource manager in a process of its own on this host, until it ends.

    Raises:
        OSError: no process could be made.
    """
    line = to_json(order).encode() + b"\n"
    async with open_process(
        MANAGER_COMMAND, stdin=line, hold_stdin=True, grace_s=TERMINATE_GRACE_S
    ) as process:
        status = await process.wait()
    log.info("the process of %s ended with status %d", order.name, status)


async def serve_as_manager(network: Network, order: ManagerOrder, pid: int) -> str:
    """Be the resource manager of an order until its run-time system is gone; return why it is.

    Args:
        network: knows the secret.
        order: of the run-time system.
        pid: of this process.

    Raises:
        ConnectFailed: the run-time system cannot be reached.
    """
    numbering = Numbering(order.first, order.step, own_first=order.claims)
    machine = ResourceManager(order.epoch, None, order.placement, numbering)
    async with network.connect(order.rts, role=MANAGER_ROLE, name=order.name, expect="rts") as peer:
        try:
            first, *more = await peer.receive()
            if not (isinstance(first, IncomingCall) and isinstance(first.body, BeginManaging)):
                drop_offender(peer, "a run-time system begins with BeginManaging")
                return peer.reason
            first.reply(ManagerHere(pid))
            await ServedManager(machine, peer, claims=order.claims).run(more)
        except PeerGone as gone:
            return gone.reason
    return peer.reason


def main() -> int:
    """Be the resource manager of the order on standard input; return the exit status."""
    try:
        order = from_json(sys.stdin.buffer.readline(ORDER_BYTES_MAX), ManagerOrder)
    except BadPlainData as error:
        print(f"the line on standard input is no order for a resource manager: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format=f"{order.name}: %(message)s")
    # Nobody else's garbage collector: this process does nothing but decide.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    network = Network(wire_codec, order.token, credentials=order.credentials)
    try:
        trio.run(serve_as_manager, network, order, os.getpid())
    except (ConnectFailed, RemoteError, BadAddress, OSError) as error:
        print(f"{order.name} ends: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
