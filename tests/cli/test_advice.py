"""What commands say of connections that do not come about: what was asked, what there is, what to do."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
import trio

from gspc_trio.cli.common import explain
from gspc_trio.components.rts.shell.client import join_rts
from gspc_trio.components.rts.shell.system import published_manager
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.nursery.connections.connection_file import ConnectionInfo, write_connection_file
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer


async def said(file: Path, *, wants_manager: bool = False) -> str:
    """Return what is said of a connection file when a run-time system or a resource manager is wanted."""
    wanted = published_manager(file, role="control")() if wants_manager else join_rts(file)
    with pytest.raises(ConnectionProblem) as caught:
        async with wanted:
            raise AssertionError("it was let in")
    return explain(caught.value)


async def serve(peer: Peer) -> None:
    await peer.listen(lambda _: None)


async def test_a_connection_file_of_another_service_is_named_by_what_it_is(tmp_path: Path) -> None:
    network = Network(wire_codec, secrets.token_bytes(32))
    file = tmp_path / "run" / "service.json"
    async with trio.open_nursery() as nursery:

        async def listen(role: str, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
            await network.listen("ws://127.0.0.1:0", serve, role=role, name=role, task_status=task_status)

        for role, wants_manager, names in (
            ("rm", False, ("resource manager", "run-time system")),
            ("iml", True, ("memory layer", "resource manager")),
            ("rif", False, ("service of another kind", "run-time system")),
        ):
            address = await nursery.start(listen, role)
            write_connection_file(file, ConnectionInfo.create(address, network.token, "1"))
            assert await said(file, wants_manager=wants_manager) == (
                f"the connection file is that of a {names[0]} ({address}), and that of a {names[1]} is needed"
            )
        nursery.cancel_scope.cancel()
    assert (await said(file)).endswith("is the run-time system running? start one with: gspc-rts start")
    assert (await said(file, wants_manager=True)).endswith(
        "is the resource manager running? start one with: gspc-rts rm"
    )
