"""Where components listen and how they reach each other."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from gspc_trio.nursery.errors import AuthenticationFailed, ConnectFailed, VersionMismatch
from gspc_trio.nursery.rpc import Peer, PeerGone, memory_pair
from gspc_trio.nursery.scope import open_scope
from gspc_trio.protocol.address import MemoryAddress, WebSocketAddress, parse_address
from gspc_trio.protocol.limits import DEFAULT_LIMITS, Limits

__all__ = ["AuthenticationFailed", "ConnectFailed", "Handler", "Network", "VersionMismatch"]

Handler = Callable[[Peer], Awaitable[None]]


class _MemoryListener:
    def __init__(self, role: str, name: str, handler: Handler, nursery: trio.Nursery) -> None:
        self.role = role
        self.name = name
        self.handler = handler
        self.nursery = nursery


class Network:
    """``memory:NAME`` inside this object, ``ws://HOST:PORT`` outside.

    Args:
        token: the secret that both ends of a ws connection must have, at least 16 bytes; memory needs none.
        limits: of every connection.
        random_bytes: makes nonces; replaced in simulations.
    """

    def __init__(
        self,
        token: bytes = b"",
        *,
        limits: Limits = DEFAULT_LIMITS,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.token = token
        self.limits = limits
        self.instance = random_bytes(8).hex()
        self._random_bytes = random_bytes
        self._memory: dict[str, _MemoryListener] = {}

    async def listen(
        self,
        address: str,
        handler: Handler,
        *,
        role: str,
        name: str,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve connections until cancelled; start it with ``nursery.start``, which returns the actual address."""
        where = parse_address(address)
        if isinstance(where, MemoryAddress):
            await self._listen_in_memory(where, handler, role, name, task_status)

    async def _listen_in_memory(
        self, where: MemoryAddress, handler: Handler, role: str, name: str, task_status: trio.TaskStatus[str]
    ) -> None:
        if where.name in self._memory:
            raise OSError(f"{where} is taken")
        async with open_scope() as nursery:
            self._memory[where.name] = _MemoryListener(role, name, handler, nursery)
            try:
                task_status.started(str(where))
                await trio.sleep_forever()
            finally:
                del self._memory[where.name]

    @asynccontextmanager
    async def connect(self, address: str, *, role: str, name: str, expect: str) -> AsyncIterator[Peer]:
        """Connect for the time of a block."""
        where = parse_address(address)
        if isinstance(where, MemoryAddress):
            peer = await self._connect_in_memory(where, role, name, expect)
            try:
                yield peer
            finally:
                await peer.aclose()

    async def _connect_in_memory(self, where: MemoryAddress, role: str, name: str, expect: str) -> Peer:
        await trio.lowlevel.checkpoint()
        listener = self._memory.get(where.name)
        if listener is None:
            raise ConnectFailed(str(where), f"nothing listens at {where}")
        if expect and expect != listener.role:
            raise AuthenticationFailed(str(where), f"{where} is {listener.role!r}, not {expect!r}")
        here, there = memory_pair(role, name, listener.role, listener.name, limits=self.limits)
        here.remote = there.remote = str(where)
        listener.nursery.start_soon(_serve, listener.handler, there)
        return here


async def _serve(handler: Handler, peer: Peer) -> None:
    """Run a handler; the end of its connection is no error."""
    try:
        await handler(peer)
    except PeerGone:
        pass
    finally:
        await peer.aclose()
