"""Chunks of data as they travel between hosts: asked for and answered in order, on a connection of their own.

A question is msgpack: number, id of the data, number of the part, offset, bytes. An answer begins with
:data:`HEAD`; behind it are the bytes, or msgpack of an error's type and message.
"""

from __future__ import annotations

import struct
from collections import deque

import msgpack
import trio

from gspc_trio.iml.errors import BadSize, DataLost, ImlError, LayerGone, error_of
from gspc_trio.iml.shell.store import StoreShell
from gspc_trio.nursery.connections.bulk import BulkGone, BulkStream
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.network import Network

CHUNK_BYTES_MAX = 1 << 21
"""Longest chunk that is answered."""

ERROR_BYTES_MAX = 1 << 16

HEAD = struct.Struct("!?q")
"""Whether the bytes follow, and the version of the part that they are of."""


async def answer_chunks(store: StoreShell, stream: BulkStream) -> None:
    """Send what the other side asks for until it is gone.

    Raises:
        BulkGone: it is gone, or talks nonsense.
    """
    buffer = memoryview(bytearray())
    while True:
        data_id, part, offset, size_bytes = _read_question(await stream.asked())
        if len(buffer) < size_bytes <= CHUNK_BYTES_MAX:
            buffer = memoryview(bytearray(size_bytes))
        try:
            if size_bytes > CHUNK_BYTES_MAX:
                raise BadSize(f"a chunk of {size_bytes} bytes, {CHUNK_BYTES_MAX} are allowed")
            version = await store.read_into((data_id, part), offset, buffer[:size_bytes])
        except ImlError as error:
            await _refuse(stream, error)
        except OSError as error:
            problem = f"host {store.machine.host} cannot read the bytes back: {error.strerror}"
            await _refuse(stream, DataLost(problem))
        else:
            await stream.answer(HEAD.pack(True, version), buffer[:size_bytes])


async def _refuse(stream: BulkStream, error: ImlError) -> None:
    packed = msgpack.packb((type(error).__name__, str(error)[: ERROR_BYTES_MAX // 8]))
    await stream.answer(HEAD.pack(False, 0), memoryview(packed))


def _read_question(message: bytes) -> tuple[str, int, int, int]:
    try:
        fields = msgpack.unpackb(message, use_list=False, max_array_len=8, max_map_len=0)
    except Exception as error:  # whatever msgpack makes of hostile bytes
        raise BulkGone("a question that is not msgpack") from error
    if not (type(fields) is tuple and tuple(map(type, fields)) == (str, int, int, int)):
        raise BulkGone("a question with fields of wrong types")
    return fields


class BulkLink:
    """A connection for chunks to one memory server.

    Attributes:
        is_over: whether it was tried and is not open.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._stream: BulkStream | None = None
        self._ready = trio.Event()
        self._asking = trio.Lock()
        self._wanted: deque[_Wanted] = deque()
        self._problem = "it was closed"
        self.is_over: bool = False

    async def run(self, network: Network, address: str, name: str) -> None:
        """Hold the connection until it is gone; whoever waits then is told so."""
        try:
            async with network.connect_bulk(address, name=name, expect="iml-server") as stream:
                self._stream = stream
                self._ready.set()
                while True:
                    await self._take_answer(stream)
        except (ConnectionProblem, BulkGone) as error:
            self._problem = str(error)
        finally:
            self.is_over = True
            self._ready.set()
            for wanted in self._wanted:
                wanted.done.set()

    async def read(self, data_id: str, part: int, offset: int, target: memoryview) -> int:
        """Fill ``target`` with bytes of a part; return the version of the part that they are of.

        When this is cancelled the target may still be written to.

        Raises:
            ImlError: what the server refuses with.
            LayerGone: the server is gone.
        """
        await self._ready.wait()
        wanted = _Wanted(target)
        try:
            async with self._asking:
                if self.is_over or self._stream is None:
                    raise self._gone()
                self._wanted.append(wanted)
                with trio.CancelScope(shield=True):  # half a question would swallow the next one
                    await self._stream.ask(msgpack.packb((data_id, part, offset, len(target))))
        except BulkGone as gone:
            raise self._gone() from gone
        await wanted.done.wait()
        if wanted.error is not None:
            raise wanted.error
        if wanted.version < 0:
            raise self._gone()
        return wanted.version

    def _gone(self) -> LayerGone:
        return LayerGone(f"the memory server of host {self._host} is gone: {self._problem}")

    async def _take_answer(self, stream: BulkStream) -> None:
        left = await stream.begin() - HEAD.size
        head = bytearray(HEAD.size)
        await stream.take(memoryview(head))
        if not self._wanted:
            raise BulkGone("an answer to no question")
        wanted = self._wanted[0]
        follows, version = HEAD.unpack(head)
        if follows:
            if left != len(wanted.target):
                raise BulkGone(f"{left} bytes, {len(wanted.target)} were asked for")
            await stream.take(wanted.target)
            wanted.version = version
        else:
            if left > ERROR_BYTES_MAX:
                raise BulkGone(f"an error of {left} bytes")
            packed = bytearray(left)
            await stream.take(memoryview(packed))
            wanted.error = _read_error(packed)
        self._wanted.popleft()
        wanted.done.set()


class _Wanted:
    """A question that was sent."""

    __slots__ = ("done", "error", "target", "version")

    def __init__(self, target: memoryview) -> None:
        self.target = target
        self.version = -1
        self.error: ImlError | None = None
        self.done = trio.Event()


def _read_error(packed: bytearray) -> ImlError:
    try:
        kind, message = msgpack.unpackb(packed, use_list=False)
        return error_of(str(kind), str(message))
    except (ValueError, TypeError) as error:
        raise BulkGone("an error that cannot be read") from error
