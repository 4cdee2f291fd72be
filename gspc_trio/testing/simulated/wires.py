"""Connections of a simulated cluster: streams with a latency, which break, go silent or are cut anywhere."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from math import inf
from random import Random
from typing import cast

import trio

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.network import ConnectFailed, Handler, Network, ProcessInfo
from gspc_trio.nursery.connections.pending import PendingConnections
from gspc_trio.nursery.connections.websocket import UNPROVED_MESSAGES, AcceptPolicy, serve_stream
from gspc_trio.nursery.scopes.scope import open_scope
from gspc_trio.protocol.address import WebSocketAddress
from gspc_trio.protocol.codec import Codec
from gspc_trio.protocol.limits import DEFAULT_LIMITS, Limits
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.simulated.alarm import Alarm
from gspc_trio.testing.simulated.process import SimulatedProcess

BUFFER_BYTES = 256 * 1024
"""What one direction of a connection usually holds before its sender has to wait."""

FIRST_FREE_PORT = 40_000


class OneWayBytes:
    """One direction of a connection."""

    def __init__(self, buffer_bytes: int) -> None:
        self.buffer_bytes = buffer_bytes
        self.chunks: deque[tuple[float, bytes]] = deque()
        self.size_bytes: int = 0
        self.last_due_s: float = 0.0
        self.held_until_s: float = 0.0
        self.ended = False
        self.broken = False
        self.silent = False
        self.arrival: Alarm = Alarm()
        self.room: trio.Event | None = None

    def push(self, data: bytes, due_s: float) -> None:
        """Send data that arrives at ``due_s``, or after what was sent before."""
        if due_s > self.last_due_s:
            self.last_due_s = due_s
        self.chunks.append((self.last_due_s, data))
        self.size_bytes += len(data)
        if len(self.chunks) == 1:
            self.arrival.set(self.due_s())

    def due_s(self) -> float:
        """Return when there is something to be received, be it the end."""
        if self.silent:
            return inf
        if self.chunks:
            return max(self.chunks[0][0], self.held_until_s)
        return self.held_until_s if self.ended else inf

    def pop(self, max_bytes: int) -> bytes:
        """Return what has arrived, at most so many bytes."""
        now, parts, size, chunks = trio.current_time(), [], 0, self.chunks
        while chunks and chunks[0][0] <= now and size < max_bytes:
            due_s, data = chunks.popleft()
            if size + len(data) > max_bytes:
                chunks.appendleft((due_s, data[max_bytes - size :]))
                data = data[: max_bytes - size]
            parts.append(data)
            size += len(data)
        self.size_bytes -= size
        if self.room is not None and self.size_bytes < self.buffer_bytes:
            self.room.set()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def hold(self, until_s: float) -> None:
        """Let nothing arrive before ``until_s``."""
        self.held_until_s = max(self.held_until_s, until_s)
        self.tell()

    def cut(self, left_bytes: int) -> None:
        """Lose all but the first bytes of what is under way."""
        kept: deque[tuple[float, bytes]] = deque()
        for due_s, data in self.chunks:
            if left_bytes <= 0:
                break
            kept.append((due_s, data[:left_bytes]))
            left_bytes -= len(data)
        self.chunks = kept
        self.size_bytes = sum(len(data) for _, data in kept)

    def tell(self, *, at_once: bool = False) -> None:
        """Something has changed: let who receives look again, ``at_once`` or when something is due."""
        self.arrival.set(trio.current_time() if at_once else self.due_s())
        if self.room is not None and (self.broken or self.silent or self.size_bytes < self.buffer_bytes):
            self.room.set()


class Wire:
    """A connection between two processes.

    Args:
        dialer, listener: the processes.
        random: draws latencies and cuts.
        latency_s: mean of the latency of a chunk, 0 for none.
        buffer_bytes: what each direction holds.
        dark: hosts that do not answer.
    """

    def __init__(
        self,
        dialer: SimulatedProcess,
        listener: SimulatedProcess,
        random: Random,
        latency_s: float,
        buffer_bytes: int,
        dark: set[str],
    ) -> None:
        self.random = random
        self.dark = dark
        self._mean_s = latency_s
        there, back = OneWayBytes(buffer_bytes), OneWayBytes(buffer_bytes)
        self.dialer: WireEnd = WireEnd(self, dialer, there, back)
        self.listener: WireEnd = WireEnd(self, listener, back, there)
        self.ends: tuple[WireEnd, WireEnd] = (self.dialer, self.listener)

    def latency_s(self) -> float:
        """Draw the latency of one chunk."""
        return self.random.expovariate(1.0 / self._mean_s) if self._mean_s else 0.0

    def sever(self, end: WireEnd, *, silently: bool = False) -> None:
        """The process at ``end`` is no more: of what it had sent a part arrives, then the end, or nothing."""
        if end.gone:
            return
        end.gone = True
        end.process.ends.pop(end, None)
        if silently:
            self.dark.add(end.process.host)
            end.sends.silent = end.receives.silent = True
            end.sends.chunks.clear()
        else:
            end.sends.cut(self.random.randint(0, end.sends.size_bytes))
            end.sends.ended = True
        end.receives.broken = not silently
        end.sends.tell()
        end.receives.tell(at_once=True)

    def cut(self) -> None:
        """Break the connection at some byte; both ends learn of it."""
        for end in self.ends:
            end.sends.cut(self.random.randint(0, end.sends.size_bytes))
            end.sends.ended = end.sends.broken = True
        for end in self.ends:
            end.sends.tell()


class WireEnd(trio.abc.Stream):
    """One end of a wire, as a stream."""

    def __init__(
        self, wire: Wire, process: SimulatedProcess, sends: OneWayBytes, receives: OneWayBytes
    ) -> None:
        self.wire = wire
        self.process = process
        self.sends = sends
        self.receives = receives
        self.gone: bool = False
        self.on_read: Callable[[int], None] | None = None
        process.ends[self] = None

    def sever(self, *, silently: bool = False) -> None:
        """The process is no more; ``silently``: the other end is not told."""
        self.wire.sever(self, silently=silently)

    @property
    def other(self) -> WireEnd:
        """The other end."""
        here, there = self.wire.ends
        return there if here is self else here

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send; waits while too much is under way, and else lets nobody run: the websocket's lock has."""
        await trio.lowlevel.checkpoint_if_cancelled()
        lane = self.sends
        self._check()
        if not lane.silent:
            lane.push(bytes(data), trio.current_time() + self.wire.latency_s())
        self.process.step()
        while lane.size_bytes >= lane.buffer_bytes and not (lane.broken or lane.silent):
            self._check()
            lane.room = trio.Event()
            await lane.room.wait()

    def _check(self) -> None:
        if self.gone:
            raise trio.ClosedResourceError("this end was closed")
        if self.sends.broken:
            raise trio.BrokenResourceError("the other end is gone")

    async def wait_send_all_might_not_block(self) -> None:
        """Return at once: sending looks after itself."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Receive what has arrived."""
        await trio.lowlevel.checkpoint_if_cancelled()
        lane, waited = self.receives, False
        while True:
            if self.gone:
                raise trio.ClosedResourceError("this end was closed")
            due_s = lane.due_s()
            if due_s <= trio.current_time():
                break
            await lane.arrival.wait(due_s)
            waited = True
        data = lane.pop(max_bytes or BUFFER_BYTES)
        if self.on_read is not None:
            self.on_read(len(data))
        self.process.step()
        if not waited:
            await trio.lowlevel.cancel_shielded_checkpoint()
        return data

    async def aclose(self) -> None:
        """Close this end; what was sent still arrives."""
        if not self.gone:
            self.gone = True
            self.process.ends.pop(self, None)
            self.sends.ended = True
            self.receives.broken = True
            self.sends.tell()
            self.receives.tell(at_once=True)
        await trio.lowlevel.checkpoint()


