"""A launcher whose engine starts every job at once, and servers that connect over streams in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from msgspec import structs
from trio.testing import lockstep_stream_pair

from gspc_trio.components.launcher.events import (
    CancelAtEngine,
    Cancelled,
    CloseConnection,
    LauncherResumed,
    Listed,
    ListEngine,
    PingServer,
    RefuseConnection,
    SendToServer,
    Stop,
    Submitted,
    SubmitToEngine,
)
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import LauncherOptions
from gspc_trio.components.launcher.shell.server_link import (
    LAUNCHER_ROLE,
    SERVER_ROLE,
    ServerLink,
    launcher_limits,
    link_limits,
)
from gspc_trio.components.launcher.shell.turns import DrivenAction, DrivenEvent, MarkedLauncher
from gspc_trio.components.provision.batch import BatchJob, BatchState
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.connection_file import ConnectionInfo
from gspc_trio.nursery.connections.errors import ConnectFailed
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.pending import PendingConnections
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.nursery.connections.websocket import AcceptPolicy, Dialer, connect_stream, serve_stream
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.study.server import LAUNCHER_SILENT_S, Study, open_study
from tests.nursery.connections.test_websocket_streams import Watched

OPTIONS = LauncherOptions(scheduler="slurm", group_size=4, job_limit=1000)
PATIENCE_S = 60.0
"""How long servers wait for another launcher."""

OUTBOX_ITEMS_MAX = 500
"""Messages that wait for a server that does not read; few, since tests fill them."""


class FakeLauncher:
    """A launcher with its listener.

    Attributes:
        jobs: name -> what was submitted, of jobs that run.
        submitted: all that was submitted, in order.
        servers: names of server jobs that were submitted.
        server_submitted: set when one more is.
        stopped: how it has stopped.
        is_there: whether servers can connect.
        lines: streams of servers, in the order in which they have connected, as the server has them.
    """

    def __init__(
        self,
        folder: Path,
        nursery: trio.Nursery,
        options: LauncherOptions = OPTIONS,
        inbox: Inbox[DrivenEvent] | None = None,
    ) -> None:
        self.folder = folder
        self.jobs: dict[str, SubmitToEngine] = {}
        self.submitted: list[SubmitToEngine] = []
        self.servers: list[str] = []
        self.server_submitted = trio.Event()
        self.stopped: Stop | None = None
        self.is_there = True
        self.lines: list[Watched] = []
        self._ends: list[trio.abc.Stream] = []
        self.inbox: Inbox[DrivenEvent] = Inbox() if inbox is None else inbox
        self._nursery = nursery
        limits = structs.replace(launcher_limits(options.timer_interval_s), outbox_items_max=OUTBOX_ITEMS_MAX)
        network = Network(wire_codec, bytes(32), limits=limits)
        self.link = ServerLink(network, self.inbox, patience_s=PATIENCE_S, key=bytes(32))
        self._network = network
        self.machine = Launcher(options, "s")

    def file(self, incarnation: int) -> Path:
        return self.folder / f"server.{incarnation}.json"

    async def run(self) -> None:
        await drive(MarkedLauncher(self.machine), self.inbox, self.perform, check=True)

    def kill(self) -> None:
        """Be as one that was killed: nothing is told to anybody any more."""
        self.inbox.close()
        self.inbox = Inbox()

    async def cut(self) -> None:
        """End all connections, as the system does with those of a program that has ended."""
        for end in self._ends:
            await trio.aclose_forcefully(end)

    async def go_on(self) -> None:
        """Be the launcher that goes on for the one that was killed."""
        await self.cut()
        self.inbox = Inbox()
        self.link = ServerLink(self._network, self.inbox, patience_s=PATIENCE_S, key=bytes(32))
        for action in self.machine.handle(LauncherResumed(), trio.current_time()):
            self.perform(action)
        self._nursery.start_soon(self.run)

    def perform(self, action: DrivenAction) -> None:
        match action:
            case SubmitToEngine():
                self.submitted.append(action)
                self.jobs[action.name] = action
                if not action.client_ids:
                    self.servers.append(action.name)
                    self.server_submitted.set()
                    self.server_submitted = trio.Event()
                    self.link.write_server_file(self.file(action.incarnation), action.incarnation)
                self.inbox.put(Submitted(action.uid, str(action.uid)))
            case ListEngine():
                jobs = [BatchJob(str(one.uid), name, BatchState.RUNNING) for name, one in self.jobs.items()]
                self.inbox.put(Listed(action.uid, tuple(jobs)))
            case CancelAtEngine():
                self.jobs.pop(action.name, None)
                self.inbox.put(Cancelled(action.uid))
            case SendToServer() | PingServer() | RefuseConnection() | CloseConnection():
                self.link.perform(action)
            case Stop():
                self.stopped = action
                self.inbox.close()

    async def _serve(self, stream: trio.abc.Stream) -> None:
        identity = self._network.identity(LAUNCHER_ROLE, "launcher", dialer=False)
        policy = AcceptPolicy(PendingConnections(4))
        await serve_stream(stream, identity, self._network.codec, self.link.serve, policy, remote="memory")

    @asynccontextmanager
    async def dial(self, info: ConnectionInfo, name: str) -> AsyncIterator[Peer]:
        """Connect as the server does that a file is for, over a stream in memory."""
        if not self.is_there:
            raise ConnectFailed("memory", "nothing listens")
        network = Network(wire_codec, info.token, limits=link_limits(LAUNCHER_SILENT_S))
        here, there = lockstep_stream_pair()
        line = Watched(here)
        self.lines.append(line)
        self._ends.append(there)
        self._nursery.start_soon(self._serve, there)
        identity = network.identity(SERVER_ROLE, name, dialer=True, expect=LAUNCHER_ROLE)
        async with connect_stream(line, Dialer(identity, network.codec, "memory", "here")) as peer:
            yield peer

    @asynccontextmanager
    async def server(self, incarnation: int = 0) -> AsyncIterator[Study]:
        """Connect as a server."""
        await self.until_submitted(incarnation)
        async with open_study(self.file(incarnation), dial=self.dial) as study:
            yield study

    async def until_submitted(self, incarnation: int) -> None:
        """Wait until a server was submitted."""
        while len(self.servers) <= incarnation:
            await self.server_submitted.wait()


@asynccontextmanager
async def open_launcher(folder: Path, options: LauncherOptions = OPTIONS) -> AsyncIterator[FakeLauncher]:
    """Run a launcher for the time of a block."""
    async with trio.open_nursery() as nursery:
        launcher = FakeLauncher(folder, nursery, options)
        nursery.start_soon(launcher.run)
        yield launcher
        nursery.cancel_scope.cancel()
