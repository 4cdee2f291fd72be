"""The local socket of a memory server, for processes of its machine: descriptors over a Unix socket."""

from __future__ import annotations

import itertools
import logging
import os
import socket
from collections import Counter as Multiset
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from typing import Any, Protocol

import trio

from gspc_trio.iml import local
from gspc_trio.iml.directory import partition
from gspc_trio.iml.errors import DuplicateData, ImlError, LayerGone, NoRoom, UnknownData
from gspc_trio.iml.layout import Layout, Range, check_range
from gspc_trio.iml.local import Fields
from gspc_trio.iml.messages import (
    AbortData,
    Alloc,
    BeginPut,
    CommitData,
    GetServers,
    LayerRequest,
    Locate,
    Located,
    LookUp,
    Publish,
    PutBegun,
    PutWritten,
    Replicate,
    ServerList,
)
from gspc_trio.iml.segment import map_readonly
from gspc_trio.iml.shell.access import Access
from gspc_trio.iml.shell.platform import platform
from gspc_trio.iml.shell.store import StoreShell
from gspc_trio.iml.shell.transfer import ServerLinks
from gspc_trio.iml.store_events import Granted, Key, PinUse

log: logging.Logger = logging.getLogger(__name__)

LENT = "lent"
"""Stands for the id of data in what is lent to other servers."""

TRIES = 10
"""How often data is looked for again that is given up for other data meanwhile."""

JOINED_AT_ONCE = 64
"""So many chunks are put together by one call."""

PACKETS_AT_ONCE = 32
"""So many packets of one process are answered before others have their turn."""


class Server(Protocol):
    """What a memory server does for the processes of its machine."""

    host: str
    address: str
    store: StoreShell
    links: ServerLinks

    async def ask(self, request: LayerRequest) -> Any:
        """Ask the coordinator."""
        ...

    async def bring(self, job: str, data_id: str) -> Granted:
        """Return data that is here, or fetch it first."""
        ...

    def bring_now(self, job: str, data_id: str) -> Granted | None:
        """Return data that is here, or None."""
        ...

    async def fetch(self, job: str, data_id: str) -> Located | None:
        """Have a copy of data here from now on."""
        ...

    async def locate(self, job: str, data_id: str) -> Located | None:
        """Return where data lies; None if all of it is here, in one part."""
        ...

    async def new(self, job: str, data_id: str, size_bytes: int) -> str:
        """Begin new data; return its id."""
        ...

    async def commit(self, data_id: str) -> None:
        """Let data be read that was begun."""
        ...

    async def abort(self, data_id: str) -> None:
        """Give up data that was begun."""
        ...

    def promise(self, data_id: str) -> bool:
        """Let data be read here that was begun, elsewhere soon; False: that has to be waited for."""
        ...

    async def settle(self, job: str, data_id: str) -> bool:
        """Wait until others can read what was promised; return whether anything is ever promised."""
        ...

    async def lend(self, size_bytes: int) -> Key:
        """Return memory for data of another host."""
        ...

    def abandon(self, data_ids: Iterable[str]) -> None:
        """Give up data whose writer is gone."""
        ...


