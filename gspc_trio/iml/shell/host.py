"""The memory servers that a RIF or a job server of this host uses, started where there are none (IML-2)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TypeAlias

import trio
from msgspec.structs import replace

from gspc_trio.components.rts.messages import GetResources
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.worker.messages import OpenJob
from gspc_trio.core.resources import MEMORY_CLASS, Resource
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.iml.errors import DuplicateData, ImlError, LayerGone
from gspc_trio.iml.local import socket_address_of
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.shell.client import Iml
from gspc_trio.iml.shell.layer import join_layer
from gspc_trio.iml.shell.link import LocalLink
from gspc_trio.iml.shell.local import refuse_all
from gspc_trio.iml.shell.platform import platform
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.policies.location import RankedWorker, rank_of_name, rank_workers, unknown_rank

log: logging.Logger = logging.getLogger(__name__)

PAUSE_S = 0.05
"""How long to wait until the layer knows that a server has come or died."""

TRIES = 6
"""How often to look for a layer that does not answer; each time after a pause that is twice as long."""

AGAIN_S = 5.0
"""So long everybody is told why there is no server; whoever wants one then has it tried again."""


Arena: TypeAlias = Callable[[str, str, int], AbstractAsyncContextManager[Quota]]
"""Holds memory of a host for a server: takes the host, the server's name and its bytes; may raise NoRoom.

It gives what the server may use: without bytes, as many as its RIF was told, or a quarter of the host's.
"""


@asynccontextmanager
async def no_arena(host: str, name: str, memory_bytes: int) -> AsyncIterator[Quota]:
    """Hold nothing: there is no resource manager."""
    del host, name
    yield Quota(memory_bytes or platform().memory_bytes())


class _Entry:
    """The way to the server of this host in one layer; whether it is ``ready``, or ``problem``.

    ``wanted`` is set when somebody wants the server though there was a problem ``AGAIN_S`` ago, or longer.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.begin()

    def begin(self) -> None:
        """Look for the server, or for another one."""
        self.ready, self.wanted = trio.Event(), trio.Event()
        self.problem, self._again_s = "", 0.0

    def want(self) -> None:
        """Somebody wants the server: the problem may be over."""
        if self.problem and trio.current_time() >= self._again_s:
            wanted = self.wanted
            self.begin()
            wanted.set()

    def fail(self, problem: str) -> None:
        """There is none, and none can be started."""
        self.problem, self._again_s = problem, trio.current_time() + AGAIN_S
        self.ready.set()


class HostLayers:
    """Finds or starts this host's server of each layer; those started end with the nursery.

    Args:
        host: the name of this host.
        nursery: in which started servers run.
        memory_bytes: quota of a server that is started; 0: what the arena says.
        arena: holds that memory for as long as the server runs (RM-8).

    Attributes:
        took: told the job of a task that takes data, the host on which that lay, and its size; or None.
    """

    def __init__(
        self, host: str, nursery: trio.Nursery, memory_bytes: int = 0, arena: Arena = no_arena
    ) -> None:
        self.host = host
        self._nursery = nursery
        self._platform = platform()
        self._memory_bytes = memory_bytes
        self._arena = arena
        self._entries: dict[tuple[str, bytes], _Entry] = {}
        self._links: dict[str, LocalLink] = {}
        self.took: Callable[[str, str, int], None] | None = None

    def prepare(self, layer: DataLayer) -> None:
        """Begin to find or start the server, if that has not begun; again if it did not succeed lately."""
        which = layer.address, layer.token
        entry = self._entries.get(which)
        if entry is None:
            entry = self._entries[which] = _Entry(socket_address_of(layer.token, layer.address, self.host))
            self._nursery.start_soon(self._hold, layer, entry)
        else:
            entry.want()

    def _entry(self, layer: DataLayer) -> _Entry:
        return self._entries[layer.address, layer.token]

    def _named(self, layer: DataLayer) -> DataLayer:
        return replace(layer, local_address=self._entry(layer).address, host=self.host)

    async def settle(self, layer: DataLayer) -> DataLayer:
        """Return the layer with the address of this host's server in it, once that is there.

        Raises:
            ImlError: there is none, and none could be started.
        """
        self.prepare(layer)
        entry = self._entry(layer)
        await entry.ready.wait()
        if entry.problem:
            raise LayerGone(f"host {self.host} has no memory server: {entry.problem}")
        return self._named(layer)

    async def settle_job(self, opening: OpenJob) -> OpenJob:
        """Return the opening of a job for compute processes of this host.

        They wait for the server when they need it, at the first large value.
        """
        await trio.lowlevel.checkpoint()
        if opening.data is None:
            return opening
        self.prepare(opening.data)
        return replace(opening, data=self._named(opening.data))

    async def link(self, layer: DataLayer) -> LocalLink:
        """Return a connection to this host's server of the layer.

        Raises:
            ImlError: as :meth:`settle`.
        """
        settled = await self.settle(layer)
        link = self._links.get(settled.local_address)
        if link is None or link.is_over:
            link = self._links[settled.local_address] = LocalLink(settled.local_address)
            self._nursery.start_soon(link.run)
        return link

    async def _hold(self, layer: DataLayer, entry: _Entry) -> None:
        """Keep a server of the layer here; tell why there is none, until somebody wants it tried again."""
        try:
            while True:
                try:
                    await self._keep(layer, entry)
                except (ImlError, ConnectionProblem) as error:
                    log.warning("host %s has no memory server: %s", self.host, error)
                    entry.fail(str(error))
                    await _refuse_until_wanted(entry, error)
        finally:
            entry.ready.set()

    async def _keep(self, layer: DataLayer, entry: _Entry) -> None:
        """Find the server or start one, and again when it has died: its data is lost, but not its place."""
        tries = 0
        while True:
            try:
                is_there, tries = await self._is_there(layer), 0
                if is_there:
                    await self._watch(entry)
                else:
                    with suppress(DuplicateData):  # somebody was faster
                        await self._run_server(layer, entry)
            except (LayerGone, ConnectionProblem):  # a connection may break, and the layer be there
                tries += 1
                if tries == TRIES:
                    raise
            await trio.sleep(PAUSE_S * 2**tries)

    async def _run_server(self, layer: DataLayer, entry: _Entry) -> None:
        async with (
            self._arena(self.host, entry.address, self._memory_bytes) as quota,
            self._platform.open_server(self.host, quota, layer) as server,
        ):
            entry.ready.set()
            await server.wait()
        log.warning("the memory server of host %s has died and is started again", self.host)

    async def _watch(self, entry: _Entry) -> None:
        """Wait until the server, which somebody else has started, is gone."""
        with suppress(LayerGone):  # it has just died
            link = LocalLink(entry.address)
            entry.ready.set()
            await link.run()

    async def _is_there(self, layer: DataLayer) -> bool:
        async with join_layer(self._platform.network(layer), layer.address, host=self.host) as iml:
            return any(entry.host == self.host for entry in await iml.servers())


