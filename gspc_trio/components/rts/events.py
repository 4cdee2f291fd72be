"""Events of the RTS machine.

``ask`` is a number its shell gives to each question of a user, and gets back with the answer. ``link`` is a
number its shell gives to each connection. Both only grow.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from gspc_trio.components.rif.messages import DagReport, RifHello
from gspc_trio.components.rm.events import Added, Removed
from gspc_trio.components.rm.messages import GrantsAhead, Revoke, Revoked
from gspc_trio.components.rts.messages import CORES_MAX, NO_STRATEGY, JobEnd, RegisterJob
from gspc_trio.components.rts.state import is_of_site
from gspc_trio.core.ids import JobId, ResourceId, RifId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import DataUse

# A user asks ------------------------------------------------------------------------------------------------


class BootstrapAsked(Struct, frozen=True):
    """Start a RIF on each host (RTS-1).

    Attributes:
        ask: number of the question.
        hosts: names, each once.
        strategy: how the RIFs are started.
        cores: number of cores each is to offer, 0 for what its hardware has.
        options: of the strategy.
        nodes: each name is that of a block of so many nodes, with a RIF on each; 0: of a host.
        planned: a site asks for it, and no person.
    """

    ask: int
    hosts: tuple[str, ...]
    strategy: str = "local"
    cores: int = 0
    options: dict[str, str] = field(default_factory=dict)
    nodes: int = 0
    planned: bool = False

    def places(self, has_blocks: bool) -> list[tuple[str, str, int]]:
        """Return host, block and node of each RIF; where there are blocks, a host is one, too."""
        if not self.nodes:
            return [(host, host if has_blocks else "", 0) for host in self.hosts]
        return [(f"{block}.{node}", block, node) for block in self.hosts for node in range(self.nodes)]


def refusal_of(
    event: BootstrapAsked, strategies: frozenset[str], rifs: int, rifs_max: int, has_blocks: bool = False
) -> str:
    """Return why a bootstrap cannot be, or "".

    Args:
        event: what is asked for.
        strategies: names of those there are.
        rifs, rifs_max: number of RIFs there are, and may be.
        has_blocks: whether the strategy starts blocks.
    """
    if not event.planned:
        strategies = frozenset(name for name in strategies if not is_of_site(name))
        if of_sites := [host for host in event.hosts if "/" in host]:
            return f"{of_sites[0]}: so blocks of sites are called; take a name without '/'"
    if event.strategy not in strategies:
        there = ", ".join(sorted(strategies)) or "none"
        return f"{NO_STRATEGY} {event.strategy!r}; there are: {there}"
    if not event.hosts:
        return "no host was named"
    twice = sorted({host for host in event.hosts if event.hosts.count(host) > 1})
    if twice or "" in event.hosts:
        return f"hosts named twice: {', '.join(twice)}" if twice else "a host has no name"
    if event.cores < 0:
        return f"the number of cores is {event.cores}; it must not be negative"
    if event.cores > CORES_MAX:
        return f"a host offers at most {CORES_MAX} cores, not {event.cores}: each has a process of its own"
    if event.nodes < 0:
        return f"the number of nodes is {event.nodes}; it must not be negative"
    if event.nodes and not has_blocks:
        return f"the strategy {event.strategy} starts hosts, and no blocks of {event.nodes} nodes"
    more = len(event.hosts) * max(1, event.nodes)
    if rifs + more > rifs_max:
        return f"there may be {rifs_max} RIFs; there are {rifs}, {more} more were asked for"
    return ""


class TeardownAsked(Struct, frozen=True):
    """Take these RIFs down (RTS-1)."""

    ask: int
    rif_ids: tuple[RifId, ...]


class AddAsked(Struct, frozen=True):
    """Add resources to a RIF (RTS-2)."""

    ask: int
    rif_id: RifId
    resources: tuple[Resource, ...]


class RemoveAsked(Struct, frozen=True):
    """Remove resources, and all below them, from a RIF (RTS-2); policies (RM-11): lose, wait, refuse."""

    ask: int
    rif_id: RifId
    resource_ids: tuple[ResourceId, ...]
    policy: str = "lose"


class WeightAsked(Struct, frozen=True):
    """Change a job's share of the resources."""

    ask: int
    job: JobId
    weight: float


class LendAsked(Struct, frozen=True):
    """So many tasks of a job wait on a resource, and on what was lent of it: it is to be there so often."""

    job: JobId
    resource_id: ResourceId
    count: int


class Stop(Struct, frozen=True):
    """Take everything down; ``Stopped`` follows when nothing is left."""


# RIFs -------------------------------------------------------------------------------------------------------


class RifConnected(Struct, frozen=True):
    """A RIF has connected, for the first time or again, and says what there is."""

    link: int
    hello: RifHello


