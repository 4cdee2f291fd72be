"""Serializer for values in a memory layer: read where they are mapped, written without a copy."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from threading import Lock, local
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar, cast

from gspc_trio.core.current import current_place
from gspc_trio.core.published import READER_MARK
from gspc_trio.protocol import values
from gspc_trio.protocol.limits import NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import BinaryIO

    from gspc_trio.compute.results.memory import ResultMemory
    from gspc_trio.compute.results.stream import StreamFile
    from gspc_trio.iml.local import LocalClient

TRIES = 100
PAUSE_S = 0.1
"""How often, and after how long, to look for a server that takes the place of one that has died."""

_RESULT_BYTES_MAX = NUMBER_MAX // 2

T = TypeVar("T")

RESTORE = b"\xc1\2"
"""Begins an argument that is none: the ids under which a task's results are to be had again, one for each
value that it made, "" for one that travelled with it.
"""


class TaskData:
    """What a task has of the layer.

    Attributes:
        mapped: ids of the data that it sees, one for each view.
        restored: ids for what it makes, last first.
        made: memory that it has got for its results.
        reader: the host on which what takes its result is planned, "" if that is not known, or this one.
        streams: the outputs that it writes.
    """

    def __init__(self) -> None:
        self.mapped: list[str] = []
        self.restored: list[str] = []
        self.made: list[ResultMemory] = []
        self.reader = ""
        self.streams: list[StreamFile] = []


class _OfThread(local, TaskData):
    """That of the task which a thread runs: several of a process may run one each."""


class LayerSerializer:
    """Opens the arguments of tasks and encodes what they return.

    Args:
        address: of the memory server of this host, "" for none: everything travels with its task.
        host: its name.
        job: for which data is made.
        bytes_min: what has so many bytes or more goes into the layer.

    Attributes:
        active: whether there is a layer.
        host: the name of this host in it.
    """

    def __init__(self, address: str = "", host: str = "", job: str = "", bytes_min: int = 0) -> None:
        self.active: bool = bool(address)
        self._address = address
        self.host = host
        self._job = job
        self._bytes_min = bytes_min
        self._client: LocalClient | None = None
        self._connecting = Lock()
        self._mine: TaskData = _OfThread()

    def loads(self, data: bytes) -> Any:
        """Return the value that an argument stands for; large buffers in it are views of shared memory.

        Raises:
            ImlError: it lies in the layer and is not to be had.
            BadValue: the bytes are no value.
            Exception: whatever opening a pickled value raises.
        """
        if data[:2] != b"\xc1\0":
            return values.loads(data)
        from gspc_trio.protocol.values import decode_reference, gather

        reference = decode_reference(data)

        def mapped(client: LocalClient) -> memoryview:
            view = client.map(reference.data_id)
            self._mine.mapped.append(reference.data_id)
            return view

        return gather(reference, self._with_server(mapped))

    def dumps(self, value: object) -> bytes:
        """Return a result as it travels; a large one goes into the layer, or with its task if that is full.

        Other hosts can read it a little later: the RIF waits for that before it reports the task.

        Raises:
            BadValue: it cannot be sent to another process.
            ImlError: the layer has no room for what has to be there again, or is gone.
        """
        from gspc_trio.protocol.values import spread

        data_id = self._mine.restored.pop() if self._mine.restored else None
        if self._mine.streams and any(value is one for one in self._mine.streams):
            stream = cast("StreamFile", value)
            sent = stream.finish() if data_id is None else None
            if sent is not None:
                return values.bytes_reference(*sent, self._mine.reader)
            value = stream.content()
        parts = spread(value, self._bytes_min)
        if isinstance(parts, bytes):
            return parts
        if data_id == "":
            return values.dumps(value)
        if data_id is None:
            if self._mine.made and parts.buffers:
                most = max(self._mine.made, key=lambda memory: memory.used_by(parts.buffers))
                with self._undivided():
                    reference = most.commit(parts, self.host)
                    if reference is not None:
                        self._mine.made.remove(most)
                        return reference
            from gspc_trio.iml.errors import NoRoom

            try:
                made = self._with_server(lambda client: client.write(parts.pieces, promise=True))
            except NoRoom:
                return values.dumps(value)
            return parts.reference(made, self.host)
        from gspc_trio.iml.errors import DuplicateData

        with suppress(DuplicateData):  # that one was not lost
            self._with_server(lambda client: client.write(parts.pieces, data_id))
        return parts.reference(data_id, self.host)

    def memory(self, size_bytes: int) -> memoryview | None:
        """Return memory for results of the task that runs; see ``core.published``."""
        if not self._bytes_min <= size_bytes <= _RESULT_BYTES_MAX:
            return None
        from gspc_trio.compute.results.memory import ResultMemory
        from gspc_trio.iml.errors import ImlError

        def made(client: LocalClient) -> memoryview:
            memory = ResultMemory(client, size_bytes)
            self._mine.made.append(memory)
            return memory.view

        try:
            return self._with_server(made)
        except (ImlError, OSError):
            return None

    def open_stream(self, port: str) -> BinaryIO:
        """Return a file for an output; see ``core.published``."""
        from gspc_trio.compute.results.stream import ChunkSender, StreamFile

        sender = None
        if self._mine.reader and not self._mine.restored:
            sender = ChunkSender(self._mine.reader, lambda: self._connect(self._address, self._job))
        opened = StreamFile(port, sender)
        self._mine.streams.append(opened)
        return cast("BinaryIO", opened)

    def publish(self, name: str, value: object, copies: int = 1, stripes: int = 1) -> None:
        """Keep a value under a name, on so many hosts; see ``core.published``."""
        pieces = values.published_pieces(value)
        self._with_server(lambda client: client.publish(name, pieces, copies, stripes))

    def read_published(self, name: str) -> Any:
        """Return the value of a name; see ``core.published``."""

        def mapped(client: LocalClient) -> memoryview:
            data_id, view = client.map_published(name)
            self._mine.mapped.append(data_id)
            return view

        return values.open_published(self._with_server(mapped))

    def map_range(self, name: str, offset: int, size_bytes: int) -> memoryview:
        """Return the bytes of a range of published data; see ``core.published``."""

        def mapped(client: LocalClient) -> memoryview:
            held, view = client.map_range(client.look_up(name)[0], offset, size_bytes)
            self._mine.mapped.append(held)
            return view

        return self._with_server(mapped)

    def put_range(self, name: str, offset: int, pieces: list[memoryview]) -> None:
        """Overwrite a range of published data; see ``core.published``."""
        self._with_server(lambda client: client.put_range(client.look_up(name)[0], offset, pieces))

    def begin(self, arguments: list[bytes]) -> list[bytes]:
        """Return the arguments of a task that begins, without what may be behind them.

        That is the host of its reader, and ids of data that it makes again.
        """
        self._mine.restored = []
        self._mine.reader = ""
        if arguments and arguments[-1][:2] == READER_MARK:
            self._mine.reader = arguments[-1][2:].decode()
            arguments = arguments[:-1]
        if not arguments or arguments[-1][:2] != RESTORE:
            return arguments
        from gspc_trio.compute.channel import unpack

        self._mine.restored = unpack(arguments[-1][2:])
        self._mine.restored.reverse()
        return arguments[:-1]

    def task_ended(self) -> None:
        """Say that the views of the last task's arguments are not needed; what still has them keeps them.

        So is memory for results that it has not returned.
        """
        mine = self._mine
        while mine.streams:
            mine.streams[-1].drop()
            mine.streams.pop()
        if not (mine.made or mine.mapped):
            return
        with self._undivided():
            while mine.made:
                mine.made[-1].give_up()
                mine.made.pop()
            while mine.mapped:
                if self._client is not None:
                    self._client.release(mine.mapped[-1])
                mine.mapped.pop()

    def _undivided(self) -> AbstractContextManager[object]:
        """Have this thread not interrupted for the time of a block.

        Else memory could be held that nobody knows of, or an answer to this thread be taken by another one.
        What has interrupted it before comes when the block first calls a function of Python.
        """
        place = current_place()
        return nullcontext() if place is None or place.undivided is None else place.undivided

    def _with_server(self, work: Callable[[LocalClient], T]) -> T:
        """Do something with the server of this host; when it has died, with the one that takes its place."""
        from gspc_trio.iml.errors import LayerGone

        client = None
        for left in reversed(range(TRIES)):
            try:
                with self._connecting:
                    client = self._client
                    if client is None:
                        client = self._client = self._connect(self._address, self._job)
                with self._undivided():
                    return work(client)
            except LayerGone:
                with self._connecting:
                    if client is not None and client is self._client:  # no other thread has found it gone
                        client.close()
                        self._client = None
                if not left:
                    raise
                self._pause(PAUSE_S)
        raise AssertionError("unreachable")

    def _connect(self, address: str, job: str) -> LocalClient:
        from gspc_trio.iml.local import LocalClient

        return LocalClient(address, job)

    def _pause(self, pause_s: float) -> None:
        sleep(pause_s)


serializer: LayerSerializer = LayerSerializer()
"""That of this process; :func:`settle` says whose it is."""


def settle(address: str, host: str, job: str, bytes_min: int) -> None:
    """Make this process take part in the memory layer of its host."""
    global serializer
    serializer = LayerSerializer(address, host, job, bytes_min)
