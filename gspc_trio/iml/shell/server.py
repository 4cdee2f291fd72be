"""A host's memory server: holds parts, sends and fetches chunks, hands descriptors to its processes."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import trio

from gspc_trio.iml import messages as x
from gspc_trio.iml.errors import DataLost, ImlError, LayerGone, NoRoom, UnknownData, error_of
from gspc_trio.iml.layout import Layout, extents, part_sizes
from gspc_trio.iml.local import socket_address_of
from gspc_trio.iml.shell.bulk import answer_chunks
from gspc_trio.iml.shell.local import LENT, LocalServer
from gspc_trio.iml.shell.own_data import OwnData
from gspc_trio.iml.shell.store import StoreShell
from gspc_trio.iml.shell.transfer import By, Into, ServerLinks, fetch
from gspc_trio.iml.store import Store
from gspc_trio.iml.store_events import Granted, Key, PinUse
from gspc_trio.nursery.connections.bulk import BulkAndCalls
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone, RemoteError, drop_offender

log: logging.Logger = logging.getLogger(__name__)

TRIES = 10
"""How often bytes are fetched again because a put came between."""


class ImlServer:
    """A running memory server.

    Args:
        network: where it listens, and reaches the coordinator and other servers.
        host: its name in the layer.
        memory_bytes: how much shared memory it may use.
        spill_bytes: how much may go to disk, 0: nothing.
        spill_directory: where; "" for the system's directory for temporary files.

    Attributes:
        address, local_address: where other hosts, and processes of this machine, reach it.
        store: the parts that it holds, while it runs.
        links: to other servers, while it runs.
        rank: its number in the layer.
        gone: set when it has lost its layer; ``reason`` says why.
    """

    def __init__(
        self,
        network: Network,
        host: str,
        memory_bytes: int,
        spill_bytes: int = 0,
        spill_directory: str = "",
    ) -> None:
        self.host = host
        self.address: str = ""
        self.local_address: str = ""
        self.rank: int = -1
        self.gone: trio.Event = trio.Event()
        self.reason: str = ""
        self.machine: Store = Store(host, memory_bytes, spill_bytes)
        self._spill_directory = spill_directory or tempfile.gettempdir()
        self._network = network
        self._coordinator: Peer
        self._joined = trio.Event()
        self._gathered = 0
        self._readers: dict[str, str] = {}  # data that lies here whole -> job that may read it
        self._copying: dict[Key, x.CopyPart] = {}
        self._fetching: dict[str, list[trio.CancelScope]] = {}  # data -> who waits for it to come
        self.store: StoreShell
        self.links: ServerLinks
        self._own: OwnData

    async def run(
        self,
        listen: str,
        coordinator: str,
        *,
        local: bool = True,
        inside: str = "",
        task_status: trio.TaskStatus[ImlServer] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled or the coordinator is gone; then nothing of the memory is left.

        Args:
            listen: address for clients and other servers.
            coordinator: its address.
            local: let processes of this machine come by a Unix socket.
            inside: where the coordinator listens within this process, if it does.
            task_status: told when it has joined.

        Raises:
            ConnectionProblem: the coordinator cannot be reached.
            ImlError: it does not let this server in.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.store = StoreShell(self.machine, self._spill_directory, nursery, self._evicted)
                self.links = ServerLinks(self._network, nursery, self.host)
                self._own = OwnData(
                    self.host, self.store, self.ask, nursery, self._forget, promises=not inside
                )
                self.address = await nursery.start(self._listen, listen)
                if local:
                    address = socket_address_of(self._network.token, coordinator, self.host)
                    local_server = LocalServer(self, address)
                    self.local_address = await nursery.start(local_server.run)
                connection = self._network.connect(
                    inside or coordinator, role="iml-server", name=self.host, expect="iml"
                )
                async with connection as self._coordinator:
                    self.rank = (await self._join()).rank
                    task_status.started(self)
                    await self._obey()
                    # At once, and not when what is queued has been sent: what is here counts as lost now.
                    nursery.cancel_scope.cancel()
        finally:
            if hasattr(self, "store"):
                self.store.close()
            self.reason = self.reason or "it was stopped"
            self.gone.set()

    async def _join(self) -> x.ServerJoined:
        machine = self.machine
        hello = x.ServerHello(
            self.host, self.address, self.local_address, machine.memory_bytes, machine.spill_bytes
        )
        joined: x.ServerJoined = await self._call(hello)
        self._own.prefix = joined.prefix
        self._joined.set()
        return joined

    async def ask(self, request: x.LayerRequest) -> Any:
        """Ask the coordinator, e.g. for a process of this host.

        Whoever connects locally before this server has joined its layer waits until it has.

        Raises:
            ImlError: what it refuses with.
        """
        await self._joined.wait()
        return await self._call(request)

    async def _call(self, request: x.LayerRequest | x.ServerHello) -> Any:
        try:
            return await self._coordinator.call(request)
        except PeerGone as gone:
            raise LayerGone(f"the memory layer is gone: {gone}") from gone
        except RemoteError as refused:
            raise error_of(refused.kind, refused.message) from None

    async def bring(self, job: str, data_id: str) -> Granted:
        """Have all of some data here, in one part, and return that, pinned to be mapped.

        Raises:
            ImlError: there is no such data, or no room here.
        """
        for _ in range(TRIES):
            stripes = await self.fetch(job, data_id)
            if stripes is not None:
                return await self._gather(stripes)
            with suppress(UnknownData):  # it was given up for other data since; or freed, which shows then
                return await self.store.pin((data_id, 0), PinUse.MAP)
        raise NoRoom(
            f"host {self.host}: data {data_id} is given up for other data again and again before it is mapped"
        )

    def bring_now(self, job: str, data_id: str) -> Granted | None:
        """Do as :meth:`bring` with what lies here already and may be read; return None if that takes time.

        Raises:
            ImlError: as :meth:`bring`.
        """
        return self.store.pin_now((data_id, 0), PinUse.MAP) if self._is_here(job, data_id) else None

    def _is_here(self, job: str, data_id: str) -> bool:
        """Return whether all of it is here for the job: what was freed, or is stale, is not any more."""
        if self.machine.size_of((data_id, 0)) is None:
            return False
        readers = self._readers.get(data_id)
        return readers is not None and (not job or readers in (job, x.EVERY_JOB))

    async def fetch(self, job: str, data_id: str) -> x.Located | None:
        """Have all of some data here, in one part; return where it lies if that is in stripes, which stay.

        Raises:
            ImlError: there is no such data, or no room here.
        """
        request = x.Replicate(job, data_id, hosts=(self.host,), cached=True, undivided=True)
        while not self._is_here(job, data_id):
            with trio.CancelScope() as waiting:
                fetching = self._fetching.setdefault(data_id, [])
                fetching.append(waiting)
                try:
                    found: x.Located = await self.ask(request)
                finally:
                    fetching.remove(waiting)
                    if not fetching:
                        self._fetching.pop(data_id, None)
                if len(found.parts) > 1:
                    return found
                self._readers[data_id] = found.job or x.EVERY_JOB
                return None
        return None

    async def locate(self, job: str, data_id: str) -> x.Located | None:
        """Return where data lies; None if all of it is here, in one part.

        Raises:
            ImlError: there is no such data for the job.
        """
        if self._is_here(job, data_id):
            return None
        size_bytes = self.machine.size_of((data_id, 0))
        found: x.Located = await self.ask(x.Locate(job, data_id))
        if len(found.parts) > 1 or size_bytes is None or self.rank not in found.parts[0]:
            return found
        self._readers[data_id] = found.job or x.EVERY_JOB
        return None

    async def _gather(self, found: x.Located) -> Granted:
        """Put all stripes together in a part that goes when it is not mapped any more."""
        self._gathered -= 1
        key = (found.data_id, self._gathered)
        await self.store.create(key, found.size_bytes, writing=True)
        try:
            entries = {entry.rank: entry for entry in found.servers}
            sizes = part_sizes(found.size_bytes, found.block_bytes, len(found.parts))
            for part, holders in enumerate(found.parts):
                data = bytearray(sizes[part])
                if self.rank in holders:
                    data[:], _ = await self.store.read((found.data_id, part), 0, sizes[part])
                else:
                    await self._fetch_into(entries[holders[0]], found.data_id, part, data)
                for piece in extents(found.block_bytes, len(found.parts), 0, found.size_bytes):
                    if piece.part == part:
                        begin = piece.part_offset
                        content = bytes(data[begin : begin + piece.size_bytes])
                        self.store.write(key, piece.offset, content)
            self.store.seal(key)
            return await self.store.pin(key, PinUse.MAP)
        finally:
            self.store.drop(key)

    async def _fetch_into(self, source: x.ServerEntry, data_id: str, part: int, target: bytearray) -> None:
        for _ in range(TRIES):
            if await fetch(self.links.to(source), data_id, part, 0, len(target), Into(target)) >= 0:
                return
        raise DataLost(f"data {data_id} changed again and again while it was copied")

    async def new(self, job: str, data_id: str, size_bytes: int) -> str:
        """Make data here, to be written; return its id.

        Raises:
            ImlError: there is no room, or such data is there already.
        """
        await self._joined.wait()
        if not data_id and self._own.prefix:
            made = await self._own.begin(job, size_bytes)
        else:
            request = x.Alloc(job, size_bytes, Layout((self.host,)), writing=True, data_id=data_id)
            found: x.Located = await self.ask(request)
            made = found.data_id
        self._readers[made] = job
        return made

    async def commit(self, data_id: str) -> None:
        """Let data be read that was written here.

        Raises:
            ImlError: the coordinator does not take it; then it is gone.
        """
        await self._own.commit(data_id)

    async def abort(self, data_id: str) -> None:
        """Give up data that was being written here.

        Raises:
            LayerGone: with all else.
        """
        await self._own.abort(data_id)

    def promise(self, data_id: str) -> bool:
        """Let data be read here that was written here, and by others soon.

        Returns:
            False if that has to be waited for: see :meth:`commit`.
        """
        return self._own.promise(data_id)

    async def settle(self, job: str, data_id: str) -> bool:
        """Wait until others can read what was promised.

        Returns:
            whether anything is ever promised here.

        Raises:
            ImlError: they never will: the coordinator did not take it, or its server has died before.
        """
        if not await self._own.settle(data_id):
            await self.ask(x.Locate(job, data_id))
        return self._own.promises

    async def lend(self, size_bytes: int) -> Key:
        """Make a part that no directory knows, to be written here and fetched by another server.

        Raises:
            NoRoom: it does not fit.
        """
        self._gathered -= 1
        key = (LENT, self._gathered)
        await self.store.create(key, size_bytes, writing=True)
        return key

    def abandon(self, data_ids: Iterable[str]) -> None:
        """Whoever was writing this data is gone."""
        for data_id in data_ids:
            self._nursery.start_soon(self._abort, data_id)

    async def _abort(self, data_id: str) -> None:
        try:
            await self.abort(data_id)
        except ImlError as error:
            log.info("%s is not aborted: %s", data_id, error)

    # Orders of the coordinator

    async def _obey(self) -> None:
        try:
            while True:
                for message in await self._coordinator.receive():
                    self._take(message)
        except PeerGone as gone:
            self.reason = f"its coordinator is gone: {gone.reason}"

    def _take(self, message: object) -> None:
        match message:
            case x.CreatePart():
                self._nursery.start_soon(self._create, message)
            case x.SealPart():
                self.store.seal((message.data_id, message.part))
            case x.KeepPart():
                self.store.seal((message.data_id, message.part), False)
            case x.DropPart():
                self._drop(message)
            case x.ApplyPut():
                self._nursery.start_soon(self._apply, message)
            case x.CopyPart():
                self._copying[message.data_id, message.part] = message
                self._nursery.start_soon(self._copy, message)
            case x.LostData():
                pass
            case _:
                log.warning("the coordinator said %s, which no server understands", message)

    def _done(self, call: int, error: Exception | None = None) -> None:
        if not call:
            return
        kind = type(error).__name__ if error is not None else ""
        self._coordinator.post(x.PartDone(call, kind, str(error) if error is not None else ""))

    async def _create(self, order: x.CreatePart) -> None:
        error = None
        try:
            await self.store.create(
                (order.data_id, order.part),
                order.size_bytes,
                writing=order.writing,
                write_token=order.write_token,
            )
        except ImlError as problem:
            error = problem
        self._done(order.call, error)

    def _forget(self, data_id: str) -> None:
        self._readers.pop(data_id, None)
        self.store.drop((data_id, 0))

    def _drop(self, order: x.DropPart) -> None:
        self._readers.pop(order.data_id, None)
        self._copying.pop((order.data_id, order.part), None)
        self.store.drop((order.data_id, order.part))
        self._done(order.call)

    async def _apply(self, order: x.ApplyPut) -> None:
        error: Exception | None = None
        try:
            source = (order.staging_id, order.part)
            await self.store.apply((order.data_id, order.part), source, order.offset)
        except ImlError as problem:
            error = problem
        except OSError as problem:
            error = DataLost(f"host {self.host} could not store a put: {problem.strerror or problem}")
        self._done(order.call, error)

    async def _copy(self, order: x.CopyPart) -> None:
        """Fetch a part from another server; it is seen here when it is whole."""
        key = (order.data_id, order.part)
        error = None
        try:
            await self.store.create(key, order.size_bytes, writing=True, cached=order.cached)
            try:
                await self._fetch_all(order, key)
                if self._copying.get(key) is not order:
                    raise UnknownData(f"data {order.data_id} was dropped while it was copied")
            except BaseException:
                self.store.drop(key)
                raise
            self.store.seal(key)
            self._arrived(order)
        except ImlError as problem:
            error = problem
        finally:
            if self._copying.get(key) is order:
                del self._copying[key]
        self._done(order.call, error)

    def _arrived(self, order: x.CopyPart) -> None:
        """Let all of some data be read that has come: the coordinator has said by whom."""
        if order.readers:
            self._readers[order.data_id] = order.readers
            for waiting in self._fetching.get(order.data_id, ()):
                waiting.cancel()

    async def _fetch_all(self, order: x.CopyPart, key: Key) -> None:
        link = self.links.to(order.source)
        sink = By(partial(self.store.write, key))
        for _ in range(TRIES):
            if await fetch(link, order.data_id, order.part, 0, order.size_bytes, sink) >= 0:
                return
        raise DataLost(f"data {order.data_id} changed again and again while it was copied")

    def _evicted(self, key: Key) -> None:
        self._readers.pop(key[0], None)
        self._coordinator.post(x.Evicted(*key))

    # Others

    async def _listen(self, address: str, *, task_status: trio.TaskStatus[str]) -> None:
        serve = BulkAndCalls(self._serve, partial(answer_chunks, self.store))
        await self._network.listen(address, serve, role="iml-server", name=self.host, task_status=task_status)

    async def _serve(self, peer: Peer) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                for message in await peer.receive():
                    if isinstance(message, IncomingCall):
                        nursery.start_soon(self._answer, message)
                    else:
                        drop_offender(peer, f"a memory server does not understand {type(message).__name__}")

    async def _answer(self, call: IncomingCall) -> None:
        body = call.body
        try:
            if isinstance(body, x.GetChunk):
                data, version = await self.store.read((body.data_id, body.part), body.offset, body.size_bytes)
                call.reply(x.Chunk(version, data))
            elif isinstance(body, x.PutChunk):
                self.store.write((body.data_id, body.part), body.offset, body.data, body.write_token)
                call.reply(x.ImlDone())
            elif isinstance(body, x.PutFrom):
                key = (body.data_id, body.part)
                sink = By(partial(self.store.write, key, write_token=body.write_token))
                await fetch(
                    self.links.to(body.source), body.lent_id, body.lent_part, 0, body.size_bytes, sink
                )
                call.reply(x.ImlDone())
            elif isinstance(body, x.PutWritten):
                offset = body.offset
                for data_id, token in body.sources:
                    target = ((body.data_id, 0), offset, body.write_token)
                    offset += self.store.copy_written((data_id, 0), token, *target)
                    await trio.lowlevel.checkpoint()
                call.reply(x.ImlDone())
            else:
                call.fail(TypeError(f"a memory server cannot be asked for {type(body).__name__}"))
        except ImlError as error:
            call.fail(error)
        except OSError as error:
            call.fail(DataLost(f"host {self.host} cannot read the bytes back: {error.strerror}"))
