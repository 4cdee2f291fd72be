"""The strategy ``embedded``: RIFs in this process, reached over memory."""

from __future__ import annotations

from collections.abc import Callable

from gspc_trio.components.provision.shell.hardware import discover_hardware
from gspc_trio.components.provision.strategy import RifOrder
from gspc_trio.components.rif.shell.service import open_rif
from gspc_trio.components.worker.shell.compute import ComputeBackend
from gspc_trio.core.ids import RifId
from gspc_trio.core.resources import Resource
from gspc_trio.nursery.connections.network import Network

Discover = Callable[[RifId, int], tuple[Resource, ...]]


class EmbeddedStrategy:
    """Runs RIFs in this process, reached over memory.

    Args:
        network: in which RTS and RIFs listen.
        backend: computes what the RIFs' workers are given.
        discover: ``discover(rif_id, cores)`` returns what a host has.
    """

    def __init__(
        self, network: Network, backend: ComputeBackend, discover: Discover = discover_hardware
    ) -> None:
        self._network = network
        self._backend = backend
        self._discover = discover

    async def run(self, order: RifOrder) -> str:
        """Run the RIF until it ends or this is cancelled."""
        rts = order.rts_address("memory:")
        hardware = self._discover(order.rif_id, order.cores)
        async with open_rif(
            self._network,
            rif_id=order.rif_id,
            incarnation=order.incarnation,
            host=order.host,
            hardware=hardware,
            backend=self._backend,
            listen=f"memory:{order.rif_id}.{order.incarnation}",
            rts=rts,
        ) as rif:
            reason: str = await rif.wait_ended()
            return reason
