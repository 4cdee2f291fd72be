"""Enrolment: who of those that know the ticket of a block becomes one of its RIFs.

A block is a batch job that hosts a RIF on each of its nodes. Where the job runs, a process of each node says
of which block, node and job it is, and how often the batch system has started the job before. It gets the
order for the RIF of its node, once. When the batch system starts the job again, those that it has started
before are over, also where they run on: the RIF of a node is over before another gets its order.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.provision.blocks import NodeCame, NodeLost
from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles

CLOSED_MAX = 10_000
"""So many blocks that are not wanted any more are remembered: their jobs may start late."""


class OpenBlock(Struct, frozen=True):
    """A block is wanted, of so many nodes; ``job_id`` is that of its batch job, "" while nobody knows it."""

    block: str
    nodes: int
    job_id: str = ""
    restarts: int = 0


class CloseBlock(Struct, frozen=True):
    """A block is not wanted any more, or over."""

    block: str


class JobKnown(Struct, frozen=True):
    """The batch system has said what it calls the job of a block."""

    block: str
    job_id: str


class HandInOrder(Struct, frozen=True):
    """There is an order for the RIF of a node, which may have taken it before (``taken``)."""

    block: str
    node: int
    incarnation: int
    taken: bool = False


class WithdrawOrder(Struct, frozen=True):
    """Nobody wants to hear of this incarnation any more, nor of the node until there is another order."""

    block: str
    node: int
    incarnation: int


class RifSeen(Struct, frozen=True):
    """The RIF of a node is connected, or not any more; ``lost``: it is over, and why."""

    block: str
    node: int
    incarnation: int
    is_connected: bool
    lost: str = ""


class Enrols(Struct, frozen=True):
    """A process on a node that has proved to know the ticket wants an order.

    Attributes:
        link: number of its connection.
        block, node, job_id: where it runs.
        restarts: how often the batch system has started the job before.
    """

    link: int
    block: str
    node: int
    job_id: str
    restarts: int


class LinkGone(Struct, frozen=True):
    """A process that wanted an order waits no more."""

    link: int


EnrolmentEvent: TypeAlias = (
    OpenBlock | CloseBlock | JobKnown | HandInOrder | WithdrawOrder | RifSeen | Enrols | LinkGone | Tick
)


class GiveOrder(Struct, frozen=True):
    """Give the order for this incarnation to the process at ``link``."""

    link: int
    block: str
    node: int
    incarnation: int


class RefuseEnrolment(Struct, frozen=True):
    """Send the process at ``link`` away, saying why."""

    link: int
    reason: str


class EndNode(Struct, frozen=True):
    """The incarnation of a node is over: another process takes its place, and waits for its order."""

    block: str
    node: int
    incarnation: int
    reason: str


class CancelStray(Struct, frozen=True):
    """Cancel a batch job of a block that is not wanted any more."""

    block: str
    job_id: str


class ForgetBlock(Struct, frozen=True):
    """Too many blocks were closed after this one: its job is a stranger from now on."""

    block: str


class JobSeen(Struct, frozen=True):
    """The batch job of a block runs, under this id: one of its nodes has enrolled."""

    block: str
    job_id: str


class ConnectedChanged(Struct, frozen=True):
    """So many RIFs of a block are connected from now on."""

    block: str
    count: int


EnrolmentAction: TypeAlias = (
    GiveOrder
    | RefuseEnrolment
    | EndNode
    | CancelStray
    | ForgetBlock
    | JobSeen
    | ConnectedChanged
    | NodeCame
    | NodeLost
)


class _Node:
    """One node of a block.

    Attributes:
        incarnation: of the order that is there, 0 for none.
        taken: a process has the order.
        lost: the RIF is over that had it.
        is_connected: the RIF is connected.
        link: of the process that waits for an order.
        unwanted: the order was taken back: there will be none for whoever comes.
    """

    def __init__(self) -> None:
        self.incarnation = 0
        self.taken = False
        self.lost = False
        self.is_connected = False
        self.link: int | None = None
        self.unwanted = False

    @property
    def is_live(self) -> bool:
        """Whether a RIF may run here for all that is known."""
        return self.incarnation > 0 and self.taken and not self.lost

    def clear(self) -> None:
        """Nothing is there of an order any more."""
        self.incarnation, self.taken, self.lost, self.is_connected = 0, False, False, False


class _Block:
    """One block: its nodes, its batch job, and how often the batch system has started that before."""

    def __init__(self, name: str, nodes: int, job_id: str, restarts: int) -> None:
        self.name = name
        self.nodes = [_Node() for _ in range(nodes)]
        self.job_id = job_id
        self.restarts = restarts

    @property
    def connected(self) -> int:
        """Number of RIFs that are connected."""
        return sum(node.is_connected for node in self.nodes)


class Enrolment(MachineBase[EnrolmentEvent, EnrolmentAction]):
    """Who enrols in the blocks of one run-time system."""

    noun = "the enrolment"

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[str, _Block] = {}
        self._closed: dict[str, None] = {}
        self._waiting: dict[int, tuple[_Block, _Node]] = {}

    def deadline(self) -> float | None:
        """Return None: nothing here is a matter of time."""
        return None

    def check(self) -> None:
        """Assert that who waits is known by its link, and waits only where nobody has an order."""
        there = {}
        for block in self._blocks.values():
            assert block.name not in self._closed
            for node in block.nodes:
                assert node.taken or not (node.lost or node.is_connected)
                assert node.incarnation or not node.taken
                if node.link is not None:
                    there[node.link] = (block, node)
                    assert not node.incarnation, "an order and somebody who waits for it"
        assert there == self._waiting
        assert len(self._closed) <= CLOSED_MAX

    def restarts(self, block: str) -> int:
        """Return how often the batch system has started the job of a block before, as far as it is known."""
        return self._blocks[block].restarts if block in self._blocks else 0

    # Blocks -------------------------------------------------------------------------------------------------

    @handles(OpenBlock)
    def _open(self, event: OpenBlock) -> None:
        if event.block in self._blocks:
            raise IllegalEvent(f"there is a block {event.block} already")
        self._closed.pop(event.block, None)
        self._blocks[event.block] = _Block(event.block, event.nodes, event.job_id, event.restarts)

    @handles(CloseBlock)
    def _close(self, event: CloseBlock) -> None:
        block = self._blocks.pop(event.block, None)
        if block is None:
            return
        for node in block.nodes:
            self._send_away(node, f"the block {block.name} is not wanted any more")
        self._closed[block.name] = None
        if len(self._closed) > CLOSED_MAX:
            oldest = next(iter(self._closed))
            del self._closed[oldest]
            self.actions.append(ForgetBlock(oldest))

    @handles(JobKnown)
    def _job_known(self, event: JobKnown) -> None:
        block = self._blocks.get(event.block)
        if block is not None:
            block.job_id = event.job_id

    # Orders -------------------------------------------------------------------------------------------------

    @handles(HandInOrder)
    def _hand_in(self, event: HandInOrder) -> None:
        block = self._blocks.get(event.block)
        if block is None or not 0 <= event.node < len(block.nodes):
            raise IllegalEvent(f"there is no node {event.node} of a block {event.block}")
        node = block.nodes[event.node]
        if node.incarnation >= event.incarnation:
            raise IllegalEvent(f"there is an order for incarnation {node.incarnation} already")
        node.clear()
        node.incarnation, node.taken, node.unwanted = event.incarnation, event.taken, False
        if event.taken:
            self._send_away(node, "its RIF is there already")
        elif node.link is not None:
            self._give(block, event.node)

    @handles(WithdrawOrder)
    def _take_back(self, event: WithdrawOrder) -> None:
        node = self._node(event)
        if node is None:
            return
        was_connected = node.is_connected
        node.clear()
        node.unwanted = True
        if was_connected:
            self.actions.append(ConnectedChanged(event.block, self._blocks[event.block].connected))

    @handles(RifSeen)
    def _rif_seen(self, event: RifSeen) -> None:
        node = self._node(event)
        if node is None or (node.lost and not event.is_connected):
            return
        node.taken = True
        was_connected, was_lost = node.is_connected, node.lost
        node.is_connected, node.lost = event.is_connected, bool(event.lost)
        if was_connected != node.is_connected:
            self.actions.append(ConnectedChanged(event.block, self._blocks[event.block].connected))
            if node.is_connected:
                self.actions.append(NodeCame(event.block, event.node))
        if node.lost and not was_lost:
            self.actions.append(NodeLost(event.block, event.node, event.lost))

    # Those who come -----------------------------------------------------------------------------------------

    @handles(Enrols)
    def _enrols(self, event: Enrols) -> None:
        if event.link in self._waiting:
            raise IllegalEvent(f"the process at link {event.link} waits already")
        block = self._blocks.get(event.block)
        if block is None:
            self.actions.append(
                RefuseEnrolment(event.link, f"the block {event.block} is not wanted any more")
            )
            if event.block in self._closed and event.job_id:
                self.actions.append(CancelStray(event.block, event.job_id))
            return
        reason = self._objection(block, event)
        if reason:
            self.actions.append(RefuseEnrolment(event.link, reason))
            return
        if event.job_id and not block.job_id:
            block.job_id = event.job_id
        self.actions.append(JobSeen(block.name, block.job_id))
        if event.restarts > block.restarts:
            self._start_over(block, event.restarts)
        node = block.nodes[event.node]
        if node.lost:  # the batch system has put another process in its place
            self._end(block, event.node, "another process has taken its place")
        node.link = event.link
        self._waiting[event.link] = (block, node)
        if node.incarnation:
            self._give(block, event.node)

    def _objection(self, block: _Block, event: Enrols) -> str:
        """Return why a process does not become the RIF of its node, or ""."""
        if event.job_id and block.job_id and event.job_id != block.job_id:
            return f"the block {block.name} is the batch job {block.job_id}, not {event.job_id}"
        if not 0 <= event.node < len(block.nodes):
            return f"the block {block.name} has {len(block.nodes)} nodes, and no node {event.node}"
        if event.restarts < block.restarts:
            return f"the batch job was started again: {block.restarts} times, not {event.restarts}"
        node = block.nodes[event.node]
        if node.unwanted:
            return f"node {event.node} of the block {block.name} was taken down"
        if event.restarts == block.restarts and (node.is_live or node.link is not None):
            return f"node {event.node} of the block {block.name} has enrolled already"
        return ""

    def _start_over(self, block: _Block, restarts: int) -> None:
        """The batch system has started the job again: all that it had started before is over."""
        block.restarts = restarts
        reason = "its batch job was started again"
        for number, node in enumerate(block.nodes):
            self._send_away(node, reason)
            if node.taken:
                self._end(block, number, reason)

    def _end(self, block: _Block, number: int, reason: str) -> None:
        node = block.nodes[number]
        self.actions.append(EndNode(block.name, number, node.incarnation, reason))
        was_connected, was_lost = node.is_connected, node.lost
        node.clear()
        if was_connected:
            self.actions.append(ConnectedChanged(block.name, block.connected))
        if not was_lost:
            self.actions.append(NodeLost(block.name, number, reason))

    def _give(self, block: _Block, number: int) -> None:
        node = block.nodes[number]
        assert node.link is not None
        self.actions.append(GiveOrder(node.link, block.name, number, node.incarnation))
        del self._waiting[node.link]
        node.link, node.taken = None, True

    def _send_away(self, node: _Node, reason: str) -> None:
        if node.link is not None:
            self.actions.append(RefuseEnrolment(node.link, reason))
            del self._waiting[node.link]
            node.link = None

    @handles(LinkGone)
    def _link_gone(self, event: LinkGone) -> None:
        _, node = self._waiting.pop(event.link, (None, None))
        if node is not None:
            node.link = None

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        """Nothing here is a matter of time."""

    def _node(self, event: WithdrawOrder | RifSeen) -> _Node | None:
        """Return the node that an event is of, None if another incarnation is there, or none."""
        block = self._blocks.get(event.block)
        if block is None or not 0 <= event.node < len(block.nodes):
            return None
        node = block.nodes[event.node]
        return node if node.incarnation == event.incarnation and node.incarnation else None
