"""A process's connection to the memory server of its host, for trio: many questions at a time."""

from __future__ import annotations

import os
from typing import Any

import trio

from gspc_trio.components.iml_platform import platform
from gspc_trio.core.iml.errors import LayerGone
from gspc_trio.iml import local


class LocalLink:
    """A client's end of a memory server's door.

    Args:
        address: of the server.

    Attributes:
        is_over: whether the server is gone.

    Raises:
        LayerGone: nobody listens there.
    """

    def __init__(self, address: str) -> None:
        self._socket = platform().connect(address)
        self._socket.setblocking(False)
        self._number = 0
        self._waiting: dict[int, trio.Event] = {}
        self._answers: dict[int, tuple[list[Any], int]] = {}
        self._later: list[tuple[Any, ...]] = []
        self._news = trio.Event()
        self.is_over = False
        self._sending = trio.Lock()

    async def run(self) -> None:
        """Take answers until cancelled or the server is gone."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell)
                await self._listen()
                nursery.cancel_scope.cancel()
        finally:
            self.is_over = True
            for waiting in self._waiting.values():
                waiting.set()
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def _listen(self) -> None:
        buffer = local.packet_buffer()
        while True:
            try:
                packet, descriptor = local.receive(self._socket, buffer)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
                continue
            except OSError:
                return
            if not packet:
                return
            message = local.unpack(packet)
            waiting = self._waiting.get(message[0])
            if waiting is not None:
                self._answers[message[0]] = (message, descriptor)
                waiting.set()
            elif descriptor >= 0:
                os.close(descriptor)

    def tell_soon(self, operation: int, *fields: Any) -> None:
        """Send what has no answer: with the next question, or when others have had their turn.

        To wake another process costs more than all else.
        """
        self._later.append((operation, 0, *fields))
        self._news.set()

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            if self._later:
                try:
                    await self._send()
                except LayerGone:
                    return

    async def _send(self, *messages: tuple[Any, ...]) -> None:
        """Send these, and what waits to be sent."""
        late, self._later = self._later, []
        several = (*late, *messages)
        packet = local.pack((local.SEVERAL, 0, *several) if len(several) > 1 else several[0])
        try:
            while True:
                try:
                    self._socket.send(packet)
                    return
                except BlockingIOError:
                    async with self._sending:  # one task at a time may wait
                        await trio.lowlevel.wait_writable(self._socket)
        except trio.Cancelled:
            self._later[:0] = late
            self._news.set()
            raise
        except (OSError, ValueError, trio.ClosedResourceError) as error:
            raise LayerGone("the memory server of this host is gone") from error

    async def ask(self, operation: int, *fields: Any) -> tuple[list[Any], int]:
        """Send a request; return the fields of its answer, and a descriptor or -1: the caller closes it.

        Raises:
            ImlError: what the server refuses with.
            LayerGone: the server is gone.
        """
        waiting = trio.Event()
        self._number += 1
        number = self._number
        self._waiting[number] = waiting
        try:
            await self._send((operation, number, *fields))
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
