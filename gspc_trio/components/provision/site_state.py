"""What the machine of sites knows of each site and of each of its blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import define, field, frozen

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.demands import as_planned
from gspc_trio.components.provision.planner import BlockView, RunningTasks, refusal
from gspc_trio.components.provision.site_settings import SiteSettings
from gspc_trio.core.demand import WALLTIME_S, TaskGroup
from gspc_trio.core.ids import Counter, RifId
from gspc_trio.records.facts import BlockChanged, SiteChanged

SAME_END_S = 1.5
"""Tasks that end within so many seconds may be the same: jobs tell it in whole seconds, and now and then."""

PAUSED_BY_SOMEBODY = "somebody has paused it"
"""Why a site is paused that did not pause by itself."""

NOBODY_RESUMES = "nobody can resume it here: mend that, or the file of sites, and run again"
"""What people are told of sites that are given up."""


@frozen
class SiteLimits:
    """Times and numbers of the machine of sites.

    Attributes:
        plan_s: seconds between two plans at least.
        held_s: a block that is held for so long is not counted on.
        refused_s, refused_max_s: pause after a refusal, twice as long after each further one, and at most.
        refusals_max: after so many refusals in a row a site is paused.
        without_rif_max: after so many blocks in a row that never had a RIF a site is paused.
    """

    plan_s: float = 1.0
    held_s: float = 300.0
    refused_s: float = 1.0
    refused_max_s: float = 600.0
    refusals_max: int = 10
    without_rif_max: int = 3


@define(eq=False)
class SiteBlock:
    """A block that is not over.

    Attributes:
        block_id, site, nodes, cores, walltime_s: as it is asked for; cores of all nodes together.
        why: for people: why it is asked for.
        wanted_at: when.
        submitted: its submission was begun.
        batch_id: what the batch system calls its job, "" as long as that is not known.
        state: where the batch system says that the job is; None before the submission is answered.
        reason: why it waits.
        held_at: since when it is held, or None.
        ends_at: when the batch system ends it, None as long as it has not begun.
        up: node -> RIF of those that are up; ``was_up`` whether there ever was one.
        used: somebody who does not say what runs holds something of it.
        task_ends: when the walltime of what runs there is over.
        full: all its cores have tasks.
        needed_at: when it last got a task, was planned to get one, or could not as it was full.
        idle_since: since when nothing runs there; None if something does, or it has no RIF yet.
        suspended: it gets no new task.
        ending: why it was ended, "" if it was not.
        told: the last record.
    """

    block_id: str
    site: str
    nodes: int
    cores: int
    walltime_s: float
    why: str
    wanted_at: float
    submitted: bool = False
    batch_id: str = ""
    state: BatchState | None = None
    reason: str = ""
    held_at: float | None = None
    ends_at: float | None = None
    up: dict[int, RifId] = field(factory=dict)
    was_up: bool = False
    used: bool = False
    task_ends: tuple[float, ...] = ()
    full: bool = False
    needed_at: float = 0.0
    idle_since: float | None = None
    suspended: bool = False
    ending: str = ""
    told: BlockChanged | None = None

    def held_until(self, limits: SiteLimits) -> float | None:
        """Return until when it is counted on although it is held, None if it is not held."""
        return None if self.held_at is None else self.held_at + limits.held_s

    def note_running(self, running: Sequence[RunningTasks], now: float) -> None:
        """Note what runs there: whether it got a task since the last time, or has nothing to do."""
        was_full, self.full = self.full, sum(one.cores * one.count for one in running) >= self.cores
        ends = tuple(now + one.rest_s for one in running if one.rest_s)
        got_one = any(all(abs(end - other) > SAME_END_S for other in self.task_ends) for end in ends)
        if got_one or not ends:  # else as they were: those of short tasks move by little each time
            self.task_ends = ends
        if got_one or was_full or self.full:
            self.needed_at = now
        if running or self.used:
            self.idle_since = None
        elif self.was_up and self.idle_since is None:
            self.idle_since = self.needed_at = now

    def view(self, running: Sequence[RunningTasks], now: float, limits: SiteLimits) -> BlockView:
        """Return how the planner sees it."""
        held_until = self.held_until(limits)
        gone = self.was_up and not self.up
        takes = not (self.suspended or self.ending or gone) and (held_until is None or now < held_until)
        is_held_by_somebody = self.used and not running
        return BlockView(
            self.block_id,
            self.cores,
            self.walltime_s,
            self.ends_at,
            running,
            takes_tasks=takes,
            needed_at=now if is_held_by_somebody else self.needed_at,
            idle_since=self.idle_since,
            is_suspended=self.suspended,
        )

    @property
    def size(self) -> str:
        """What people are told of its size."""
        cores = self.cores // self.nodes
        return (
            f"{self.nodes} node{'s' * (self.nodes != 1)} of {cores} core{'s' * (cores != 1)} "
            f"for {self.walltime_s:g} s"
        )

    @property
    def shown(self) -> tuple[str, str]:
        """What people are told: its state, and why."""
        if self.ending:
            return "ending", self.ending
        if self.suspended:
            return "suspended", "no task waits for it: it ends with its last one"
        if self.state is not None:
            return str(self.state), self.reason
        return ("submitted", self.reason) if self.submitted else ("wanted", self.reason or self.why)

    def record(self, now: float, over: str | None = None) -> BlockChanged:
        """Return the record of how it is now; ``over``: why it is over, None if it is not."""
        state, detail = self.shown if over is None else ("over", over)
        return BlockChanged(
            now, self.block_id, self.site, state, self.nodes, self.cores, self.walltime_s,
            len(self.up), self.batch_id, self.ends_at, detail,
        )  # fmt: skip


@define(eq=False)
class KnownSite:
    """A site.

    Attributes:
        name, settings: of it.
        names: of its blocks.
        is_attended: somebody can resume it when it has paused by itself.
        blocks: those that are not over, oldest first.
        paused: why nothing is asked for, "" if it is not paused.
        refusals: in a row; ``refused``: what the last one said.
        retry_at: when something may be asked for again after a refusal, or None.
        without_rif: blocks in a row that never had a RIF.
        is_withdrawn: whether it was told that it brings nothing any more.
        told: the last record, without its time.
    """

    name: str
    settings: SiteSettings
    names: Counter
    is_attended: bool
    blocks: dict[str, SiteBlock] = field(factory=dict)
    paused: str = ""
    refusals: int = 0
    refused: str = ""
    retry_at: float | None = None
    without_rif: int = 0
    is_withdrawn: bool = False
    told: tuple[str, str] = ("", "")

    def may_ask(self, now: float) -> bool:
        """Return whether a block may be asked for."""
        return not self.paused and (self.retry_at is None or self.retry_at <= now)

    @property
    def is_given_up(self) -> bool:
        """Whether it has paused by itself, nobody can resume it, and no block could still run something."""
        if self.is_attended or self.paused in ("", PAUSED_BY_SOMEBODY):
            return False
        return all(block.ending for block in self.blocks.values())

    @property
    def why_paused(self) -> str:
        """What people are told of a site that is paused."""
        return f"site {self.name} is paused: {self.paused}"

    @property
    def shown(self) -> tuple[str, str]:
        """What people are told: its state, and why."""
        if self.paused:
            return "paused", self.paused
        if self.retry_at is not None:
            return "waiting", f"refusal {self.refusals}: {self.refused}"
        return "open", ""

    def record(self, now: float) -> SiteChanged:
        """Return the record of how it is now."""
        provider, slots = self.settings.provider, self.settings.blocks.slots
        return SiteChanged(now, self.name, self.shown[0], provider, slots, self.shown[1])


def why_never(group: TaskGroup, sites: Iterable[KnownSite]) -> str | None:
    """Return why none of the sites will ever run such tasks, None if one of them may."""
    too_large: list[str] = []
    paused: list[str] = []
    for site in sites:
        reason = refusal(as_planned(group, site.settings), site.settings.blocks)
        if reason is not None:
            too_large.append(f"site {site.name}: {reason}")
        elif site.is_given_up:
            paused.append(site.why_paused)
        else:
            return None
    if too_large and group.walltime_s == WALLTIME_S:
        too_large.append(
            f"a task that states no timeout_s or estimate_s is taken for {WALLTIME_S:g} s: state how long "
            "yours takes, or give a site a larger max_time"
        )
    if paused:
        paused.append(NOBODY_RESUMES)
    return "; ".join(too_large + paused)
