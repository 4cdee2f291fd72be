"""A memory layer in this process whose servers a test can kill one by one."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.coordinator import CoordinatorService
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.iml.shell.server import ImlServer
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.scopes.scope import open_scope

TOKEN = b"t" * 32
MEMORY_BYTES = 1 << 24


def segments_open() -> list[str]:
    """Return the segments that this process has open or mapped."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if "gspc-iml" in target:
            found.append(target)
    return found + [line for line in Path("/proc/self/maps").read_text().splitlines() if "gspc-iml" in line]


class Stage:
    """The layer: its coordinator and its servers by host."""

    def __init__(self, nursery: trio.Nursery, network: Network) -> None:
        self.network = network
        self.coordinator = CoordinatorService(network)
        self.servers: dict[str, ImlServer] = {}
        self._nursery = nursery
        self._scopes: dict[str, trio.CancelScope] = {}

    async def add(
        self,
        host: str,
        memory_bytes: int = MEMORY_BYTES,
        spill_bytes: int = 0,
        directory: str = "",
        *,
        listen: str = "",
        local: bool = False,
    ) -> ImlServer:
        """Start the server of a host."""
        server = ImlServer(self.network, host, memory_bytes, spill_bytes, directory)

        async def run(task_status: trio.TaskStatus[ImlServer]) -> None:
            with trio.CancelScope() as scope:
                self._scopes[host] = scope
                await server.run(
                    listen or f"memory:{host}", self.coordinator.address, local=local, task_status=task_status
                )

        self.servers[host] = await self._nursery.start(run)
        return server

    async def kill(self, host: str) -> None:
        """End the server of a host, and wait until the coordinator knows."""
        server = self.servers.pop(host)
        self._scopes.pop(host).cancel()
        await server.gone.wait()
        while any(entry.host == host for entry in self.coordinator.machine.status().servers):
            await trio.lowlevel.checkpoint()

    @asynccontextmanager
    async def client(self, job: str = "j1", host: str = "") -> AsyncIterator[Iml]:
        """Join as a client near the server of a host, or near none."""
        server = self.servers.get(host)
        async with join_layer(
            self.network, self.coordinator.address, job=job, host=host or "far", server=server
        ) as iml:
            yield iml


@asynccontextmanager
async def open_stage(*hosts: str, listen: str = "memory:iml") -> AsyncIterator[Stage]:
    """Run a layer with a server for each host; no segment is left after it."""
    async with open_scope() as nursery:
        stage = Stage(nursery, Network(wire_codec, TOKEN))
        await nursery.start(stage.coordinator.run, listen)
        for host in hosts:
            await stage.add(host)
        yield stage
        nursery.cancel_scope.cancel()
    assert segments_open() == []
