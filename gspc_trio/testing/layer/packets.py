"""Unix sockets on trio's clock: packets with descriptors, between the processes of one simulated host."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import deque
from functools import partial
from math import inf
from random import Random

import trio

from gspc_trio.testing.layer.threads import call_trio, in_thread
from gspc_trio.testing.simulated.alarm import Alarm
from gspc_trio.testing.simulated.process import SimulatedProcess

LATENCY_S = 0.0001
"""Mean time that a packet takes."""

_INT = struct.Struct("i")


class PacketEnd:
    """One end of a connection; it does what :mod:`gspc_trio.iml.local` asks of a socket.

    Its descriptors are real: they are copied when they are sent, as by the kernel.
    """

    def __init__(self, process: SimulatedProcess, random: Random) -> None:
        self.process = process
        self.other: PacketEnd
        self._random = random
        self._packets: deque[tuple[float, bytes, int]] = deque()
        self._last_due_s = 0.0
        self._ended = False
        self._closed = False
        self._blocking = True
        self._arrival = Alarm()
        process.on_kill.append(self.close)

    def __enter__(self) -> PacketEnd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def setblocking(self, blocking: bool) -> None:
        """Say whether to wait, in a thread, for what is not there yet."""
        self._blocking = blocking

    def close(self) -> None:
        """Close this end; what was sent still arrives."""
        if self._closed:
            return
        if in_thread():
            call_trio(self._close)
            return
        self._closed = True
        for _, _, descriptor in self._packets:
            if descriptor >= 0:
                os.close(descriptor)
        self._packets.clear()
        now, other = trio.current_time(), self.other
        self._arrival.set(now)
        other._ended = True
        if not other._packets:
            other._arrival.set(now)

    async def _close(self) -> None:
        self.close()

    # As a socket ----

    def send(self, packet: bytes) -> int:
        """Send a packet."""
        return self._send_or_wait(packet, -1)

    def sendmsg(self, packets: list[bytes], ancillary: list[tuple[int, int, bytes]]) -> int:
        """Send a packet and a copy of a descriptor."""
        ((_, _, data),) = ancillary
        return self._send_or_wait(packets[0], _INT.unpack(data)[0])

    def recvmsg_into(
        self, buffers: list[memoryview], *_: int
    ) -> tuple[int, list[tuple[int, int, bytes]], int, None]:
        """Take a packet, or none at the end."""
        if not in_thread():
            packet, descriptor = self._take()
        else:
            packet, descriptor = call_trio(self._wait_and_take)
        buffers[0][: len(packet)] = packet
        attached = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(descriptor))] if descriptor >= 0 else []
        return len(packet), attached, 0, None

    # In trio ----

    async def wait_readable(self) -> None:
        """Wait until a packet is there, or the end."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            if self._closed:
                raise trio.ClosedResourceError("this end was closed")
            due_s = self._packets[0][0] if self._packets else 0.0 if self._ended else inf
            if due_s <= trio.current_time():
                break
            await self._arrival.wait(due_s)
        await trio.lowlevel.cancel_shielded_checkpoint()

    def _send_or_wait(self, packet: bytes, descriptor: int) -> int:
        if not in_thread():
            return self._send(packet, descriptor)

        async def send() -> int:
            await trio.lowlevel.checkpoint()
            return self._send(packet, descriptor)

        return int(call_trio(send))

    def _send(self, packet: bytes, descriptor: int) -> int:
        if self._closed or not self.process.alive:
            raise OSError(errno.EBADF, "this end was closed")
        if self._ended:
            raise BrokenPipeError(errno.EPIPE, "the other side is gone")
        other = self.other
        due_s = max(other._last_due_s, trio.current_time() + self._random.expovariate(1.0 / LATENCY_S))
        other._last_due_s = due_s
        other._packets.append((due_s, bytes(packet), os.dup(descriptor) if descriptor >= 0 else -1))
        if len(other._packets) == 1:
            other._arrival.set(due_s)
        self.process.step()
        return len(packet)

    def _take(self) -> tuple[bytes, int]:
        if self._closed:
            raise OSError(errno.EBADF, "this end was closed")
        if not self._packets:
            if self._ended:
                return b"", -1
            raise BlockingIOError(errno.EAGAIN, "there is none yet")
        due_s, packet, descriptor = self._packets[0]
        if due_s > trio.current_time():
            raise BlockingIOError(errno.EAGAIN, "there is none yet")
        self._packets.popleft()
        return packet, descriptor

    async def _wait_and_take(self) -> tuple[bytes, int]:
        try:
            await self.wait_readable()
        except trio.ClosedResourceError as error:
            raise OSError(errno.EBADF, "this end was closed") from error
        return self._take()


class PacketListener:
    """Listens at a name."""

    def __init__(self, sockets: PacketSockets, process: SimulatedProcess, address: str) -> None:
        self.process = process
        self._sockets = sockets
        self._address = address
        self._came: deque[PacketEnd] = deque()
        self._news = trio.Event()
        process.on_kill.append(self.close)

    async def accept(self) -> PacketEnd:
        """Wait for a process; return its connection."""
        while not self._came:
            self._news = trio.Event()
            await self._news.wait()
        await trio.lowlevel.checkpoint()
        end = self._came.popleft()
        end.setblocking(False)
        return end

    def close(self) -> None:
        """Listen no more."""
        if self._sockets.listening.get(self._address) is self:
            del self._sockets.listening[self._address]
        for end in self._came:
            end.close()
        self._came.clear()

    def connect_from(self, process: SimulatedProcess, random: Random) -> PacketEnd:
        """Connect a process; return its end."""
        here, there = PacketEnd(process, random), PacketEnd(self.process, random)
        here.other, there.other = there, here
        self._came.append(there)
        self._news.set()
        return here


class PacketSockets:
    """Who listens at which name, on all hosts.

    Args:
        random: draws latencies.
    """

    def __init__(self, random: Random) -> None:
        self.listening: dict[str, PacketListener] = {}
        self._random = random

    def listen(self, process: SimulatedProcess, address: str) -> PacketListener:
        """Listen at a name.

        Raises:
            OSError: it is taken.
        """
        if address in self.listening:
            raise OSError(errno.EADDRINUSE, f"the name {address} is taken")
        listener = self.listening[address] = PacketListener(self, process, address)
        return listener

    def connect(self, process: SimulatedProcess, address: str) -> PacketEnd:
        """Connect to who listens at a name.

        Raises:
            ConnectionRefusedError: nobody does.
        """
        if in_thread():
            return call_trio(partial(self._connect, process, address))
        listener = self.listening.get(address)
        if listener is None or not process.alive:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
        return listener.connect_from(process, Random(self._random.getrandbits(64)))

    async def _connect(self, process: SimulatedProcess, address: str) -> PacketEnd:
        return self.connect(process, address)