class LocalServer:
    """Listens on a Unix socket without a file.

    Args:
        server: answers.
        address: name of the socket.
    """

    def __init__(self, server: Server, address: str) -> None:
        self._server = server
        self._address = address

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled.

        Raises:
            DuplicateData: this host has a server already.
        """
        try:
            listener = platform().listen(self._address)
        except OSError as error:
            host = self._server.host
            raise DuplicateData(
                f"host {host!r} has a memory server already: name this one with --host"
            ) from error
        with closing(listener):
            task_status.started(self._address)
            async with trio.open_nursery() as nursery:
                while True:
                    nursery.start_soon(_Connection(self._server, await listener.accept()).run)


async def refuse_all(address: str, kind: str, problem: str, on_refused: Callable[[], None]) -> None:
    """Stand in for a server that cannot be started: answer everything with an error, until cancelled.

    Args:
        address: name of the socket; if somebody else has it, nothing is done.
        kind, problem: type and message of the error.
        on_refused: told that somebody wanted something.
    """
    try:
        listener = platform().listen(address)
    except OSError:
        return
    with closing(listener):
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(_refuse, await listener.accept(), kind, problem, on_refused)


async def _refuse(connection: socket.socket, kind: str, problem: str, on_refused: Callable[[], None]) -> None:
    buffer = local.packet_buffer()
    with connection, suppress(OSError, ValueError):
        while True:
            await trio.lowlevel.wait_readable(connection)
            packet, _ = local.receive(connection, buffer)
            if not packet:
                return
            for operation, number, *_ in local.requests_of(packet):
                if operation != local.UNMAP:
                    local.send(connection, local.pack((number, kind, problem)), -1)
                    on_refused()


class _SentChunks:
    """What one process has sent to another host: unseen there until it becomes data.

    Args:
        server: the memory server of its own host.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._chunks: list[Located] = []

    @property
    def data_ids(self) -> tuple[str, ...]:
        """The ids of what is being written for it there."""
        return tuple(chunk.data_id for chunk in self._chunks)

    async def send(self, access: Access, job: str, host: str, view: memoryview) -> None:
        """Have these bytes on a host.

        Raises:
            ImlError: there is no such host, it has no room, or it is gone.
        """
        with trio.CancelScope(shield=True):  # else nobody would know what is to be given up
            made: Located = await self._server.ask(Alloc(job, len(view), Layout((host,)), writing=True))
        self._chunks.append(made)
        if await access.write(made, made, 0, view):
            raise LayerGone(f"the memory server of host {host} is gone")

    async def join(self, job: str, host: str) -> str:
        """Make data on a host of all that was sent there; return its id.

        Raises:
            ImlError: it has no room for that, or is gone; nothing is left of what was sent.
        """
        chunks, self._chunks = self._chunks, []
        size_bytes = sum(chunk.size_bytes for chunk in chunks)
        try:
            with trio.CancelScope(shield=True):
                made: Located = await self._server.ask(Alloc(job, size_bytes, Layout((host,)), writing=True))
            try:
                await self._put_together(made, chunks)
                await self._server.ask(CommitData(made.data_id))
            except BaseException:
                with trio.CancelScope(shield=True), suppress(ImlError):
                    await self._server.ask(AbortData(made.data_id))
                raise
        finally:
            self._server.abandon(chunk.data_id for chunk in chunks)
        return made.data_id

    async def _put_together(self, made: Located, chunks: list[Located]) -> None:
        link = self._server.links.to(made.servers[0])
        offset = 0
        for begin in range(0, len(chunks), JOINED_AT_ONCE):
            some = chunks[begin : begin + JOINED_AT_ONCE]
            sources = tuple((chunk.data_id, chunk.write_token) for chunk in some)
            await link.call(PutWritten(made.data_id, offset, made.write_token, sources))
            offset += sum(chunk.size_bytes for chunk in some)


