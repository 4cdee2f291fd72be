"""A memory server's door for processes of its machine: descriptors over a Unix socket; both its ends."""

from __future__ import annotations

import os
import socket
from array import array
from collections import Counter as Multiset
from typing import TYPE_CHECKING, Any

import trio

from gspc_trio.core.iml.errors import ImlError, LayerGone
from gspc_trio.core.iml.exchange import AbortData, CommitData, Replicate
from gspc_trio.core.iml.store_events import Key, Use
from gspc_trio.iml import local
from gspc_trio.nursery.drive import Inbox

if TYPE_CHECKING:
    from gspc_trio.components.iml_server import ImlServer

BACKLOG = 128


class LocalDoor:
    """Listens on a Unix socket without a file.

    Args:
        server: answers.
        address: name of the socket.
    """

    def __init__(self, server: ImlServer, address: str) -> None:
        self._server = server
        self._address = address

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        with trio.socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            await listener.bind(local.socket_name(self._address))
            listener.listen(BACKLOG)
            task_status.started(self._address)
            async with trio.open_nursery() as nursery:
                while True:
                    connection, _ = await listener.accept()
                    if local.is_same_user(connection):
                        nursery.start_soon(_Guest(self._server, connection).run)
                    else:
                        connection.close()


class _Guest:
    """A process that has come by the door: what it has pinned and is writing goes with its connection."""

    def __init__(self, server: ImlServer, connection: trio.socket.SocketType) -> None:
        self._server = server
        self._connection = connection
        self._pins: Multiset[Key] = Multiset()
        self._writing: set[str] = set()
        self._outbox: Inbox[tuple[list[Any], int]] = Inbox()

    async def run(self) -> None:
        with self._connection:
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send)
                    while True:
                        packet = await self._connection.recv(local.PACKET_BYTES_MAX)
                        if not packet:
                            break
                        operation, number, *fields = local.unpack(packet)
                        if operation == local.UNMAP:
                            self._unpin(*fields)
                        else:
                            nursery.start_soon(self._answer, operation, number, fields)
                    nursery.cancel_scope.cancel()
            except* (OSError, ValueError, TypeError):
                pass  # it is gone, or talks nonsense
            finally:
                self._leave()

    def _leave(self) -> None:
        for key, count in self._pins.items():
            for _ in range(count):
                self._server.store.unpin(key, Use.MAP)
        for _, descriptor in self._outbox.take_nowait():
            if descriptor >= 0:
                os.close(descriptor)
        self._server.abandon(self._writing)

    async def _answer(self, operation: int, number: int, fields: list[Any]) -> None:
        descriptor = -1
        try:
            answer, descriptor = await self._do(operation, fields)
        except ImlError as error:
            answer = [type(error).__name__, str(error)]
        except OSError as error:
            answer = ["NoRoom", f"host {self._server.host}: {error.strerror}"]
        else:
            answer = ["", *answer]
        self._outbox.put(([number, *answer], descriptor))

    async def _do(self, operation: int, fields: list[Any]) -> tuple[list[Any], int]:
        store = self._server.store
        if operation in (local.BRING, local.MAP):
            if operation == local.BRING:
                granted = await self._server.bring(*fields)
            else:
                granted = await store.pin((fields[0], fields[1]), Use.MAP)
            key = granted.key
            self._pins[key] += 1
            return [granted.size_bytes, key[1]], store.segment_of(granted).reader()
        if operation == local.READ:
            data_id, part, offset, size_bytes = fields
            data, version = await store.read((data_id, part), offset, min(size_bytes, local.READ_BYTES_MAX))
            return [data, version], -1
        if operation == local.WRITER:
            data_id, part = fields
            descriptor, size_bytes = await store.writer((data_id, part))
            return [size_bytes], descriptor
        if operation == local.FETCH:
            await self._server.fetch(*fields)
            return [], -1
        if operation == local.COPY:
            await self._server.ask(Replicate(*fields))
            return [], -1
        if operation == local.NEW:
            return await self._new(*fields)
        (data_id,) = fields
        if operation == local.COMMIT:
            await self._server.ask(CommitData(data_id))
            self._writing.discard(data_id)
        elif operation == local.ABORT:
            self._writing.discard(data_id)
            await self._server.ask(AbortData(data_id))
        else:
            raise ValueError(f"no operation has the number {operation}")
        return [], -1

    async def _new(self, job: str, data_id: str, size_bytes: int) -> tuple[list[Any], int]:
        made = await self._server.new(job, data_id, size_bytes)
        self._writing.add(made)
        descriptor, _ = await self._server.store.writer((made, 0))
        return [made], descriptor

    def _unpin(self, data_id: str, part: int) -> None:
        key = (data_id, part)
        if self._pins[key]:
            self._pins[key] -= 1
            self._server.store.unpin(key, Use.MAP)

    async def _send(self) -> None:
        while True:
            for message, descriptor in await self._outbox.take():
                rights = []
                if descriptor >= 0:
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))]
                try:
                    await self._connection.sendmsg([local.pack(message)], rights)
                finally:
                    if descriptor >= 0:
                        os.close(descriptor)


