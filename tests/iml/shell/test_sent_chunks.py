"""A process sends chunks to another host while it makes them: they become data together, or nothing."""

from __future__ import annotations

from contextlib import closing

import pytest
import trio

from gspc_trio.iml.errors import BadRange, ImlError, NoRoom, UnknownData, UnknownHost, WrongJob
from gspc_trio.iml.layout import Layout
from gspc_trio.iml.local import LocalClient
from gspc_trio.iml.messages import Alloc, PutWritten
from gspc_trio.iml.shell.server import ImlServer
from tests.iml.shell.support import Stage, open_stage

CHUNKS = [bytes([number]) * (70_000 + number) for number in range(70)]


async def seen(stage: Stage) -> dict[str, str]:
    """Return what is in the layer: data -> its state."""
    async with stage.client(job="", host="b") as iml:
        return {data.data_id: str(data.state) for data in (await iml.status()).data}


async def until_empty(stage: Stage) -> None:
    with trio.fail_after(60):
        while await seen(stage):
            pass


async def test_chunks_are_seen_together_on_the_other_host_and_before_that_not_at_all() -> None:
    async with open_stage("b") as stage:
        server = await stage.add("a", local=True)
        async with stage.client(job="j1", host="b") as iml:
            with closing(LocalClient(server.local_address, "j1")) as client:
                for chunk in CHUNKS:
                    await trio.to_thread.run_sync(client.send, "b", [memoryview(chunk)])
                for data_id, state in (await seen(stage)).items():
                    assert state == "writing"
                    with pytest.raises(UnknownData):
                        await iml.get(data_id)
                made = await trio.to_thread.run_sync(client.join, "b")
                assert await iml.get(made) == b"".join(CHUNKS)
                assert await iml.data_location(made) == ("b",)
                await iml.free(made)
                await until_empty(stage)
                await trio.to_thread.run_sync(client.send, "b", [memoryview(b"next")])
                again = await trio.to_thread.run_sync(client.join, "b")
                assert await iml.get(again) == b"next"


async def test_nothing_is_left_of_a_process_that_goes_nor_of_what_has_no_room() -> None:
    async with open_stage() as stage:
        server = await stage.add("a", local=True)
        await stage.add("b", 1 << 20)
        async with stage.client(job="j1", host="a"):
            await use_up(stage, server)


async def use_up(stage: Stage, server: ImlServer) -> None:
    client = LocalClient(server.local_address, "j1")
    for _ in range(2):
        await trio.to_thread.run_sync(client.send, "b", [memoryview(bytes(300_000))])
    client.cut()
    client.close()
    await until_empty(stage)
    with closing(LocalClient(server.local_address, "j1")) as client:
        for _ in range(2):
            await trio.to_thread.run_sync(client.send, "b", [memoryview(bytes(300_000))])
        with pytest.raises(NoRoom):
            await trio.to_thread.run_sync(client.join, "b")
        await until_empty(stage)
        with pytest.raises(UnknownHost):
            await trio.to_thread.run_sync(client.send, "c", [memoryview(b"x")])
        await trio.to_thread.run_sync(client.send, "b", [memoryview(b"x")])
        await stage.kill("b")
        with pytest.raises(ImlError):
            await trio.to_thread.run_sync(client.join, "b")
        await until_empty(stage)


async def test_only_who_writes_both_may_copy_between_them() -> None:
    async with open_stage("b") as stage, stage.client(job="j1", host="a"):
        server = await stage.add("a")
        ask = server.ask
        target, source = [await ask(Alloc("j1", size, Layout(("b",)), writing=True)) for size in (10, 4)]
        link = server.links.to(target.servers[0])
        tokens = target.write_token, source.write_token
        for of_target, of_source in ((tokens[0], tokens[0]), (tokens[1], tokens[1]), ("", "")):
            sources = ((source.data_id, of_source),)
            with pytest.raises(WrongJob):
                await link.call(PutWritten(target.data_id, 0, of_target, sources))
        with pytest.raises(BadRange):
            await link.call(PutWritten(target.data_id, 7, tokens[0], ((source.data_id, tokens[1]),)))
