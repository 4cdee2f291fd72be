"""Tasks that write into ranges of data that others keep: put at their end, whole or not at all."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from gspc_trio import JobFailed, Net
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.nursery.connections.network import Network
from tests.components.tasks.ranges import fill, fill_array, fill_list, first_of, last_of

pytestmark = pytest.mark.process

MIB = 1 << 20
HANG_S = 60.0


@asynccontextmanager
async def layer() -> AsyncIterator[tuple[RunTimeSystem, Iml]]:
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2, data_bytes=64 * MIB) as rts:
            assert rts.data is not None
            async with join_layer(Network(wire_codec, rts.data.token), rts.data.address) as iml:
                yield rts, iml


def filling(*, looked_at: bool = True) -> Net:
    net = Net("fill")
    inputs = {name: net.input(name) for name in ("letter", "count", "_where")}
    filled = net.place("filled")
    net.transition("fill", fill, inputs, {"rows": filled}, output_ranges={"rows": "_where"})
    net.transition("look", first_of if looked_at else None, [filled], net.output("seen"))
    return net


@pytest.mark.parametrize("size_bytes", [1000, MIB])
async def test_tasks_fill_ranges_which_later_tasks_see(size_bytes: int) -> None:
    async with layer() as (rts, iml):
        data = await iml.alloc(4 * size_bytes)
        where = [await iml.placed(data.range(n * size_bytes, size_bytes)) for n in range(4)]
        values: dict[str, Any] = {"letter": list("abcd"), "count": [size_bytes] * 4, "_where": where}
        async with open_job(filling(), rts=rts, values=values) as job:
            outputs = (await job.wait()).outputs
        assert sorted(outputs["seen"]) == [(letter, size_bytes) for letter in "abcd"]
        content = bytes(await iml.get(data))
        rows = [content[n * size_bytes : (n + 1) * size_bytes] for n in range(4)]
        assert sorted(rows) == [letter * size_bytes for letter in (b"a", b"b", b"c", b"d")]
        left = (await iml.status()).data
        assert [entry.data_id for entry in left] == [data.data_id]  # what the tasks returned was freed


async def test_a_result_that_is_a_range_can_be_read() -> None:
    async with layer() as (rts, iml):
        data = await iml.alloc(1000)
        values: dict[str, Any] = {"letter": ["x"], "count": [1000], "_where": [await iml.placed(data)]}
        async with open_job(filling(looked_at=False), rts=rts, values=values) as job:
            [view] = (await job.wait()).outputs["seen"]
        assert bytes(view) == b"x" * 1000


@pytest.mark.parametrize(
    ("letter", "count", "problem"),
    [
        ("x", 999, "999 bytes for a range of 1000: nothing was put there"),
        ("x", MIB, "1048576 bytes for a range of 1000"),
        ("", 1000, "no letter"),
    ],
)
async def test_nothing_is_half_written(letter: str, count: int, problem: str) -> None:
    async with layer() as (rts, iml):
        data = await iml.alloc(3000, b"." * 3000)
        where = await iml.placed(data.range(1000, 1000))
        values: dict[str, Any] = {"letter": [letter], "count": [count], "_where": [where]}
        with pytest.raises(JobFailed, match=problem):
            async with open_job(filling(), rts=rts, values=values) as job:
                await job.wait()
        assert await iml.get(data) == b"." * 3000


async def test_a_range_that_is_none_is_refused() -> None:
    async with layer() as (rts, iml):
        del iml
        values: dict[str, Any] = {"letter": ["x"], "count": [1], "_where": ["nowhere"]}
        with pytest.raises(JobFailed, match="its range is no range of a memory layer"):
            async with open_job(filling(), rts=rts, values=values) as job:
                await job.wait()


async def test_a_range_of_data_that_was_freed_is_refused() -> None:
    async with layer() as (rts, iml):
        data = await iml.alloc(1000)
        values: dict[str, Any] = {"letter": ["x"], "count": [1000], "_where": [await iml.placed(data)]}
        await iml.free(data)
        with pytest.raises(JobFailed, match="its range cannot be written"):
            async with open_job(filling(), rts=rts, values=values) as job:
                await job.wait()


@pytest.mark.parametrize("count", [100, MIB // 8])
async def test_an_array_is_given_and_seen_by_its_buffer(count: int) -> None:
    net = Net("arrays")
    inputs = {"count": net.input("counts"), "_where": net.input("ranges")}
    filled = net.place("filled")
    net.transition("fill", fill_array, inputs, {"rows": filled}, output_ranges={"rows": "_where"})
    net.transition("look", last_of, [filled], net.output("seen"))
    async with layer() as (rts, iml):
        data = await iml.alloc(8 * count)
        values: dict[str, Any] = {"counts": [count], "ranges": [await iml.placed(data)]}
        async with open_job(net, rts=rts, values=values) as job:
            assert (await job.wait()).outputs == {"seen": [float(count - 1)]}
        assert array("d", await iml.get(data)) == array("d", range(count))


async def test_what_is_no_buffer_is_refused_with_a_hint() -> None:
    net = Net("lists")
    inputs = {"count": net.input("counts"), "_where": net.input("ranges")}
    net.transition("fill", fill_list, inputs, {"rows": net.output("n")}, output_ranges={"rows": "_where"})
    async with layer() as (rts, iml):
        data = await iml.alloc(3, b"...")
        values: dict[str, Any] = {"counts": [3], "ranges": [await iml.placed(data)]}
        with pytest.raises(JobFailed, match=r"return bytes, or memoryview\(\.\.\.\) of an array"):
            async with open_job(net, rts=rts, values=values) as job:
                await job.wait()
        assert await iml.get(data) == b"..."
