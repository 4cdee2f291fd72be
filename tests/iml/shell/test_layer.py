"""A memory layer in one process: what clients can ask of it, and what becomes of it (IML-1)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml.errors import (
    BadLayout,
    BadRange,
    BadSize,
    DataLost,
    DuplicateData,
    LayerGone,
    NoRoom,
    UnknownData,
    UnknownHost,
    UnknownName,
    WrongJob,
)
from gspc_trio.iml.layout import Layout, Range, replicated, striped
from gspc_trio.iml.shell.bulk import CHUNK_BYTES_MAX
from gspc_trio.iml.shell.client import Allocation, Iml
from gspc_trio.iml.shell.coordinator import CoordinatorService
from gspc_trio.iml.shell.layer import join_layer, open_iml
from gspc_trio.iml.shell.platform import Sizes
from gspc_trio.nursery.connections.network import Network
from gspc_trio.protocol.limits import DEFAULT_LIMITS
from tests.iml.shell.support import TOKEN, Stage, open_stage, segments_open
from tests.support import until

BYTES = bytes(range(256)) * 8

CHUNK_BYTES, LENT_BYTES_MIN = Sizes().chunk_bytes, Sizes().lent_bytes


async def test_what_was_allocated_is_got_back_from_any_layout() -> None:
    async with open_stage("a", "b", "c") as stage, stage.client(host="a") as iml:
        for layout in (Layout(), Layout(("b",)), striped(100), replicated(3), Layout(("a", "c"), 7, 2)):
            data = await iml.alloc(len(BYTES), BYTES, layout=layout)
            assert await iml.get(data) == BYTES
            assert await iml.get(data.range(90, 400)) == BYTES[90:490]
            await iml.put(data.range(95, 300), b"x" * 300)
            assert await iml.get(data) == BYTES[:95] + b"x" * 300 + BYTES[395:]
            assert await iml.data_size(data) == len(BYTES)
            await iml.free(data)
            with pytest.raises(UnknownData):
                await iml.get(data)


async def test_without_data_there_are_zeros_even_where_something_was_freed() -> None:
    size_bytes = 1 << 20
    async with open_stage("a") as stage, stage.client(host="a") as iml:
        for _ in range(3):
            full = await iml.alloc(size_bytes, b"x" * size_bytes)
            await iml.free(full)
            empty = await iml.alloc(size_bytes)
            assert not any(await iml.get(empty))
            await iml.free(empty)


async def test_the_partition_says_what_lies_where() -> None:
    async with open_stage("a", "b") as stage, stage.client() as iml:
        data = await iml.alloc(10, layout=striped(4, ("a", "b")))
        assert await iml.partition(data) == {
            "a": [Range(data.data_id, 0, 4), Range(data.data_id, 8, 2)],
            "b": [Range(data.data_id, 4, 4)],
        }
        assert await iml.data_location(data) == ("a", "b")


async def test_a_map_is_the_memory_itself_and_read_only() -> None:
    async with open_stage("a", "b") as stage, stage.client(host="a") as iml:
        data = await iml.alloc(len(BYTES), BYTES, layout=Layout(("a",)))
        async with iml.map(data) as view:
            assert view == BYTES
            assert view.readonly
            await iml.put(data.range(0, 4), b"new!")
            assert bytes(view[:4]) == b"new!"
        async with iml.map(data.range(10, 5)) as view:
            assert view == BYTES[10:15]


async def test_what_lies_elsewhere_is_brought_here_to_be_mapped() -> None:
    async with open_stage("a", "b") as stage, stage.client(host="a") as iml:
        data = await iml.alloc(len(BYTES), BYTES, layout=Layout(("b",)))
        async with iml.map(data) as view:
            assert view == BYTES
        assert await iml.data_location(data) == ("b", "a")
        await iml.put(data.range(0, 1), b"!")
        async with iml.map(data) as view:
            assert bytes(view[:1]) == b"!"


async def test_what_lies_in_stripes_is_mapped_as_a_copy() -> None:
    async with open_stage("a", "b") as stage, stage.client(host="a") as iml:
        data = await iml.alloc(len(BYTES), BYTES, layout=striped(100))
        async with iml.map(data.range(50, 500)) as view:
            assert view == BYTES[50:550]
            assert stage.servers["a"].store.machine.statistics().used_bytes > len(BYTES)
        assert stage.servers["a"].store.machine.statistics().parts == 1


async def get_unless_it_changed(iml: Iml, data: Allocation) -> bytes:
    """Return the bytes of the data, nothing if they changed again and again while they were read."""
    try:
        return await iml.get(data)
    except DataLost as lost:
        if "changed again and again" not in str(lost):
            raise
        return b""


async def test_a_get_of_many_chunks_finds_one_put_or_the_other() -> None:
    size_bytes = 2 * CHUNK_BYTES + 1000
    async with open_stage("a", "b") as stage, stage.client(host="a") as iml, stage.client(host="b") as other:
        data = await iml.alloc(size_bytes, bytes(size_bytes), layout=Layout(("b",)))
        over = trio.Event()

        async def put() -> None:
            for number in range(1, 15):
                await other.put(data.all, bytes([number]) * size_bytes)
            over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(put)
            while not over.is_set():
                found = await get_unless_it_changed(iml, data)
                assert len(set(found)) <= 1
        assert set(await iml.get(data)) == {14}


@asynccontextmanager
async def open_far_stage(*hosts: str) -> AsyncIterator[Stage]:
    """A layer whose servers are reached as those of other hosts are."""
    async with open_stage(listen="ws://127.0.0.1:0") as stage:
        for host in hosts:
            await stage.add(host, 1 << 26, listen="ws://127.0.0.1:0")
        yield stage


async def test_gets_from_another_host_find_one_put_or_the_other() -> None:
    size_bytes = 2 * CHUNK_BYTES + 1000
    async with open_far_stage("b") as stage, stage.client() as iml, stage.client(host="b") as other:
        data = await iml.alloc(size_bytes, bytes(size_bytes))
        over = trio.Event()
        seen: set[int] = set()

        async def put() -> None:
            for number in range(1, 15):
                await other.put(data.all, bytes([number]) * size_bytes)
            over.set()

        async def get() -> None:
            while not over.is_set():
                if found := await get_unless_it_changed(iml, data):
                    assert type(found) is bytes
                    assert found == found[:1] * size_bytes
                    seen.add(found[0])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(put)
            for _ in range(3):
                nursery.start_soon(get)
        assert set(await iml.get(data)) == {14}
        assert await iml.get(data.range(CHUNK_BYTES - 3, 100_000)) == b"\x0e" * 100_000
        assert iml.bandwidth_of("b") > 0


async def test_chunks_that_cannot_be_had_are_refused_with_their_own_error() -> None:
    size_bytes = CHUNK_BYTES + 1000
    async with open_far_stage("a", "b") as stage, stage.client() as iml:
        data = await iml.alloc(size_bytes, bytes(size_bytes), layout=Layout(("b",)))
        assert await iml.get(data) == bytes(size_bytes)
        link = next(iter(iml._access.links._links.values()))
        target = memoryview(bytearray(CHUNK_BYTES))
        with pytest.raises(UnknownData, match="host b does not hold part 0 of data d9"):
            await link.read("d9", 0, 0, target)
        with pytest.raises(BadRange):
            await link.read(data.data_id, 0, 1001, target)
        with pytest.raises(BadSize, match="are allowed"):
            await link.read(data.data_id, 0, 0, memoryview(bytearray(CHUNK_BYTES_MAX + 1)))
        assert await link.read(data.data_id, 0, 1000, target) > 0  # the connection has survived all that


async def test_what_goes_to_another_host_is_fetched_from_this_one() -> None:
    size_bytes = 5 * CHUNK_BYTES // 2
    content = os.urandom(size_bytes)
    async with open_far_stage("a", "b", "c") as stage, stage.client(host="a") as iml:
        here = stage.servers["a"]
        for layout in (Layout(("b",)), replicated(2, ("b", "c")), striped(CHUNK_BYTES // 2, ("b", "c"))):
            data = await iml.alloc(size_bytes, content, layout=layout)
            assert await iml.get(data) == content
            await iml.put(data.range(100, LENT_BYTES_MIN), bytes(LENT_BYTES_MIN))
            expected = content[:100] + bytes(LENT_BYTES_MIN) + content[100 + LENT_BYTES_MIN :]
            assert await iml.get(data) == expected
            await iml.free(data)
        assert here.store.pooled_bytes > 0  # what it has lent
        await until(lambda: not here.machine.used_bytes)


async def test_what_cannot_be_lent_is_sent() -> None:
    size_bytes = 2 * LENT_BYTES_MIN
    content = os.urandom(size_bytes)
    async with open_far_stage("a", "b") as stage, stage.client(host="a") as iml:
        full = await iml.alloc(1 << 26, layout=Layout(("a",)))
        data = await iml.alloc(size_bytes, content, layout=Layout(("b",)))
        assert await iml.get(data) == content
        await iml.free(full)
        assert stage.servers["a"].machine.used_bytes == 0


async def test_a_server_that_dies_ends_the_gets_from_it() -> None:
    size_bytes = 1 << 25
    async with open_far_stage("a", "b") as stage, stage.client() as iml:
        data = await iml.alloc(size_bytes, bytes(size_bytes), layout=Layout(("b",)))
        ended: list[bool] = []

        async def get() -> None:
            try:
                ended.append(await iml.get(data) == bytes(size_bytes))
            except (DataLost, LayerGone):
                ended.append(True)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(get)
                while not any(link._bulk for link in iml._access.links._links.values()):
                    await trio.lowlevel.checkpoint()
                await stage.kill("b")
        assert ended == [True] * 3
        with pytest.raises(DataLost):
            await iml.get(data)


async def test_freed_memory_stays_as_it_is_while_it_is_mapped() -> None:
    size_bytes = 1 << 20
    async with open_stage("a") as stage, stage.client(host="a") as iml:
        data = await iml.alloc(size_bytes, b"1" * size_bytes)
        store = stage.servers["a"].store
        async with iml.map(data) as view:
            await iml.free(data)
            for _ in range(3):
                other = await iml.alloc(size_bytes, b"2" * size_bytes)
                await iml.free(other)
            assert view == b"1" * size_bytes
            kept = memoryview(view)
        assert (
            store.machine.statistics().mapped_after_free_bytes == size_bytes
        )  # somebody still has a view of it
        other = await iml.alloc(size_bytes, b"2" * size_bytes)
        assert kept == b"1" * size_bytes
        del kept
        with trio.fail_after(60):
            while store.machine.statistics().mapped_after_free_bytes:
                await trio.lowlevel.checkpoint()


async def test_a_job_takes_its_data_with_it_but_not_what_is_published() -> None:
    async with open_stage("a") as stage:
        async with stage.client("j1") as iml:
            private = await iml.alloc(4, b"mine")
            shared = await iml.alloc(4, b"ours")
            await iml.publish(shared, "corpus")
            async with stage.client("j2") as other:
                with pytest.raises(WrongJob, match="belongs to job j1, not to j2"):
                    await other.get(private)
                assert await other.get(await other.look_up("corpus")) == b"ours"
        async with stage.client("j2") as other:
            with pytest.raises(UnknownData):
                await other.get(private)
            assert await other.get(await other.look_up("corpus")) == b"ours"


async def test_a_name_has_a_rank_before_and_after_it_has_data() -> None:
    async with open_stage("a", "b", "c") as stage, stage.client() as iml:
        rank = (await iml.get_rank("f") + 1) % 3
        await iml.set_rank("f", rank)
        assert await iml.get_rank("f") == rank
        data = await iml.alloc(4, b"data", name="f")
        assert await iml.data_location(data) == ("abc"[rank],)
        with pytest.raises(DuplicateData, match="the name 'f' is that of data"):
            await iml.alloc(4, b"data", name="f")
        with pytest.raises(UnknownHost, match="no memory server has the rank 9"):
            await iml.set_rank("f", 9)


async def test_copies_survive_their_host_and_the_rest_is_lost_by_name() -> None:
    async with open_stage("a", "b", "c") as stage, stage.client() as iml:
        safe = await iml.alloc(len(BYTES), BYTES, layout=replicated(2, ("a", "b")))
        copied = await iml.alloc(len(BYTES), BYTES, layout=Layout(("a",)))
        assert set(await iml.replicate(copied, 2)) >= {"a"}
        gone = await iml.alloc(len(BYTES), BYTES, layout=striped(100))
        await stage.kill("a")
        assert await iml.get(safe) == await iml.get(copied) == BYTES
        with pytest.raises(DataLost, match=f"data {gone.data_id} was lost: host a is gone"):
            await iml.get(gone)
        await iml.put(safe.range(0, 3), b"new")
        assert await iml.get(safe) == b"new" + BYTES[3:]
        await trio.testing.wait_all_tasks_blocked()
        assert set(iml.lost) == {gone.data_id}


async def test_lost_data_is_made_again_under_its_id() -> None:
    async with open_stage("a", "b") as stage, stage.client() as iml:
        data = await iml.alloc(4, b"data", layout=Layout(("a",)), data_id="t7.0")
        with pytest.raises(DuplicateData):
            await iml.alloc(4, b"data", data_id="t7.0")
        await stage.kill("a")
        assert await iml.alloc(4, b"data", data_id="t7.0") == data
        assert await iml.get("t7.0") == b"data"


async def test_a_full_memory_goes_to_disk_and_comes_back(tmp_path: Path) -> None:
    size_bytes = 1 << 20
    async with open_stage() as stage:
        server = await stage.add("a", 2 * size_bytes, 4 * size_bytes, str(tmp_path))
        async with stage.client(host="a") as iml:
            data = [await iml.alloc(size_bytes, bytes([n]) * size_bytes) for n in range(6)]
            assert server.store.machine.statistics().spilled_bytes == 4 * size_bytes
            with pytest.raises(NoRoom, match="host a has no room for 1048576 bytes"):
                await iml.alloc(size_bytes)
            for number, each in enumerate(data):
                assert await iml.get(each) == bytes([number]) * size_bytes
            with pytest.raises(NoRoom):
                await iml.put(data[0].range(5, 3), b"new")
            assert await iml.get(data[0]) == bytes(size_bytes)
            await iml.free(data[5])
            await iml.put(data[0].range(5, 3), b"new")
            async with iml.map(data[0]) as view:
                assert bytes(view[4:9]) == b"\0new\0"
        assert os.listdir(tmp_path) == []


async def test_without_spilling_a_full_memory_says_so_and_changes_nothing() -> None:
    async with open_stage("a") as stage, stage.client(host="a") as iml:
        small = await iml.alloc(1000)
        with pytest.raises(NoRoom, match=r"host a has no room for 16777216 bytes: 167\d+ of 16777216 bytes"):
            await iml.alloc(1 << 24)
        assert [entry.data_id for entry in (await iml.status()).data] == [small.data_id]


async def test_what_cannot_be_is_refused_with_its_own_error() -> None:
    async with open_stage("a") as stage, stage.client() as iml:
        data = await iml.alloc(10, b"0123456789")
        before = await iml.status()
        mistakes: list[tuple[type[Exception], Any]] = [
            (BadSize, lambda: iml.alloc(0)),
            (BadSize, lambda: iml.alloc(-5)),
            (BadSize, lambda: iml.alloc(5, b"four")),
            (BadSize, lambda: iml.put(data.range(0, 5), b"four")),
            (BadRange, lambda: iml.get(Range(data.data_id, 5, 6))),
            (BadRange, lambda: iml.put(Range(data.data_id, -1, 4), b"four")),
            (UnknownData, lambda: iml.get("d99")),
            (UnknownData, lambda: iml.free("d99")),
            (UnknownHost, lambda: iml.alloc(5, layout=Layout(("nowhere",)))),
            (BadLayout, lambda: iml.alloc(5, layout=replicated(2))),
            (UnknownName, lambda: iml.look_up("nothing")),
            (NoRoom, lambda: iml.alloc(1 << 40)),
        ]
        for kind, mistake in mistakes:
            with pytest.raises(kind):
                await mistake()
        assert await iml.status() == before
        with pytest.raises(UnknownHost, match="has no memory server"):
            async with iml.map(data):
                pass


async def test_the_end_of_the_coordinator_is_the_end_of_all() -> None:
    async with open_stage("a") as stage, stage.client(host="a") as iml:
        data = await iml.alloc(4, b"data")
        server = stage.servers["a"]
        server._coordinator.drop("cut by the test")
        await server.gone.wait()
        assert "coordinator is gone" in server.reason
        with pytest.raises((LayerGone, UnknownData, DataLost)):
            await iml.get(data)


async def test_open_iml_is_a_scope() -> None:
    async with open_iml(job="j", hosts=("a", "b"), memory_bytes=1 << 20) as iml:
        assert [server.host for server in await iml.servers()] == ["a", "b"]
        data = await iml.alloc(4, b"data", layout=Layout(("b",)))
        assert await iml.get(data) == b"data"
        (address,) = {server.local_address for server in await iml.servers() if server.host == "a"}
        assert address in await trio.Path("/proc/net/unix").read_text()
    assert segments_open() == []
    assert address not in await trio.Path("/proc/net/unix").read_text()


async def test_a_silent_client_of_this_host_keeps_what_it_has_until_it_is_gone() -> None:
    """Its process is suspended, or has no turn while it imports large modules."""
    hasty = replace(DEFAULT_LIMITS, heartbeat_s=0.05, lease_s=0.2)
    coordinator = CoordinatorService(Network(wire_codec, TOKEN, limits=hasty))
    silent = Network(wire_codec, TOKEN, limits=replace(DEFAULT_LIMITS, heartbeat_s=1000.0, lease_s=1000.0))
    async with trio.open_nursery() as nursery:
        await nursery.start(coordinator.run, "ws://127.0.0.1:0")
        address = coordinator.address
        async with join_layer(silent, address, job="j1") as iml:
            async with silent.connect(address, role="iml-client", name="other", expect="iml") as other:
                await until(other.lost.is_set)  # it has not joined, and is given up after the usual silence
            assert not iml.is_over
            assert (await iml.status()).jobs == ("j1",)
        await until(lambda: not coordinator.machine.status().jobs)
        nursery.cancel_scope.cancel()
