"""The socket at which tasks of a host reach it, to say something to their job servers."""

from __future__ import annotations

import logging
import math
import os
import secrets
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

import msgspec
import trio

from gspc_trio.compute.channel import FRAME_HEADER
from gspc_trio.core.nested import TaskHello, decode_said
from gspc_trio.protocol.limits import DEFAULT_LIMITS

_log = logging.getLogger(__name__)

HELLO_S = 5.0
"""How long a process may take to say which task it runs."""

_CREDENTIALS = struct.Struct("3i")


class TaskConnection:
    """A connection of the process of a task.

    Attributes:
        hello: its first word.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self.hello: TaskHello
        self._stream = stream
        self._received = bytearray()
        self._send, self._to_send = trio.open_memory_channel[bytes](math.inf)

    async def receive(self) -> bytes:
        """Return the next thing that it says, b"" at the end."""
        received, head = self._received, FRAME_HEADER.size
        while True:
            if len(received) >= head:
                (size,) = FRAME_HEADER.unpack_from(received)
                if size > DEFAULT_LIMITS.message_bytes_max:
                    return b""
                if len(received) >= head + size:
                    data = bytes(received[head : head + size])
                    del received[: head + size]
                    return data
            try:
                more = await self._stream.receive_some()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return b""
            if not more:
                return b""
            received += more

    def send(self, data: bytes) -> None:
        """Say something to it; never blocks."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            self._send.send_nowait(data)

    def close(self) -> None:
        """End the connection."""
        self._send.close()

    async def write(self) -> None:
        """Send what is to be said, until it is closed."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in self._to_send:
                await self._stream.send_all(FRAME_HEADER.pack(len(data)) + data)


class TaskListener:
    """Lets processes of this user in that say which task they run.

    Args:
        find: returns who takes the connection of a task, None if no such task runs here.

    Attributes:
        address: name of the socket, without the zero byte before it.
    """

    def __init__(self, find: Callable[[TaskHello], Callable[[TaskConnection], None] | None]) -> None:
        self.address: str = f"gspc-trio/{os.getuid()}/tasks/{secrets.token_hex(8)}"
        self._find = find

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled."""
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            await listener.bind("\0" + self.address)
            listener.listen()
            task_status.started()
            async with trio.open_nursery() as nursery:
                while True:
                    try:
                        accepted, _ = await listener.accept()
                    except OSError as error:  # too many open files
                        _log.warning("cannot let a task in: %s", error)
                        await trio.sleep(0.1)
                        continue
                    nursery.start_soon(self._serve, accepted)

    async def _serve(self, accepted: trio.socket.SocketType) -> None:
        async with trio.SocketStream(accepted) as stream:
            asked = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            _, uid, _ = _CREDENTIALS.unpack(asked)
            if uid != os.getuid():
                return
            line = TaskConnection(stream)
            take: Callable[[TaskConnection], None] | None = None
            with trio.move_on_after(HELLO_S), suppress(msgspec.DecodeError):
                hello = decode_said(await line.receive())
                if isinstance(hello, TaskHello):
                    line.hello = hello
                    take = self._find(hello)
            if take is not None:
                take(line)
                await line.write()
