"""The platform of a process in a memory layer: sockets, threads, shared memory, other processes.

A simulation puts something of its own in the place of them, see ``PLATFORM``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

import trio
from msgspec import Struct

from gspc_trio.components.provision.shell.hardware import read_facts
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml import local
from gspc_trio.iml.segment import SegmentPool, SpillFile
from gspc_trio.nursery.connections.network import Network

if TYPE_CHECKING:
    from gspc_trio.iml.data_layer import DataLayer
    from gspc_trio.iml.quota import Quota
    from gspc_trio.iml.shell.server_process import ServerProcess

BACKLOG = 128

MEMORY_SHARE = 4
"""By default a memory server may use one part in so many of its host's memory."""

T = TypeVar("T")


def default_memory_bytes() -> int:
    """Return how much shared memory a server uses at most if nobody says so."""
    import psutil  # not before somebody asks

    return (read_facts().memory_bytes or int(psutil.virtual_memory().total)) // MEMORY_SHARE


class UnixListener:
    """Listens on a Unix socket without a file.

    Args:
        address: its name.

    Raises:
        OSError: the name is taken.
    """

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            self._listener.bind(local.socket_name(address))
            self._listener.listen(BACKLOG)
            self._listener.setblocking(False)
        except BaseException:
            self._listener.close()
            raise

    async def accept(self) -> socket.socket:
        """Wait for a process of this user; return its connection, which does not block.

        It is a bare socket: what trio's own one does beside the system call costs more than the call.
        """
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._listener)
                continue
            if local.is_same_user(connection):
                connection.setblocking(False)
                return connection
            connection.close()

    def close(self) -> None:
        """Listen no more."""
        trio.lowlevel.notify_closing(self._listener)
        self._listener.close()


class Sizes(Struct, frozen=True):
    """From how many bytes on data goes another way.

    Attributes:
        chunk_bytes: bytes between hosts go in chunks of at most so many.
        bulk_bytes: a chunk of so many travels on the connection for chunks.
        lent_bytes: what is put on another host is lent by the server of this one, and fetched by that.
    """

    chunk_bytes: int = 1 << 21
    bulk_bytes: int = 1 << 16
    lent_bytes: int = 1 << 20


class Platform:
    """This machine."""

    sizes: Sizes = Sizes()

    def network(self, layer: DataLayer) -> Network:
        """Return the network through which a layer is reached, from here and, if its address says so, from
        other hosts."""
        return Network(wire_codec, layer.token, credentials=layer.credentials)

    def listen(self, address: str) -> UnixListener:
        """Listen for processes of this machine.

        Raises:
            OSError: somebody does already.
        """
        return UnixListener(address)

    def connect(self, address: str) -> socket.socket:
        """Return a connection to a memory server of this machine; it blocks.

        Raises:
            LayerGone: nobody listens there, or another user does.
        """
        return local.open_socket(address)

    def client(self, address: str, job: str) -> local.LocalClient:
        """Return a blocking client of a memory server of this machine.

        Raises:
            LayerGone: as :meth:`connect`.
        """
        return local.LocalClient(address, job, self.connect(address))

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what a function does that blocks."""
        return await trio.to_thread.run_sync(function, *arguments)

    def waker(self) -> Callable[..., object]:
        """Return what runs a function soon, in the trio thread that asks now; it may be called anywhere.

        It raises trio.RunFinishedError when trio has ended.
        """
        return trio.lowlevel.current_trio_token().run_sync_soon

    def pool(self, bytes_max: int) -> SegmentPool:
        """Return a pool of segments that keeps at most so many idle bytes."""
        return SegmentPool(bytes_max)

    def spill_file(self, directory: str) -> SpillFile:
        """Return a file for what memory has no room for.

        Raises:
            OSError: it cannot be made.
        """
        return SpillFile(directory)

    def memory_bytes(self) -> int:
        """Return how much shared memory a server uses at most if nobody says so."""
        return default_memory_bytes()

    def open_server(
        self, host: str, quota: Quota, layer: DataLayer
    ) -> AbstractAsyncContextManager[ServerProcess]:
        """Run a memory server in a process of its own for as long as a block lasts.

        Raises:
            ImlError: as :func:`gspc_trio.iml.shell.server_process.open_server_process`.
        """
        from gspc_trio.iml.shell.server_process import open_server_process

        return open_server_process(host, quota, layer=layer)


PLATFORM: ContextVar[Platform | None] = ContextVar("platform", default=None)
"""What processes of a memory layer use that are started in a context; None in production: this machine."""


def platform() -> Platform:
    """Return what the process that asks has of its machine."""
    return PLATFORM.get() or Platform()
