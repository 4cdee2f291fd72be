"""The memory servers that a RIF or a job server of this host uses, started where there are none (IML-2)."""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress

import trio
from attrs import evolve

from gspc_trio.components.client import RunTimeSystem
from gspc_trio.components.iml import default_memory_bytes, join_layer
from gspc_trio.components.iml_client import Iml
from gspc_trio.components.iml_local import LocalLink
from gspc_trio.components.iml_process import open_server_process
from gspc_trio.core.exchange import DataLayer, OpenJob
from gspc_trio.core.iml.errors import DuplicateData, ImlError, LayerGone
from gspc_trio.core.resources import Resource
from gspc_trio.nursery.errors import ConnectionProblem
from gspc_trio.nursery.network import Network
from gspc_trio.nursery.rpc import RemoteError
from gspc_trio.policies.location import RankedHost
from gspc_trio.protocol.messages import GetResources, ResourceList

log = logging.getLogger(__name__)

PAUSE_S = 0.05
"""How long to wait until the layer knows that a server has died."""


class _Door:
    """The way to the server of this host in one layer; ``address`` once ``ready``, or ``problem``."""

    def __init__(self) -> None:
        self.ready = trio.Event()
        self.address = ""
        self.problem = ""


class HostLayers:
    """Finds or starts this host's server of each layer; those started end with the nursery.

    Args:
        host: the name of this host.
        nursery: in which started servers run.
        memory_bytes: quota of a server that is started; 0: a quarter of this machine's memory.
    """

    def __init__(self, host: str, nursery: trio.Nursery, memory_bytes: int = 0) -> None:
        self.host = host
        self._nursery = nursery
        self._memory_bytes = memory_bytes or default_memory_bytes()
        self._doors: dict[str, _Door] = {}
        self._links: dict[str, LocalLink] = {}

    def prepare(self, layer: DataLayer) -> None:
        """Begin to find or start the server, if that has not begun."""
        if layer.address not in self._doors:
            door = self._doors[layer.address] = _Door()
            self._nursery.start_soon(self._hold, layer, door)

    async def settle(self, layer: DataLayer) -> DataLayer:
        """Return the layer with the address of this host's server in it.

        Raises:
            LayerGone: there is none, and none could be started.
        """
        self.prepare(layer)
        door = self._doors[layer.address]
        await door.ready.wait()
        if not door.address:
            raise LayerGone(f"host {self.host} has no memory server: {door.problem}")
        return evolve(layer, local_address=door.address, host=self.host)

    async def settle_job(self, opening: OpenJob) -> OpenJob:
        """Return the opening of a job for compute processes of this host.

        Raises:
            LayerGone: as :meth:`settle`.
        """
        return opening if opening.data is None else evolve(opening, data=await self.settle(opening.data))

    async def link(self, layer: DataLayer) -> LocalLink:
        """Return a connection to this host's server of the layer.

        Raises:
            LayerGone: as :meth:`settle`.
        """
        settled = await self.settle(layer)
        link = self._links.get(settled.local_address)
        if link is None or link.is_over:
            link = self._links[settled.local_address] = LocalLink(settled.local_address)
            self._nursery.start_soon(link.run)
        return link

    async def _hold(self, layer: DataLayer, door: _Door) -> None:
        """Find the server or start one, and again when it has died: its data is lost, but not its place."""
        name = f"gspc-iml-{self.host}-{secrets.token_hex(8)}"
        try:
            while True:
                found = await self._find(layer)
                if found == name:  # ours, which has just died
                    await trio.sleep(PAUSE_S)
                    continue
                if found:
                    door.address = found
                    return
                server = open_server_process(
                    self.host, self._memory_bytes, coordinator=layer.address, token=layer.token, door=name
                )
                with suppress(DuplicateData):  # somebody was faster
                    async with server as started:
                        door.address = started.local_address
                        door.ready.set()
                        await started.wait()
                        log.warning("the memory server of host %s has died and is started again", self.host)
        except (ImlError, ConnectionProblem) as error:
            log.warning("host %s has no memory server: %s", self.host, error)
            door.address, door.problem = "", str(error)
        finally:
            door.ready.set()

    async def _find(self, layer: DataLayer) -> str:
        async with join_layer(Network(layer.token), layer.address, host=self.host) as iml:
            for entry in await iml.servers():
                if entry.host == self.host:
                    return entry.local_address
        return ""


async def ranked_hosts(rts: RunTimeSystem, iml: Iml, resource_class: str = "core") -> dict[int, RankedHost]:
    """Return rank -> host for every host that has both a memory server and workers (ASP-7).

    Args:
        rts: has the workers.
        iml: has the ranks.
        resource_class: of the workers; the first of a host stands for its rank.
    """
    ranks = {server.host: server.rank for server in await iml.servers()}
    found: dict[int, RankedHost] = {}
    for host, resources in (await resources_by_host(rts)).items():
        workers = [one.resource_id for one in resources if one.resource_class == resource_class]
        if host in ranks and workers:
            node = tuple(one.resource_id for one in resources if not one.parents)
            found[ranks[host]] = RankedHost(host, workers[0], node)
    return found


async def resources_by_host(rts: RunTimeSystem) -> dict[str, list[Resource]]:
    """Return host -> its resources, parents before children."""
    found: dict[str, list[Resource]] = {}
    for rif in (await rts.status())["rifs"]:
        with suppress(RemoteError):  # it is gone already, or not quite there
            answer: ResourceList = await rts.peer.call(GetResources(rif["rif_id"]))
            found.setdefault(rif["host"], []).extend(answer.resources)
    return found