async def _refuse_until_wanted(entry: _Entry, error: Exception) -> None:
    wanted = entry.wanted
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refuse_all, entry.address, type(error).__name__, str(error), entry.want)
        await wanted.wait()
        nursery.cancel_scope.cancel()


class Ranks(Mapping[int, RankedWorker]):
    """The workers of a memory layer's hosts by rank, as they were when they were asked for (ASP-7).

    Args:
        iml: has the names.
        workers: rank -> worker.
    """

    def __init__(self, iml: Iml, workers: Mapping[int, RankedWorker]) -> None:
        self._iml = iml
        self._workers = workers

    def __getitem__(self, rank: int) -> RankedWorker:
        return self._workers[rank]

    def __iter__(self) -> Iterator[int]:
        return iter(self._workers)

    def __len__(self) -> int:
        return len(self._workers)

    async def get_rank(self, name: str) -> int:
        """Return the rank of a worker on the host where data of this name lies, or will lie.

        It is the one that was set. Otherwise the hash of the name says which: always the same.

        Raises:
            UnknownHost: the layer has no server.
            UnknownRank: that host has no workers.
        """
        server, number = await self._iml.get_place(name)
        return rank_of_name(name, server, number, self._workers)

    async def set_rank(self, name: str, rank: int) -> None:
        """Let data of this name, made later without a layout, lie on the host of this worker.

        Raises:
            UnknownHost: the host has no memory server any more.
            UnknownRank: no worker has this rank.
        """
        if rank not in self._workers:
            raise unknown_rank(rank, self._workers)
        worker = self._workers[rank]
        await self._iml.set_rank(name, worker.server, worker.number)


async def ranked_workers(rts: RunTimeSystem, iml: Iml, resource_class: str = "core") -> Ranks:
    """Return the ranks of all workers on hosts that have a memory server, too (ASP-7).

    Args:
        rts: has the workers.
        iml: has the memory servers.
        resource_class: of the workers.
    """
    servers = {server.rank: server.host for server in await iml.servers()}
    hosts = {
        host: (
            [one.resource_id for one in resources if one.resource_class == resource_class],
            [one.resource_id for one in resources if is_top(one)],
        )
        for host, resources in (await resources_by_host(rts)).items()
    }
    return Ranks(iml, rank_workers(servers, hosts))


def is_top(resource: Resource) -> bool:
    """Return whether all of a kind that a host has is below this resource."""
    return not resource.parents and resource.resource_class != MEMORY_CLASS


async def resources_by_host(rts: RunTimeSystem) -> dict[str, list[Resource]]:
    """Return host -> its resources, parents before children."""
    found: dict[str, list[Resource]] = {}
    for rif in (await rts.status()).rifs:
        with suppress(RemoteError):  # it is gone already, or not quite there
            answer = await rts.peer.call(GetResources(rif.rif_id))
            found.setdefault(rif.host, []).extend(answer.resources)
    return found
