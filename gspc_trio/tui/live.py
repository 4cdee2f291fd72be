"""Follows a running run-time system and its jobs: records into the model, questions to whoever knows.

It survives that the other side goes away: it says so, and tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple

import trio
from outcome import Error, Outcome

from gspc_trio.components.rts.messages import Explain, GetStatus
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.ids import JobId
from gspc_trio.core.messages import AnswerT, Question
from gspc_trio.iml.messages import JoinLayer
from gspc_trio.nursery.connections.connection_file import ConnectionFileError, read_connection_file
from gspc_trio.nursery.connections.network import ConnectionProblem, Network
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, RemoteError
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.address import BadAddress
from gspc_trio.records.messages import RecordBatch, Watch
from gspc_trio.tui.model import RTS, Model
from gspc_trio.tui.source import COALLOCATION, LAYER, CannotAsk
from gspc_trio.tui.text import clock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BATCH_INTERVAL_S = 0.2
"""Seconds between two batches of records for whoever looks at them."""

STATUS_INTERVAL_S = 1.0
"""Seconds between two questions for the state of the resource manager."""

EXPLAINED_MAX = 8
"""Jobs of which it is asked each time why they wait."""

RETRY_FIRST_S = 0.5
RETRY_MAX_S = 5.0
"""Pauses between tries to reach the run-time system again."""

CALL_TIMEOUT_S = 10.0


class Follower:
    """Brings the records of a running system into a model; all of it runs in trio.

    Args:
        connect: opens a connection to the RTS and says in which network its jobs are; called for each try.
        model: the fold that takes the records.
        layer: opens a connection to a memory layer that stands alone, or None.
        interval_s: seconds between two batches of records that are asked for; more with many jobs.
        service: opens a connection to a co-allocation service, or None.
    """

    def __init__(
        self,
        connect: Callable[[], tuple[Network, AbstractAsyncContextManager[Peer]]],
        model: Model,
        layer: Callable[[], AbstractAsyncContextManager[Peer]] | None = None,
        interval_s: float = BATCH_INTERVAL_S,
        service: Callable[[], AbstractAsyncContextManager[Peer]] | None = None,
    ) -> None:
        self._service = service
        self._interval_s = interval_s
        self.model = model
        self._layer = layer
        self.up: trio.Event = trio.Event()
        self._connect = connect
        self._peers: dict[str, Peer] = {}
        self._followed: set[JobId] = set()
        self._settled: set[str] = set()
        self._changed = trio.Event()

    async def run(self) -> None:
        """Follow the system until cancelled."""
        pause_s = RETRY_FIRST_S
        while True:
            try:
                network, connection = self._connect()
                async with connection as peer:
                    pause_s = RETRY_FIRST_S
                    await self._follow_rts(network, peer)
            except (ConnectionFileError, ConnectionProblem, PeerGone, BadAddress, OSError) as error:
                self._say_lost(error)
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def wait_settled(self) -> None:
        """Wait until there is a snapshot of the RTS and of each job that can be reached."""
        while True:
            if self.up.is_set() and self.model.status is not None:
                wanted = {RTS, *(job for job, _ in self._reachable())}
                if wanted <= self._settled:
                    return
            self._changed = trio.Event()
            await self._changed.wait()

    async def ask(self, job: JobId | None, message: Question[AnswerT]) -> AnswerT:
        """Return the answer of a job server, of the RTS (None), or of a service that stands alone.

        Raises:
            CannotAsk: there is no connection to it, or it ended, or it refused.
        """
        if job == LAYER:
            return await _ask_alone(self._layer, "no memory layer stands alone", message, _join_layer)
        if job == COALLOCATION:
            return await _ask_alone(self._service, "no co-allocation service runs", message)
        peer = self._peers.get(RTS if job is None else job)
        if peer is None:
            who = "the run-time system" if job is None else f"job {job}"
            raise CannotAsk(f"there is no connection to {who}")
        try:
            return await peer.call(message, CALL_TIMEOUT_S)
        except PeerGone as gone:
            raise CannotAsk(gone.reason) from gone
        except RemoteError as error:
            raise CannotAsk(error.message) from error
        except trio.TooSlowError:
            raise CannotAsk(f"no answer within {CALL_TIMEOUT_S:g} s") from None

    # The run-time system ------------------------------------------------------------------------------------

    async def _follow_rts(self, network: Network, peer: Peer) -> None:
        self._peers[RTS] = peer
        self.model.link = ""
        self.model.changed()
        self._followed.clear()
        try:
            async with open_scope() as nursery:
                nursery.start_soon(self._poll, network, peer, nursery)
                self.up.set()
                await self._follow(RTS, peer)
        finally:
            self._peers.pop(RTS, None)

    async def _poll(self, network: Network, peer: Peer, nursery: trio.Nursery) -> None:
        """Ask for what is in no stream until the connection is over."""
        try:
            while True:
                await self._poll_once(network, peer, nursery)
                await trio.sleep(STATUS_INTERVAL_S)
        except PeerGone:
            pass  # whoever follows the stream learns of it, too
        except trio.TooSlowError:
            peer.drop(f"no answer within {CALL_TIMEOUT_S:g} s")

    async def _poll_once(self, network: Network, peer: Peer, nursery: trio.Nursery) -> None:
        """Ask for demand and credit, which jobs there are, and why requests wait."""
        self.model.status = await peer.call(GetStatus(), CALL_TIMEOUT_S)
        for job, address in self._reachable():
            if job not in self._followed:
                self._followed.add(job)
                nursery.start_soon(self._follow_job, network, job, address)
        waiting = [entry.job for entry in self.model.registered if entry.demand]
        explanations = {}
        for job in waiting[:EXPLAINED_MAX]:
            try:
                told = await peer.call(Explain(job), CALL_TIMEOUT_S)
            except RemoteError:
                continue  # it has gone meanwhile
            explanations[job] = told.waiting
        self.model.explanations = explanations
        self.model.changed()
        self._wake()

    def _reachable(self) -> list[tuple[JobId, str]]:
        """Return job and address of those whose job server listens."""
        return [(entry.job, entry.address) for entry in self.model.registered if entry.address]

    # Jobs ---------------------------------------------------------------------------------------------------

    async def _follow_job(self, network: Network, job: JobId, address: str) -> None:
        connected = self.model.connected
        try:
            connection = network.connect(address, role="control", name="gspc-top", expect="job")
            async with connection as peer:
                self._peers[job] = peer
                connected.add(job)
                await self._follow(job, peer)
        except (ConnectionProblem, PeerGone, OSError):
            pass  # the RTS tells whether it has ended
        finally:
            self._peers.pop(job, None)
            self._settled.add(job)
            connected.discard(job)
            self.model.changed()
            self._wake()
        await trio.sleep(RETRY_MAX_S)
        self._followed.discard(job)  # the RTS may know it still: then it could not be heard for a while

    async def _follow(self, source: str, peer: Peer) -> None:
        """Take the records of a stream until its connection is over; ask for no more than can be drawn."""
        model = self.model
        peer.post(Watch(1))
        quiet = False
        while True:
            told = False
            for batch in await peer.receive():
                if isinstance(batch, RecordBatch):
                    if batch.snapshot:
                        model.begin(source)
                        quiet = True
                    for record in batch.records:
                        model.apply(source, record, quiet=quiet)
                    if quiet and not batch.more:
                        quiet = False
                        self._settled.add(source)
                        self._wake()
                    told = not batch.more
            if told:
                await trio.sleep(max(self._interval_s, 0.01 * len(self._peers)))
                peer.post(Watch(1))

    def _wake(self) -> None:
        self._changed.set()

    def _say_lost(self, error: Exception) -> None:
        self._settled.clear()
        self.model.connected.clear()
        self.model.link = f"{error}; trying again"
        self.model.changed()
        self._wake()


async def _join_layer(peer: Peer) -> None:
    await peer.call(JoinLayer("", "gspc-top"), CALL_TIMEOUT_S)


async def _ask_alone(
    connect: Callable[[], AbstractAsyncContextManager[Peer]] | None,
    missing: str,
    message: Question[AnswerT],
    join: Callable[[Peer], Awaitable[None]] | None = None,
) -> AnswerT:
    """Return the answer of a service that stands alone, over a connection for it."""
    if connect is None:
        raise CannotAsk(missing)
    try:
        async with connect() as peer:
            if join is not None:
                await join(peer)
            return await peer.call(message, CALL_TIMEOUT_S)
    except trio.TooSlowError:
        raise CannotAsk(f"no answer within {CALL_TIMEOUT_S:g} s") from None
    except (ConnectionFileError, ConnectionProblem, PeerGone, RemoteError, BadAddress, OSError) as error:
        raise CannotAsk(str(error)) from error


def connector(
    connection_file: Path, name: str = "gspc-top"
) -> Callable[[], tuple[Network, AbstractAsyncContextManager[Peer]]]:
    """Return what opens a connection to the RTS that has published this file."""

    def connect() -> tuple[Network, AbstractAsyncContextManager[Peer]]:
        info = read_connection_file(connection_file)
        network = Network(wire_codec, info.token, credentials=info.credentials)
        return network, network.connect(info.address, role="control", name=name, expect="rts")

    return connect


def layer_connector(connection_file: Path) -> Callable[[], AbstractAsyncContextManager[Peer]]:
    """Return what opens a connection to the memory layer that has published this file."""
    return _alone(connection_file, "iml-client", "iml")


def service_connector(*connection_files: Path) -> Callable[[], AbstractAsyncContextManager[Peer]]:
    """Return what opens a connection to the co-allocation service of the first file that is there."""

    def connect() -> AbstractAsyncContextManager[Peer]:
        there = next((file for file in connection_files if file.exists()), connection_files[0])
        return _alone(there, "control", "coallocation")()

    return connect


def _alone(connection_file: Path, role: str, expect: str) -> Callable[[], AbstractAsyncContextManager[Peer]]:
    def connect() -> AbstractAsyncContextManager[Peer]:
        info = read_connection_file(connection_file)
        network = Network(wire_codec, info.token, credentials=info.credentials)
        return network.connect(info.address, role=role, name="gspc-top", expect=expect)

    return connect


class Follows(Protocol):
    """Brings what happens into a model; see :class:`Follower`."""

    model: Model
    up: trio.Event

    async def run(self) -> None:
        """Follow until cancelled."""
        ...

    async def ask(self, job: JobId | None, message: Question[AnswerT]) -> AnswerT:
        """Return an answer."""
        ...


class LiveSource:
    """A running system as the source of a terminal, with trio as a guest in the terminal's loop.

    Args:
        follower: what runs in trio.
        where: what it follows, for people.
        crashed: told when the follower failed for a reason that is none of the network's.
        why_not: why nothing can be changed through it, "" if it can.
    """

    def __init__(
        self, follower: Follows, where: str, crashed: Callable[[BaseException], None], why_not: str = ""
    ) -> None:
        self.why_not = why_not
        self.follower = follower
        self.model: Model = follower.model
        self._where = where
        self._guest = TrioGuest(crashed)

    def start(self) -> None:
        """Begin to follow."""
        self._guest.start(self.follower.run)

    async def stop(self) -> None:
        """Close all connections."""
        await self._guest.stop()

    def beat(self, elapsed_s: float) -> None:
        """Nothing to do: records come by themselves."""

    def title(self) -> tuple[str, str]:
        """Return what is followed, or what is wrong with it."""
        if self.model.link:
            return self.model.link, "error"
        if not self.follower.up.is_set():
            return f"connecting to {self._where} …", "warning"
        return f"live  {clock(self.model.now_s)}", "good"

    async def ask(self, job: JobId | None, message: Question[AnswerT]) -> AnswerT:
        """Return the answer of a job server, of the RTS (None), or of a service that stands alone."""
        try:
            return await self._guest.call(self.follower.ask, job, message)
        except RuntimeError as error:
            raise CannotAsk(str(error)) from error


class TrioGuest:
    """Runs one trio main function as a guest in the asyncio loop of the terminal.

    Asyncio tasks can call trio functions by it.

    Args:
        crashed: told when the main function raised; not when it was stopped.
    """

    def __init__(self, crashed: Callable[[BaseException], None]) -> None:
        self._crashed = crashed
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._ready: asyncio.Event | None = None
        self._ended: asyncio.Future[None] | None = None

    def start(self, main: Callable[[], Awaitable[None]]) -> None:
        """Begin to run ``main``; to be called in the asyncio loop."""
        loop = asyncio.get_running_loop()
        self._ended, self._ready = loop.create_future(), asyncio.Event()
        trio.lowlevel.start_guest_run(
            self._run,
            main,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=loop.call_soon,
            done_callback=self._over,
            host_uses_signal_set_wakeup_fd=True,
        )

    async def stop(self) -> None:
        """Cancel everything in trio and wait until nothing is left."""
        if self._ended is None:
            return
        if self._token is not None and not self._ended.done():
            self._token.run_sync_soon(self._scope.cancel)
        await asyncio.wait([self._ended])

    async def call(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run a trio function from an asyncio task and return what it returns.

        Raises:
            RuntimeError: trio has stopped.
            Exception: whatever the function raises.
        """
        assert self._ended is not None, "it was not started"
        assert self._ready is not None
        await self._ready.wait()
        if self._ended.done() or self._token is None or self._nursery is None:
            raise RuntimeError("the connection has been closed")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._token.run_sync_soon(self._nursery.start_soon, self._answer, answer, function, args)
        either: list[asyncio.Future[T] | asyncio.Future[None]] = [answer, self._ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise RuntimeError("the connection has been closed")
        return answer.result()

    async def _run(self, main: Callable[[], Awaitable[None]]) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                self._nursery, self._token = nursery, trio.lowlevel.current_trio_token()
                assert self._ready is not None
                self._ready.set()
                await main()
                nursery.cancel_scope.cancel()

    async def _answer(
        self, answer: asyncio.Future[T], function: Callable[[*Ts], Awaitable[T]], args: tuple[*Ts]
    ) -> None:
        try:
            result = await function(*args)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(result)

    def _over(self, how: Outcome[None]) -> None:
        assert self._ended is not None
        assert self._ready is not None
        self._nursery = self._token = None
        self._ready.set()
        if not self._ended.done():
            self._ended.set_result(None)
        if isinstance(how, Error):
            self._crashed(how.error)