class Listener:
    """A process listens at a port of its host."""

    def __init__(self, wires: Wires, process: SimulatedProcess, where: tuple[str, int]) -> None:
        self.process = process
        self._wires = wires
        self.where = where
        self.accepted: deque[WireEnd] = deque()
        self.news: trio.Event = trio.Event()
        wires.listeners[where] = self
        process.listeners[self] = None

    def close(self) -> None:
        """Listen no more; the next process may have taken the place already."""
        if self._wires.listeners.get(self.where) is self:
            del self._wires.listeners[self.where]
        self.process.listeners.pop(self, None)
        for end in self.accepted:
            end.wire.sever(end)
        self.accepted.clear()


class Wires:
    """All connections of a cluster.

    Args:
        random: seeds the wires.
        latency_s: mean latency of what goes over a wire.
        buffer_bytes: what each direction of a connection holds.

    Attributes:
        listeners: (host, port) -> who listens there.
        dark: hosts that do not answer.
        made: number of connections that were made.
        on_broken: told of what does not hold for the pending connections of a listener.
    """

    def __init__(self, random: Random, latency_s: float = 0.0, buffer_bytes: int = BUFFER_BYTES) -> None:
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.dark: set[str] = set()
        self.made: int = 0
        self.on_broken: Callable[[BaseException], None] = _raise
        self._random = random
        self._latency_s = latency_s
        self._buffer_bytes = buffer_bytes
        self._port = FIRST_FREE_PORT

    def free_port(self) -> int:
        """Return a port that nobody has used."""
        self._port += 1
        return self._port

    def connect(self, process: SimulatedProcess, listener: Listener) -> WireEnd:
        """Connect a process to a listener and return its end."""
        self.made += 1
        random = Random(self._random.getrandbits(64))
        wire = Wire(process, listener.process, random, self._latency_s, self._buffer_bytes, self.dark)
        listener.accepted.append(wire.listener)
        listener.news.set()
        return wire.dialer