class JobServerEnded(Struct, frozen=True):
    """An earlier run-time system had this job, and its job server is known to have ended."""

    job: JobId


class RifRestored(Struct, frozen=True):
    """An earlier run-time system had this RIF; comes before anything else.

    Attributes:
        rif_id, incarnation, host, strategy, cores, options: of its newest incarnation.
        gone: it is known to have ended; if not, it is awaited.
        fresh: it was not known to be up yet.
        block, node, nodes, once: of a block, see ManagedRif.
    """

    rif_id: RifId
    incarnation: int
    host: str
    strategy: str
    cores: int
    options: dict[str, str]
    gone: bool = False
    fresh: bool = False
    block: str = ""
    node: int = 0
    nodes: int = 1
    once: bool = False


class RifLost(Struct, frozen=True):
    """The connection of a RIF is over."""

    link: int
    reason: str


class RifOrdered(Struct, frozen=True):
    """The process of a RIF of a block has got its order."""

    rif_id: RifId
    incarnation: int


class RifWaits(Struct, frozen=True):
    """An incarnation that is not up yet waits for something, which ``reason`` names for people."""

    rif_id: RifId
    incarnation: int
    reason: str


class RifEnded(Struct, frozen=True):
    """The strategy has nothing left of this incarnation: it ended, failed to start, or was killed.

    Comes exactly once for each ``StartRif``.

    Attributes:
        adrift: the strategy cannot see it any more, and does not know whether it runs.
        again: another process has come in its place, and waits for an order.
    """

    rif_id: RifId
    incarnation: int
    reason: str = ""
    adrift: bool = False
    again: bool = False


class RifAnswered(Struct, frozen=True):
    """The RIF has done what ``AskRif`` number ``call`` asked for."""

    link: int
    call: int
    report: DagReport


class RifRefused(Struct, frozen=True):
    """The RIF could not do what ``AskRif`` number ``call`` asked for."""

    link: int
    call: int
    reason: str


class RevokedBy(Struct, frozen=True):
    """A RIF says that nothing runs any more under a grant on resources of its own."""

    link: int
    revoked: Revoked


class RifUnfit(Struct, frozen=True):
    """The host of a RIF could not start a process."""

    link: int
    reason: str


class HostAvoided(Struct, frozen=True):
    """A host is not to be used until :class:`HostUsed`; what runs there goes on. The last one is used.

    Attributes:
        host: which one.
        reason: why.
        evacuate: what runs there does not go on, if it may run again, and data there is copied away.
        uses: only tasks that use data so are to avoid it; empty: all.
    """

    host: str
    reason: str
    evacuate: bool = False
    uses: tuple[DataUse, ...] = ()


class HostUsed(Struct, frozen=True):
    """A host that was avoided may be used again."""

    host: str


# The resource manager ---------------------------------------------------------------------------------------


class ResourcesLeft(Struct, frozen=True):
    """The RM has these resources no more: as it was told, or because nothing was heard of what ran there."""

    resource_ids: tuple[ResourceId, ...]


class RmAnswered(Struct, frozen=True):
    """The RM has taken ``event``, or will not.

    It refuses what would hang below a held resource, and to remove held ones under the policy ``refuse``.
    """

    event: Added | Removed
    refusal: str = ""


# Jobs -------------------------------------------------------------------------------------------------------


class JobConnected(Struct, frozen=True):
    """A job server wants to join (RM-10), or one that was registered before has connected again."""

    link: int
    wish: RegisterJob


class TakeoverDone(Struct, frozen=True):
    """Job ``successor`` needs no more of the job that it has adopted."""

    successor: JobId
    job: JobId


class JobServerGone(Struct, frozen=True):
    """The job server has left, or its connection is over.

    Attributes:
        reason: why it is over, if the job server has not left.
        left: how the job ended, if its job server has left.
        silent: nothing was heard of it for too long, so it may live.
        link: of the connection; 0 for whatever it has.
    """

    job: JobId
    reason: str = ""
    left: JobEnd | None = None
    silent: bool = False
    link: int = 0


RtsEvent: TypeAlias = (
    BootstrapAsked
    | TeardownAsked
    | AddAsked
    | RemoveAsked
    | WeightAsked
    | LendAsked
    | Stop
    | RifConnected
    | RifRestored
    | RifLost
    | RifWaits
    | RifOrdered
    | RifEnded
    | RifUnfit
    | HostAvoided
    | HostUsed
    | RifAnswered
    | RifRefused
    | RevokedBy
    | ResourcesLeft
    | RmAnswered
    | GrantsAhead
    | Revoke
    | JobConnected
    | JobServerGone
    | JobServerEnded
    | TakeoverDone
    | Tick
)
"""What the machine of the run-time system takes."""
