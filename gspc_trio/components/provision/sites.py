"""The sites of a run-time system: which blocks are asked for and which are ended, as tasks come and go.

Tasks that wait are planned into the blocks there are, and new blocks are asked for what has no room, at most
once a second. A block that is not over uses a slot of its site, wherever it is. A batch system that refuses
is asked again after a while, and a site at which nothing comes of it is paused until somebody resumes it.
If nobody can, tasks that only such sites could run are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from random import Random
from types import MappingProxyType

from attrs import evolve
from msgspec.structs import replace

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.demands import Demands
from gspc_trio.components.provision.planner import BlockPlan, BlockView, NewBlock, RunningTasks, plan
from gspc_trio.components.provision.removal import TakeDown, removals
from gspc_trio.components.provision.score import SiteOutcome, SiteScores, SiteUse
from gspc_trio.components.provision.site_events import (
    BatchAnswered,
    BatchMoved,
    BlockGone,
    BlockIdle,
    BlockKept,
    BlockUnwanted,
    BlockUsed,
    CancelBlock,
    FilesNotStaged,
    HostsThere,
    NodeEnded,
    NodeServes,
    RefuseDemand,
    SiteAdded,
    SiteAnswered,
    SiteOffers,
    SitePaused,
    SiteRemoved,
    SiteResumed,
    SitesAction,
    SitesEvent,
    SitesStopped,
    SiteWithdrawn,
    SubmitBlock,
    SuspendBlock,
)
from gspc_trio.components.provision.site_state import (
    NOBODY_RESUMES,
    PAUSED_BY_SOMEBODY,
    KnownSite,
    SiteBlock,
    SiteLimits,
    why_never,
)
from gspc_trio.components.provision.throttle import Limit, ThrottleGate, ThrottleKind
from gspc_trio.core.demand import GroupRefused, TaskDemand
from gspc_trio.core.ids import Counter
from gspc_trio.core.machine import IllegalEvent, MachineBase, Tick, handles
from gspc_trio.core.similar import did_you_mean
from gspc_trio.records.facts import SiteChanged

REFUSALS = {
    *(SiteOutcome.REFUSED, SiteOutcome.HOPELESS),
    *(SiteOutcome.CONNECTION_REFUSED, SiteOutcome.TIME_OUT),
}
"""Outcomes of blocks that the batch system has not taken."""


class Sites(MachineBase[SitesEvent, SitesAction]):
    """All sites of a run-time system.

    Args:
        throttles: of all sites together, by name, as far as they differ from the usual ones.
        random: chooses among sites by their scores.
        limits: times and numbers.
        is_attended: somebody can resume a site that has paused by itself.
    """

    noun = "the machine of sites"

    def __init__(
        self,
        throttles: Mapping[str, Limit] = MappingProxyType({}),
        random: Random | None = None,
        limits: SiteLimits | None = None,
        is_attended: bool = True,
    ) -> None:
        super().__init__()
        self._is_attended = is_attended
        self.limits: SiteLimits = limits or SiteLimits()
        self.sites: dict[str, KnownSite] = {}
        self.blocks: dict[str, SiteBlock] = {}
        self.scores: SiteScores = SiteScores()
        self.gate: ThrottleGate = ThrottleGate(throttles)
        self._random = random or Random(0)
        self._demands = Demands()
        self._names: dict[str, Counter] = {}
        self._has_other_hosts = False
        self._stopped = False
        self._planned_at: float | None = None
        self._plan_at: float | None = None
        self._look_at: float | None = None

    # The contract of machines -------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """Return when to plan, or to look again at what changes by itself."""
        if self._stopped:
            return None
        return min((at for at in (self._plan_at, self._look_at) if at is not None), default=None)

    def settle(self) -> None:
        """Submit what may be submitted, and tell how sites are, after any event."""
        for block_id in self.gate.start():
            block = self.blocks[block_id]
            block.submitted = True
            cores = self.sites[block.site].settings.blocks.cores_per_node
            self.actions.append(
                SubmitBlock(block_id, block.site, block.nodes, cores, block.walltime_s, block.why)
            )
            self._tell(block)
        for site in self.sites.values():
            if site.shown != site.told:
                site.told = site.shown
                self.actions.append(site.record(self.now))

    def check(self) -> None:
        """Assert every invariant."""
        self.gate.check()
        assert self.blocks == {key: one for site in self.sites.values() for key, one in site.blocks.items()}
        for block in self.blocks.values():
            assert block.submitted or not (block.up or block.state or block.ending), block
            assert not block.up or block.was_up, block
            assert block.held_at is None or block.state is BatchState.HELD, block
            assert block.idle_since is None or not block.used, block
        for site in self.sites.values():
            waiting = [block for block in site.blocks.values() if not block.submitted]
            assert not waiting or site.may_ask(self.now), site
            assert not site.is_withdrawn or site.is_given_up, site

    def preview(self, now: float) -> dict[str, BlockPlan]:
        """Return what would be planned now, one site after the other, also at those that are paused."""
        self._demands.begin()
        plans = {}
        for name, site in self.sites.items():
            kinds, groups = self._demands.groups(site.settings)
            found = plans[name] = plan(groups, self._views(site, now), site.settings.blocks, now)
            new = (block.tasks for block in found.new_blocks)
            self._demands.take(kinds, chain.from_iterable([*found.given.values(), *new]))
        return plans

    def use(self, site: KnownSite) -> SiteUse:
        """Return how busy a site is."""
        blocks = site.settings.blocks
        rif_ids = [rif_id for block in site.blocks.values() for rif_id in block.up.values()]
        is_full = not blocks.new_blocks_max(len(site.blocks))
        cores = len(rif_ids) * blocks.cores_per_node
        return SiteUse(site.name, self._demands.running_at(rif_ids), cores, is_full)

    def withdrawn(self) -> str:
        """Return what people are told of the sites that bring nothing any more, "" if there are none."""
        words = [one.why_paused for one in self.sites.values() if one.is_withdrawn]
        return "; ".join([*words, NOBODY_RESUMES]) if words else ""

    def running(self, block: SiteBlock, now: float) -> list[RunningTasks]:
        """Return what runs in a block, as jobs have told."""
        return self._demands.running(block.up.values(), self.sites[block.site].settings, now)

    # People ask ---------------------------------------------------------------------------------------------

    @handles(SiteAdded)
    def _added(self, event: SiteAdded) -> None:
        name, settings = event.site, event.settings
        if name in self.sites:
            self._answer(event.ask, f"there is a site {name} already; remove it first")
            return
        try:
            self.gate.set_host(name, settings.throttles)
        except ValueError as error:
            self._answer(event.ask, f"site {name}: {error}")
            return
        names = self._names.setdefault(name, Counter(f"{name}/b"))
        site = self.sites[name] = KnownSite(name, settings, names, self._is_attended, paused=event.paused)
        if site.is_given_up:
            site.paused = ""  # nobody can resume it but by a new start, as this is one
        if event.history:
            self.scores.set_history(name, event.history)
        self._offer(site)
        self._plan_soon()
        self._answer(event.ask)

    @handles(SitePaused)
    def _paused(self, event: SitePaused) -> None:
        site = self._asked_site(event.ask, event.site)
        if site is not None:
            self._pause(site, PAUSED_BY_SOMEBODY)
            self._answer(event.ask)

    @handles(SiteResumed)
    def _resumed(self, event: SiteResumed) -> None:
        site = self._asked_site(event.ask, event.site)
        if site is not None:
            site.paused, site.retry_at = "", None
            site.refusals = site.without_rif = 0
            if site.is_withdrawn:
                self._offer(site)
            self._plan_soon()
            self._answer(event.ask)

    @handles(SiteRemoved)
    def _removed(self, event: SiteRemoved) -> None:
        site = self._asked_site(event.ask, event.site)
        if site is None:
            return
        if site.blocks:
            there = ", ".join(f"{block.block_id} ({block.shown[0]})" for block in site.blocks.values())
            words = "has a block" if len(site.blocks) == 1 else f"has {len(site.blocks)} blocks"
            self._answer(
                event.ask,
                f"site {site.name} {words}: {there}; pause it, and wait for their end or cancel them",
            )
            return
        del self.sites[site.name]
        self.gate.forget_host(site.name)
        self.scores.forget(site.name)
        provider = site.settings.provider
        self.actions.extend(
            [SiteOffers(site.name, 0, 0), SiteChanged(self.now, site.name, "removed", provider)]
        )
        self._answer(event.ask)

    @handles(BlockUnwanted)
    def _unwanted(self, event: BlockUnwanted) -> None:
        block = self.blocks.get(event.block_id)
        if block is None:
            there = ", ".join(self.blocks) or "none"
            self._answer(event.ask, f"there is no block {event.block_id}; there are: {there}")
            return
        self._end(block, "somebody has cancelled it")
        self._answer(event.ask)

    @handles(SitesStopped)
    def _all_stopped(self, _event: SitesStopped) -> None:
        self._stopped = True
        for site in self.sites.values():
            self._drop_waiting(site, "the run-time system stops")

    def _asked_site(self, ask: int, name: str) -> KnownSite | None:
        """Return the site that a question is about; if there is none, say so."""
        site = self.sites.get(name)
        if site is None:
            there = ", ".join(self.sites) or "none"
            near = did_you_mean(name, self.sites)
            self._answer(ask, f"there is no site {name!r}{near}; there are: {there}")
        return site

    def _answer(self, ask: int, refusal: str = "") -> None:
        self.actions.append(SiteAnswered(ask, refusal))

    def _offer(self, site: KnownSite) -> None:
        blocks, site.is_withdrawn = site.settings.blocks, False
        self.actions.append(SiteOffers(site.name, blocks.nodes_max, blocks.cores_per_node))

    def _pause(self, site: KnownSite, reason: str) -> None:
        site.paused = site.paused or reason
        self._drop_waiting(site, f"the site is paused: {reason}")

    def _drop_waiting(self, site: KnownSite, reason: str) -> None:
        """Give up blocks that were not submitted yet."""
        for block in [block for block in site.blocks.values() if not block.submitted]:
            self._forget(block, reason)

    # Jobs say -----------------------------------------------------------------------------------------------

    @handles(TaskDemand)
    def _demand(self, event: TaskDemand) -> None:
        self._demands.say(event, self.now)
        if event.ended:
            sites = {rif_id: one.site for one in self.blocks.values() for rif_id in one.up.values()}
            for ended in event.ended:
                if ended.rif_id in sites:
                    self.scores.count(sites[ended.rif_id], SiteOutcome.SUCCESS, self.now, ended.count)
        if not self._demands.has_waiting:
            for site in self.sites.values():
                self._drop_waiting(site, "no task waits for it any more")
        self._plan_soon()

    @handles(HostsThere)
    def _hosts_there(self, event: HostsThere) -> None:
        self._has_other_hosts = event.there
        self._plan_soon()

    # What becomes of blocks ---------------------------------------------------------------------------------

    @handles(BlockKept)
    def _kept(self, event: BlockKept) -> None:
        site, block_id = self.sites.get(event.site), event.block_id
        if site is None or block_id in self.blocks:
            raise IllegalEvent(
                f"{block_id} of site {event.site}: there is no such site, or it is there already"
            )
        number = block_id.removeprefix(site.names.prefix)
        if number.isdecimal():
            site.names.last = max(site.names.last, int(number))
        cores, why = event.nodes * event.cores, "an earlier run-time system has asked for it"
        block = SiteBlock(
            block_id, site.name, event.nodes, cores, event.walltime_s, why, self.now, needed_at=self.now
        )
        block.submitted = True
        self.blocks[block_id] = site.blocks[block_id] = block
        self.gate.adopt(block_id, ThrottleKind.JOB, site.name)
        self._tell(block)
        self._plan_soon()

    @handles(BatchAnswered)
    def _submitted(self, event: BatchAnswered) -> None:
        block = self._submitted_block(event.block_id)
        if block is None:
            return
        self.gate.submitted(block.block_id)
        if event.batch_id:
            block.batch_id = event.batch_id
            site = self.sites[block.site]
            site.refusals, site.retry_at = 0, None
        else:
            block.reason = event.why or "the batch system did not say whether it has taken the job"
        self._tell(block)

    @handles(BatchMoved)
    def _moved(self, event: BatchMoved) -> None:
        block = self._submitted_block(event.block_id)
        if block is None:
            return
        block.state, block.reason = event.state, event.reason
        block.batch_id = event.batch_id or block.batch_id
        if event.state is not BatchState.HELD:
            block.held_at = None
        elif block.held_at is None:
            block.held_at = self.now
        if event.state is BatchState.RUNNING and block.ends_at is None:
            block.ends_at = self.now + block.walltime_s
        elif event.state in (BatchState.QUEUED, BatchState.HELD) and not block.up:
            block.ends_at = None  # it was put back into the queue
        self._tell(block)
        if event.is_hopeless and not block.ending and not block.up:  # what is up runs, whatever is said
            words = f"{block.block_id} can never run as it was asked for ({block.size}): {event.reason}"
            self._end(block, words)
            self._pause(self.sites[block.site], words)
        self._plan_soon()

    @handles(NodeServes)
    def _node_up(self, event: NodeServes) -> None:
        block = self._submitted_block(event.block_id)
        if block is None:
            return
        if not 0 <= event.node < block.nodes:
            raise IllegalEvent(f"{block.block_id} has {block.nodes} nodes: {event.node} is none of them")
        self.gate.submitted(block.block_id)
        if not block.was_up:
            block.needed_at = self.now
            block.idle_since = None if block.used else self.now
            self.sites[block.site].without_rif = 0
            self.scores.count(block.site, SiteOutcome.SUCCESS, self.now)
        block.up[event.node], block.was_up = event.rif_id, True
        block.state, block.reason, block.held_at = BatchState.RUNNING, "", None
        if event.ends_at is not None:
            block.ends_at = event.ends_at
        elif block.ends_at is None:
            block.ends_at = self.now + block.walltime_s
        self._tell(block)
        self._plan_soon()

    @handles(NodeEnded)
    def _node_lost(self, event: NodeEnded) -> None:
        block = self.blocks.get(event.block_id)
        if block is None or block.up.pop(event.node, None) is None:
            return
        reserve_s = self.sites[block.site].settings.blocks.reserve_s
        ends = block.ends_at is not None and self.now >= block.ends_at - reserve_s
        if not (block.ending or block.suspended or ends):
            self.scores.count(block.site, SiteOutcome.LOSS, self.now)
        self._tell(block)
        self._plan_soon()

    @handles(FilesNotStaged)
    def _not_staged(self, event: FilesNotStaged) -> None:
        block = self.blocks.get(event.block_id)
        if block is not None:
            self.scores.count(block.site, SiteOutcome.STAGING_FAILED, self.now)
            self._plan_soon()

    @handles(BlockUsed)
    def _used(self, event: BlockUsed) -> None:
        block = self.blocks.get(event.block_id)
        if block is not None:
            block.used, block.idle_since, block.needed_at = True, None, self.now
            self._plan_soon()

    @handles(BlockIdle)
    def _idle(self, event: BlockIdle) -> None:
        block = self.blocks.get(event.block_id)
        if block is not None:
            block.used = False
            block.note_running((), self.now)
            self._plan_soon()

    @handles(BlockGone)
    def _over(self, event: BlockGone) -> None:
        block = self._submitted_block(event.block_id)
        if block is None:
            return
        site = self.sites[block.site]
        self._forget(block, event.reason)
        if block.was_up or block.ending or self._stopped:
            return
        outcome = event.outcome or SiteOutcome.BLOCK_WITHOUT_RIF
        self.scores.count(site.name, outcome, self.now)
        if outcome in REFUSALS:
            self._refused(site, event.reason, outcome is SiteOutcome.HOPELESS)
        else:
            site.without_rif += 1
            if site.without_rif >= self.limits.without_rif_max:
                words = f"{site.without_rif} blocks without any RIF, the last one: {event.reason}"
                self._pause(site, words)

    def _refused(self, site: KnownSite, reason: str, is_hopeless: bool) -> None:
        """The batch system has refused a block: ask again after a while, or not before somebody says so."""
        site.refusals, site.refused = site.refusals + 1, reason
        pause_s = min(self.limits.refused_s * 2.0 ** (site.refusals - 1), self.limits.refused_max_s)
        site.retry_at = self.now + pause_s
        self._drop_waiting(site, f"{site.name} has refused another block: {reason}")
        if is_hopeless:
            self._pause(site, reason)
        elif site.refusals >= self.limits.refusals_max:
            self._pause(site, f"{site.refusals} refusals, the last one: {reason}")

    def _submitted_block(self, block_id: str) -> SiteBlock | None:
        """Return a block that was submitted, None if it is over."""
        block = self.blocks.get(block_id)
        if block is not None and not block.submitted:
            raise IllegalEvent(f"{block_id} was not submitted yet")
        return block

    def _end(self, block: SiteBlock, reason: str) -> None:
        """End a block, whatever of it there is."""
        if not block.submitted:
            self._forget(block, reason)
        elif not block.ending:
            block.ending = reason
            self.actions.append(CancelBlock(block.block_id, reason))
            self._tell(block)

    def _forget(self, block: SiteBlock, reason: str) -> None:
        """Nothing is left of a block: its slot is free."""
        self.gate.ended(block.block_id)
        del self.blocks[block.block_id]
        del self.sites[block.site].blocks[block.block_id]
        block.up.clear()
        self.actions.append(block.record(self.now, reason))
        self._plan_soon()

    def _tell(self, block: SiteBlock) -> None:
        record = block.record(self.now)
        if block.told is None or replace(block.told, at_s=self.now) != record:
            block.told = record
            self.actions.append(record)

    # Planning -----------------------------------------------------------------------------------------------

    def _plan_soon(self) -> None:
        if self._plan_at is None and not self._stopped:
            last = self._planned_at
            self._plan_at = self.now if last is None else max(self.now, last + self.limits.plan_s)

    @handles(Tick)
    def _tick(self, _event: Tick) -> None:
        due = self.deadline()
        if due is not None and due <= self.now:
            self._planned_at, self._plan_at, self._look_at = self.now, None, None
            for site in self.sites.values():
                if site.retry_at is not None and site.retry_at <= self.now:
                    site.retry_at = None
            self._plan()
            self._look_at = min(self._dates(), default=None)

    def _dates(self) -> Iterator[float]:
        """Yield times at which a plan may be another one though nothing has happened."""
        if self._look_at is not None:
            yield self._look_at
        for site in self.sites.values():
            if site.retry_at is not None:
                yield site.retry_at
        for block in self.blocks.values():
            held_until = block.held_until(self.limits)
            if held_until is not None and held_until > self.now:
                yield held_until
        if (free_at := self.scores.deadline(self.now)) is not None:
            yield free_at

    def _plan(self) -> None:
        """Give each block what it has room for, ask for blocks for the rest, and end those nobody needs."""
        self._refuse_impossible()
        for site in self.sites.values():
            if site.is_given_up and not site.is_withdrawn:
                site.is_withdrawn = True
                self.actions.append(SiteWithdrawn(site.name))
        self._demands.begin()
        filled = {name: self._fill(site) for name, site in self.sites.items() if site.blocks}
        without_room = {name: self._demands.left_for(self.sites[name].settings) for name in filled}
        self._ask_for_blocks()
        for name, (views, found) in filled.items():
            self._take_down(self.sites[name], views, evolve(found, unplaced=without_room[name]))

    def _refuse_impossible(self) -> None:
        """Refuse what no site can ever run, and what none will, if no other host is there that may."""
        if self._has_other_hosts or not self.sites:
            return
        for job, group in self._demands.new_groups():
            reason = why_never(group, self.sites.values())
            if reason is not None:
                self._demands.refuse(job, group)
                self.actions.append(RefuseDemand(job, GroupRefused(group, reason)))

    def _fill(self, site: KnownSite) -> tuple[list[BlockView], BlockPlan]:
        """Put tasks that wait into the blocks of a site; return these as they are planned, and the plan."""
        now, settings = self.now, site.settings
        for block in site.blocks.values():
            block.note_running(self.running(block, now), now)
        views = self._views(site, now)
        kinds, groups = self._demands.groups(settings)
        filling = evolve(settings.blocks, slots=1)  # no new ones yet: blocks of other sites may have room
        found = plan(groups, views, filling, now)
        for block_id, given in found.given.items():
            site.blocks[block_id].needed_at = now
            self._demands.take(kinds, given)
        return views, found

    def _views(self, site: KnownSite, now: float) -> list[BlockView]:
        """Return the blocks of a site as they are planned."""
        return [block.view(self.running(block, now), now, self.limits) for block in site.blocks.values()]

    def _ask_for_blocks(self) -> None:
        """Ask for blocks for what has no room, at sites chosen by their scores."""
        candidates = {name: site for name, site in self.sites.items() if site.may_ask(self.now)}
        while candidates:
            wanted = [site for site in candidates.values() if self._demands.left_for(site.settings)]
            uses = [self.use(site) for site in wanted]
            name = self.scores.choose(uses, self._random, self.now) if uses else None
            if name is None:
                return
            site = candidates.pop(name)
            kinds, groups = self._demands.groups(site.settings)
            # What there is has been filled, and counts as used.
            views = [
                evolve(block.view((), self.now, self.limits), takes_tasks=False)
                for block in site.blocks.values()
            ]
            for new in plan(groups, views, site.settings.blocks, self.now).new_blocks:
                self._want(site, new)
                self._demands.take(kinds, new.tasks)

    def _want(self, site: KnownSite, new: NewBlock) -> None:
        block_id = site.names.next_name()
        block = SiteBlock(
            block_id, site.name, new.nodes, new.cores, new.walltime_s, new.why, self.now, needed_at=self.now
        )
        self.blocks[block_id] = site.blocks[block_id] = block
        self.gate.want(block_id, ThrottleKind.JOB, site.name)
        self._tell(block)

    def _take_down(self, site: KnownSite, views: list[BlockView], found: BlockPlan) -> None:
        """End the blocks of a site that nobody needs."""
        there = [view for view in views if not site.blocks[view.block_id].ending]
        removed = removals(there, found, site.settings.blocks, self.now)
        for removal in removed.blocks:
            block = site.blocks[removal.block_id]
            if removal.how is not TakeDown.SUSPEND:
                self._end(block, removal.reason)
                continue
            block.suspended = True
            self.actions.append(SuspendBlock(block.block_id))
            self._tell(block)
        if removed.check_at is not None:
            self._look_at = min(removed.check_at, self._look_at or math.inf)
