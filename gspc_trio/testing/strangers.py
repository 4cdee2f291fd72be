"""Those who do not know the token, and want to be let in, or only to be a burden."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import cast

import trio
from trio_websocket import ConnectionClosed, HandshakeError, wrap_client_stream

from gspc_trio.protocol import handshake
from gspc_trio.protocol.handshake import PROTOCOL_VERSION as VERSION
from gspc_trio.testing.cluster import Cluster
from gspc_trio.testing.simulated.process import SimulatedProcess
from gspc_trio.testing.simulated.wires import WireEnd

STAY_S = 6.0
"""How long they stay: longer than a handshake may take."""

CROWD = 12
"""How many say nothing."""

FLOOD_BYTES = 1 << 17
"""What somebody says who has not proved anything."""


class Strangers:
    """Starts strangers, each a process of its own.

    Args:
        cluster: that they come to.
        random: to draw from.
    """

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    def come(self, where: tuple[str, int]) -> None:
        """Many come to a listener: most say nothing, one a lot, and one tries a proof of his own."""
        acts = [self._stay] * CROWD + [self._flood, self._lie]
        self._random.shuffle(acts)
        for act in acts:
            self._spawn(where, act)

    def _spawn(self, where: tuple[str, int], act: Callable[[WireEnd], Awaitable[None]]) -> None:
        async def main(process: SimulatedProcess) -> None:
            await trio.sleep(self._random.uniform(0.0, 0.5))
            listener = self._cluster.wires.listeners.get(where)
            if listener is None:
                return
            end = self._cluster.wires.connect(process, listener)
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, ConnectionClosed):
                with trio.move_on_after(STAY_S), suppress(HandshakeError):
                    await act(end)
                await end.aclose()

        self._cluster.spawn("crowd", "stranger", "nowhere", main)

    async def _stay(self, end: WireEnd) -> None:
        while await end.receive_some():
            pass

    async def _flood(self, end: WireEnd) -> None:
        """Become a websocket, and send one message that does not end."""
        async with trio.open_nursery() as nursery:
            await wrap_client_stream(nursery, cast(trio.SocketStream, end), "nowhere", "/")
            nursery.cancel_scope.cancel()
        header = bytes((0x82, 0xFF)) + FLOOD_BYTES.to_bytes(8, "big") + bytes(4)
        await end.send_all(header)
        for _ in range(FLOOD_BYTES // 1024):
            await end.send_all(bytes(1024))
        await self._stay(end)

    async def _lie(self, end: WireEnd) -> None:
        """Take whoever listens for whom he says he is, and prove nothing."""
        nonce, proof = self._random.randbytes(handshake.NONCE_BYTES), self._random.randbytes(32)
        hello = handshake.Hello(VERSION, VERSION, "job", "liar", nonce, "liar", "", 1000)
        async with trio.open_nursery() as nursery:
            connection = await wrap_client_stream(nursery, cast(trio.SocketStream, end), "nowhere", "/")
            await connection.send_message(handshake.encode_hello(hello))
            await connection.get_message()
            await connection.send_message(handshake.encode_proof(proof))
            with suppress(ConnectionClosed):
                while True:
                    await connection.get_message()
            nursery.cancel_scope.cancel()
