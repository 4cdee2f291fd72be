"""A connection within one process: messages go by reference, else all is as over a network."""

from __future__ import annotations

import trio

from gspc_trio.nursery.connections.rpc import CLOSED_HERE, CLOSED_THERE, Peer
from gspc_trio.protocol.envelope import Envelope
from gspc_trio.protocol.limits import DEFAULT_LIMITS, Limits
from gspc_trio.protocol.session import Identity, Session
from gspc_trio.protocol.signals import ItemsReceived, Lost


class _MemoryLink:
    """Carries messages to a peer in the same process, by reference."""

    def __init__(self, limits: Limits) -> None:
        self.other: Peer
        self._items_max = limits.outbox_items_max

    def prepare(self, body: object) -> object:
        return body

    def prepare_question(self, body: object) -> object:
        return body

    def put(self, item: object) -> None:
        other = self.other
        if other.reason:
            return
        if isinstance(item, Envelope):
            other.handle(ItemsReceived([item]))
        elif other.waiting_items >= self._items_max:
            other.handle(Lost(f"{other.waiting_items} messages wait to be received, more than allowed"))
        else:
            other.deliver(item)

    def taken(self) -> None:
        """Nothing waits for this."""

    def cut(self, reason: str) -> None:
        self.other.handle(Lost(CLOSED_THERE if reason == CLOSED_HERE else reason))

    async def sent(self) -> None:
        await trio.lowlevel.checkpoint()

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()


def memory_pair(
    role_a: str,
    name_a: str,
    role_b: str,
    name_b: str,
    nursery: trio.Nursery | None = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[Peer, Peer]:
    """Return the two ends of a connection in memory: by reference, without codec, else as over a network.

    Args:
        role_a, name_a: what the first end is; the second peer's ``role`` and ``name``.
        role_b, name_b: what the second end is; the first peer's ``role`` and ``name``.
        nursery: if given, the connection ends with it.
        limits: of both ends.
    """
    here = Identity(role_a, name_a, "", b"", b"", dialer=True)
    there = Identity(role_b, name_b, "", b"", b"", dialer=False)
    link_a, link_b = _MemoryLink(limits), _MemoryLink(limits)
    a = Peer(Session.opened(here, role_b, name_b, limits), link_a, "memory")
    b = Peer(Session.opened(there, role_a, name_a, limits), link_b, "memory")
    link_a.other, link_b.other = b, a
    if nursery is not None:
        nursery.start_soon(_end_with_scope, a)
    return a, b


async def _end_with_scope(peer: Peer) -> None:
    try:
        await peer.lost.wait()
    finally:
        peer.drop()