class SimulatedNetwork(Network):
    """The network as one simulated process has it: websockets over wires.

    Args:
        process: whose.
        wires: of the cluster.
        token: the secret of the cluster.
        random: makes nonces and instance ids.
        limits: of every connection.
    """

    def __init__(
        self,
        process: SimulatedProcess,
        wires: Wires,
        token: bytes,
        random: Random,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(wire_codec, token, limits=limits, random_bytes=random.randbytes, allow_remote=True)
        self.process = process
        self._wires = wires

    @cached_property
    def codec(self) -> Codec:
        """The codec, which all networks of a simulation share: it remembers nothing but its limits."""
        return _codec(self.limits)

    def process_info(self) -> ProcessInfo:
        """Return what the simulated process tells others of itself: the same at every run."""
        return ProcessInfo(1000, self.process.host, "/", ())

    async def _listen_on_websocket(
        self,
        where: WebSocketAddress,
        handler: Handler,
        role: str,
        name: str,
        task_status: trio.TaskStatus[str],
    ) -> None:
        self._need_token(where)
        port = where.port or self._wires.free_port()
        place = (where.host, port)
        if place in self._wires.listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} of {where.host} is taken")
        listener = Listener(self._wires, self.process, place)
        policy = AcceptPolicy(PendingChecker(self.limits, lambda error: self._wires.on_broken(error)))

        async def serve(end: WireEnd) -> None:
            identity = self.identity(role, name, dialer=False)
            remote = end.other.process.name
            await serve_stream(end, identity, self.codec, handler, policy, remote=remote)

        try:
            async with open_scope() as nursery:
                task_status.started(str(WebSocketAddress(where.host, port)))
                while True:
                    await listener.news.wait()
                    listener.news = trio.Event()
                    while listener.accepted:
                        nursery.start_soon(serve, listener.accepted.popleft())
        finally:
            listener.close()

    async def _dial(self, where: WebSocketAddress) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        with trio.move_on_after(self.limits.handshake_s):
            if where.host in self._wires.dark or not self.process.alive:
                await trio.sleep_forever()
            listener = self._wires.listeners.get((where.host, where.port))
            if listener is None:
                raise ConnectFailed(str(where), f"nothing listens at {where}")
            return cast(trio.abc.Stream, self._wires.connect(self.process, listener))
        raise ConnectFailed(str(where), f"{where} does not answer")


def _raise(error: BaseException) -> None:
    raise error


@cache
def _codec(limits: Limits) -> Codec:
    return wire_codec(limits=limits)


class PendingChecker(PendingConnections):
    """The connections of one listener that have not proved themselves yet, checked.

    Args:
        limits: how many, and how much, may be.
        fail: told of what does not hold.
    """

    def __init__(self, limits: Limits, fail: Callable[[BaseException], None]) -> None:
        super().__init__(limits.unproved_max)
        self._limits = limits
        self._fail = fail

    def enter(self, who: object, evict: Callable[[], object], now: float, *, asking: bool = False) -> None:
        """Take a place; somebody else may lose one."""
        is_out = [False]

        def noted() -> None:
            is_out[0] = True
            evict()

        super().enter(who, noted, now, asking=asking)
        most = self._limits.unproved_max
        if len(self) > most:
            self._fail(Broken(f"{len(self)} connections of a listener are pending; {most} may"))
        if is_out[0]:
            self._fail(Broken("the newest connection is evicted, and one that was silent for long stays"))

    @contextmanager
    def place(self, stream: object, deadline_s: float) -> Iterator[trio.CancelScope]:
        """Run a handshake; count what is read meanwhile."""
        end = cast("WireEnd", stream)
        most, read = UNPROVED_MESSAGES * self._limits.handshake_bytes_max, [0]

        def count(size_bytes: int) -> None:
            read[0] += size_bytes
            if read[0] > most:
                what = f"{read[0]} bytes were read of {end.other.process.name}, who has proved nothing"
                self._fail(Broken(f"{what}; {most} may be"))

        end.on_read = count
        with super().place(stream, deadline_s) as scope:
            try:
                yield scope
            finally:
                end.on_read = None
