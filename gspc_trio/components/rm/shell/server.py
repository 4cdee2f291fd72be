"""The resource manager as a program of its own: it serves a run-time system that runs elsewhere (RTS-4)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio
from msgspec.structs import replace

from gspc_trio.components.rm.events import Added, Awaited, Removed, RmAction, RmEvent
from gspc_trio.components.rm.explain import Explained, ExplainJob, GetManagerStatus
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import GrantsAhead, ManagerReady, Offence, Revoked, ServeRts
from gspc_trio.components.rm.shell.service import FROM_JOBS, AnsweringManager, ToRts
from gspc_trio.components.rts.events import RmAnswered
from gspc_trio.components.rts.messages import StopRts
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.core.messages import Done
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.policies.placement import FIFO
from gspc_trio.records.facts import GrantChanged, ResourceChanged
from gspc_trio.records.messages import RecordBatch

log: logging.Logger = logging.getLogger(__name__)

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
    """

    def __init__(self, machine: ResourceManager, peer: Peer) -> None:
        self._machine = machine
        self._answering = AnsweringManager(machine)
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
                self._hear_all(more)
                more = await self._peer.receive()

    async def _drive(self) -> None:
        await drive(self._answering, self._inbox, self._perform, refused=self._refused)

    def _hear_all(self, messages: Sequence[object]) -> None:
        """Take what has come at one time."""
        for message in messages:
            self._hear(message)

    def _hear(self, message: object) -> None:
        if isinstance(message, Awaited):  # it says how long: its clock is not ours
            message = replace(message, until_s=trio.current_time() + message.until_s)
        if isinstance(message, FROM_RTS):
            self._take(message)
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

    def _take(self, event: RmEvent) -> None:
        self._inbox.put(event)

    def _perform(self, action: RmAction | ToRts) -> None:
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
