"""The command that runs a memory server: how it ends."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
import trio
import trio.testing

from gspc_trio.cli.common import CommandError
from gspc_trio.cli.iml import _lead
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml.shell.server import ImlServer
from gspc_trio.nursery.connections.network import Network
from gspc_trio.protocol.address import WebSocketAddress


async def test_the_first_server_does_not_go_on_without_its_memory(tmp_path: Path) -> None:
    network = Network(wire_codec, secrets.token_bytes(32))
    server, path = ImlServer(network, "a", 1 << 20), tmp_path / "iml.json"
    where = WebSocketAddress("127.0.0.1", 0)
    with pytest.RaisesGroup(
        pytest.RaisesExc(CommandError, match="the memory layer has ended: its coordinator is"),
        flatten_subgroups=True,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_lead, network, server, where, path, "")
            while server.rank < 0:
                await trio.testing.wait_all_tasks_blocked()
            server._coordinator.drop("cut by the test")
    assert not path.exists()
