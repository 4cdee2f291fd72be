"""A memory layer at random against a dict of bytes: a get returns the last acknowledged put, or an error."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from typing import Any

import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gspc_trio.iml.errors import DataLost, ImlError, NoRoom
from gspc_trio.iml.layout import Layout, Range
from gspc_trio.iml.shell.client import Allocation, Iml
from tests.iml.shell.support import Stage, open_stage
from tests.support import until

HOSTS = ("a", "b", "c")
PAGE = 4096

LAYOUTS = st.builds(Layout, st.just(()), st.sampled_from([0, 0, 3, 1000]), st.integers(1, 2))
STEPS = st.one_of(
    st.tuples(st.just("alloc"), st.integers(1, 3 * PAGE), LAYOUTS, st.booleans()),
    st.tuples(st.just("put"), st.integers(0, 9), st.floats(0, 1), st.floats(0, 1)),
    st.tuples(st.just("puts"), st.integers(0, 9), st.integers(0, 2), st.integers(0, 40)),
    st.tuples(st.just("get"), st.integers(0, 9), st.floats(0, 1), st.floats(0, 1)),
    st.tuples(st.just("free"), st.integers(0, 9)),
    st.tuples(st.just("replicate"), st.integers(0, 9), st.integers(1, 3)),
    st.tuples(st.just("kill"), st.integers(0, 2)),
    st.tuples(st.just("start"), st.integers(0, 2)),
)


class Model:
    """What the layer should hold.

    Args:
        stage: the layer.
        iml: a client of it.
        directory: for spill files.
        scale: by which all sizes of the steps are multiplied.
        listen: address of servers, or "" for one inside the process.
    """

    def __init__(self, stage: Stage, iml: Iml, directory: str, scale: int, listen: str) -> None:
        self.scale = scale
        self.listen = listen
        self.stage = stage
        self.iml = iml
        self.directory = directory
        self.held: list[tuple[Allocation, bytearray]] = []
        self.stamp = 0

    async def step(self, name: str, *arguments: Any) -> None:
        await getattr(self, name)(*arguments)

    def fresh(self, size_bytes: int) -> bytes:
        self.stamp = self.stamp % 255 + 1
        return bytes([self.stamp]) * size_bytes

    def pick(self, number: int) -> tuple[Allocation, bytearray] | None:
        return self.held[number % len(self.held)] if self.held else None

    async def alloc(self, size_bytes: int, layout: Layout, filled: bool) -> None:
        if layout.copies > len(self.stage.servers):
            return
        size_bytes, layout = (
            size_bytes * self.scale,
            replace(layout, block_bytes=layout.block_bytes * self.scale),
        )
        data = self.fresh(size_bytes) if filled else None
        try:
            made = await self.iml.alloc(size_bytes, data, layout=layout)
        except NoRoom:
            return
        self.held.append((made, bytearray(data or size_bytes)))

    def range(self, data: Allocation, begin: float, length: float) -> Range:
        offset = min(int(begin * data.size_bytes), data.size_bytes - 1)
        return Range(data.data_id, offset, max(1, int(length * (data.size_bytes - offset))))

    async def put(self, number: int, begin: float, length: float) -> None:
        picked = self.pick(number)
        if picked is None:
            return
        where = self.range(picked[0], begin, length)
        data = self.fresh(where.size_bytes)
        try:
            await self.iml.put(where, data)
        except NoRoom:
            return  # refused before anything was changed
        except DataLost:
            self.held.remove(picked)
            return
        picked[1][where.offset : where.offset + where.size_bytes] = data

    async def puts(self, number: int, victim: int, delay: int) -> None:
        """Two puts of everything, a get, and the death of a host, all at the same time."""
        picked = self.pick(number)
        if picked is None:
            return
        data, before = picked
        seen: list[bytes] = []
        acknowledged: list[bytes] = []

        async def put(content: bytes) -> None:
            try:
                await self.iml.put(data.all, content)
                acknowledged.append(content)
            except (NoRoom, DataLost):
                pass

        async def get() -> None:
            with suppress(DataLost):
                seen.append(await self.iml.get(data))

        async def kill() -> None:
            for _ in range(delay):
                await trio.lowlevel.checkpoint()
            await self.kill(victim)

        contents = [self.fresh(data.size_bytes), self.fresh(data.size_bytes)]
        async with trio.open_nursery() as nursery:
            for content in contents:
                nursery.start_soon(put, content)
            nursery.start_soon(get)
            nursery.start_soon(kill)
        if await self.is_whole(data):  # in stripes a get may see both
            assert all(content in (bytes(before), *contents) for content in seen)
        try:
            after = await self.iml.get(data)
        except DataLost:
            self.held.remove(picked)
            return
        assert after in (acknowledged or [bytes(before), *contents])
        before[:] = after

    async def is_whole(self, data: Allocation) -> bool:
        """Return whether the data is still there and lies in one part."""
        located = self.stage.coordinator.machine._directory.data.get(data.data_id)
        return located is not None and len(located.parts) == 1

    async def get(self, number: int, begin: float, length: float) -> None:
        picked = self.pick(number)
        if picked is None:
            return
        where = self.range(picked[0], begin, length)
        try:
            found = await self.iml.get(where)
        except DataLost:
            self.held.remove(picked)
            return
        assert found == picked[1][where.offset : where.offset + where.size_bytes]

    async def free(self, number: int) -> None:
        picked = self.pick(number)
        if picked is not None:
            self.held.remove(picked)
            await self.iml.free(picked[0])

    async def replicate(self, number: int, copies: int) -> None:
        picked = self.pick(number)
        if picked is not None and copies <= len(self.stage.servers):
            try:
                await self.iml.replicate(picked[0], copies)
            except NoRoom:
                pass
            except DataLost:
                self.held.remove(picked)

    async def kill(self, number: int) -> None:
        host = HOSTS[number]
        if host in self.stage.servers and len(self.stage.servers) > 1:
            await self.stage.kill(host)

    async def start(self, number: int) -> None:
        host = HOSTS[number]
        if host not in self.stage.servers:
            await self.add(host)

    async def add(self, host: str) -> None:
        room = 6 * PAGE * self.scale
        await self.stage.add(host, room, room, self.directory, listen=self.listen)


async def run_steps(steps: list[Any], near: bool, scale: int, listen: str, directory: str) -> None:
    """Do the steps, compare what is left, and see that nothing of it stays."""
    async with open_stage(listen=listen or "memory:iml") as stage:
        async with stage.client(host="") as first:
            model = Model(stage, first, directory, scale, listen)
            for host in HOSTS:
                await model.add(host)
        async with stage.client(host="a" if near else "") as iml:
            model.iml = iml
            for step in steps:
                if near and (step[:2] == ("kill", 0) or (step[0] == "puts" and step[2] == 0)):
                    continue  # the client's own host
                await model.step(*step)
                stage.coordinator.machine.check()
            for data, content in model.held:
                with suppress(DataLost):
                    assert await iml.get(data) == content
            for data, _ in model.held:
                try:
                    await iml.free(data)
                except ImlError as error:
                    raise AssertionError(error) from error
        for server in stage.servers.values():
            assert server.store.machine.statistics().parts == 0
            # What was on its way to the spill file when it was freed has its memory until it is there.
            await until(lambda store=server.store: store.machine.statistics().used_bytes == 0)


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=25), st.booleans())
def test_a_get_returns_the_last_acknowledged_put_or_an_error(steps: list[Any], near: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        trio.run(run_steps, steps, near, 1, "", directory)


@settings(max_examples=20)
@given(st.lists(STEPS, max_size=15), st.booleans())
def test_so_it_does_over_websockets_with_bytes_on_their_own(steps: list[Any], near: bool) -> None:
    """Most of this data is long enough for the connections for chunks."""
    with tempfile.TemporaryDirectory() as directory:
        trio.run(run_steps, steps, near, 32, "ws://127.0.0.1:0", directory)
