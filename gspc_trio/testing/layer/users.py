"""Clients of a simulated memory layer that allocate, put, get, free, copy and name data at random."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import trio

from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.errors import DataLost, ImlError, LayerGone, NoRoom, UnknownData
from gspc_trio.iml.layout import Layout, Range
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.checkers.memory import CELLS, Entry, Memory, Put, check_refusal
from gspc_trio.testing.simulated.process import SimulatedProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gspc_trio.testing.layer.world import LayerWorld

STEPS = 25
"""What each of a user's tasks does."""

CELL_BYTES = (1, 10, 700, 9000)

SHARES = (0.2, 0.3, 0.5, 0.9, 1.5)
"""Of the memory of a server, for a client that wants much."""


class LayerUser:
    """A process with a few tasks that use the same data; it knows what that should hold.

    Args:
        world: of the layer.
        random: to draw from.
        host: on which it is.
        fail: told of what does not hold.
    """

    def __init__(
        self, world: LayerWorld, random: Random, host: str, fail: Callable[[BaseException], None]
    ) -> None:
        self._world = world
        self._random = random
        self._host = host
        self._fail = fail
        self._entries: list[Entry] = []
        self._memory = Memory()
        self._stamps = count()
        self._names = count(1)

    async def run(self, process: SimulatedProcess, layer: DataLayer, job: str) -> None:
        """Use a layer until all steps are done, or it is gone."""
        network = self._world.network(process, layer.token)
        try:
            async with join_layer(network, layer.address, job=job, host=self._host) as iml:
                async with trio.open_nursery() as nursery:
                    for _ in range(self._random.randint(1, 3)):
                        nursery.start_soon(self._steps, iml, process)
        except* (LayerGone, ConnectionProblem):
            pass

    async def _steps(self, iml: Iml, process: SimulatedProcess) -> None:
        actions: list[Callable[[Iml], Awaitable[object]]] = [
            *(self._alloc, self._put, self._put, self._get, self._get, self._get, self._free),
            *(self._replicate, self._rank, self._map),
        ]
        if self._world.is_small:
            actions += [self._alloc_much] * 3
        for _ in range(STEPS):
            await trio.sleep(self._random.choice((0.0, 0.001, 0.05, 0.2)))
            try:
                await self._random.choice(actions)(iml)
            except LayerGone:
                if iml.is_over:
                    return
            except ImlError as error:  # what was asked for was not done
                if isinstance(error, NoRoom):
                    self._note_refusal(error, process)
            except Broken as error:
                if process.alive:
                    self._fail(error)
                raise

    def _note_refusal(self, error: NoRoom, process: SimulatedProcess) -> None:
        try:
            check_refusal(str(error))
        except Broken as broken:
            if process.alive:
                self._fail(broken)
            raise

    def _pick(self) -> tuple[Entry, range]:
        if not self._entries:
            raise UnknownData("there is none yet")
        begin = self._random.randrange(CELLS)
        return self._random.choice(self._entries), range(begin, self._random.randint(begin, CELLS - 1) + 1)

    def _begin(self, entry: Entry, cells: range) -> Put:
        put = Put(next(self._stamps) % 200 + 1, cells, trio.current_time())
        entry.puts.append(put)
        return put

    def _range(self, entry: Entry, cells: range) -> Range:
        return Range(entry.data_id, cells.start * entry.cell_bytes, len(cells) * entry.cell_bytes)

    async def _alloc(self, iml: Iml, name: str = "", cell_bytes: int = 0) -> Entry:
        cell_bytes = cell_bytes or self._random.choice(CELL_BYTES)
        block_bytes = self._random.choice((0, 0, cell_bytes))
        layout = Layout((), block_bytes, self._random.choice((1, 1, 2)))
        entry = Entry("", cell_bytes, not block_bytes)
        put = self._begin(entry, range(CELLS))
        if not name and self._random.random() < 0.3:
            put.stamp = 0
        data = bytes((put.stamp,)) * (CELLS * cell_bytes) if put.stamp else None
        made = await iml.alloc(CELLS * cell_bytes, data, layout=layout, name=name)
        entry.data_id, put.end_s = made.data_id, trio.current_time()
        self._entries.append(entry)
        return entry

    async def _alloc_much(self, iml: Iml) -> None:
        """Allocate so much that little of it fits."""
        memory_bytes = self._world.quota.memory_bytes
        await self._alloc(iml, cell_bytes=int(memory_bytes * self._random.choice(SHARES)) // CELLS)

    async def _put(self, iml: Iml) -> None:
        entry, cells = self._pick()
        put = self._begin(entry, cells)
        try:
            await iml.put(self._range(entry, cells), bytes((put.stamp,)) * (len(cells) * entry.cell_bytes))
        except (NoRoom, UnknownData):
            put.undone = True
            raise
        except DataLost as error:
            put.undone = True
            self._note_loss(entry, error)
            raise
        put.end_s = trio.current_time()

    async def _get(self, iml: Iml) -> None:
        entry, cells = self._pick()
        begin_s = trio.current_time()
        try:
            data = await iml.get(self._range(entry, cells))
        except DataLost as error:
            self._note_loss(entry, error)
            raise
        self._memory.check(entry, cells, data, begin_s, trio.current_time())

    async def _map(self, iml: Iml) -> None:
        entry, cells = self._pick()
        begin_s = trio.current_time()
        async with iml.map(self._range(entry, cells)) as view:
            data = bytes(view)
            self._memory.check(entry, cells, data, begin_s, trio.current_time())

    def _note_loss(self, entry: Entry, error: Exception) -> None:
        entry.lost = entry.lost or str(error).startswith(f"data {entry.data_id} was lost")

    async def _free(self, iml: Iml) -> None:
        entry, _ = self._pick()
        if len(self._entries) < 3:
            return
        await iml.free(entry.data_id)
        entry.freed_s = min(entry.freed_s, trio.current_time())
        if self._random.random() < 0.7 and entry in self._entries:
            self._entries.remove(entry)

    async def _replicate(self, iml: Iml) -> None:
        entry, _ = self._pick()
        copies = self._random.randint(1, 3)
        hosts = await iml.replicate(entry.data_id, copies)
        if entry.is_whole and len(hosts) < copies:
            raise Broken(f"data {entry.data_id} is on {hosts}, and was to be on {copies} hosts")

    async def _rank(self, iml: Iml) -> None:
        name = f"{iml.job} {next(self._names)}"
        servers = {server.rank: server.host for server in await iml.servers()}
        if not servers:  # all are down
            return
        rank = self._random.choice(sorted(servers))
        await iml.set_rank(name, rank)
        found = await iml.get_rank(name)
        if found != rank and rank in {server.rank for server in await iml.servers()}:
            raise Broken(f"data named {name} was to lie at rank {rank}, but would at {found}")
        entry = await self._alloc(iml, name)
        where = await iml.look_up(name)
        if where.data_id != entry.data_id:
            raise Broken(f"{name} is the name of {where.data_id}, not of {entry.data_id}", entry.data_id)
        self._entries.remove(entry)
        await iml.free(entry.data_id)


async def fill_again(world: LayerWorld, layer: DataLayer, process: SimulatedProcess) -> None:
    """Take all memory of each server, and a byte more: when all was freed, all of it fits, and no more.

    Raises:
        Broken: it is otherwise.
    """
    network, quota = world.network(process, layer.token), world.quota
    async with join_layer(network, layer.address, host="desk") as iml:
        for server in await iml.servers():
            with suppress(ImlError):  # it dies meanwhile
                await _fill_server(iml, server.host, quota.memory_bytes)


async def _fill_server(iml: Iml, host: str, memory_bytes: int) -> None:
    where = Layout((host,))
    try:
        data = await iml.alloc(memory_bytes, layout=where)
    except NoRoom as error:
        raise Broken(f"all was freed, and there is no room: {error}") from error
    try:
        more = await iml.alloc(memory_bytes + 1, layout=where)
    except NoRoom as error:
        check_refusal(str(error))
    else:
        raise Broken(f"host {host} took more than it may: data {more.data_id}")
    await iml.free(data)


async def free_published(world: LayerWorld, layer: DataLayer, process: SimulatedProcess) -> None:
    """Free all data that has a name."""
    network = world.network(process, layer.token)
    async with join_layer(network, layer.address, host="desk") as iml:
        for entry in (await iml.status()).data:
            if entry.name:
                await iml.free(entry.data_id)
