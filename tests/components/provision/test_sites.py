"""The machine of sites: by its events and whole action lists, and against a naive model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.score import SiteOutcome, SiteScores
from gspc_trio.components.provision.site_events import (
    BatchAnswered,
    BatchMoved,
    BlockGone,
    BlockIdle,
    BlockKept,
    BlockUnwanted,
    BlockUsed,
    CancelBlock,
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
    SubmitBlock,
    SuspendBlock,
)
from gspc_trio.components.provision.site_settings import site_settings
from gspc_trio.components.provision.sites import Sites
from gspc_trio.core.demand import GroupRefused, RunningGroup, TaskDemand, TaskGroup
from gspc_trio.core.machine import IllegalEvent, Tick
from gspc_trio.records.facts import BlockChanged, SiteChanged

FOUR_CORES = {"provider": "slurm", "max_time": "2h", "max_nodes": 2, "cores_per_node": 4}
ONE_SLOT = FOUR_CORES | {"slots": 1}


class Bench:
    """The machine with a clock."""

    def __init__(self, is_attended: bool = True, **sites: dict[str, object]) -> None:
        self.sites = Sites(is_attended=is_attended)
        self.now = 0.0
        self.asks = 0
        for name, given in sites.items():
            self.do(SiteAdded(0, name, site_settings(name, given)))
        self.until(0.0)

    def do(self, event: SitesEvent) -> list[SitesAction]:
        actions = self.sites.handle(event, self.now)
        self.sites.check()
        return actions

    def until(self, now: float) -> list[SitesAction]:
        """Let time pass; return what was done meanwhile."""
        actions: list[SitesAction] = []
        while (due := self.sites.deadline()) is not None and due <= now:
            self.now = max(self.now, due)
            actions += self.do(Tick())
        self.now = now
        return actions

    def demand(self, *groups: TaskGroup, running: Sequence[RunningGroup] = ()) -> list[SitesAction]:
        """A job says what it needs; return what follows within a second."""
        return self.do(TaskDemand("j1", groups, tuple(running))) + self.until(self.now + 1)

    def state(self, block_id: str) -> str:
        return self.sites.blocks[block_id].shown[0]


class ScoresOfNobody(SiteScores):
    """Scores that forget: what bans a site is not what is looked at."""

    def count(self, site: str, outcome: SiteOutcome, now: float) -> None:
        del site, outcome, now


def of(kind: type, actions: Sequence[SitesAction]) -> list[Any]:
    return [action for action in actions if isinstance(action, kind)]


def words(actions: Sequence[SitesAction]) -> list[str]:
    """Return block and state of each record of a block, and the names of other actions."""
    return [
        f"{action.block_id} {action.state}" if isinstance(action, BlockChanged) else type(action).__name__
        for action in actions
    ]


def started(bench: Bench, block_id: str = "a/b1") -> None:
    """A block is submitted, and its only node is up."""
    bench.do(BatchAnswered(block_id, "17"))
    bench.do(BatchMoved(block_id, BatchState.RUNNING))
    bench.do(NodeServes(block_id, 0, "r5", bench.now + 7200))
    bench.until(bench.now)


def test_demand_is_met_by_one_block_which_ends_when_nobody_needs_it() -> None:
    bench = Bench(a=ONE_SLOT)
    asked = bench.demand(TaskGroup(100.0, count=4))
    assert words(asked) == ["a/b1 wanted", "SubmitBlock", "a/b1 submitted"]
    (submit,) = of(SubmitBlock, asked)
    assert (submit.block_id, submit.site, submit.nodes, submit.cores) == ("a/b1", "a", 1, 4)
    assert submit.walltime_s == pytest.approx(10 * 100.0 + 60, rel=0.2)
    assert words(bench.do(BatchAnswered("a/b1", "17"))) == ["a/b1 submitted"]
    assert words(bench.do(BatchMoved("a/b1", BatchState.QUEUED, "Priority"))) == ["a/b1 queued"]
    assert of(SubmitBlock, bench.until(500)) == [], "it is waited for, however long it is queued"
    bench.do(BatchMoved("a/b1", BatchState.RUNNING))
    (up,) = of(BlockChanged, bench.do(NodeServes("a/b1", 0, "r5", 1600.0)))
    assert (up.state, up.up, up.batch_id, up.ends_at_s) == ("running", 1, "17", 1600.0)
    bench.do(BlockUsed("a/b1"))
    bench.demand(running=[RunningGroup("r5", 100.0, count=4)])
    bench.until(520)
    bench.do(BlockIdle("a/b1"))
    assert of(CancelBlock, bench.demand() + bench.until(549)) == []
    ended = bench.until(600)
    assert of(CancelBlock, ended) == [CancelBlock("a/b1", "no task waits for it, and none has for 30 s")]
    assert words(bench.do(BlockGone("a/b1", "it was cancelled"))) == ["a/b1 over"]
    assert not bench.sites.blocks
    assert bench.until(10_000) == []


def test_nothing_is_asked_for_without_a_site_or_without_demand() -> None:
    bench = Bench()
    assert bench.demand(TaskGroup(1.0)) == []
    bench.do(SiteAdded(1, "a", site_settings("a", FOUR_CORES)))
    assert bench.do(TaskDemand("j1")) == []
    assert of(SubmitBlock, bench.until(1000)) == []


def test_a_site_that_is_added_offers_its_nodes_and_meets_demand_of_before() -> None:
    bench = Bench()
    bench.demand(TaskGroup(1.0))
    assert bench.do(SiteAdded(7, "a", site_settings("a", FOUR_CORES))) == [
        SiteOffers("a", 2, 4),
        SiteAnswered(7),
        SiteChanged(1.0, "a", "open", "slurm", 20),
    ]
    assert len(of(SubmitBlock, bench.until(3))) >= 1


def test_never_more_than_one_plan_a_second() -> None:
    bench = Bench(a=FOUR_CORES)
    bench.demand(TaskGroup(100.0, count=10_000))
    first = len(bench.sites.blocks)
    for count in range(20):
        bench.do(TaskDemand("j1", (TaskGroup(100.0, count=10_000 + count),)))
        bench.until(1.0 + count / 100)
    assert first == 2
    assert len(bench.sites.blocks) <= 4


def test_no_more_blocks_than_slots_and_two_submissions_at_a_time() -> None:
    bench = Bench(a=FOUR_CORES | {"slots": 5, "allocation_step": 1})
    submits = of(SubmitBlock, bench.demand(TaskGroup(7000.0, count=1000)))
    assert len(bench.sites.blocks) == 5
    assert len(submits) == 2, "host_job_submit is 2"
    assert len(of(SubmitBlock, bench.do(BatchAnswered(submits[0].block_id, "1")))) == 1
    bench.until(100)
    assert len(bench.sites.blocks) == 5


def test_running_tasks_take_the_room_of_those_that_wait() -> None:
    bench = Bench(a=ONE_SLOT | {"slots": 2})
    bench.demand(TaskGroup(100.0, count=4))
    started(bench)
    bench.do(BlockUsed("a/b1"))
    busy = [RunningGroup("r5", 100.0, count=4)]
    assert len(of(SubmitBlock, bench.demand(TaskGroup(100.0, count=4), running=busy))) == 1


def test_what_no_site_can_run_is_refused_at_once_with_both_numbers() -> None:
    bench = Bench(a=ONE_SLOT)
    long, wide, fits = TaskGroup(9000.0), TaskGroup(10.0, cores=9), TaskGroup(10.0, cores=0, nodes=2)
    refused = of(RefuseDemand, bench.demand(long, wide, fits))
    assert [action.refused.group for action in refused] == [long, wide]
    assert "9000 s" in refused[0].refused.reason
    assert "7140 s" in refused[0].refused.reason
    assert "9 cores" in refused[1].refused.reason
    assert "at most 8" in refused[1].refused.reason
    assert len(bench.sites.blocks) == 1, "what fits is waited for"
    assert of(RefuseDemand, bench.until(100)) == []


def test_what_another_host_may_run_is_not_refused() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.do(HostsThere(there=True))
    assert of(RefuseDemand, bench.demand(TaskGroup(9000.0))) == []
    bench.do(HostsThere(there=False))
    assert len(of(RefuseDemand, bench.until(10))) == 1


def test_refusals_are_followed_by_longer_and_longer_pauses_and_then_the_site_is_paused() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.sites.scores = ScoresOfNobody()
    bench.demand(TaskGroup(100.0))
    times = [bench.now]
    for _ in range(9):
        (block_id,) = bench.sites.blocks
        refused = bench.do(BlockGone(block_id, "invalid partition", SiteOutcome.REFUSED))
        assert of(SiteChanged, refused)[0].state == "waiting"
        asked_from = bench.now
        while not bench.sites.blocks:
            due = bench.sites.deadline()
            assert due is not None
            bench.until(due)
        times.append(bench.now - asked_from)
    assert times[1:] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    (block_id,) = bench.sites.blocks
    (paused,) = of(SiteChanged, bench.do(BlockGone(block_id, "invalid partition", SiteOutcome.REFUSED)))
    assert (paused.state, paused.detail) == ("paused", "10 refusals, the last one: invalid partition")
    assert of(SubmitBlock, bench.until(100_000)) == []
    bench.do(SiteResumed(1, "a"))
    assert len(of(SubmitBlock, bench.until(bench.now + 2))) == 1


def test_three_blocks_without_a_rif_pause_the_site_and_one_that_had_run_begins_anew() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.sites.scores = ScoresOfNobody()
    bench.demand(TaskGroup(100.0))
    for number, runs in enumerate([False, False, True, False, False], 1):
        if runs:
            started(bench, f"a/b{number}")
        bench.do(BlockGone(f"a/b{number}", "it ended"))
        bench.until(bench.now + 5)
        assert f"a/b{number + 1}" in bench.sites.blocks
    paused = of(SiteChanged, bench.do(BlockGone("a/b6", "node has no python")))
    assert [record.detail for record in paused] == [
        "3 blocks without any RIF, the last one: node has no python"
    ]
    assert of(SubmitBlock, bench.until(10_000)) == []


def test_what_can_never_run_is_cancelled_and_the_site_is_paused_with_the_reason() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(100.0))
    bench.do(BatchAnswered("a/b1", "17"))
    actions = bench.do(BatchMoved("a/b1", BatchState.QUEUED, "PartitionConfig", is_hopeless=True))
    why = "a/b1 can never run as it was asked for (1 node of 4 cores for 960 s): PartitionConfig"
    assert CancelBlock("a/b1", why) in actions
    assert SiteChanged(1.0, "a", "paused", "slurm", 1, why) in actions
    bench.do(BlockGone("a/b1", "cancelled"))
    assert of(SubmitBlock, bench.until(1000)) == []


NOBODY = "nobody can resume it here: mend that, or the file of sites, and run again"


def hopeless(bench: Bench, block_id: str) -> list[SitesAction]:
    """The batch system says of a block that it can never run; return what follows within two seconds."""
    bench.do(BatchAnswered(block_id, "17"))
    moved = bench.do(BatchMoved(block_id, BatchState.QUEUED, "PartitionConfig", is_hopeless=True))
    return moved + bench.until(bench.now + 2)


def test_tasks_are_refused_when_all_sites_have_paused_and_nobody_can_resume_one() -> None:
    bench = Bench(is_attended=False, a=ONE_SLOT)
    group = TaskGroup(100.0)
    bench.demand(group)
    why = "a/b1 can never run as it was asked for (1 node of 4 cores for 960 s): PartitionConfig"
    record = bench.sites.blocks["a/b1"].record(1.0)
    queued = replace(record, state="ending", batch_id="17", detail=why)
    refused = RefuseDemand("j1", GroupRefused(group, f"site a is paused: {why}; {NOBODY}"))
    assert hopeless(bench, "a/b1") == [
        replace(queued, state="queued", detail="PartitionConfig"),
        CancelBlock("a/b1", why),
        queued,
        SiteChanged(1.0, "a", "paused", "slurm", 1, why),
        refused,
    ]
    assert bench.until(1000) == [], "it is said once"
    assert bench.demand(group, group) == [refused, refused], "what comes later is refused, too"
    bench.do(SiteResumed(1, "a"))
    bench.do(BlockGone("a/b1", "cancelled"))
    assert words(bench.demand(group)) == ["a/b2 wanted", "SubmitBlock", "a/b2 submitted"]


def test_tasks_wait_for_a_paused_site_if_somebody_can_resume_it() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(100.0))
    assert of(RefuseDemand, hopeless(bench, "a/b1") + bench.until(10_000)) == []


def test_tasks_wait_for_a_site_that_a_person_has_paused() -> None:
    bench = Bench(is_attended=False, a=ONE_SLOT)
    bench.do(SitePaused(1, "a"))
    assert of(RefuseDemand, bench.demand(TaskGroup(100.0)) + bench.until(10_000)) == []


def test_tasks_wait_as_long_as_anything_else_could_run_them() -> None:
    bench = Bench(is_attended=False, a=ONE_SLOT | {"slots": 2}, b=ONE_SLOT | {"max_time": "1h"})
    short, long = TaskGroup(100.0), TaskGroup(7000.0, count=8)
    bench.do(HostsThere(there=True))
    bench.demand(long)
    assert list(bench.sites.blocks) == ["a/b1"]
    started(bench)
    bench.demand(long, TaskGroup(6999.0, count=8))
    assert list(bench.sites.blocks) == ["a/b1", "a/b2"]
    assert of(RefuseDemand, hopeless(bench, "a/b2")) == [], "another host may run it"
    bench.do(HostsThere(there=False))
    assert of(RefuseDemand, bench.demand(short, long)) == [], "there is a block"
    bench.do(BlockGone("a/b1", "its time is over"))
    (refused,) = of(RefuseDemand, bench.until(bench.now + 2))
    assert refused.refused.group == long, "b could run the others"
    too_long, paused, nobody = refused.refused.reason.split("; ")
    assert too_long.startswith("site b: a task of 7000 s does not fit")
    assert paused.startswith("site a is paused: a/b2 can never run")
    assert nobody == NOBODY


@pytest.mark.parametrize(
    ("outcome", "count", "words"),
    [
        (SiteOutcome.REFUSED, 10, "10 refusals, the last one: no such queue"),
        (None, 3, "3 blocks without any RIF, the last one: no such queue"),
    ],
)
def test_tasks_are_refused_after_blocks_of_which_nothing_has_come(
    outcome: SiteOutcome | None, count: int, words: str
) -> None:
    bench = Bench(is_attended=False, a=ONE_SLOT)
    actions = bench.demand(TaskGroup(100.0))
    for _ in range(count):
        while not bench.sites.blocks:
            due = bench.sites.deadline()
            assert due is not None
            bench.until(due)
        assert of(RefuseDemand, actions) == []
        actions = bench.do(BlockGone(next(iter(bench.sites.blocks)), "no such queue", outcome))
    (refused,) = of(RefuseDemand, bench.until(bench.now + 2))
    assert refused.refused.reason == f"site a is paused: {words}; {NOBODY}"


def test_a_new_start_that_nobody_attends_asks_a_site_again_that_had_paused_by_itself() -> None:
    for is_attended, paused, state in [
        (False, "10 refusals", ""),
        (True, "10 refusals", "10 refusals"),
        (False, "somebody has paused it", "somebody has paused it"),
    ]:
        bench = Bench(is_attended=is_attended)
        bench.do(SiteAdded(0, "a", site_settings("a", ONE_SLOT), paused))
        assert bench.sites.sites["a"].paused == state


def test_a_held_block_keeps_its_slot_and_is_not_counted_on_after_300_s() -> None:
    bench = Bench(a=ONE_SLOT | {"slots": 2, "allocation_step": 0.5})
    bench.demand(TaskGroup(100.0))
    bench.do(BatchAnswered("a/b1", "17"))
    bench.do(BatchMoved("a/b1", BatchState.HELD, "JobHeldUser"))
    assert of(SubmitBlock, bench.until(300)) == []
    assert bench.state("a/b1") == "held"
    (other,) = of(SubmitBlock, bench.until(310))
    assert other.block_id == "a/b2"
    bench.do(BatchMoved("a/b2", BatchState.HELD))
    assert of(SubmitBlock, bench.until(1000)) == [], "both slots are used"


def test_a_block_with_a_last_task_is_suspended_and_ends_with_it() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(3000.0))
    started(bench)
    bench.do(BlockUsed("a/b1"))
    running = [RunningGroup("r5", 3000.0)]
    assert words(bench.demand(running=running) + bench.until(100)) == ["SuspendBlock", "a/b1 suspended"]
    bench.do(BlockIdle("a/b1"))
    (cancel,) = of(CancelBlock, bench.demand())
    assert cancel.reason == "it is suspended, and its last task has ended"


def test_a_block_is_idle_when_nothing_runs_there_although_its_job_keeps_its_grants() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(100.0))
    started(bench)
    bench.demand(running=[RunningGroup("r5", 100.0)])
    bench.until(20)
    bench.demand(running=[RunningGroup("r5", 100.0)])
    assert of(SuspendBlock, bench.until(45)) == [], "it got another task, which ends later than the first"
    bench.demand()
    assert of(CancelBlock, bench.until(74)) == []
    assert of(CancelBlock, bench.until(80)) == [
        CancelBlock("a/b1", "no task waits for it, and none has for 30 s")
    ]


def test_what_a_job_holds_without_a_task_is_not_ended() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(100.0))
    started(bench)
    bench.do(BlockUsed("a/b1"))
    bench.demand()
    assert of(CancelBlock, bench.until(1000)) == []


def test_a_queued_block_that_nobody_needs_any_more_is_cancelled() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(100.0))
    bench.do(BatchAnswered("a/b1", "17"))
    bench.do(BatchMoved("a/b1", BatchState.QUEUED))
    (cancel,) = of(CancelBlock, bench.demand() + bench.until(100))
    assert cancel.block_id == "a/b1"


def test_a_paused_site_asks_for_nothing_and_gives_up_what_was_not_submitted() -> None:
    bench = Bench(a=FOUR_CORES | {"slots": 5, "allocation_step": 1})
    bench.demand(TaskGroup(7000.0, count=1000))
    actions = bench.do(SitePaused(3, "a"))
    assert words(actions).count("SiteAnswered") == 1
    assert len(bench.sites.blocks) == 2, "those that were submitted"
    assert of(SubmitBlock, bench.until(100)) == []
    bench.do(SiteResumed(4, "a"))
    bench.until(102)
    assert len(bench.sites.blocks) == 5


def test_a_site_in_use_is_not_removed_and_one_line_says_why() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(100.0))
    (answer,) = bench.do(SiteRemoved(1, "a"))
    assert answer == SiteAnswered(
        1, "site a has a block: a/b1 (submitted); pause it, and wait for their end or cancel them"
    )
    bench.do(SitePaused(2, "a"))
    bench.do(BlockUnwanted(3, "a/b1"))
    bench.do(BlockGone("a/b1", "cancelled"))
    assert bench.do(SiteRemoved(4, "a")) == [
        SiteOffers("a", 0, 0),
        SiteChanged(1.0, "a", "removed", "slurm"),
        SiteAnswered(4),
    ]


@pytest.mark.parametrize(
    ("event", "refusal"),
    [
        (SitePaused(1, "b"), "there is no site 'b'; there are: a"),
        (SiteRemoved(1, "aa"), "there is no site 'aa'; there are: a"),
        (SiteAdded(1, "a", site_settings("a", ONE_SLOT)), "there is a site a already; remove it first"),
        (BlockUnwanted(1, "a/b9"), "there is no block a/b9; there are: none"),
    ],
)
def test_what_cannot_be_done_is_answered_and_changes_nothing(event: SitesEvent, refusal: str) -> None:
    assert Bench(a=ONE_SLOT).do(event) == [SiteAnswered(1, refusal)]


def test_names_of_blocks_are_never_used_again() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(100.0))
    bench.do(BlockGone("a/b1", "x", SiteOutcome.REFUSED))
    bench.do(SiteRemoved(1, "a"))
    bench.do(SiteAdded(2, "a", site_settings("a", ONE_SLOT)))
    assert list(bench.until(20) and bench.sites.blocks) == ["a/b2"]


def test_a_lost_node_leaves_the_block_and_what_has_lost_all_is_not_counted_on() -> None:
    bench = Bench(a=ONE_SLOT | {"slots": 2})
    bench.demand(TaskGroup(100.0, count=4))
    started(bench)
    (record,) = of(BlockChanged, bench.do(NodeEnded("a/b1", 0, "killed")))
    assert (record.up, record.state) == (0, "running")
    assert len(of(SubmitBlock, bench.until(10))) == 1


def test_a_block_of_an_earlier_run_time_system_is_used_and_none_is_asked_for_in_its_place() -> None:
    bench = Bench(a=ONE_SLOT | {"slots": 2})
    (record,) = bench.do(BlockKept("a/b7", "a", 1, 4, 660.0))
    assert isinstance(record, BlockChanged)
    assert (record.state, record.cores) == ("submitted", 4)
    assert of(SubmitBlock, bench.demand(TaskGroup(100.0, count=2))) == []
    started(bench, "a/b7")
    assert of(SubmitBlock, bench.until(20)) == []
    bench.do(BlockGone("a/b7", "it ended"))
    assert list(bench.until(30) and bench.sites.blocks) == ["a/b8"]
    with pytest.raises(IllegalEvent):
        bench.do(BlockKept("a/b8", "a", 1, 4, 660.0))


def test_nothing_is_asked_for_when_the_run_time_system_stops() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.do(TaskDemand("j1", (TaskGroup(100.0),)))
    bench.do(SitesStopped())
    assert bench.until(1000) == []


def test_events_that_cannot_be_change_nothing() -> None:
    bench = Bench(a=FOUR_CORES | {"slots": 5, "allocation_step": 1})
    bench.demand(TaskGroup(7000.0, count=1000))
    waiting = next(block for block in bench.sites.blocks.values() if not block.submitted)
    with pytest.raises(IllegalEvent):
        bench.do(BatchAnswered(waiting.block_id, "1"))
    with pytest.raises(IllegalEvent):
        bench.do(NodeServes("a/b1", 2, "r1"))


class SitesAgainstModel(RuleBasedStateMachine):
    """A batch system that does anything, and a naive model of what may be asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.sites = Sites()
        self.now = 0.0
        self.slots = {"a": 1, "b": 3}
        for name, slots in self.slots.items():
            given = FOUR_CORES | {"slots": slots, "allocation_step": 1}
            self.sites.handle(SiteAdded(0, name, site_settings(name, given)), 0.0)
        self.paused: set[str] = set()
        self.alive: dict[str, str] = {}
        self.up: set[str] = set()
        self.wanted = 0
        self.asked_at: dict[str, float] = {}

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
            elif isinstance(action, SiteChanged):
                (self.paused.add if action.state == "paused" else self.paused.discard)(action.site)
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
    @rule(data=st.data(), outcome=st.sampled_from([None, SiteOutcome.REFUSED]))
    def over(self, data: st.DataObject, outcome: SiteOutcome | None) -> None:
        block = data.draw(st.sampled_from(sorted(self.alive)))
        del self.alive[block]
        self.up.discard(block)
        self.do(BlockGone(block, "over", outcome))

    @rule(name=st.sampled_from(["a", "b"]), pause=st.booleans())
    def pause(self, name: str, pause: bool) -> None:
        self.do(SitePaused(1, name) if pause else SiteResumed(1, name))

    @invariant()
    def slots_are_kept(self) -> None:
        for name, slots in self.slots.items():
            there = [block for block in self.sites.blocks.values() if block.site == name]
            assert len(there) <= slots, "more blocks than slots"
        assert {block.block_id for block in self.sites.blocks.values() if block.submitted} == set(self.alive)


SitesAgainstModel.TestCase.settings = hypothesis_settings(
    max_examples=40, stateful_step_count=30, deadline=None
)
test_sites_against_a_naive_model = SitesAgainstModel.TestCase