class LocalLink:
    """A client's end of the door, for trio: many questions at a time.

    Args:
        address: of the server.

    Attributes:
        is_over: whether the server is gone.

    Raises:
        LayerGone: nobody listens there.
    """

    def __init__(self, address: str) -> None:
        opened = local.open_socket(address)
        opened.setblocking(False)
        self._socket = trio.socket.from_stdlib_socket(opened)
        self._number = 0
        self._waiting: dict[int, trio.Event] = {}
        self._answers: dict[int, tuple[list[Any], int]] = {}
        self.is_over = False
        self._sending = trio.Lock()

    async def run(self) -> None:
        """Take answers until cancelled or the server is gone."""
        try:
            while True:
                packet, ancillary, _, _ = await self._socket.recvmsg(
                    local.PACKET_BYTES_MAX, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
                )
                if not packet:
                    return
                message, descriptor = local.unpack(packet), local.take_descriptor(ancillary)
                waiting = self._waiting.get(message[0])
                if waiting is not None:
                    self._answers[message[0]] = (message, descriptor)
                    waiting.set()
                elif descriptor >= 0:
                    os.close(descriptor)
        except OSError:
            return
        finally:
            self.is_over = True
            for waiting in self._waiting.values():
                waiting.set()
            self._socket.close()

    async def tell(self, operation: int, *fields: Any) -> int:
        """Send a request; return its number.

        Raises:
            LayerGone: the server is gone.
        """
        self._number += 1
        number = self._number
        try:
            async with self._sending:
                await self._socket.send(local.pack((operation, number, *fields)))
        except (OSError, trio.ClosedResourceError) as error:
            raise LayerGone("the memory server of this host is gone") from error
        return number

    def tell_soon(self, nursery: trio.Nursery, operation: int, *fields: Any) -> None:
        """Send a request that has no answer, from code that cannot wait."""

        async def send() -> None:
            try:
                await self.tell(operation, *fields)
            except LayerGone:
                return

        nursery.start_soon(send)

    async def ask(self, operation: int, *fields: Any) -> tuple[list[Any], int]:
        """Send a request; return the fields of its answer, and a descriptor or -1: the caller closes it.

        Raises:
            ImlError: what the server refuses with.
            LayerGone: the server is gone.
        """
        waiting = trio.Event()
        number = self._number + 1
        self._waiting[number] = waiting
        try:
            await self.tell(operation, *fields)
            if not self.is_over:
                await waiting.wait()
            found = self._answers.pop(number, None)
            if found is None:
                raise LayerGone("the memory server of this host is gone")
            message, descriptor = found
            return local.answer_of(message), descriptor
        finally:
            del self._waiting[number]
            left = self._answers.pop(number, None)
            if left is not None and left[1] >= 0:
                os.close(left[1])
