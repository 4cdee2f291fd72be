"""A process's connection to the memory server of its host, for trio: many questions at a time.

To hand an answer from one task to another costs as much as the server takes to give it. So whoever asks while
nobody else does waits for the socket itself; with several questions at a time one task takes all answers.
"""

from __future__ import annotations

import os
from contextlib import suppress

import trio

from gspc_trio.iml import local
from gspc_trio.iml.errors import LayerGone
from gspc_trio.iml.local import Fields
from gspc_trio.iml.shell.platform import platform

QUIET_S = 0.05
"""When nobody has asked for so long, the connection's own task waits for the end of the server."""

SOON_S = 0.005
"""So long what has no answer waits for a question to go with."""


class LocalLink:
    """A client's end of a memory server's local socket.

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
        self._buffer = local.packet_buffer()
        self._number = 0
        self._waiting: dict[int, trio.Event | None] = {}  # questions that have no answer yet
        self._answers: dict[int, tuple[Fields, int]] = {}
        self._unwanted: dict[int, tuple[object, ...]] = {}  # questions whose answers nobody has taken
        self._listening = False  # one task at a time waits for the socket
        self._wanted = trio.Event()
        self._later: list[tuple[object, ...]] = []
        self._news = trio.Event()
        self.is_over: bool = False
        self._sending = trio.Lock()

    async def run(self) -> None:
        """Take answers until cancelled or the server is gone."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell)
                while not self.is_over:
                    if not self._listening:
                        await self._listen(-1)
                    self._wanted = trio.Event()
                    with trio.move_on_after(QUIET_S):
                        await self._wanted.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._end()
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()

    async def _listen(self, number: int) -> None:
        """Take answers until this question has its own; with -1 until all have theirs."""
        self._listening = True
        try:
            while not self.is_over:
                await trio.lowlevel.wait_readable(self._socket)
                self._take()
                if number not in self._waiting and (number >= 0 or not self._waiting):
                    return
        finally:
            self._listening = False
            if self._waiting:
                self._wanted.set()

    def _take(self) -> None:
        """Take the answers that are there; do not look again when nobody waits for more."""
        while True:
            try:
                packet, descriptor = local.receive(self._socket, self._buffer)
            except BlockingIOError:
                return
            except OSError:
                packet, descriptor = b"", -1
            if not packet:
                self._end()
                return
            message = local.unpack(packet)
            number = message[0]
            if number in self._waiting:
                self._answers[number] = (message, descriptor)
                waiting = self._waiting.pop(number)
                if waiting is not None:
                    waiting.set()
            else:
                self._undo(number, message, descriptor)
            if not self._waiting:
                return

    def _undo(self, number: int, message: Fields, descriptor: int) -> None:
        """Give back what an answer has brought: whoever asked was cancelled."""
        if descriptor >= 0:
            os.close(descriptor)
        operation, *fields = self._unwanted.pop(number, (local.UNMAP,))
        if message[1]:
            return  # it was refused
        if operation in (local.MAP, local.BRING):
            data_id = fields[0 if operation == local.MAP else 1]
            self.tell_soon(local.UNMAP, data_id, message[3])
        elif operation == local.NEW:
            self.tell_soon(local.ABORT, message[2])
        elif operation == local.LEND:
            self.tell_soon(local.TAKE_BACK, message[2], message[3])

    def _end(self) -> None:
        self.is_over = True
        self._wanted.set()
        for waiting in self._waiting.values():
            if waiting is not None:
                waiting.set()

    def tell_soon(self, operation: int, *fields: object) -> None:
        """Send what has no answer: with the next question, or a little later.

        To wake another process costs more than all else.
        """
        self._later.append((operation, 0, *fields))
        self._news.set()

    async def tell_now(self) -> None:
        """Send what waits to be sent; a server that is gone need not hear it."""
        if self._later:
            with suppress(LayerGone):
                await self._send()

    async def _tell(self) -> None:
        while True:
            await self._news.wait()
            await trio.sleep(SOON_S)
            self._news = trio.Event()
            await self.tell_now()

    async def _send(self, *messages: tuple[object, ...]) -> None:
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
            self._later[:0] = late  # what was asked is not wanted any more
            self._news.set()
            raise
        except (OSError, ValueError, trio.ClosedResourceError) as error:
            raise LayerGone("the memory server of this host is gone") from error

    async def ask(self, operation: int, *fields: object) -> tuple[Fields, int]:
        """Send a request; return the fields of its answer, and a descriptor or -1: the caller closes it.

        Raises:
            ImlError: what the server refuses with.
            LayerGone: the server is gone.
            TypeError, ValueError: a field is not of its type, or a very long text.
        """
        local.check_request(operation, fields)
        self._number += 1
        number = self._number
        self._waiting[number] = None
        try:
            await self._send((operation, number, *fields))
            self._unwanted[number] = (operation, *fields)
            await self._wait(number)
            found = self._answers.pop(number, None)
            if found is None:
                raise LayerGone("the memory server of this host is gone")
            del self._unwanted[number]
            message, descriptor = found
            return local.answer_of(message), descriptor
        finally:
            self._waiting.pop(number, None)

    async def _wait(self, number: int) -> None:
        """Return when a question has its answer, or the server is gone."""
        if self._listening:
            if number in self._waiting and not self.is_over:
                waiting = self._waiting[number] = trio.Event()
                await waiting.wait()
            return
        try:
            await self._listen(number)
        except trio.ClosedResourceError:
            self._end()
