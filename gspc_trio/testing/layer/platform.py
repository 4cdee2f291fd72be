"""Platform of a simulated process in a memory layer: simulated sockets, real memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.errors import ImlError, LayerGone, error_of
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.segment import Segment, SegmentPool, SpillFile
from gspc_trio.iml.shell.platform import Platform
from gspc_trio.iml.shell.server import ImlServer
from gspc_trio.iml.shell.server_process import ServerProcess
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.scopes.scope import leaves
from gspc_trio.testing.layer.spill import SimulatedSpill
from gspc_trio.testing.simulated.process import SimulatedProcess, first_of

if TYPE_CHECKING:
    from gspc_trio.testing.layer.world import LayerWorld

START_S = 0.2
"""Mean time that a process takes to start."""

POISON = 0xDD
"""What is left in memory that was given up."""

T = TypeVar("T")


class PoisonedSegment(Segment):
    """Real shared memory; when it is given up, whoever still looks at it sees :data:`POISON`."""

    pool: PoisonedPool

    def poison(self) -> None:
        """Spoil what is in it."""
        with open(f"/proc/self/fd/{self.descriptor}", "r+b", buffering=0) as file:
            file.write(bytes((POISON,)) * self.size_bytes)

    def close(self) -> None:
        """Give it up."""
        if not self.pool.closed:
            self.poison()
        self.pool.living -= 1
        super().close()


class PoisonedPool(SegmentPool):
    """A pool that keeps segments of any size, so that each may be used again.

    Attributes:
        living: number of segments that are there.
        closed: whether the server goes: then what is mapped stays as it is.
    """

    def __init__(self, bytes_max: int) -> None:
        super().__init__(bytes_max, pooled_bytes_min=1)
        self.living = 0
        self.closed = False

    def new(self, size_bytes: int) -> Segment:
        """Return a segment of zeros."""
        segment = PoisonedSegment(size_bytes)
        segment.pool = self
        self.living += 1
        return segment

    def give(self, segment: Segment, spare_bytes: int) -> None:
        """Take back a segment that nobody else has."""
        assert isinstance(segment, PoisonedSegment)
        segment.poison()
        super().give(segment, spare_bytes)

    def close(self) -> None:
        """Give all of them up."""
        self.closed = True
        super().close()


class SimulatedPlatform(Platform):
    """The machine as one simulated process has it.

    Args:
        world: of all of them.
        process: whose.
    """

    def __init__(self, world: LayerWorld, process: SimulatedProcess) -> None:
        self._world = world
        self._process = process
        self.sizes = world.sizes

    def network(self, layer: DataLayer) -> Network:
        """Return the simulated network."""
        return self._world.network(self._process, layer.token)

    def listen(self, address: str) -> Any:
        """Listen for processes of this host."""
        return self._world.sockets.listen(self._process, address)

    def connect(self, address: str) -> Any:
        """Return a connection to a server of this host."""
        try:
            return self._world.sockets.connect(self._process, address)
        except OSError as error:
            raise LayerGone(f"no memory server answers at {address}: {error.strerror}") from error

    async def in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Return what a function does that blocks; it cannot be cancelled."""
        with trio.CancelScope(shield=True):
            await trio.sleep(self._world.random.choice((0.0, 0.0005, 0.01)))
            done: T = await self._world.strands.run(function, *arguments)
        return done

    def waker(self) -> Callable[..., object]:
        """Return what runs a function soon."""
        return self._world.strands.soon

    def pool(self, bytes_max: int) -> SegmentPool:
        """Return a pool whose segments are spoilt when they are given up."""
        pool = PoisonedPool(bytes_max)
        self._world.pools.setdefault(self._process, []).append(pool)
        return pool

    def memory_bytes(self) -> int:
        """Return the quota of this simulation."""
        return self._world.quota.memory_bytes

    def spill_file(self, directory: str) -> SpillFile:
        """Return a file on the simulated disk of this host."""
        del directory
        return SimulatedSpill(self._world.disk(self._process.host))

    def open_server(
        self, host: str, quota: Quota, layer: DataLayer
    ) -> AbstractAsyncContextManager[ServerProcess]:
        """Run a memory server as a simulated process, which ends with this one."""
        assert quota.memory_bytes == self._world.quota.memory_bytes, "it was asked for"
        return self._open_server(host, layer)

    @asynccontextmanager
    async def _open_server(self, host: str, layer: DataLayer) -> AsyncIterator[ServerProcess]:
        started: list[ImlServer] = []
        up = trio.Event()
        delay_s = self._world.random.expovariate(1.0 / START_S)

        async def main(process: SimulatedProcess) -> None:
            await trio.sleep(delay_s)
            server = self._world.make_server(self._world.network(process, layer.token), host)
            async with trio.open_nursery() as nursery:
                self._world.servers[process] = server
                started.append(await nursery.start(server.run, f"ws://{host}:0", layer.address))
                up.set()
                await server.gone.wait()
                nursery.cancel_scope.cancel()

        process = self._world.spawn(f"iml-{host}", "store", host, main)
        self._world.owners[process] = self._process
        self._process.on_kill.append(process.stop)  # its standard input ends
        try:
            await first_of(up, process.ended)
            if not started:
                raise _why_not(process, host)
            yield ServerProcess(layer, host, started[0].local_address, process.ended.wait)
        finally:
            process.stop()
            with trio.CancelScope(shield=True):
                await process.ended.wait()


def _why_not(process: SimulatedProcess, host: str) -> ImlError:
    """Return the error with which a server process says that it cannot start."""
    error = process.error
    found = next((e for e in leaves(error) if isinstance(e, ImlError | OSError)), None) if error else None
    if found is None:
        return LayerGone(f"the memory server of host {host} did not start")
    process.error = None  # it has told
    return error_of(type(found).__name__ if isinstance(found, ImlError) else "LayerGone", str(found))
