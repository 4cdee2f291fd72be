"""The memory servers that a RIF or a job server of this host uses, started where there are none (IML-2)."""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress

import trio
from attrs import evolve

from gspc_trio.components.iml import default_memory_bytes, join_layer
from gspc_trio.components.iml_local import LocalLink
from gspc_trio.components.iml_process import open_server_process
from gspc_trio.core.exchange import DataLayer, OpenJob
from gspc_trio.core.iml.errors import DuplicateData, ImlError, LayerGone
from gspc_trio.nursery.errors import ConnectionProblem
from gspc_trio.nursery.network import Network

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
