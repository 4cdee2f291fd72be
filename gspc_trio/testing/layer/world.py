"""The memory layer of a simulated cluster: its coordinator, what its hosts have, what its jobs keep there."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import trio

from gspc_trio.components.worker.messages import OpenJob
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.shell.coordinator import CoordinatorService
from gspc_trio.iml.shell.platform import PLATFORM, Sizes
from gspc_trio.iml.shell.server import ImlServer
from gspc_trio.nursery.connections.network import Network
from gspc_trio.testing.layer.packets import PacketSockets
from gspc_trio.testing.layer.platform import PoisonedPool, SimulatedPlatform
from gspc_trio.testing.layer.spill import SpillDisk
from gspc_trio.testing.layer.strands import Strands
from gspc_trio.testing.layer.work import DataWork
from gspc_trio.testing.simulated.process import SimulatedProcess, first_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gspc_trio.testing.cluster import Cluster

HOST = "store"
"""Where the coordinator runs, and a server with it."""

FIRST_PORT = 7100


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
        sockets, strands: sockets and blocking functions of all processes.
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
        self.sockets = PacketSockets(Random(random.getrandbits(64)))
        self.strands = Strands()
        self.servers: dict[SimulatedProcess, ImlServer] = {}
        self.owners: dict[SimulatedProcess, SimulatedProcess] = {}
        self.pools: dict[SimulatedProcess, list[PoisonedPool]] = {}
        self._cluster: Cluster
        self._port = FIRST_PORT

    def attach(self, cluster: Cluster) -> None:
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
        return None if opening.data is None else DataWork(opening.data, self.strands)

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
            coordinator = CoordinatorService(network)
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
        self.strands.close()
