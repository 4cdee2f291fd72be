"""Bytes between hosts: chunks over the holder's websockets, many in flight, bounded.

The holder is the server of the connection: what a server sends is not masked, which is most of its price.
What is longer (:class:`~gspc_trio.iml.shell.platform.Sizes`) comes on a connection of its own, see
:mod:`gspc_trio.nursery.connections.bulk`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

import trio

from gspc_trio.iml.errors import DataLost, ImlError, LayerGone, error_of
from gspc_trio.iml.messages import Chunk, GetChunk, Located, PutChunk, ServerEntry
from gspc_trio.iml.shell.bulk import BulkLink
from gspc_trio.iml.shell.platform import Sizes, platform
from gspc_trio.nursery.connections.buffers import Budget
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, RemoteError
from gspc_trio.protocol.address import BadAddress

CHUNKS_IN_FLIGHT = 8
"""Chunks of one transfer that are asked for and not yet there."""

LINK_CHUNKS_MAX = 32
"""Chunks of all transfers over one connection that are asked for and not yet there."""

MEASURED_BYTES_MIN = 1 << 18
"""A shorter transfer says more of latency than of bandwidth."""

SMOOTHING = 0.3
"""Weight of the newest transfer in the measured bandwidth."""


class ServerLink:
    """A connection to one memory server, made when it is first needed.

    Args:
        entry: says which one.
        buffers: what this process has for transfers that it asks for, over all connections.

    Attributes:
        bytes_per_s: measured with transfers that are long enough; 0: not yet.
        sizes: how bytes go over it.
        sends_bulk: whether long chunks have a connection of their own.
    """

    def __init__(self, entry: ServerEntry, buffers: Budget) -> None:
        self.entry = entry
        self.buffers = buffers
        self.bytes_per_s: float = 0.0
        self.sizes: Sizes = platform().sizes
        self.slots: trio.Semaphore = trio.Semaphore(LINK_CHUNKS_MAX)
        self._peer: Peer | None = None
        self._problem = ""
        self._ready = trio.Event()
        self.sends_bulk: bool = not entry.address.startswith("memory:")
        self._bulk: BulkLink | None = None
        self._dial_bulk: Callable[[BulkLink], None] = lambda _: None

    async def run(self, network: Network, role: str, name: str) -> None:
        """Hold the connection until it is gone, and with it that for chunks, once one is needed."""
        try:
            address = self.entry.address
            async with (
                network.connect(address, role=role, name=name, expect="iml-server") as peer,
                trio.open_nursery() as nursery,
            ):
                self._dial_bulk = lambda bulk: nursery.start_soon(bulk.run, network, address, name)
                self._peer = peer
                self._ready.set()
                await peer.lost.wait()
                nursery.cancel_scope.cancel()
        except (ConnectionProblem, PeerGone, BadAddress) as error:  # whoever names a server may be wrong
            self._problem = str(error)
        finally:
            self._ready.set()

    @property
    def is_over(self) -> bool:
        """Whether it was tried and is not open."""
        return self._ready.is_set() and (self._peer is None or self._peer.lost.is_set())

    async def read(self, data_id: str, part: int, offset: int, target: memoryview) -> int:
        """Fill ``target`` with bytes of a part; return the version of the part that they are of.

        Raises:
            ImlError: what the server refused with.
            LayerGone: the server is gone.
        """
        if not self.sends_bulk or len(target) < self.sizes.bulk_bytes:
            chunk = await self.call(GetChunk(data_id, part, offset, len(target)))
            if type(chunk) is not Chunk or len(chunk.data) != len(target):
                size_bytes = len(target)
                raise DataLost(f"host {self.entry.host} sent something else than the {size_bytes} bytes")
            target[:] = chunk.data
            return chunk.version
        await self._connected()
        if self._bulk is None or self._bulk.is_over:
            self._bulk = BulkLink(self.entry.host)
            self._dial_bulk(self._bulk)
        return await self._bulk.read(data_id, part, offset, target)

    async def _connected(self) -> Peer:
        await self._ready.wait()
        if self._peer is None or self._peer.lost.is_set():
            raise LayerGone(f"the memory server of host {self.entry.host} is gone: {self._problem}")
        return self._peer

    async def call(self, message: object) -> object:
        """Ask the server.

        Raises:
            ImlError: what the server refused with.
            LayerGone: the server is gone.
        """
        peer = await self._connected()
        try:
            answer: object = await peer.call(message)
            return answer
        except PeerGone as gone:
            raise LayerGone(f"the memory server of host {self.entry.host} is gone: {gone}") from gone
        except RemoteError as refused:
            raise error_of(refused.kind, refused.message) from None


class ServerLinks:
    """Connections to memory servers.

    Args:
        network: through which they are reached.
        nursery: in which they are held.
        name: what we call ourselves.
    """

    def __init__(self, network: Network, nursery: trio.Nursery, name: str) -> None:
        self._network = network
        self._nursery = nursery
        self._name = name
        self._links: dict[str, ServerLink] = {}

    def to(self, entry: ServerEntry) -> ServerLink:
        """Return the connection to a server, dialling if there is none."""
        link = self._links.get(entry.address)
        if link is None or link.is_over:
            link = self._links[entry.address] = ServerLink(entry, self._network.buffers.asked)
            self._nursery.start_soon(link.run, self._network, "iml-client", self._name)
        return link

    def bandwidth_of(self, host: str) -> float:
        """Return the measured bytes per second from a host, 0 if none was measured."""
        return max(
            (link.bytes_per_s for link in self._links.values() if link.entry.host == host), default=0.0
        )


class Sink(Protocol):
    """Where fetched bytes go."""

    def room(self, offset: int, size_bytes: int) -> memoryview:
        """Return where a chunk is to be put first."""
        ...

    def filled(self, offset: int, chunk: memoryview) -> None:
        """Take a chunk from there."""
        ...


class Into:
    """A sink: straight into some memory.

    Args:
        target: as long as what is fetched.
    """

    def __init__(self, target: bytearray | memoryview) -> None:
        self._view = memoryview(target)

    def room(self, offset: int, size_bytes: int) -> memoryview:
        """Return the place itself."""
        return self._view[offset : offset + size_bytes]

    def filled(self, offset: int, chunk: memoryview) -> None:
        """It is there already."""


class By:
    """A sink: by a function that writes.

    Args:
        write: takes (offset, bytes).
    """

    def __init__(self, write: Callable[[int, memoryview], None]) -> None:
        self._write = write
        self._spare: list[memoryview] = []

    def room(self, offset: int, size_bytes: int) -> memoryview:
        """Return a buffer; it is used again."""
        del offset
        spare = self._spare.pop() if self._spare else memoryview(bytearray(size_bytes))
        return spare if len(spare) == size_bytes else memoryview(bytearray(size_bytes))

    def filled(self, offset: int, chunk: memoryview) -> None:
        """Write it."""
        self._write(offset, chunk)
        self._spare.append(chunk)


async def fetch(link: ServerLink, data_id: str, part: int, offset: int, size_bytes: int, sink: Sink) -> int:
    """Get bytes of a part from another host, in chunks.

    Args:
        link: to its holder.
        data_id, part: which part.
        offset, size_bytes: which bytes of it.
        sink: takes them, in any order; its offsets begin at ``offset``.

    Returns:
        the version of the part that all the bytes are of, -1 if a put came between.

    Raises:
        ImlError: the holder does not have it, or is gone.
    """
    versions: set[int] = set()

    async def get(begin: int, count: int) -> None:
        chunk = sink.room(begin, count)
        versions.add(await link.read(data_id, part, offset + begin, chunk))
        sink.filled(begin, chunk)

    begun_s = trio.current_time()
    await in_chunks(link, size_bytes, get)
    taken_s = trio.current_time() - begun_s
    if size_bytes >= MEASURED_BYTES_MIN and taken_s > 0:
        measured = size_bytes / taken_s
        known = link.bytes_per_s
        link.bytes_per_s = measured if not known else known + SMOOTHING * (measured - known)
    return versions.pop() if len(versions) == 1 else -1


async def push(link: ServerLink, found: Located, part: int, data: memoryview) -> None:
    """Write all bytes of a part that is being written on another host.

    Args:
        link: to that host's server.
        found: what is being made; names its data and its write token.
        part: which part of it.
        data: the bytes.

    Raises:
        ImlError: the part is not being written there, or the host is gone.
    """

    async def put(begin: int, count: int) -> None:
        chunk = bytes(data[begin : begin + count])
        await link.call(PutChunk(found.data_id, part, begin, found.write_token, chunk))

    await in_chunks(link, len(data), put)


async def in_chunks(link: ServerLink, size_bytes: int, move: Callable[[int, int], Awaitable[None]]) -> None:
    """Move so many bytes by ``move(offset, bytes)``, several chunks at a time.

    Raises:
        ImlError: the first error of a move; the others are cancelled.
    """
    chunk_bytes = link.sizes.chunk_bytes
    chunks: Iterator[int] = iter(range(0, size_bytes, chunk_bytes))
    problems: list[ImlError] = []

    async def work(cancel: Callable[[], None]) -> None:
        for begin in chunks:
            try:
                count = min(chunk_bytes, size_bytes - begin)
                async with link.slots, link.buffers.hold(count):
                    await move(begin, count)
            except ImlError as error:
                problems.append(error)
                cancel()
                return

    workers = min(CHUNKS_IN_FLIGHT, math.ceil(size_bytes / chunk_bytes))
    if workers == 1:
        await work(lambda: None)
    else:
        async with trio.open_nursery() as nursery:
            for _ in range(workers):
                nursery.start_soon(work, nursery.cancel_scope.cancel)
    if problems:
        raise problems[0]
