"""Memory servers that are started on a host of a running system, with real processes (RIF-1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import trio

from gspc_trio import JobSettings, farm, open_job, open_rts
from gspc_trio.cli import rts as commands
from gspc_trio.cli.common import UsageError
from gspc_trio.components.rif.messages import MemoryServer, StartServer
from gspc_trio.components.rts.messages import StartIml
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.shell.memory_servers import MemoryServers
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.nursery.connections.connection_file import ConnectionFileError
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, RemoteError
from tests.processes import children_with, kill

HANG_S = 60.0
MEMORY_BYTES = 16 << 20


def servers() -> list[psutil.Process]:
    """Return the memory servers that this process has started."""
    return children_with("gspc_trio.iml.shell.iml_process")


async def calls(peer: Peer) -> AsyncIterator[IncomingCall]:
    while True:
        for message in await peer.receive():
            assert isinstance(message, IncomingCall)
            yield message


def zeros(size: int) -> bytes:
    return bytes(size)


async def shown(rts: RunTimeSystem) -> tuple[str, int]:
    (rif,) = (await rts.status()).rifs
    return rif.memory_layer, rif.memory_server_bytes


async def test_a_memory_server_is_started_on_a_host_used_stopped_and_ends_with_its_rif() -> None:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts:
            with pytest.raises(RemoteError, match="no RIF r9 is up; there are: r1"):
                await rts.start_iml("r9")
            with pytest.raises(RemoteError, match="runs no memory server that was asked for"):
                await rts.stop_iml("r1")
            server = await rts.start_iml("r1", memory_bytes=MEMORY_BYTES)
            assert await shown(rts) == (server.layer.address, MEMORY_BYTES)
            with pytest.raises(RemoteError, match="runs a memory server already"):
                await rts.start_iml("r1")
            settings = JobSettings(data=server.layer)
            async with open_job(farm(zeros), rts=rts, values={"items": [1 << 20]}, settings=settings) as job:
                assert [len(value) for value in (await job.wait_outputs())["results"]] == [1 << 20]
                assert job.machine.engine is not job.ports, "its values are in the layer"
            await rts.stop_iml("r1")
            assert await shown(rts) == ("", 0)
            assert not servers()
            assert (await rts.status()).classes["memory"].total == 0, "its memory is free again"
            await rts.start_iml("r1", memory_bytes=MEMORY_BYTES)
            assert len(servers()) == 1
    assert not servers()


async def test_a_memory_server_whose_rif_has_gone_with_its_answer_is_forgotten() -> None:
    network, asked = Network(wire_codec), Network(wire_codec)
    rifs: list[Peer] = []
    memory = MemoryServers(lambda: rifs)
    orders: list[StartServer] = []

    async def serve_rts(peer: Peer) -> None:
        async for call in calls(peer):
            await memory.answer(call, StartIml("r1"))

    async def serve_rif(peer: Peer) -> None:
        async for call in calls(peer):
            assert isinstance(call.body, StartServer)
            orders.append(call.body)
            started = MemoryServer(DataLayer("memory:layer"), "anna", 7, MEMORY_BYTES, 0)
            memory.heard(rifs[0], started)
            call.reply(started)
            memory.gone(rifs[0])

    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(network.listen, role="rif", name="r1"), "memory:rif", serve_rif)
            await nursery.start(partial(asked.listen, role="rts", name="rts"), "memory:rts", serve_rts)
            connect = partial(asked.connect, "memory:rts", role="control", name="client", expect="rts")
            async with network.connect("memory:rif", role="rts", name="rts", expect="rif") as rif:
                rifs.append(rif)
                async with connect() as client:
                    for _ in range(2):
                        await client.call(StartIml("r1"))
            nursery.cancel_scope.cancel()
    assert [order.layer for order in orders] == [None, None], "nobody is told to join a layer that is gone"


async def test_a_memory_server_that_dies_is_no_longer_shown() -> None:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=1) as rts:
            await rts.start_iml("r1", memory_bytes=MEMORY_BYTES)
            kill(servers()[0].pid)
            while (await shown(rts))[1]:  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.01)
            await rts.start_iml("r1", memory_bytes=MEMORY_BYTES)


async def test_a_layer_is_published_in_place_of_an_ended_one_and_of_no_other_file(tmp_path: Path) -> None:
    own, source, layer = tmp_path / "rts.json", tmp_path / "flow.py", tmp_path / "iml.json"
    source.write_text("def workflow(): ...\n")
    source.chmod(0o644)

    async def start(publish: Path) -> None:
        await commands.start_iml("r1", memory="16MiB", publish=publish, connection_file=own)

    with trio.fail_after(HANG_S):
        async with open_rts(cores=1, publish=own):
            written = own.read_text()
            with pytest.raises(ConnectionFileError, match=r"flow\.py is not a connection file"):
                await start(source)
            with pytest.raises(UsageError, match=r"connection file of a service that runs .* name another"):
                await start(own)
            with pytest.raises(ConnectionFileError, match="cannot write the connection file /proc/iml"):
                await start(Path("/proc/iml.json"))
            assert not servers()
            assert (source.read_text(), own.read_text()) == ("def workflow(): ...\n", written)
            await start(layer)
            first = layer.read_text()
            await commands.stop_iml("r1", connection_file=own)
            await start(layer)
            assert layer.read_text() != first
