"""Files that leave for the host of their reader while a task writes them: ``gspc_trio.stream``."""

from __future__ import annotations

import io
import mmap
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, cast

from gspc_trio.compute.channel import open_nameless_file
from gspc_trio.core.current import current_place
from gspc_trio.core.published import layer_here
from gspc_trio.iml.errors import ImlError

if TYPE_CHECKING:
    from gspc_trio.iml.local import LocalClient

CHUNK_BYTES = 1 << 20
"""So much of a stream leaves at a time."""


def stream(port: str) -> BinaryIO:
    """Within a task: return a file to write an output to, which leaves for its reader while it is written.

    The task returns the file for its output; its reader gets ``bytes``, all of them or none. If the plan of
    the job says on which other host the reader is to run, and the job has a memory layer, each MiB goes there
    as soon as it is written. Else the output stays on this host until it is fetched, as others do.

    Args:
        port: name of the output, for messages.

    Returns:
        BinaryIO: a file that can only be written, from its begin to its end.

    Raises:
        RuntimeError: this is no task.
        OSError: there is no room for a temporary file.
    """
    layer = layer_here()
    if layer is not None:
        return layer.open_stream(port)
    if current_place() is None:
        raise RuntimeError(f"stream({port!r}) is for the code of tasks: there is no task here")
    return cast(BinaryIO, StreamFile(port))


class Sender(Protocol):
    """What has the chunks leave."""

    def offer(self, descriptor: int, size_bytes: int) -> None:
        """So many bytes are behind the descriptor now, a chunk more than before or several."""
        ...

    def finish(self, size_bytes: int) -> str | None:
        """These are all; return the id of the data that they are, None if they have not left."""
        ...

    def give_up(self) -> None:
        """Nobody wants them."""
        ...


class StreamFile(io.BufferedIOBase):
    """An output that is being written: a file without a name on this host, of which copies leave.

    Args:
        port: name of the output.
        sender: has its chunks leave; None: they stay.
    """

    def __init__(self, port: str, sender: Sender | None = None) -> None:
        self._port = port
        self._sender = sender
        self._file = io.BufferedWriter(io.FileIO(open_nameless_file(), "r+b"), CHUNK_BYTES)
        self._size_bytes = 0

    def writable(self) -> bool:
        """It can be written."""
        return True

    def write(self, data: Any) -> int:
        """Append bytes; return how many."""
        if self.closed:
            raise ValueError(f"the stream {self._port!r} is closed")
        before = self._size_bytes // CHUNK_BYTES
        size_bytes = self._file.write(data)
        self._size_bytes += size_bytes
        if self._sender is not None and self._size_bytes // CHUNK_BYTES > before:
            self._file.flush()
            self._sender.offer(self._file.fileno(), self._size_bytes)
        return size_bytes

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._size_bytes

    def flush(self) -> None:
        """Hand what was written to the system."""
        if not self._file.closed:
            self._file.flush()

    def finish(self) -> tuple[str, int] | None:
        """Write no more; return the id and size of the data that has left, None if there is none."""
        self.close()
        if self._sender is None:
            return None
        sender, self._sender = self._sender, None
        made = sender.finish(self._size_bytes)
        return None if made is None else (made, self._size_bytes)

    def content(self) -> memoryview:
        """Return all that was written."""
        if self._file.closed:
            raise ValueError(f"the stream {self._port!r} belongs to a task that has ended")
        self._file.flush()
        if not self._size_bytes:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._file.fileno(), self._size_bytes, access=mmap.ACCESS_READ))

    def drop(self) -> None:
        """Nothing of it is needed any more."""
        self.close()
        if self._sender is not None:
            self._sender.give_up()
            self._sender = None
        self._file.close()

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        """Travel as the bytes that were written."""
        return bytes, (bytes(self.content()),)


class ChunkSender:
    """Sends the chunks of a stream to another host, in a thread of its own; it begins with the first one.

    Args:
        host: name of the host in the memory layer.
        connect: returns a connection to the memory server of this host.
    """

    def __init__(self, host: str, connect: Callable[[], LocalClient]) -> None:
        self._host = host
        self._connect = connect
        self._client: LocalClient | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._written = self._sent = 0
        self._is_over = False
        self._has_failed = False

    def offer(self, descriptor: int, size_bytes: int) -> None:
        """So many bytes are behind the descriptor now."""
        if self._thread is None:
            run = threading.Thread(target=self._run, args=(descriptor,), name="gspc-stream", daemon=True)
            self._thread = run
            run.start()
        with self._changed:
            self._written = size_bytes
            self._changed.notify()

    def finish(self, size_bytes: int) -> str | None:
        """Send the rest; return the id of the data, None if it is too small, or the host did not take it."""
        if self._thread is None:
            return None
        with self._changed:
            self._written, self._is_over = size_bytes, True
            self._changed.notify()
        self._thread.join()
        try:
            return None if self._has_failed or self._client is None else self._client.join(self._host)
        except ImlError:
            return None
        finally:
            self._close()

    def give_up(self) -> None:
        """End the thread; the memory servers drop what was sent when the connection ends."""
        if self._thread is None:
            return
        with self._changed:
            self._has_failed = self._is_over = True
            self._changed.notify()
            if self._client is not None:
                self._client.cut()
        self._thread.join()
        self._close()

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _run(self, descriptor: int) -> None:
        try:
            client = self._connect()
            with self._changed:
                self._client = client
            while count := self._next():
                client.send(self._host, [memoryview(os.pread(descriptor, count, self._sent))])
                self._sent += count
        except (ImlError, OSError):
            self._has_failed = True

    def _next(self) -> int:
        """Wait for the next chunk; return its size, 0 after the last one."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._written - self._sent >= CHUNK_BYTES)
            return 0 if self._has_failed else min(CHUNK_BYTES, self._written - self._sent)
