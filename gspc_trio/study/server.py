"""A server's connection with its launcher, in trio."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import trio

from gspc_trio.components.launcher.client_book import ClientBook
from gspc_trio.components.launcher.events import (
    CancelClient,
    ClientMoved,
    ConnectionEnds,
    LauncherPing,
    ServerPing,
    StudyDone,
    SubmitClients,
    ToServer,
)
from gspc_trio.components.launcher.shell.server_link import (
    LAUNCHER_ROLE,
    SERVER_ROLE,
    link_limits,
    server_name,
)
from gspc_trio.components.launcher.study_job import SERVER_FILE_VARIABLE
from gspc_trio.components.provision.batch import BATCH_ID_VARIABLE
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.connection_file import (
    ConnectionFileError,
    ConnectionInfo,
    read_connection_file,
)
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, drop_offender
from gspc_trio.nursery.scopes.loop import require_trio
from gspc_trio.nursery.scopes.scope import open_scope

LAUNCHER_SILENT_S = 60.0
"""A launcher of which nothing was heard for so long is gone; it may have been stopped for a while."""


RETRY_S = 2.0
"""Between two looks whether another launcher goes on for one that is gone."""

Dial: TypeAlias = Callable[[ConnectionInfo, str], AbstractAsyncContextManager[Peer]]
"""Connects with the launcher that a file tells of, by a name."""


class StudyOver(Exception):
    """There is no connection with the launcher, or none any more; the message is one line for people."""


class StudyRefused(Exception):
    """The launcher has refused a request, which has changed nothing; the message says why."""


class Study:
    """A server's side of its study; see :func:`gspc_trio.study.connect`."""

    def __init__(self) -> None:
        self._peer: Peer | None = None
        self._is_done = False
        self._book = ClientBook()
        self._over = ""
        self._news = trio.Event()

    async def submit(self, client_ids: int | Iterable[int], command: Sequence[str]) -> None:
        """Have clients started, which share one job.

        When this returns, the launcher has them; they may wait for a place.

        Args:
            client_ids: numbers of the clients, from 0; one that has ended may be used again.
            command: program and arguments of each; ``GSPC_CLIENT_ID`` in its environment is its number.

        Raises:
            StudyRefused: the launcher does not want that; for example, one of the clients has not ended.
            StudyOver: the connection is over.
            ValueError: there can be no such clients.
        """
        ids = (client_ids,) if isinstance(client_ids, int) else client_ids
        await self._ask(self._book.submit(ids, command))

    async def cancel(self, client_id: int) -> None:
        """Have a client ended; that it is over is a change of its state.

        Raises:
            StudyRefused: there is no such client, or it has ended.
            StudyOver: the connection is over.
        """
        await self._ask(self._book.cancel(client_id))

    async def _ask(self, asked: SubmitClients | CancelClient) -> None:
        self._post(asked)
        while (refused := self._book.take_answer(asked.request)) is None:
            await self._wait()
        if refused:
            raise StudyRefused(refused)

    def jobs(self) -> dict[int, ClientMoved]:
        """Return the number of each client that was asked for, with what was told of it last."""
        return dict(self._book.clients)

    @property
    def stale(self) -> str:
        """Why the states of clients are old: the batch system does not answer; "" if they are not."""
        return self._book.stale

    async def next_change(self) -> ClientMoved:
        """Wait for the next change of a client's state, and return it; each is returned once, in order.

        Raises:
            StudyOver: the connection is over, and all that was told before was returned.
        """
        while not self._book.changes:
            await self._wait()
        return self._book.changes.popleft()

    async def changes(self) -> AsyncIterator[ClientMoved]:
        """Yield changes of states of clients, in ``async for``, until all that were asked for have ended.

        Raises:
            StudyOver: the connection is over.
        """
        while (change := await self.change_or_end()) is not None:
            yield change

    async def change_or_end(self) -> ClientMoved | None:
        """Return the next change, None if all clients that were asked for have ended."""
        book = self._book
        return await self.next_change() if book.changes or book.has_live_clients else None

    async def done(self) -> None:
        """Say that the study is done, and wait until the launcher knows.

        It cancels what still runs, the server's own job, too: do before what else is to be done.

        Raises:
            StudyOver: the connection was over before.
        """
        self._is_done = True
        self._post(StudyDone())
        while not self._over:
            await self._wait()

    def _post(self, body: SubmitClients | CancelClient | StudyDone) -> None:
        if self._over:
            raise StudyOver(self._over)
        if self._peer is not None:  # otherwise it is said when there is a connection again
            self._peer.post(body)

    async def _wait(self) -> None:
        """Wait for news of the launcher.

        Raises:
            StudyOver: there will be none.
        """
        if self._over:
            raise StudyOver(self._over)
        await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def run(
        self, file: Path, dial: Dial, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep the connection, until it is over for good.

        Args:
            file: that says where the launcher is.
            dial: connects.

        Raises:
            StudyOver: there is no launcher, or it refuses.
        """
        info = _read(file)
        lost, give_up_s = "", trio.current_time() + info.patience_s
        has_begun = False

        def begin() -> None:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                task_status.started()

        while True:
            try:
                lost = await self._connect(info, dial, begin)
                give_up_s = trio.current_time() + info.patience_s
            except ConnectionProblem as problem:
                lost = problem.reason  # it may be there later
            if self._over or trio.current_time() >= give_up_s:
                break
            await trio.sleep(RETRY_S)
            with suppress(StudyOver):
                info = _read(file)
        if not has_begun:
            raise StudyOver(f"no connection with the launcher: {lost}")
        self._over = self._over or f"the connection with the launcher is over: {lost}"
        self._tell()

    async def _connect(self, info: ConnectionInfo, dial: Dial, connected: Callable[[], None]) -> str:
        """Be connected for as long as that lasts; return why it has ended.

        Raises:
            ConnectionProblem: it did not come about.
        """
        name = server_name(info.name, os.environ.get(BATCH_ID_VARIABLE, ""))
        async with dial(info, name) as peer:
            for asked in self._book.connected_again():
                peer.post(asked)
            if self._is_done:
                peer.post(StudyDone())
            self._peer = peer
            connected()
            try:
                return await self._listen(peer)
            finally:
                self._peer = None

    async def _listen(self, peer: Peer) -> str:
        """Take what the launcher says, and answer its pings; return why the connection is over."""
        try:
            while not self._over:
                for said in await peer.receive():
                    if isinstance(said, LauncherPing):
                        peer.post(ServerPing())
                    elif isinstance(said, ConnectionEnds):
                        self._over = said.reason or "the launcher has ended the connection"
                    elif isinstance(said, ToServer):
                        self._book.take(said)
                    else:
                        drop_offender(peer, f"no launcher says {type(said).__name__}")
                self._tell()
        except PeerGone as gone:
            return gone.reason
        return self._over


@asynccontextmanager
async def open_study(file: Path | None = None, *, dial: Dial | None = None) -> AsyncIterator[Study]:
    """Connect with the launcher for the time of a block; see :func:`gspc_trio.study.connect`.

    Args:
        file: that says where the launcher is; None: the one in the environment.
        dial: connects; None: over the network.

    Raises:
        StudyOver: there is no launcher, or it refuses.
    """
    require_trio("'async with gspc_trio.study.connect()'", "'with gspc_trio.study.connect()'")
    named = str(file or os.environ.get(SERVER_FILE_VARIABLE, ""))
    if not named:
        raise StudyOver(
            f"{SERVER_FILE_VARIABLE} is not set: this is no server of a study; gspc-launcher starts servers"
        )
    study = Study()
    async with open_scope() as nursery:
        await nursery.start(study.run, Path(named), dial or _dial)
        yield study
        nursery.cancel_scope.cancel()


def _read(file: Path) -> ConnectionInfo:
    try:
        return read_connection_file(file)
    except ConnectionFileError as error:
        raise StudyOver(str(error)) from error


def _dial(info: ConnectionInfo, name: str) -> AbstractAsyncContextManager[Peer]:
    limits = link_limits(LAUNCHER_SILENT_S)
    network = Network(wire_codec, info.token, limits=limits, credentials=info.credentials)
    return network.connect(info.address, role=SERVER_ROLE, name=name, expect=LAUNCHER_ROLE)
