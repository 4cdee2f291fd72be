"""Memory layers as scopes (APP-5): one of this process's own, or a part in a running one."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml import local
from gspc_trio.iml import messages as x
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.errors import LayerGone, error_of
from gspc_trio.iml.local import Fields, socket_address_of
from gspc_trio.iml.shell.access import FindNear, Near
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.coordinator import CoordinatorService
from gspc_trio.iml.shell.link import LocalLink
from gspc_trio.iml.shell.platform import default_memory_bytes
from gspc_trio.iml.shell.server import ImlServer
from gspc_trio.iml.shell.transfer import ServerLinks
from gspc_trio.iml.store_events import PinUse
from gspc_trio.nursery.connections.connection_file import default_connection_file, read_connection_file
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError
from gspc_trio.nursery.scopes.loop import real_time, require_trio
from gspc_trio.nursery.scopes.scope import open_scope

IML_FILE_VARIABLE = "GSPC_IML_CONNECTION_FILE"
"""Environment variable that names another connection file of the memory layer than the default one."""

COORDINATOR_ADDRESS = "memory:iml"


def default_iml_file() -> Path:
    """Return the user's connection file for a memory layer: beside that of the run-time system."""
    named = os.environ.get(IML_FILE_VARIABLE)
    return Path(named) if named else default_connection_file().with_name("gspc-iml.json")


def published_layer(connection_file: Path) -> DataLayer:
    """Return the layer that published a connection file, for a job to keep large values in (APP-4).

    Raises:
        ConnectionFileError: the file is missing, unsafe or not a connection file.
    """
    info = read_connection_file(connection_file)
    return DataLayer(info.address, info.token, credentials=info.credentials)


def layer_network(layer: DataLayer) -> Network:
    """Return the network through which a layer is reached, from here and, if its address says so, from other
    hosts."""
    return Network(wire_codec, layer.token, credentials=layer.credentials)


class _InProcess:
    """A server in this process, without its socket."""

    def __init__(self, server: ImlServer) -> None:
        self._server = server

    async def ask(self, operation: int, *fields: Any) -> tuple[Fields, int]:
        store = self._server.store
        if operation in (local.BRING, local.MAP):
            if operation == local.BRING:
                granted = await self._server.bring(*fields)
            else:
                granted = await store.pin((fields[0], fields[1]), PinUse.MAP)
            key = granted.key
            return [granted.size_bytes, key[1]], store.segment_of(granted).reader()
        if operation == local.READ:
            data_id, part, offset, size_bytes = fields
            return list(await store.read((data_id, part), offset, size_bytes)), -1
        if operation == local.LEND:
            key = await self._server.lend(*fields)
            return [*key, self._server.address], (await store.writer(key))[0]
        if operation == local.SHOW:
            store.seal((fields[0], fields[1]))
            return [], -1
        assert operation == local.WRITER
        descriptor, size_bytes = await store.writer((fields[0], fields[1]), fields[2])
        return [size_bytes], descriptor

    def tell_soon(self, operation: int, *fields: Any) -> None:
        if operation == local.TAKE_BACK:
            self._server.store.drop((fields[0], fields[1]))
            return
        assert operation == local.UNMAP
        self._server.store.unpin((fields[0], fields[1]), PinUse.MAP)

    async def tell_now(self) -> None:
        """It knows already."""


@asynccontextmanager
async def open_layer(
    *,
    hosts: Sequence[str] = (),
    memory_bytes: int = 0,
    spill_bytes: int = 0,
    spill_directory: str = "",
    network: Network | None = None,
    local_door: bool = True,
) -> AsyncIterator[tuple[Network, CoordinatorService, list[ImlServer]]]:
    """Run a coordinator and a server for each host in this process, for as long as the block lasts.

    Args:
        hosts: their names; by default one with the name of this host.
        memory_bytes: quota of each; 0: a quarter of this machine's memory.
        spill_bytes: what each may keep on disk besides; 0: nothing.
        spill_directory: where; "" for the system's directory for temporary files.
        network: where they listen, ``memory:iml...``; None: one of their own.
        local_door: let other processes of this machine map the memory.
    """
    network = network or Network(wire_codec, secrets.token_bytes(32))
    async with open_scope() as nursery:
        coordinator = CoordinatorService(network)
        await nursery.start(coordinator.run, COORDINATOR_ADDRESS)
        servers = []
        for host in hosts or [socket.gethostname()]:
            server = ImlServer(
                network, host, memory_bytes or default_memory_bytes(), spill_bytes, spill_directory
            )
            await nursery.start(_run_server, server, local_door)
            servers.append(server)
        yield network, coordinator, servers
        nursery.cancel_scope.cancel()


