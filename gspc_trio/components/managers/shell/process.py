"""A resource manager as a process of its own: one of several that share hosts (ASP-11).

Its run-time system starts it, and it reads its order, a line of JSON, on standard input.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Sequence

import trio

from gspc_trio.components.managers.member import MemberManager, Outgoing, Said
from gspc_trio.components.managers.messages import (
    MANAGER_ROLE,
    BeginManaging,
    JobWords,
    ManagerClaim,
    ManagerEvent,
    ManagerHere,
    ManagerOrder,
)
from gspc_trio.components.rm.events import Numbering, RmEvent
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import Offence
from gspc_trio.components.rm.shell.server import ServedManager
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.nursery.connections.network import ConnectFailed, Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone, RemoteError, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive
from gspc_trio.nursery.scopes.process import open_process
from gspc_trio.protocol.address import BadAddress
from gspc_trio.protocol.plain import BadPlainData, from_json, to_json
from gspc_trio.version import SOURCES

log: logging.Logger = logging.getLogger(__name__)

ORDER_BYTES_MAX = 1 << 16
"""Longest order."""

TERMINATE_GRACE_S = 0.5
"""How long the process may take to end when it is told to; then it is killed."""

MANAGER_PROGRAM = f"""
import sys
sys.path.append({str(SOURCES)!r})
from gspc_trio.components.managers.shell.process import main
sys.exit(main())
"""

MANAGER_COMMAND = (sys.executable, "-P", "-c", MANAGER_PROGRAM)
"""Without the working directory on the path, in which a user's module may have the name of one of ours."""


class ServedMember(ServedManager):
    """A resource manager that hears and tells its run-time system; what it says at one time it says together.

    Args:
        rm: the resource manager.
        peer: the run-time system.
        claims: it claims what it gives.
    """

    def __init__(self, rm: ResourceManager, peer: Peer, *, claims: bool = False) -> None:
        super().__init__(rm, peer)
        self._member = MemberManager(rm, self._answering, claims=claims)
        self._outgoing = Outgoing(self._member)
        self._words: Inbox[ManagerEvent] = Inbox()
        self._is_hearing = False

    async def _drive(self) -> None:
        await drive(self._member, self._words, self._gather, refused=self._refuse)

    def _hear_all(self, messages: Sequence[object]) -> None:
        self._is_hearing = True
        try:
            super()._hear_all(messages)
        finally:
            self._is_hearing = False
        self._say()

    def _hear(self, message: object) -> None:
        if isinstance(message, JobWords):
            self._words.put(message)
        else:
            super()._hear(message)

    def _take(self, event: RmEvent) -> None:
        self._words.put(event)

    def _refuse(self, event: ManagerEvent, error: IllegalEvent) -> None:
        assert not isinstance(event, JobWords), "what is wrong in it is an offence of the job"
        self._refused(event, error)

    def _gather(self, action: Said | ManagerClaim | Offence) -> None:
        self._outgoing.add((action,))
        if not self._is_hearing:
            self._say()

    def _say(self) -> None:
        for word in self._outgoing.take():
            self._peer.post(word)


async def run_manager_process(order: ManagerOrder) -> None:
    """Run a resource manager in a process of its own on this host, until it ends.

    Raises:
        OSError: no process could be made.
    """
    line = to_json(order).encode() + b"\n"
    async with open_process(
        MANAGER_COMMAND, stdin=line, hold_stdin=True, grace_s=TERMINATE_GRACE_S
    ) as process:
        status = await process.wait()
    log.info("the process of %s ended with status %d", order.name, status)


async def serve_as_manager(network: Network, order: ManagerOrder, pid: int) -> str:
    """Be the resource manager of an order until its run-time system is gone; return why it is.

    Args:
        network: knows the secret.
        order: of the run-time system.
        pid: of this process.

    Raises:
        ConnectFailed: the run-time system cannot be reached.
    """
    numbering = Numbering(order.first, order.step, own_first=order.claims)
    rm = ResourceManager(order.epoch, None, order.placement, numbering)
    async with network.connect(order.rts, role=MANAGER_ROLE, name=order.name, expect="rts") as peer:
        try:
            first, *more = await peer.receive()
            if not (isinstance(first, IncomingCall) and isinstance(first.body, BeginManaging)):
                drop_offender(peer, "a run-time system begins with BeginManaging")
                return peer.reason
            first.reply(ManagerHere(pid))
            await ServedMember(rm, peer, claims=order.claims).run(more)
        except PeerGone as gone:
            return gone.reason
    return peer.reason


def main() -> int:
    """Be the resource manager of the order on standard input; return the exit status."""
    try:
        order = from_json(sys.stdin.buffer.readline(ORDER_BYTES_MAX), ManagerOrder)
    except BadPlainData as error:
        print(f"the line on standard input is no order for a resource manager: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format=f"{order.name}: %(message)s")
    # Nobody else's garbage collector: this process does nothing but decide.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    network = Network(wire_codec, order.token, credentials=order.credentials)
    try:
        trio.run(serve_as_manager, network, order, os.getpid())
    except (ConnectFailed, RemoteError, BadAddress, OSError) as error:
        print(f"{order.name} ends: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
