"""Where the RIFs of blocks enrol with a run-time system."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable

import trio

from gspc_trio.components.provision import enrolment
from gspc_trio.components.provision.blocks import (
    ENROL_ROLE,
    BlockNews,
    BlockSide,
    NodeCame,
    NodeLost,
    SavedBlock,
)
from gspc_trio.components.provision.enrolment import Enrolment, EnrolmentAction, EnrolmentEvent
from gspc_trio.components.provision.messages import Enrol, Enrolled
from gspc_trio.core.ids import Counter
from gspc_trio.core.machine import Performer, performs
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, drop_offender
from gspc_trio.nursery.scopes.drive import Inbox, drive

log: logging.Logger = logging.getLogger(__name__)

_JOB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\[\]-]{0,255}")
"""How batch systems call their jobs: it becomes an argument of their commands, and is no option of these."""


class EnrolmentRefused(Exception):
    """A process does not become a RIF; the message is one line for people."""


class EnrolmentService(Performer[EnrolmentAction]):
    """Where the RIFs of blocks enrol.

    Args:
        issue: returns credentials for the TLS of whoever has this name; "" for none.
        before: blocks of an earlier run-time system.

    Attributes:
        told: takes the news of all blocks.
    """

    def __init__(self, issue: Callable[[str], str], before: Iterable[SavedBlock] = ()) -> None:
        self.issue = issue
        self.told: Callable[[BlockNews], None] = lambda _: None
        self._before = {saved.block: saved for saved in before}
        self._machine = Enrolment()
        self._inbox: Inbox[EnrolmentEvent] = Inbox()
        self._sides: dict[str, BlockSide] = {}
        self._restarts: dict[str, int] = {}  # as they were when a block was opened
        # Of blocks that were closed, too, until the machine forgets them: who comes late proves that it is of
        # one, is told, and its job is cancelled. Nothing else is kept of them.
        self._cancels: dict[str, Callable[[str], None]] = {}
        self._tickets: dict[str, bytes] = {saved.block: bytes.fromhex(saved.ticket) for saved in before}
        self._places: dict[tuple[str, int], tuple[str, int]] = {}
        self._links = Counter()
        self._calls: dict[int, IncomingCall] = {}
        self._nursery: trio.Nursery | None = None

    def restore(self, before: Iterable[SavedBlock]) -> None:
        """Take in the blocks of an earlier run-time system; before anybody enrols."""
        for saved in before:
            self._before[saved.block] = saved
            self._tickets[saved.block] = bytes.fromhex(saved.ticket)

    def token_of(self, role: str, name: str) -> bytes | None:
        """Return what a dialer of this role and name has to know; None for the token of the network."""
        if role != ENROL_ROLE:
            return None
        return self._tickets.get(name) or secrets.token_bytes(32)

    def open(self, nursery: trio.Nursery) -> None:
        """Serve in the nursery."""
        self._nursery = nursery
        nursery.start_soon(self._drive)

    async def _drive(self) -> None:
        await drive(self._machine, self._inbox, self)

    async def serve(self, peer: Peer) -> None:
        """Serve one process that wants an order, until it is gone."""
        link = self._links.next()
        try:
            first = True
            while True:
                for message in await peer.receive():
                    body = message.body if isinstance(message, IncomingCall) else None
                    if not isinstance(message, IncomingCall) or not isinstance(body, Enrol) or not first:
                        drop_offender(peer, "who enrols says so once, and nothing else")
                        return
                    if body.job_id and _JOB_ID.fullmatch(body.job_id) is None:
                        drop_offender(peer, f"no batch job has the id {body.job_id[:80]!r}")
                        return
                    first = False
                    self._calls[link] = message
                    wish = (link, peer.name, body.node, body.job_id, body.restarts)
                    self._inbox.put(enrolment.Enrols(*wish), peer)
        finally:
            self._calls.pop(link, None)
            self._inbox.put(enrolment.LinkGone(link))

    def saved_blocks(self) -> tuple[SavedBlock, ...]:
        """Return what the next run-time system is to know of the blocks that there are."""
        there = [
            side.save(max(self._restarts[block], self._machine.restarts(block)))
            for block, side in self._sides.items()
        ]
        return (*self._before.values(), *there)

    def rif_seen(self, block: str, node: int, incarnation: int, is_connected: bool, lost: str) -> None:
        """The RIF of a node is connected, or not any more, or over."""
        self._inbox.put(enrolment.RifSeen(block, node, incarnation, is_connected, lost))

    # What those who keep blocks ask for ---------------------------------------------------------------------

    def saved(self, block: str) -> SavedBlock | None:
        """See BlockEnrolments."""
        return self._before.pop(block, None)

    def start_soon(self, task: Callable[..., Awaitable[object]], *args: object) -> None:
        """See BlockEnrolments."""
        assert self._nursery is not None, "the service is not open"
        self._nursery.start_soon(task, *args)

    def open_block(
        self, side: BlockSide, block: str, nodes: int, ticket: bytes, job_id: str, restarts: int
    ) -> None:
        """See BlockEnrolments."""
        self._sides[block], self._tickets[block], self._restarts[block] = side, ticket, restarts
        self._cancels[block] = side.stray_canceller()
        self._inbox.put(enrolment.OpenBlock(block, nodes, job_id, restarts))

    def close_block(self, block: str) -> None:
        """See BlockEnrolments."""
        if self._sides.pop(block, None) is None:
            return
        del self._restarts[block]
        self._inbox.put(enrolment.CloseBlock(block))

    def job_known(self, block: str, job_id: str) -> None:
        """See BlockEnrolments."""
        self._inbox.put(enrolment.JobKnown(block, job_id))

    def hand_in(self, block: str, node: int, incarnation: int, taken: bool) -> None:
        """See BlockEnrolments."""
        self._inbox.put(enrolment.HandInOrder(block, node, incarnation, taken))

    def take_back(self, block: str, node: int, incarnation: int) -> None:
        """See BlockEnrolments."""
        self._inbox.put(enrolment.WithdrawOrder(block, node, incarnation))

    def tell(self, news: BlockNews) -> None:
        """See BlockEnrolments."""
        self.told(news)

    # What the machine decides: of a block that was closed since, it knows that later ------------------------

    @performs(enrolment.GiveOrder)
    def _give_order(self, action: enrolment.GiveOrder) -> None:
        call, side = self._calls.get(action.link), self._sides.get(action.block)
        if call is None:
            return
        order = None if side is None else side.order_for(action.node)
        if order is None:  # it was taken back just now
            call.fail(EnrolmentRefused(f"the block {action.block} is not wanted any more"))
        else:
            call.reply(Enrolled(order))

    @performs(enrolment.RefuseEnrolment)
    def _refuse(self, action: enrolment.RefuseEnrolment) -> None:
        call = self._calls.get(action.link)
        if call is not None:
            log.info("%s is refused: %s", call.peer.name, action.reason)
            call.fail(EnrolmentRefused(action.reason))

    @performs(enrolment.EndNode)
    def _end_node(self, action: enrolment.EndNode) -> None:
        if action.block in self._sides:
            self._sides[action.block].end_node(action.node, action.incarnation, action.reason)

    @performs(enrolment.CancelStray)
    def _cancel_stray(self, action: enrolment.CancelStray) -> None:
        if action.block not in self._sides and action.block in self._cancels:
            self._cancels[action.block](action.job_id)

    @performs(enrolment.ForgetBlock)
    def _forget(self, action: enrolment.ForgetBlock) -> None:
        if action.block not in self._sides:
            self._cancels.pop(action.block, None)
            self._tickets.pop(action.block, None)

    @performs(enrolment.JobSeen)
    def _job_seen(self, action: enrolment.JobSeen) -> None:
        if action.block in self._sides:
            self._sides[action.block].job_seen(action.job_id)

    @performs(enrolment.ConnectedChanged)
    def _connected_changed(self, action: enrolment.ConnectedChanged) -> None:
        if action.block in self._sides:
            self._sides[action.block].connected_changed(action.count)

    @performs(NodeCame, NodeLost)
    def _node_changed(self, news: NodeCame | NodeLost) -> None:
        self.told(news)
