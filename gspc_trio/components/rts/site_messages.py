"""What clients ask a run-time system about its sites and blocks, and what they are told."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

from gspc_trio.core.ids import Count, Seconds
from gspc_trio.core.messages import Done, Question

BY_HAND = "somebody has started it"
"""Why there is a block that is of no site."""


class BlockStatus(Struct, frozen=True):
    """A block, of a site or started by hand.

    Attributes:
        block_id, state, detail: what it is called, where it is, and why; states as in BlockChanged.
        nodes, cores: how many, and cores of all nodes together.
        walltime_s: seconds for which it was asked.
        up: nodes with a RIF that is up.
        batch_id: what the batch system calls its job; "" as long as that is not known.
        ends_in_s: seconds until the batch system ends it, None as long as it has not begun.
        why: why it was asked for.
        tasks, busy_cores: how many tasks run there, and on how many of its cores, as the jobs tell; nobody
            counts those of a block that was started by hand.
        script: what its batch job would run, of one that is planned.
        check: what the batch system says of one that is planned, if it was asked.
    """

    block_id: str
    state: str
    detail: str
    nodes: Count
    cores: Count
    walltime_s: Seconds
    up: Count
    batch_id: str
    ends_in_s: Seconds | None
    why: str
    tasks: Count = 0
    busy_cores: Count = 0
    script: str = ""
    check: str = ""


class ThrottleStatus(Struct, frozen=True):
    """A throttle of a site, or of all sites together.

    Attributes:
        name: of it; with ``host_`` it counts at this site alone.
        used: how many it counts now.
        limit: the most, None for any number.
    """

    name: str
    used: Count
    limit: Count | None


class SiteStatus(Struct, frozen=True):
    """A site.

    Attributes:
        site, state, detail: what it is called, how it is, and why; states as in SiteChanged.
        provider: name of its batch system.
        slots: the most blocks at a time.
        max_nodes, cores_per_node, max_time_s: the largest block that it may ask for.
        retry_in_s: seconds until it asks again after a refusal, or None.
        blocks: those that are not over, oldest first.
        plan: why so many blocks would be asked for now, and ``planned``, these, "" and none if nobody asked.
        score: by which it is chosen among the sites that could take the next block.
        history: how it went there, from -10 to 100; beside the tasks there it makes the score.
        ban: why it gets nothing for a while, and for how long; "" if it is not banned.
        throttles: those that hold for it, its own first.
        settings: key -> value, all that hold.
    """

    site: str
    state: str
    detail: str
    provider: str
    slots: Count
    max_nodes: Count
    cores_per_node: Count
    max_time_s: Seconds
    retry_in_s: Seconds | None
    blocks: tuple[BlockStatus, ...]
    plan: str = ""
    planned: tuple[BlockStatus, ...] = ()
    score: float = 1.0
    history: float = 0.0
    ban: str = ""
    throttles: tuple[ThrottleStatus, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)


class SiteList(Struct, frozen=True):
    """All sites, in the order in which they were added, and the blocks that were started by hand."""

    sites: tuple[SiteStatus, ...]
    blocks: tuple[BlockStatus, ...] = ()


class ListSites(Question[SiteList], frozen=True):
    """RTS: how the sites are. Answered by a SiteList.

    Attributes:
        planned: with the blocks that would be asked for now, and their scripts.
        check: with what the batch system says of these, which takes a while.
    """

    planned: bool = False
    check: bool = False


class AddSite(Question[Done], frozen=True):
    """RTS: ask for blocks at this site from now on. Answered by Done.

    Attributes:
        site: its name.
        settings: key -> value, as in a file of sites.
    """

    site: str
    settings: dict[str, str]


class SiteChange(StrEnum):
    """What can be done with a site."""

    PAUSE = "pause"
    RESUME = "resume"
    REMOVE = "remove"


class ChangeSite(Question[Done], frozen=True):
    """RTS: pause, resume or remove a site. Answered by Done."""

    site: str
    change: SiteChange


class EndBlock(Question[Done], frozen=True):
    """RTS: end this block, whatever runs there. Answered by Done."""

    block_id: str


class BlockOutput(Struct, frozen=True):
    """The last lines that the batch job of a block has printed.

    Attributes:
        lines: the last ones.
        over: how it has ended, "" if it is there.
    """

    lines: tuple[str, ...]
    over: str = ""


class GetBlockOutput(Question[BlockOutput], frozen=True):
    """RTS: what has the batch job of this block printed? Answered by a BlockOutput."""

    block_id: str