async def _run_server(
    server: ImlServer, local_door: bool, *, task_status: trio.TaskStatus[ImlServer]
) -> None:
    await server.run(
        f"memory:iml-{server.host}", COORDINATOR_ADDRESS, local=local_door, task_status=task_status
    )


@asynccontextmanager
async def join_layer(
    network: Network, address: str, *, job: str = "", host: str = "", server: ImlServer | None = None
) -> AsyncIterator[Iml]:
    """Take part in a running memory layer for as long as the block lasts.

    Args:
        network: through which it is reached.
        address: of its coordinator.
        job: whose data it is; it goes with the last client of the job. "" speaks for no job.
        host: the host whose server is near; "" for this one.
        server: that server, if it is in this process.

    Raises:
        ConnectionProblem: nobody answers there.
        LayerGone: it ended meanwhile.
    """
    host = host or (server.host if server is not None else socket.gethostname())
    async with open_scope() as nursery:
        async with network.connect(address, role="iml-client", name=job or "client", expect="iml") as peer:
            try:
                await peer.call(x.JoinLayer(job, host))
                found: x.ServerList = await peer.call(x.GetServers())
            except RemoteError as refused:
                raise error_of(refused.kind, refused.message) from None
            except PeerGone as gone:
                raise LayerGone(f"the memory layer is gone: {gone}") from gone
            near: FindNear = _NearServers(socket_address_of(network.token, address, host), nursery)
            if server is not None:
                near = _always(_InProcess(server))
            for entry in found.servers:
                if entry.host == host:
                    near(entry.local_address)
            iml = Iml(peer, ServerLinks(network, nursery, job or "client"), job, host, near)
            nursery.start_soon(iml.listen)
            yield iml
        nursery.cancel_scope.cancel()


def _always(near: Near) -> FindNear:
    """The way to a server of this process, which is there for as long as its clients."""
    return lambda _: near


class _NearServers:
    """The way to the server of a host that is this very machine: also of one that comes later, or again.

    Args:
        address: where it listens when there is one.
        nursery: in which the connection lives.
    """

    def __init__(self, address: str, nursery: trio.Nursery) -> None:
        self._address = address
        self._nursery = nursery
        self._link: LocalLink | None = None

    def __call__(self, address: str) -> Near | None:
        if self._link is None or self._link.is_over or address not in ("", self._address):
            self._address, self._link = address or self._address, None
            with suppress(LayerGone):
                self._link = LocalLink(self._address)
                self._nursery.start_soon(self._link.run)
        return self._link


@asynccontextmanager
async def open_iml(
    *,
    job: str = "",
    host: str = "",
    hosts: Sequence[str] = (),
    memory_bytes: int = 0,
    spill_bytes: int = 0,
    spill_directory: str = "",
    connection_file: Path | str | None = None,
    layer: DataLayer | None = None,
) -> AsyncIterator[Iml]:
    """A memory layer for as long as the block runs (APP-5).

    Args:
        job: whose data it is; "" speaks for no job and sees all data.
        host: the host whose server is near; "": this one, or the first of ``hosts``.
        hosts: names of the hosts of a new layer, all in this process; by default this one.
        memory_bytes: quota of each host; 0: a quarter of this machine's memory.
        spill_bytes: what each host may keep on disk when its memory is full; 0: nothing.
        spill_directory: where; "" for the system's directory for temporary files.
        connection_file: join the layer that published this file instead of starting one.
        layer: join this layer, e.g. ``rts.data`` of a run-time system, instead of starting one.

    Raises:
        ConnectionFileError: the file is missing, unsafe or not a connection file.
        ConnectFailed: no layer answers at the address in the file.
        NotInTrio: this is no task of trio, but of asyncio for example.
    """
    require_trio("open_iml")
    if connection_file is not None:
        layer = published_layer(Path(connection_file))
        with real_time():  # its servers are real processes
            async with join_layer(layer_network(layer), layer.address, job=job, host=host) as iml:
                yield iml
        return
    if layer is not None:
        async with join_layer(layer_network(layer), layer.address, job=job, host=host) as iml:
            yield iml
        return
    opened = open_layer(
        hosts=hosts, memory_bytes=memory_bytes, spill_bytes=spill_bytes, spill_directory=spill_directory
    )
    async with opened as (network, coordinator, servers):
        near = next((server for server in servers if server.host == host), servers[0])
        async with join_layer(network, coordinator.address, job=job, server=near) as iml:
            yield iml
