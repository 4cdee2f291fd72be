"""The machine of sites: by its events and whole action lists."""

from __future__ import annotations

import pytest

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.score import SiteOutcome
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
    SitesEvent,
    SitesStopped,
    SubmitBlock,
    SuspendBlock,
)
from gspc_trio.components.provision.site_settings import site_settings
from gspc_trio.core.demand import RunningGroup, TaskDemand, TaskGroup
from gspc_trio.core.machine import IllegalEvent
from gspc_trio.records.facts import BlockChanged, SiteChanged
from tests.components.provision.site_bench import FOUR_CORES, ONE_SLOT, Bench, of, started, words


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


def test_what_is_said_of_a_submission_that_is_not_clear_is_shown() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(100.0))
    for why, shown in [("", "the batch system did not say whether it has taken the job"), ("no route",) * 2]:
        (record,) = of(BlockChanged, bench.do(BatchAnswered("a/b1", "", why)))
        assert (record.state, record.detail) == ("submitted", shown)


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
    bench = Bench(a=FOUR_CORES)
    bench.demand(TaskGroup(3000.0))
    started(bench)
    bench.do(BlockUsed("a/b1"))
    running = [RunningGroup("r5", 3000.0)]
    assert words(bench.demand(running=running) + bench.until(100)) == ["SuspendBlock", "a/b1 suspended"]
    bench.do(BlockIdle("a/b1"))
    (cancel,) = of(CancelBlock, bench.demand())
    assert cancel.reason == "it is suspended, and its last task has ended"


def test_a_block_that_is_full_gets_the_next_task_though_it_got_none_for_long() -> None:
    bench = Bench(a=FOUR_CORES)
    bench.demand(TaskGroup(500.0, count=4))
    started(bench)
    bench.do(BlockUsed("a/b1"))
    assert of(SuspendBlock, bench.demand(running=[RunningGroup("r5", 500.0, count=4)])) == []
    assert of(SuspendBlock, bench.until(300)) == [], "it has no core for another task"
    three = [RunningGroup("r5", 200.0, count=3)]
    assert of(SubmitBlock, bench.demand(TaskGroup(500.0), running=three)) == [], "now it has"
    bench.demand(running=three)
    assert of(SuspendBlock, bench.until(329)) == []
    assert of(SuspendBlock, bench.until(333)) == [SuspendBlock("a/b1")], "nobody needs the free core"


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


def test_files_that_a_site_does_not_stage_lower_its_score() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(100.0))
    started(bench)
    before = bench.sites.scores.history("a")
    for block in ("a/b1", "a/b0"):  # the other one is over
        bench.do(FilesNotStaged(block, "No space left on device"))
    assert bench.sites.scores.history("a") == before - 0.5


def test_a_block_that_runs_one_short_task_after_the_other_is_needed() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(600.0, count=9))
    started(bench)
    for _ in range(40):  # each task is said to take 600 s, and takes one
        actions = bench.demand(running=[RunningGroup("r5", 600.0)])
        assert of(SuspendBlock, actions) == []
