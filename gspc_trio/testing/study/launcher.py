"""A simulated launcher: the machine, and what carries out its actions at a simulated batch system."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import trio

from gspc_trio.components.launcher.events import (
    CancelAtEngine,
    Cancelled,
    CloseConnection,
    CommandExited,
    ConnectionShutdown,
    EndClient,
    KillCommands,
    LauncherAction,
    LauncherEvent,
    LauncherResumed,
    Listed,
    ListEngine,
    ListFailed,
    Message,
    NewConnection,
    PingServer,
    RefuseConnection,
    SendToServer,
    ServerMessage,
    Stop,
    SubmitFailed,
    Submitted,
    SubmitToEngine,
    ToServer,
)
from gspc_trio.components.launcher.machine import Launcher
from gspc_trio.components.launcher.options import LauncherOptions
from gspc_trio.components.launcher.snapshot import decode_snapshot, encode_snapshot, restore, snapshot_of
from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchRequest,
    Command,
    CommandResult,
    QueryFailed,
)
from gspc_trio.components.provision.shell.commands import COMMAND_TIMEOUT_S
from gspc_trio.core.machine import Performer, Tick, performs
from gspc_trio.testing.simulated.batch import BatchSystem, SimulatedProvider
from gspc_trio.testing.simulated.process import SimulatedProcess
from gspc_trio.testing.study.links import Link

JOURNAL_EVENTS = 30
"""So many are in a file of its journal, which begins with what the launcher knew then."""

JOB_S = 5000
"""The time of a job at the batch system."""

ServerLink = Link[NewConnection | ServerMessage, ToServer | PingServer | CloseConnection | RefuseConnection]
"""A connection of a server: first it says who it is."""

Saw = Callable[[Launcher, LauncherEvent, Sequence[LauncherAction]], None]


class SimulatedLauncher(Performer[LauncherAction]):
    """The process of a launcher.

    Args:
        process: in whose name it runs.
        options: of the study.
        system: the batch system that has its jobs.
        saw: told of each event of the machine.
        ask: told of each job that is about to be submitted.
        end_client: ends one client of a group.

    Attributes:
        stop: how it has ended, None as long as it has not.
    """

    def __init__(
        self,
        process: SimulatedProcess,
        options: LauncherOptions,
        system: BatchSystem,
        saw: Saw,
        ask: Callable[[SubmitToEngine], None],
        end_client: Callable[[EndClient], None],
    ) -> None:
        self.stop: Stop | None = None
        self._process = process
        self._options = options
        self._machine = Launcher(options, "study")
        self._snapshot = b""
        self._journal: list[tuple[LauncherEvent, float]] = []
        self._statuses: dict[CommandExited, None] = {}
        """Statuses of commands that the launcher has not seen yet."""
        self._down_s: float | None = None
        self._system = system
        self._provider = SimulatedProvider()
        self._saw = saw
        self._ask = ask
        self._end_client = end_client
        self._links: dict[int, ServerLink] = {}
        self._commands: dict[trio.CancelScope, None] = {}
        self._timer = trio.CancelScope()
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Run until the machine stops; a launcher that is killed is started again after a while."""
        while True:
            async with trio.open_nursery() as self._nursery:
                if self._down_s is not None:
                    await trio.sleep(self._down_s)
                    self._resume()
                await self._keep_time()
                self._nursery.cancel_scope.cancel()
            if self._down_s is None:
                return

    async def _keep_time(self) -> None:
        while self.stop is None and self._down_s is None:
            due = self._machine.deadline()
            with trio.CancelScope(deadline=math.inf if due is None else due) as self._timer:
                await trio.sleep_forever()
            if self.stop is None and self._down_s is None:
                self.give(Tick())

    @property
    def _is_up(self) -> bool:
        return self.stop is None and self._down_s is None

    def give(self, event: LauncherEvent) -> None:
        """Give the machine an event, unless it has stopped, and carry out what follows."""
        if not self._is_up:
            return
        self._journal.append((event, trio.current_time()))
        actions = self._machine.handle(event, trio.current_time())
        if len(self._journal) >= JOURNAL_EVENTS:
            self._snapshot, self._journal = encode_snapshot(snapshot_of(self._machine)), []
        self._saw(self._machine, event, actions)
        for action in actions:
            self.perform(action)
        due = self._machine.deadline()
        self._timer.deadline = math.inf if due is None else due

    # A launcher that is killed ------------------------------------------------------------------------------

    def kill(self, down_s: float) -> None:
        """Kill it, and with it its commands; it is started again after so many seconds."""
        if not self._is_up:
            return
        self._down_s = down_s
        for link in self._links.values():
            link.cut()
        self._links.clear()
        self._timer.cancel()

    def _resume(self) -> None:
        before, self._machine = self._machine, Launcher(self._options, "study")
        if self._snapshot:
            restore(self._machine, decode_snapshot(self._snapshot))
        for event, now in self._journal:
            self._machine.handle(event, now)
        assert self._machine.state is before.state, "the journal gives another state"
        assert self._machine.deadline() == before.deadline(), "the journal gives another date"
        self._down_s = None
        self.give(LauncherResumed())
        statuses, self._statuses = self._statuses, {}
        for status in statuses:
            self.give(status)

    # Servers ------------------------------------------------------------------------------------------------

    def connect(self, link: ServerLink) -> None:
        """Take a connection."""
        if self._is_up:
            self._links[link.number] = link
            self._nursery.start_soon(self._listen, link)
        else:
            link.cut()

    async def _listen(self, link: ServerLink) -> None:
        while (item := await link.up.receive()) is not None:
            if link.number in self._links:
                self.give(item if isinstance(item, NewConnection) else Message(link.number, item))
        if self._links.pop(link.number, None) is not None:
            link.down.close()
            self.give(ConnectionShutdown(link.number))

    @performs(SendToServer, PingServer)
    def _send(self, action: SendToServer | PingServer) -> None:
        if action.connection in self._links:
            item = action.body if isinstance(action, SendToServer) else action
            self._links[action.connection].down.send(item)

    @performs(CloseConnection, RefuseConnection)
    def _close(self, action: CloseConnection | RefuseConnection) -> None:
        link = self._links.pop(action.connection, None)
        if link is not None:
            link.down.send(action)
            link.down.close()

    # The batch system ---------------------------------------------------------------------------------------

    async def _command(self, command: Command) -> CommandResult | None:
        """Return the result of a command, None if it was killed or took too long."""
        with trio.move_on_after(COMMAND_TIMEOUT_S) as scope:
            self._commands[scope] = None
            try:
                return await self._system.command(self._process, command)
            finally:
                del self._commands[scope]
        return None

    @performs(SubmitToEngine)
    def _submit(self, action: SubmitToEngine) -> None:
        self._ask(action)
        self._nursery.start_soon(self._submitting, action)

    async def _submitting(self, action: SubmitToEngine) -> None:
        result = await self._command(self._provider.submit(BatchRequest(action.name, time_s=JOB_S)))
        try:
            job_id = self._provider.submitted(result) if result is not None else None
        except BadRequest as error:
            self.give(SubmitFailed(action.uid, str(error)))
        else:
            self.give(Submitted(action.uid, job_id))

    @performs(ListEngine)
    def _list(self, action: ListEngine) -> None:
        self._nursery.start_soon(self._listing, action)

    async def _listing(self, action: ListEngine) -> None:
        result = await self._command(self._provider.query(action.job_id))
        try:
            if result is None:
                raise QueryFailed("it takes too long")
            jobs = self._provider.told(result)
        except QueryFailed as error:
            self.give(ListFailed(action.uid, str(error)))
        else:
            self.give(Listed(action.uid, jobs))

    @performs(CancelAtEngine)
    def _cancel(self, action: CancelAtEngine) -> None:
        self._nursery.start_soon(self._cancelling, action)

    async def _cancelling(self, action: CancelAtEngine) -> None:
        await self._command(self._provider.cancel(action.job_id, action.name))
        self.give(Cancelled(action.uid))

    @performs(EndClient)
    def _end(self, action: EndClient) -> None:
        self._end_client(action)

    @performs(KillCommands)
    def _kill(self, _action: KillCommands) -> None:
        for scope in self._commands:
            scope.cancel()

    def exited(self, event: CommandExited, after_s: float) -> None:
        """Let the launcher see after a while that the command of a job has ended."""

        async def later() -> None:
            await trio.sleep(after_s)
            self.give(event)
            self._statuses.pop(event, None)

        if self.stop is None:
            self._statuses[event] = None
            if self._is_up:
                self._nursery.start_soon(later)

    @performs(Stop)
    def _stopped(self, action: Stop) -> None:
        self.stop = action
        self._timer.cancel()
