"""What clients ask of single RIFs: memory servers of one layer (RIF-1), and endpoints of workers (RIF-4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio
from msgspec.structs import replace

from gspc_trio.components.rif.messages import MemoryServer, OpenEndpoint, ServerEnded, StartServer, StopServer
from gspc_trio.components.rts.messages import RifStatus, RtsStatus, StartIml, StopIml
from gspc_trio.core.ids import RifId, host_name
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone, RemoteError

START_S = 40.0
"""How long a RIF may take to start a memory server, and to have memory for it."""

ENDPOINT_S = 5.0
"""How long it may take to open an endpoint."""


class MemoryServers:
    """Starts and stops them, and knows which there are.

    Args:
        rifs: returns the connections of the RIFs that are there.
    """

    def __init__(self, rifs: Callable[[], Iterable[Peer]]) -> None:
        self._rifs = rifs
        self._running: dict[Peer, MemoryServer] = {}
        self._turns = trio.Lock()

    def heard(self, rif: Peer, said: MemoryServer | ServerEnded) -> None:
        """Note what a RIF says of its memory server."""
        if isinstance(said, MemoryServer):
            self._running[rif] = said
        else:
            self._running.pop(rif, None)

    def gone(self, rif: Peer) -> None:
        """The connection of a RIF is over: it says what it runs if it comes back."""
        self._running.pop(rif, None)

    def shown(self, status: RtsStatus) -> RtsStatus:
        """Return a status that names them."""
        running = {rif.name: server for rif, server in self._running.items()}
        if not running:
            return status
        return replace(status, rifs=tuple(_shown(rif, running.get(rif.rif_id)) for rif in status.rifs))

    async def answer(self, call: IncomingCall, asked: StartIml | StopIml) -> None:
        """Do what a client asks for, and answer it."""
        try:
            async with self._turns:  # of two at once the second joins the layer of the first
                rif = self._rif(asked.rif_id)
                if isinstance(asked, StopIml):
                    call.reply(await rif.call(StopServer(), START_S))
                    self._running.pop(rif, None)
                else:
                    layer = next((server.layer for server in self._running.values()), None)
                    order = StartServer(layer, asked.memory_bytes, asked.spill_bytes)
                    call.reply(await rif.call(order, START_S))  # it was heard of before the answer
        except (LookupError, RemoteError) as error:
            call.fail(error)
        except (PeerGone, trio.TooSlowError):
            call.fail(LookupError(f"{asked.rif_id} has gone, or does not answer"))

    async def open_endpoint(self, call: IncomingCall, asked: OpenEndpoint) -> None:
        """Pass on what a client asks of the RIF of a worker, and its answer."""
        try:
            call.reply(await self._rif(host_name(asked.resource_id)).call(asked, ENDPOINT_S))
        except (LookupError, RemoteError) as error:
            call.fail(error)
        except (PeerGone, trio.TooSlowError):
            call.fail(LookupError(f"the RIF of {asked.resource_id} has gone, or does not answer"))

    def _rif(self, rif_id: RifId) -> Peer:
        there = {rif.name: rif for rif in self._rifs()}
        if rif_id not in there:
            raise LookupError(f"no RIF {rif_id} is up; there are: {', '.join(there) or 'none'}")
        return there[rif_id]


def _shown(rif: RifStatus, server: MemoryServer | None) -> RifStatus:
    if server is None:
        return rif
    return replace(rif, memory_layer=server.layer.address, memory_server_bytes=server.memory_bytes)
