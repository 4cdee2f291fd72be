"""Bytes between hosts: chunks over the holder's websocket, many in flight, bounded.

The holder is the server of the connection: what a server sends is not masked, which is most of its price.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator

import trio

from gspc_trio.core.iml.errors import DataLost, ImlError, LayerGone, error_of
from gspc_trio.core.iml.exchange import Chunk, GetChunk, PutChunk, ServerEntry
from gspc_trio.nursery.errors import ConnectionProblem
from gspc_trio.nursery.network import Network
from gspc_trio.nursery.rpc import Peer, PeerGone, RemoteError

CHUNK_BYTES = 1 << 21
"""Bytes in one chunk."""

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

    Attributes:
        bytes_per_s: measured with transfers that are long enough; 0: not yet.
    """

    def __init__(self, entry: ServerEntry) -> None:
        self.entry = entry
        self.bytes_per_s = 0.0
        self.slots = trio.Semaphore(LINK_CHUNKS_MAX)
        self._peer: Peer | None = None
        self._problem = ""
        self._ready = trio.Event()

    async def run(self, network: Network, role: str, name: str) -> None:
        """Hold the connection until it is gone."""
        try:
            address = self.entry.address
            async with network.connect(address, role=role, name=name, expect="iml-server") as peer:
                self._peer = peer
                self._ready.set()
                await peer.lost.wait()
        except (ConnectionProblem, PeerGone) as error:
            self._problem = str(error)
        finally:
            self._ready.set()

    @property
    def is_over(self) -> bool:
        """Whether it was tried and is not open."""
        return self._ready.is_set() and (self._peer is None or self._peer.lost.is_set())

    async def call(self, message: object) -> object:
        """Ask the server.

        Raises:
            ImlError: what the server refused with.
            LayerGone: the server is gone.
        """
        await self._ready.wait()
        if self._peer is None:
            raise LayerGone(f"the memory server of host {self.entry.host} is gone: {self._problem}")
        try:
            answer: object = await self._peer.call(message)
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
            link = self._links[entry.address] = ServerLink(entry)
            self._nursery.start_soon(link.run, self._network, "iml-client", self._name)
        return link

    def bandwidth_of(self, host: str) -> float:
        """Return the measured bytes per second from a host, 0 if none was measured."""
        return max(
            (link.bytes_per_s for link in self._links.values() if link.entry.host == host), default=0.0
        )


async def fetch(
    link: ServerLink,
    data_id: str,
    part: int,
    offset: int,
    size_bytes: int,
    sink: Callable[[int, bytes], None],
) -> int:
    """Get bytes of a part from another host, in chunks.

    Args:
        link: to its holder.
        data_id, part: which part.
        offset, size_bytes: which bytes of it.
        sink: takes (offset behind ``offset``, bytes), in any order.

    Returns:
        the version of the part that all the bytes are of, -1 if a put came between.

    Raises:
        ImlError: the holder does not have it, or is gone.
    """
    versions: set[int] = set()

    async def get(begin: int, count: int) -> None:
        chunk = await link.call(GetChunk(data_id, part, offset + begin, count))
        if type(chunk) is not Chunk or len(chunk.data) != count:
            raise DataLost(f"host {link.entry.host} sent something else than the {count} bytes asked for")
        versions.add(chunk.version)
        sink(begin, chunk.data)

    begun_s = trio.current_time()
    await in_chunks(link, size_bytes, get)
    taken_s = trio.current_time() - begun_s
    if size_bytes >= MEASURED_BYTES_MIN and taken_s > 0:
        measured = size_bytes / taken_s
        known = link.bytes_per_s
        link.bytes_per_s = measured if not known else known + SMOOTHING * (measured - known)
    return versions.pop() if len(versions) == 1 else -1


async def push(link: ServerLink, data_id: str, part: int, offset: int, data: memoryview) -> None:
    """Write bytes into a part that is being written on another host.

    Raises:
        ImlError: the part is not being written there, or the host is gone.
    """

    async def put(begin: int, count: int) -> None:
        await link.call(PutChunk(data_id, part, offset + begin, bytes(data[begin : begin + count])))

    await in_chunks(link, len(data), put)


async def in_chunks(link: ServerLink, size_bytes: int, move: Callable[[int, int], Awaitable[None]]) -> None:
    """Move so many bytes by ``move(offset, bytes)``, several chunks at a time.

    Raises:
        ImlError: the first error of a move; the others are cancelled.
    """
    chunks: Iterator[int] = iter(range(0, size_bytes, CHUNK_BYTES))
    problems: list[ImlError] = []

    async def work(cancel: Callable[[], None]) -> None:
        for begin in chunks:
            try:
                async with link.slots:
                    await move(begin, min(CHUNK_BYTES, size_bytes - begin))
            except ImlError as error:
                problems.append(error)
                cancel()
                return

    workers = min(CHUNKS_IN_FLIGHT, math.ceil(size_bytes / CHUNK_BYTES))
    if workers == 1:
        await work(lambda: None)
    else:
        async with trio.open_nursery() as nursery:
            for _ in range(workers):
                nursery.start_soon(work, nursery.cancel_scope.cancel)
    if problems:
        raise problems[0]