class _Connection:
    """A process that has connected: what it has pinned and is writing goes with its connection."""

    def __init__(self, server: Server, connection: socket.socket) -> None:
        self._server = server
        self._connection = connection
        self._pins: Multiset[Key] = Multiset()
        self._writing: dict[str, None] = {}
        self._lent: dict[Key, None] = {}
        self._sent = _SentChunks(server)
        self._outbox: deque[tuple[bytes, int]] = deque()
        self._wake = trio.Event()

    async def run(self) -> None:
        buffer = local.packet_buffer()
        with self._connection:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send)
                    for count in itertools.count(1):
                        try:
                            if count % PACKETS_AT_ONCE == 0:  # others have their turn
                                await trio.lowlevel.checkpoint()
                            packet, _ = local.receive(self._connection, buffer)
                        except BlockingIOError:
                            await trio.lowlevel.wait_readable(self._connection)
                            continue
                        if not packet:
                            break
                        for request in local.requests_of(packet):
                            operation, number, *fields = request
                            self._take(nursery, operation, number, fields)
                    nursery.cancel_scope.cancel()
            except* OSError:
                pass  # it is gone
            except* local.BadPacket as bad:
                host, why = self._server.host, bad.exceptions[0]
                log.warning("connection of a process of host %s to its memory server ended: %s", host, why)
            finally:
                self._leave()

    def _take(self, nursery: trio.Nursery, operation: int, number: int, fields: Fields) -> None:
        if operation in (local.UNMAP, local.TAKE_BACK):
            self.tell_soon(operation, *fields)
        elif not self._answer_now(operation, number, fields):
            nursery.start_soon(self._answer, operation, number, fields)

    def _answer_now(self, operation: int, number: int, fields: Fields) -> bool:
        """Answer what takes no time; return False for what may take some."""
        store = self._server.store
        try:
            if operation == local.BRING:
                granted = self._server.bring_now(*fields)
            elif operation == local.MAP:
                granted = store.pin_now((fields[0], fields[1]), PinUse.MAP)
            elif operation == local.READ:
                data_id, part, offset, size_bytes = fields
                found = store.read_now((data_id, part), offset, min(size_bytes, local.READ_BYTES_MAX))
                if found is not None:
                    self._reply([number, "", *found])
                return found is not None
            elif operation == local.PROMISE and fields[0] in self._writing:
                if not self._server.promise(fields[0]):
                    return False
                del self._writing[fields[0]]
                self._reply([number, ""])
                return True
            else:
                return False
        except ImlError as error:
            self._reply([number, type(error).__name__, str(error)])
            return True
        if granted is None:
            return False
        try:
            descriptor = store.segment_of(granted).lent()
        except OSError as error:
            store.unpin(granted.key, PinUse.MAP)
            self._reply([number, *self._no_room(error)])
            return True
        self._pins[granted.key] += 1
        self._reply([number, "", granted.size_bytes, granted.key[1]], descriptor)
        return True

    def _no_room(self, error: OSError) -> Fields:
        return ["NoRoom", f"host {self._server.host}: {error.strerror}"]

    def _leave(self) -> None:
        for key, count in self._pins.items():
            for _ in range(count):
                self._server.store.unpin(key, PinUse.MAP)
        for _, descriptor in self._outbox:
            if descriptor >= 0:
                os.close(descriptor)
        for key in list(self._lent):
            self._take_back(key)
        self._server.abandon((*self._writing, *self._sent.data_ids))

    async def _answer(self, operation: int, number: int, fields: Fields) -> None:
        descriptor = -1
        try:
            answer, descriptor = await self._do(operation, fields)
        except ImlError as error:
            answer = [type(error).__name__, str(error)]
        except OSError as error:
            answer = self._no_room(error)
        else:
            answer = ["", *answer]
        try:
            self._reply([number, *answer], descriptor)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _reply(self, message: Fields, descriptor: int = -1) -> None:
        """Send an answer, at once if the socket takes it; the descriptor stays the caller's."""
        packet = local.pack(message)
        if not self._outbox:
            try:
                local.send(self._connection, packet, descriptor)
                return
            except BlockingIOError:
                pass
            except OSError:
                return  # it is gone, as the end of what it says will show
        self._outbox.append((packet, os.dup(descriptor) if descriptor >= 0 else -1))
        self._wake.set()

    async def _do(self, operation: int, fields: Fields) -> tuple[Fields, int]:
        store = self._server.store
        if operation in (local.BRING, local.MAP):
            if operation == local.BRING:
                granted = await self._server.bring(*fields)
            else:
                granted = await store.pin((fields[0], fields[1]), PinUse.MAP)
            key = granted.key
            self._pins[key] += 1
            return [granted.size_bytes, key[1]], store.segment_of(granted).reader()
        if operation == local.READ:
            data_id, part, offset, size_bytes = fields
            data, version = await store.read((data_id, part), offset, min(size_bytes, local.READ_BYTES_MAX))
            return [data, version], -1
        if operation == local.WRITER:
            data_id, part, write_token = fields
            descriptor, size_bytes = await store.writer((data_id, part), write_token)
            return [size_bytes], descriptor
        if operation == local.FETCH:
            await self._server.fetch(*fields)
            return [], -1
        if operation == local.SETTLE:
            return [int(await self._server.settle(*fields))], -1
        if operation == local.COPY:
            await self._server.settle(fields[0], fields[1])
            await self._server.ask(Replicate(*fields))
            return [], -1
        if operation == local.NEW:
            return await self._new(*fields)
        if operation == local.LOOK_UP:
            found = await self._server.ask(LookUp(*fields))
            there = partition(found).items()
            places = [(host, sum(part.size_bytes for part in parts)) for host, parts in there]
            return [found.data_id, found.size_bytes, places], -1
        if operation == local.PUBLISH:
            job, data_id, name = fields
            await self._server.ask(Publish(job, data_id, name, replaces=True))
            return [], -1
        if operation == local.LEND:
            return await self._lend(*fields)
        if operation == local.BRING_RANGE:
            return await self._bring_range(*fields)
        if operation == local.PUT:
            await self._put(*fields)
            return [], -1
        if operation == local.SPREAD:
            return [await self._spread(*fields)], -1
        if operation == local.SEND:
            job, host, part = fields
            async with self._shown(part) as view:
                await self._sent.send(self._access(), job, host, view)
            return [], -1
        if operation == local.JOIN:
            return [await self._sent.join(*fields)], -1
        if operation == local.SHOW:
            key = (fields[0], fields[1])
            if key not in self._lent:
                raise UnknownData(f"{key[0]} part {key[1]} is not lent by this process")
            store.seal(key)
            return [], -1
        await self._end_writing(operation, *fields)
        return [], -1

    async def _end_writing(self, operation: int, data_id: str) -> None:
        if data_id not in self._writing:
            if operation == local.ABORT:
                return
            raise UnknownData(f"nothing is being written under {data_id} by this process")
        if operation in (local.COMMIT, local.PROMISE):
            await self._server.commit(data_id)
            self._writing.pop(data_id, None)
        else:
            assert operation == local.ABORT, operation
            self._writing.pop(data_id, None)
            await self._server.abort(data_id)

    async def _new(self, job: str, data_id: str, size_bytes: int) -> tuple[Fields, int]:
        made = await self._server.new(job, data_id, size_bytes)
        self._writing[made] = None
        descriptor, _ = await self._server.store.writer((made, 0))
        return [made], descriptor

    async def _lend(self, size_bytes: int) -> tuple[Fields, int]:
        key = await self._server.lend(size_bytes)
        self._lent[key] = None
        descriptor, _ = await self._server.store.writer(key)
        return [*key, self._server.address], descriptor

    async def _bring_range(self, job: str, data_id: str, offset: int, size_bytes: int) -> tuple[Fields, int]:
        """Have a range here, alone or with all of the data, pinned."""
        store = self._server.store
        for _ in range(TRIES):
            found = await self._server.locate(job, data_id)
            if found is not None:
                break
            with suppress(UnknownData):  # it was given up for other data since; or freed, which shows then
                granted = await store.pin((data_id, 0), PinUse.MAP)
                return self._ranged(granted, data_id, offset, size_bytes)
        else:
            raise NoRoom(
                f"host {self._server.host}: data {data_id} is given up for other data again and again"
            )
        check_range(data_id, found.size_bytes, offset, size_bytes)
        content = await self._access().read(found, Range(data_id, offset, size_bytes))
        key = await self._server.lend(size_bytes)
        try:
            store.write(key, 0, content)
            store.seal(key)
            granted = await store.pin(key, PinUse.MAP)
        finally:
            store.drop(key)
        return self._ranged(granted, data_id, 0, size_bytes)

    def _ranged(self, granted: Granted, data_id: str, begin: int, size_bytes: int) -> tuple[Fields, int]:
        """Return the answer for a range of a part that is pinned."""
        store = self._server.store
        try:
            check_range(data_id, granted.size_bytes, begin, size_bytes)
            descriptor = store.segment_of(granted).reader()
        except BaseException:
            store.unpin(granted.key, PinUse.MAP)
            raise
        self._pins[granted.key] += 1
        return [granted.size_bytes, *granted.key, begin], descriptor

    async def _put(self, job: str, data_id: str, offset: int, part: int) -> None:
        """Overwrite a range with what this process has been lent and has shown."""
        server = self._server
        async with self._shown(part) as view:
            begun: PutBegun = await server.ask(BeginPut(job, data_id, offset, len(view)))
            target: Located = await server.ask(Locate(job, data_id))
            await self._access().fill(server.ask, begun.located, target, offset, view)

    async def _spread(self, job: str, part: int, stripes: int) -> str:
        """Make data of what this process has shown, a stripe on this host and on others; return its id."""
        server = self._server
        there: ServerList = await server.ask(GetServers())
        hosts = dict.fromkeys((server.host, *(entry.host for entry in there.servers)))
        if not 0 < stripes <= len(hosts):
            raise NoRoom(f"{stripes} stripes were asked for, but the layer has {len(hosts)} hosts")
        async with self._shown(part) as view:
            layout = Layout(tuple(hosts)[:stripes], -(-len(view) // stripes))
            made: Located = await server.ask(Alloc(job, len(view), layout, writing=True))
            await self._access().fill(server.ask, made, made, 0, view)
        return made.data_id

    @asynccontextmanager
    async def _shown(self, part: int) -> AsyncIterator[memoryview]:
        """See what this process has been lent and has shown, for the time of a block."""
        store, key = self._server.store, (LENT, part)
        if key not in self._lent:
            raise UnknownData(f"part {part} is not lent by this process")
        granted = await store.pin(key, PinUse.MAP)
        try:
            descriptor = store.segment_of(granted).reader()
            try:
                mapped = map_readonly(descriptor, granted.size_bytes)
            finally:
                os.close(descriptor)
            yield memoryview(mapped)
        finally:
            store.unpin(key, PinUse.MAP)

    def _access(self) -> Access:
        return Access(self._server.links, self._server.host, lambda _: self)

    # As Near of its own server

    async def ask(self, operation: int, *fields: object) -> tuple[Fields, int]:
        """Do what a process would ask for."""
        return await self._do(operation, list(fields))

    def tell_soon(self, operation: int, *fields: Any) -> None:
        """Take what has no answer."""
        if operation == local.UNMAP:
            self._unpin(*fields)
        elif operation == local.TAKE_BACK:
            self._take_back((fields[0], fields[1]))

    async def tell_now(self) -> None:
        """Nothing waits."""

    def _take_back(self, key: Key) -> None:
        if key in self._lent:
            del self._lent[key]
            self._server.store.drop(key)

    def _unpin(self, data_id: str, part: int) -> None:
        key = (data_id, part)
        if self._pins[key]:
            self._pins[key] -= 1
            self._server.store.unpin(key, PinUse.MAP)

    async def _send(self) -> None:
        """Send what the socket did not take at once."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._outbox:
                await trio.lowlevel.wait_writable(self._connection)
                packet, descriptor = self._outbox[0]
                with suppress(BlockingIOError):
                    local.send(self._connection, packet, descriptor)
                    self._outbox.popleft()
                    if descriptor >= 0:
                        os.close(descriptor)
