"""A client of a memory layer and the server of its own host, which may come later, die, and be replaced."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
import trio

from gspc_trio.iml.errors import UnknownHost
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.layer import join_layer
from tests.iml.shell.support import Stage, open_stage

LISTEN = "ws://127.0.0.1:0"
HANG_S = 60.0
NORTH = Layout(("north",))


async def kill_north(stage: Stage, iml: Iml) -> None:
    """Kill the server of host north, and wait until its client has noticed."""
    with trio.fail_after(HANG_S), suppress(UnknownHost):
        await stage.kill("north")
        while iml.map("any"):  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_server_that_comes_after_a_client_is_near_it() -> None:
    async with open_stage("south", listen=LISTEN) as stage:
        async with join_layer(stage.network, stage.coordinator.address, host="north") as iml:
            data = await iml.alloc(4, b"data")
            with pytest.raises(UnknownHost, match="has no memory server"):
                iml.map(data)
            await stage.add("north", local=True)
            async with iml.map(data) as view:
                assert bytes(view) == b"data"
            await kill_north(stage, iml)
            with pytest.raises(UnknownHost, match="has no memory server"):
                iml.map(data)


@pytest.mark.parametrize("size_bytes", [4, 1 << 21])
async def test_a_server_in_the_place_of_one_that_has_died_is_near_its_clients(size_bytes: int) -> None:
    """As a RIF starts one again: its clients could reach nothing that lay on their own host."""
    content = os.urandom(size_bytes)
    async with open_stage("south", listen=LISTEN) as stage:
        await stage.add("north", local=True)
        async with join_layer(stage.network, stage.coordinator.address, host="north") as iml:
            for _ in range(2):
                data = await iml.alloc(size_bytes, content, layout=NORTH)
                assert await iml.get(data) == content
                async with iml.map(data) as view:
                    assert bytes(view) == content
                await kill_north(stage, iml)
                await stage.add("north", local=True)
