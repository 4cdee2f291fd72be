"""Blocks: batch jobs that host RIFs, one on each node; what is told of them, and who tells whom."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, Literal, Protocol, TypeAlias

from msgspec import Struct

from gspc_trio.protocol.hidden import HidesFields

ENROL_ROLE = "enrol"
"""Role of a process of a block that wants the order for its RIF."""

Over: TypeAlias = Literal["ended", "refused", "hopeless", "missing"]
"""How it is over with a batch job: it has ended; there is none; nobody knows."""


class BlockOrder(Struct, frozen=True):
    """A block that is wanted.

    Attributes:
        block: what it is called, such as ``site/b3``; nobody else uses it. Its hosts are
            ``site/b3.0`` and so on.
        strategy: name of the strategy that starts it.
        nodes: how many.
        cores: that each node is to offer; 0 for the whole node.
        options: of the strategy, such as ``time``, ``queue`` and ``shared``.
    """

    block: str
    strategy: str
    nodes: int = 1
    cores: int = 0
    options: dict[str, str] = {}


class BlockMoved(Struct, frozen=True):
    """Where the batch job of a block is now.

    Attributes:
        block: of which it is told.
        state: where, see ``batch.BatchState``; "unclear": nobody knows whether there is a job.
        job_id: what the batch system calls it; "" while that is not known.
        reason: why it waits, in the batch system's words.
        text: all of this in one line for people.
        is_hopeless: it waits for what will never be, and is cancelled.
    """

    block: str
    state: str
    job_id: str
    reason: str
    text: str
    is_hopeless: bool = False


class NodeCame(Struct, frozen=True):
    """The RIF of a node of the block is connected, for the first time or again."""

    block: str
    node: int


class NodeLost(Struct, frozen=True):
    """The RIF of a node of the block is over; the others go on."""

    block: str
    node: int
    reason: str


class BlockOver(Struct, frozen=True):
    """It is over with the block, which is not mentioned again.

    Attributes:
        block: of which it is told.
        how: its batch job has ended; there was none (it was refused, for
            now or for good); nobody knows what became of it.
        reason: for people.
        had_rifs: whether one of its RIFs was ever connected.
        was_cancelled: whether that is what was asked for.
        said: the last lines that its job has printed.
    """

    block: str
    how: Over
    reason: str
    had_rifs: bool = False
    was_cancelled: bool = False
    said: tuple[str, ...] = ()


BlockNews: TypeAlias = BlockMoved | NodeCame | NodeLost | BlockOver


class SavedBlock(Struct, frozen=True):
    """What the next run-time system is to know of a block if this one is killed.

    Attributes:
        block, nodes: what it is called, and how many it has.
        name, job_id: what we and the batch system call its job.
        ticket: as hexadecimal digits; secret.
        folder: where the file with the ticket is.
        restarts: how often the batch system has started the job again.
    """

    block: str
    nodes: int
    name: str
    job_id: str
    ticket: str
    folder: str
    restarts: int = 0

    def __repr__(self) -> str:
        return f"<block {self.block}, job {self.job_id or self.name}>"


class SavedSite(Struct, frozen=True):
    """What the next run-time system is to know of a site.

    Attributes:
        site, settings: what it is called, and all that hold, as in a file of sites.
        paused: why nothing is asked for, "" if it is not paused.
        history: how it went there, of which its score is made.
        by_hand: it was added while the run-time system ran: nobody gives it again.
    """

    site: str
    settings: dict[str, str]
    paused: str = ""
    history: float = 0.0
    by_hand: bool = False


class EnrolmentFile(HidesFields, frozen=True):
    """What the RIFs of a block read, as JSON; it is secret.

    Attributes:
        rts: address at which they enrol.
        block: what it is called.
        ticket: the secret of this block, with which they prove that they are of it.
        credentials: with which they connect, for TLS; "" without.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"ticket", "credentials"})

    rts: str
    block: str
    ticket: bytes
    credentials: str = ""


class BlockSide(Protocol):
    """What the service at which RIFs enrol tells whoever keeps a block."""

    def order_for(self, node: int) -> str | None:
        """Return the order for the RIF of a node, as it is told; None if it was taken back."""
        ...

    def end_node(self, node: int, incarnation: int, reason: str) -> None:
        """The RIF of a node is over: another process takes its place."""
        ...

    def job_seen(self, job_id: str) -> None:
        """The batch job runs, under this id."""
        ...

    def connected_changed(self, count: int) -> None:
        """So many RIFs are connected from now on."""
        ...

    def stray_canceller(self) -> Callable[[str], None]:
        """Return what cancels a job, by its id, once the block is not wanted any more.

        It outlives the block, and holds neither orders nor secrets of it.
        """
        ...

    def save(self, restarts: int) -> SavedBlock:
        """Return what the next run-time system is to know."""
        ...


class BlockEnrolments(Protocol):
    """Where the RIFs of blocks enrol."""

    def saved(self, block: str) -> SavedBlock | None:
        """Return what an earlier run-time system knew of a block, once; None if it had none."""
        ...

    def start_soon(self, task: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run a task for as long as the run-time system is there."""
        ...

    def issue(self, block: str) -> str:
        """Return credentials for the RIFs of a block, with which they enrol; "" without TLS."""
        ...

    def open_block(
        self, side: BlockSide, block: str, nodes: int, ticket: bytes, job_id: str, restarts: int
    ) -> None:
        """Let the RIFs of a block enrol."""
        ...

    def close_block(self, block: str) -> None:
        """Let nobody of this block enrol any more."""
        ...

    def job_known(self, block: str, job_id: str) -> None:
        """The batch system calls the job of the block so."""
        ...

    def hand_in(self, block: str, node: int, incarnation: int, taken: bool) -> None:
        """There is an order for a node, which its RIF may have already."""
        ...

    def take_back(self, block: str, node: int, incarnation: int) -> None:
        """An order is not to be given any more, and who has it is not wanted."""
        ...

    def tell(self, news: BlockNews) -> None:
        """Tell whoever wanted the block what has become of it."""
        ...
