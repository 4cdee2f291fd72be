"""The memory layer of a simulated cluster: its coordinator, what its hosts have, what its jobs keep there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any, Protocol, TypeVar

import trio

from gspc_trio.components.rts.shell.service import RtsService
from gspc_trio.components.worker.messages import OpenJob
from gspc_trio.core.ids import Counter
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.errors import ImlError, LayerGone, error_of
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.segment import Segment, SegmentPool, SpillFile
from gspc_trio.iml.shell.coordinator import CoordinatorService
from gspc_trio.iml.shell.platform import PLATFORM, Platform, Sizes
from gspc_trio.iml.shell.server import ImlServer
from gspc_trio.iml.shell.server_process import ServerProcess
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.scopes.scope import leaves
from gspc_trio.testing.layer.packets import PacketSockets
from gspc_trio.testing.layer.spill import SimulatedSpill, SpillDisk
from gspc_trio.testing.layer.threads import SimulatedThreads
from gspc_trio.testing.layer.work import DataWork
from gspc_trio.testing.simulated.process import SimulatedProcess, first_of

HOST = "store"
"""Where the coordinator runs, and a server with it."""

FIRST_PORT = 7100

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
        self.living: int = 0
        self.closed: bool = False

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
        self.sizes: Sizes = world.sizes

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
            done: T = await self._world.threads.run(function, *arguments)
        return done

    def waker(self) -> Callable[..., object]:
        """Return what runs a function soon."""
        return self._world.threads.soon

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


class ProcessHost(Protocol):
    """What a memory layer needs of the cluster on which it runs."""

    hosts: tuple[str, ...]
    rts: RtsService | None

    def network(self, process: SimulatedProcess, token: bytes) -> Network:
        """Return the network of a process."""
        ...

    def spawn(
        self, name: str, role: str, host: str, main: Callable[[SimulatedProcess], Awaitable[object]]
    ) -> SimulatedProcess:
        """Start a process."""
        ...


class LayerWorld:
    """What all processes of a simulated memory layer have in common.

    Args:
        random: to draw from.
        quota: of each server.
        host_memory_bytes: memory that each host of the run-time system says it has; 0: it does not say.
        sizes: how bytes go from host to host.
        bytes_min: values of so many bytes or more go into the layer.
        copies: on how many hosts each of them is to lie.
        is_small: whether clients may want more memory than there is.

    Attributes:
        disks: host -> what its servers spill to.
        layer: the layer that is there now, or None.
        coordinator: that of it.
        servers: process -> the memory server that it is.
        owners: process of such a server -> that which has started it.
        sockets, threads: sockets and blocking functions of all processes.
        pools: process -> memory of its servers.
    """

    def __init__(
        self,
        random: Random,
        *,
        quota: Quota,
        sizes: Sizes,
        bytes_min: int,
        copies: int = 1,
        host_memory_bytes: int = 0,
        is_small: bool = False,
    ) -> None:
        self.random = random
        self.quota = quota
        self.is_small = is_small
        self.host_memory_bytes = host_memory_bytes
        self.sizes = sizes
        self.disks: dict[str, SpillDisk] = {}
        self.bytes_min = bytes_min
        self.copies = copies
        self.layer: DataLayer | None = None
        self.coordinator: CoordinatorService | None = None
        self.sockets: PacketSockets = PacketSockets(Random(random.getrandbits(64)))
        self.threads: SimulatedThreads = SimulatedThreads()
        self.servers: dict[SimulatedProcess, ImlServer] = {}
        self.owners: dict[SimulatedProcess, SimulatedProcess] = {}
        self.pools: dict[SimulatedProcess, list[PoisonedPool]] = {}
        self._cluster: ProcessHost
        self._port = FIRST_PORT

    def attach(self, cluster: ProcessHost) -> None:
        """Say of which cluster it is part."""
        self._cluster = cluster

    def enter(self, process: SimulatedProcess) -> None:
        """Let what runs from now on in this context use the machine of a simulated process."""
        PLATFORM.set(SimulatedPlatform(self, process))

    def network(self, process: SimulatedProcess, token: bytes) -> Network:
        """Return the network of a process for a layer."""
        return self._cluster.network(process, token)

    def spawn(
        self, name: str, role: str, host: str, main: Callable[[SimulatedProcess], Awaitable[object]]
    ) -> SimulatedProcess:
        """Start a process."""
        return self._cluster.spawn(name, role, host, main)

    def work(self, opening: OpenJob) -> DataWork | None:
        """Return what opens and keeps values for a job's tasks in compute, None for a job without a layer."""
        return None if opening.data is None else DataWork(opening.data, self.threads)

    def make_server(self, network: Network, host: str) -> ImlServer:
        """Return a memory server that is to run."""
        return ImlServer(network, host, self.quota.memory_bytes, self.quota.spill_bytes)

    def disk(self, host: str) -> SpillDisk:
        """Return the disk of a host."""
        return self.disks.setdefault(host, SpillDisk())

    def not_held(self) -> list[str]:
        """Return where the memory of servers is not that of grants, which somebody holds (RM-8)."""
        if not self.host_memory_bytes:
            return []
        rts = self._cluster.rts
        if rts is None:
            return ["no run-time system has anybody's memory"]
        servers = dict.fromkeys(self._cluster.hosts, 0)
        for process in self.servers:
            if process.alive and process in self.owners and self.owners[process].role == "rif":
                servers[process.host] += 1
        taken = dict.fromkeys(self._cluster.hosts, 0)
        for memory in rts.status().memories.values():
            taken[memory.host] += memory.total_bytes - memory.free_bytes
        return [
            f"{number} servers of {host} hold {taken[host]} bytes, not {number} x {self.quota.memory_bytes}"
            for host, number in servers.items()
            if taken[host] != number * self.quota.memory_bytes
        ]

    async def start_layer(self) -> SimulatedProcess:
        """Start a layer of its own; return its first process when it is up, or over."""
        up = trio.Event()
        self._port += 1
        token = self.random.randbytes(32)
        address = f"ws://{HOST}:{self._port}"

        async def main(process: SimulatedProcess) -> None:
            network = self._cluster.network(process, token)
            coordinator = CoordinatorService(network, Counter("w").next_name)
            async with trio.open_nursery() as nursery:
                await nursery.start(coordinator.run, address)
                server = self.make_server(network, HOST)
                await nursery.start(server.run, f"ws://{HOST}:0", address)
                self.servers[process] = server
                self.coordinator = coordinator
                self.layer = DataLayer(address, token, bytes_min=self.bytes_min, copies=self.copies)
                up.set()
                await first_of(coordinator.stopped, server.gone)  # as a real process
                nursery.cancel_scope.cancel()

        process = self.spawn("iml", "iml", HOST, main)
        await first_of(up, process.ended)
        return process

    def close(self) -> None:
        """The simulation is over."""
        self.threads.close()
