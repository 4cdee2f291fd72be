"""The connection of a RIF, or of a job, to its run-time system: made anew while that is awaited."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from gspc_trio.nursery.connections.rpc import CLOSED_HERE, CLOSED_THERE, Peer, PeerGone

log: logging.Logger = logging.getLogger(__name__)

RETRY_S = 0.2
"""Pause before each try to reach a run-time system that is awaited."""


class RtsContact:
    """Hears what the run-time system says, also one that was started again.

    Args:
        connect: opens a connection to it.
        take: takes what it says.
        greet: says the first words on a new connection.
        grace_s: how long it is awaited when it is gone; 0: not at all.
        obeys: it is not awaited either when it has ended the connection and said why: it knows better.

    Attributes:
        peer: the connection, which may be over.
        grace_s: may be changed at any time.
    """

    peer: Peer

    def __init__(
        self,
        connect: Callable[[], AbstractAsyncContextManager[Peer]],
        take: Callable[[Any], None],
        greet: Callable[[Peer], None],
        grace_s: float,
        *,
        obeys: bool = False,
    ) -> None:
        self._final = f"{CLOSED_THERE}: " if obeys else CLOSED_HERE
        self._connect = connect
        self._take = take
        self._greet = greet
        self.grace_s = grace_s

    async def run(self, peer: Peer) -> str:
        """Take what comes over a connection, and those that follow; return why there is none any more."""
        self.peer = peer
        gone = await self._hear()
        while self.grace_s and gone != CLOSED_HERE and not gone.startswith(self._final):
            log.warning("no connection to the run-time system (%s): waiting for %g s", gone, self.grace_s)
            with trio.move_on_after(self.grace_s) as waiting:
                gone = await self._hear_again(waiting)
            if waiting.cancelled_caught:
                return f"{gone}; it did not come back within {self.grace_s:g} s"
        return gone

    async def _hear(self) -> str:
        try:
            while True:
                for message in await self.peer.receive():
                    self._take(message)
        except PeerGone as gone:
            return gone.reason

    async def _hear_again(self, waiting: trio.CancelScope) -> str:
        while True:
            await trio.sleep(RETRY_S)
            try:
                async with self._connect() as self.peer:
                    waiting.deadline = math.inf
                    self._greet(self.peer)
                    return await self._hear()
            except OSError as problem:
                log.debug("it is not back: %s", problem)
