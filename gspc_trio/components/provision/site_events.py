"""What the machine of sites takes, and what it decides."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.score import SiteOutcome
from gspc_trio.components.provision.site_settings import SiteSettings
from gspc_trio.core.demand import GroupRefused, TaskDemand
from gspc_trio.core.ids import JobId, RifId
from gspc_trio.core.machine import Tick
from gspc_trio.records.facts import BlockChanged, SiteChanged

# People ask; each is answered by SiteAnswered ---------------------------------------------------------------


class SiteAdded(Struct, frozen=True):
    """Blocks may be asked for at this site from now on.

    Attributes:
        ask, site, settings: who asks, what it is called, and its settings.
        paused: why it begins paused, "" if it does not.
        history: that which it had in an earlier run-time system.
    """

    ask: int
    site: str
    settings: SiteSettings
    paused: str = ""
    history: float = 0.0


class SitePaused(Struct, frozen=True):
    """No further block is to be asked for at this site; those that it has go on."""

    ask: int
    site: str


class SiteResumed(Struct, frozen=True):
    """Blocks may be asked for at this site again, at once."""

    ask: int
    site: str


class SiteRemoved(Struct, frozen=True):
    """The site is to be forgotten; it has no block."""

    ask: int
    site: str


class BlockUnwanted(Struct, frozen=True):
    """A person wants the block to end, whatever runs there."""

    ask: int
    block_id: str


class SitesStopped(Struct, frozen=True):
    """All ends: no block is asked for any more, and those that are there go with the run-time system."""


# Jobs say ---------------------------------------------------------------------------------------------------


class HostsThere(Struct, frozen=True):
    """Whether there are hosts that belong to no site: they may run what no block can."""

    there: bool


# The shell says what becomes of a block ---------------------------------------------------------------------


class BlockKept(Struct, frozen=True):
    """An earlier run-time system has asked for this block of a site, and its job may be there.

    Attributes:
        block_id, site: what it is called, and where.
        nodes, cores: how many, and cores of each.
        walltime_s: seconds for which it was asked.
    """

    block_id: str
    site: str
    nodes: int
    cores: int
    walltime_s: float


class BatchAnswered(Struct, frozen=True):
    """The call that submits a block has returned.

    Attributes:
        batch_id: "" if it is not clear whether there is a job; ``why``: what is said of that.
    """

    block_id: str
    batch_id: str
    why: str = ""


class BatchMoved(Struct, frozen=True):
    """The batch system says where the job of a block is, and why; ``is_hopeless``: it can never run."""

    block_id: str
    state: BatchState
    reason: str = ""
    batch_id: str = ""
    is_hopeless: bool = False


class NodeServes(Struct, frozen=True):
    """A node of a block has a RIF that is up; it ends at ``ends_at``, as far as that is known."""

    block_id: str
    node: int
    rif_id: RifId
    ends_at: float | None = None


class NodeEnded(Struct, frozen=True):
    """A node of a block, which may have been up, is over."""

    block_id: str
    node: int
    reason: str


class FilesNotStaged(Struct, frozen=True):
    """Files of a task could not be staged on a node of the block, for which the task cannot be blamed."""

    block_id: str
    detail: str


class BlockUsed(Struct, frozen=True):
    """Somebody who does not say what runs holds something of a block."""

    block_id: str


class BlockIdle(Struct, frozen=True):
    """Nobody does so any more."""

    block_id: str


class BlockGone(Struct, frozen=True):
    """Nothing is left of a block; ``outcome`` says what the site is to blame for, None for nothing.

    REFUSED, HOPELESS, CONNECTION_REFUSED and TIME_OUT mean that the batch system has not taken the job.
    """

    block_id: str
    reason: str
    outcome: SiteOutcome | None = None


SitesEvent: TypeAlias = (
    SiteAdded
    | SitePaused
    | SiteResumed
    | SiteRemoved
    | BlockUnwanted
    | SitesStopped
    | TaskDemand
    | HostsThere
    | BlockKept
    | BatchAnswered
    | BatchMoved
    | NodeServes
    | NodeEnded
    | FilesNotStaged
    | BlockUsed
    | BlockIdle
    | BlockGone
    | Tick
)

# Actions ----------------------------------------------------------------------------------------------------


class SiteAnswered(Struct, frozen=True):
    """What was asked is done, or why not."""

    ask: int
    refusal: str = ""


class SiteOffers(Struct, frozen=True):
    """A site could give so many nodes with so many cores each; 0 nodes: it is gone."""

    site: str
    nodes: int
    cores: int


class SiteWithdrawn(Struct, frozen=True):
    """A site has paused by itself and nobody can resume it: it brings nothing, unless SiteOffers follows."""

    site: str


class SubmitBlock(Struct, frozen=True):
    """Ask for a block; BatchAnswered or BlockGone follows, and BlockGone at the end."""

    block_id: str
    site: str
    nodes: int
    cores: int
    walltime_s: float
    why: str


class SuspendBlock(Struct, frozen=True):
    """Give the block no new task."""

    block_id: str


class CancelBlock(Struct, frozen=True):
    """End the block, and whatever of it there is; BlockGone follows."""

    block_id: str
    reason: str


class RefuseDemand(Struct, frozen=True):
    """No site can ever run these tasks of a job, and no other host is there: tell it."""

    job: JobId
    refused: GroupRefused


SitesAction: TypeAlias = (
    SiteAnswered
    | SiteOffers
    | SiteWithdrawn
    | SubmitBlock
    | SuspendBlock
    | CancelBlock
    | RefuseDemand
    | SiteChanged
    | BlockChanged
)
