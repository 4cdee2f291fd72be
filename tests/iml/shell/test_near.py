"""A client of a memory layer and the server of its own host, which may come later, die, and be replaced."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest
import trio

from gspc_trio.iml.errors import NoRoom, UnknownHost
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.shell.client import Allocation, Iml
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


async def test_what_is_mapped_may_be_given_up_for_other_data_between_its_copy_and_its_map() -> None:
    """Where there is room for few at a time, many are mapped at once."""
    async with open_stage("south", listen=LISTEN) as stage:
        await stage.add("north", 1 << 15, local=True)
        async with join_layer(stage.network, stage.coordinator.address, host="north") as iml:
            contents = [bytes([number]) * 16_000 for number in range(40)]
            many = [await iml.alloc(16_000, one, layout=Layout(("south",))) for one in contents]
            seen: list[bool] = []

            async def map_one(data: Allocation, content: bytes) -> None:
                while True:
                    with suppress(NoRoom):
                        async with iml.map(data) as view:
                            seen.append(bytes(view) == content)
                        return

            async with trio.open_nursery() as nursery:
                for data, content in zip(many, contents, strict=True):
                    nursery.start_soon(map_one, data, content)
            assert seen == [True] * len(many)


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
