"""The machine of sites against a naive model."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.score import SiteOutcome
from gspc_trio.components.provision.site_events import (
    BatchAnswered,
    BatchMoved,
    BlockGone,
    BlockIdle,
    BlockUsed,
    CancelBlock,
    NodeEnded,
    NodeServes,
    SiteAdded,
    SiteOffers,
    SitePaused,
    SiteResumed,
    SitesEvent,
    SiteWithdrawn,
    SubmitBlock,
    SuspendBlock,
)
from gspc_trio.components.provision.site_settings import site_settings
from gspc_trio.components.provision.sites import Sites
from gspc_trio.core.demand import TaskDemand, TaskGroup
from gspc_trio.core.machine import Tick
from gspc_trio.records.facts import SiteChanged
from tests.components.provision.site_bench import FOUR_CORES


class SitesAgainstModel(RuleBasedStateMachine):
    """A batch system that does anything, and a naive model of what may be asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.sites = Sites()
        self.is_attended = True
        self.now = 0.0
        self.slots = {"a": 1, "b": 3}
        self.offered: set[str] = set()
        self.paused: set[str] = set()
        self.alive: dict[str, str] = {}
        self.up: set[str] = set()
        self.cancelled: set[str] = set()
        self.wanted = 0
        self.asked_at: dict[str, float] = {}

    @initialize(is_attended=st.booleans())
    def begin(self, is_attended: bool) -> None:
        self.sites = Sites(is_attended=is_attended)
        self.is_attended = is_attended
        for name, slots in self.slots.items():
            given = FOUR_CORES | {"slots": slots, "allocation_step": 1}
            self.do(SiteAdded(0, name, site_settings(name, given)))

    def do(self, event: SitesEvent) -> None:
        for action in self.sites.handle(event, self.now):
            if isinstance(action, SubmitBlock):
                assert action.site not in self.paused, "asked while paused"
                assert self.wanted, "asked without demand"
                assert action.block_id not in self.alive
                self.alive[action.block_id] = action.site
                self.asked_at[action.block_id] = self.now
            elif isinstance(action, CancelBlock | SuspendBlock):
                assert action.block_id in self.alive
                if isinstance(action, CancelBlock):
                    self.up.discard(action.block_id)  # its hosts get nothing any more
                    self.cancelled.add(action.block_id)
            elif isinstance(action, SiteChanged):
                (self.paused.add if action.state == "paused" else self.paused.discard)(action.site)
            elif isinstance(action, SiteOffers):
                assert action.site not in self.offered, "offered twice"
                self.offered.add(action.site)
            elif isinstance(action, SiteWithdrawn):
                assert not self.is_attended, "somebody can resume it"
                assert not any(self.alive[block] == action.site for block in self.up), "it has hosts"
                self.offered.remove(action.site)
        self.sites.check()

    @rule(count=st.integers(0, 500), walltime_s=st.sampled_from([1.0, 600.0, 7000.0]))
    def demand(self, count: int, walltime_s: float) -> None:
        self.wanted = count
        self.do(TaskDemand("j1", (TaskGroup(walltime_s, count=count),) if count else ()))

    @rule(seconds=st.sampled_from([0.1, 1.0, 35.0, 301.0]))
    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.sites.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.do(Tick())
        self.now = end

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), state=st.sampled_from([BatchState.QUEUED, BatchState.HELD, BatchState.RUNNING]))
    def move(self, data: st.DataObject, state: BatchState) -> None:
        block = data.draw(st.sampled_from(sorted(self.alive)))
        self.do(BatchAnswered(block, "1"))
        self.do(BatchMoved(block, state, is_hopeless=data.draw(st.integers(0, 9)) == 0))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def node_up(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.alive)))
        if block not in self.cancelled:
            self.up.add(block)
        self.do(NodeServes(block, 0, f"r{block}"))
        if data.draw(st.booleans()):
            self.do(BlockUsed(block))

    @precondition(lambda self: self.up)
    @rule(data=st.data(), lost=st.booleans())
    def node_idle(self, data: st.DataObject, lost: bool) -> None:
        block = data.draw(st.sampled_from(sorted(self.up)))
        self.do(BlockIdle(block))
        if lost:
            self.do(NodeEnded(block, 0, "lost"))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), outcome=st.sampled_from([None, SiteOutcome.REFUSED, SiteOutcome.HOPELESS]))
    def over(self, data: st.DataObject, outcome: SiteOutcome | None) -> None:
        block = data.draw(st.sampled_from(sorted(self.alive)))
        del self.alive[block]
        self.up.discard(block)
        self.do(BlockGone(block, "over", outcome))

    @rule(name=st.sampled_from(["a", "b"]), pause=st.booleans())
    def pause(self, name: str, pause: bool) -> None:
        self.do(SitePaused(1, name) if pause else SiteResumed(1, name))

    @invariant()
    def what_may_be_asked_for_is_offered(self) -> None:
        assert self.offered >= {name for name in self.slots if name not in self.paused}

    @invariant()
    def slots_are_kept(self) -> None:
        for name, slots in self.slots.items():
            there = [block for block in self.sites.blocks.values() if block.site == name]
            assert len(there) <= slots, "more blocks than slots"
        assert {block.block_id for block in self.sites.blocks.values() if block.submitted} == set(self.alive)


SitesAgainstModel.TestCase.settings = hypothesis_settings(max_examples=40, stateful_step_count=30)
test_sites_against_a_naive_model = SitesAgainstModel.TestCase
