"""A process without trio reads and overwrites ranges of data, wherever that lies."""

from __future__ import annotations

from contextlib import closing

import pytest
import trio

from gspc_trio.iml.errors import BadRange, NoRoom, UnknownData, WrongJob
from gspc_trio.iml.layout import Layout, replicated, striped
from gspc_trio.iml.local import LocalClient
from tests.iml.shell.support import open_stage

BYTES = bytes(range(256)) * 1024
SIZE = len(BYTES)


@pytest.mark.parametrize(
    "layout",
    [Layout(("a",)), Layout(("b",)), striped(70_001), replicated(2)],
    ids=["here", "there", "striped", "copies"],
)
async def test_ranges_are_read_and_written(layout: Layout) -> None:
    async with open_stage("b") as stage:
        server = await stage.add("a", local=True)
        async with stage.client(job="", host="b") as iml:
            data = await iml.alloc(SIZE, BYTES, layout=layout)
            with closing(LocalClient(server.local_address, "j2")) as client:
                for offset, size in ((0, SIZE), (3, 5), (4095, 4098), (69_990, 70_100)):
                    held, view = await trio.to_thread.run_sync(client.map_range, data.data_id, offset, size)
                    assert bytes(view) == BYTES[offset : offset + size]
                    view[0] ^= 255  # nobody else sees that
                    del view
                    client.release(held)
                    assert await iml.get(data.range(offset, size)) == BYTES[offset : offset + size]
                pieces = [memoryview(b"x" * 70_000), memoryview(b"yz")]
                await trio.to_thread.run_sync(client.put_range, data.data_id, 100, pieces)
                changed = BYTES[:100] + b"x" * 70_000 + b"yz" + BYTES[70_102:]
                assert await iml.get(data) == changed
                held, view = await trio.to_thread.run_sync(client.map_range, data.data_id, 69_000, 2_000)
                assert bytes(view) == changed[69_000:71_000]
                del view
                client.release(held)
                for offset, size in ((SIZE, 1), (0, SIZE + 1), (1, SIZE)):
                    with pytest.raises(BadRange, match="no such range"):
                        await trio.to_thread.run_sync(client.map_range, data.data_id, offset, size)
                with pytest.raises(BadRange, match="no such range"):
                    await trio.to_thread.run_sync(client.put_range, data.data_id, SIZE - 1, pieces)
                with pytest.raises(UnknownData, match="d99"):
                    await trio.to_thread.run_sync(client.put_range, "d99", 0, pieces)
            assert await iml.get(data) == changed


async def test_published_data_is_spread_over_hosts() -> None:
    async with open_stage("b", "c") as stage:
        server = await stage.add("a", local=True)
        async with stage.client(job="j2", host="b") as iml:
            with closing(LocalClient(server.local_address, "j2")) as client:
                pieces = [memoryview(BYTES[:1000]), memoryview(BYTES[1000:])]
                for stripes, hosts in ((3, {"a", "b", "c"}), (2, {"a", "b"})):
                    await trio.to_thread.run_sync(client.publish, "data", pieces, 1, stripes)
                    found = await iml.look_up("data")
                    assert await iml.get(found) == BYTES
                    there = await iml.partition(found)
                    assert there.keys() == hosts
                    sizes = [[part.size_bytes for part in parts] for parts in there.values()]
                    assert sorted(sizes)[-1] == [-(-SIZE // stripes)]
                    assert sum(size for (size,) in sizes) == SIZE
                held, mapped = await trio.to_thread.run_sync(client.map_published, "data")
                assert mapped[:] == BYTES
                del mapped
                client.release(held)
                with pytest.raises(NoRoom, match="4 stripes were asked for, but the layer has 3 hosts"):
                    await trio.to_thread.run_sync(client.publish, "data", pieces, 1, 4)
                await trio.to_thread.run_sync(client.publish, "small", [memoryview(b"ab")], 1, 3)
                assert await iml.get(await iml.look_up("small")) == b"ab"
            assert len((await iml.status()).data) == 2


async def test_what_is_not_needed_gives_its_memory_back() -> None:
    async with open_stage("b") as stage:
        server = await stage.add("a", 1 << 20, local=True)
        async with stage.client(job="", host="b") as iml:
            data = await iml.alloc(SIZE, BYTES, layout=Layout(("b",)))
            with closing(LocalClient(server.local_address, "j2")) as client:
                for _ in range(8):  # all together would have no room
                    held, view = await trio.to_thread.run_sync(client.map_range, data.data_id, 1, SIZE - 1)
                    del view
                    client.release(held)
                    pieces = [memoryview(BYTES)]
                    await trio.to_thread.run_sync(client.put_range, data.data_id, 0, pieces)


async def test_data_of_another_job_is_not_to_be_had() -> None:
    async with open_stage() as stage:
        server = await stage.add("a", local=True)
        async with stage.client(job="j1", host="a") as iml:
            data = await iml.alloc(SIZE, BYTES)
            with closing(LocalClient(server.local_address, "j2")) as client:
                with pytest.raises(WrongJob):
                    await trio.to_thread.run_sync(client.map_range, data.data_id, 0, 1)
                with pytest.raises(WrongJob):
                    await trio.to_thread.run_sync(client.put_range, data.data_id, 0, [memoryview(b"x")])
            assert await iml.get(data) == BYTES
