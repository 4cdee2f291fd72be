"""The machine of sites: when a site pauses, and what becomes of the tasks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.score import SiteOutcome, SiteScores
from gspc_trio.components.provision.site_events import (
    BatchAnswered,
    BatchMoved,
    BlockGone,
    CancelBlock,
    HostsThere,
    RefuseDemand,
    SiteAdded,
    SiteAnswered,
    SiteOffers,
    SitePaused,
    SiteResumed,
    SitesAction,
    SiteWithdrawn,
    SubmitBlock,
)
from gspc_trio.components.provision.site_settings import site_settings
from gspc_trio.core.demand import GroupRefused, TaskGroup
from gspc_trio.records.facts import SiteChanged
from tests.components.provision.site_bench import FOUR_CORES, ONE_SLOT, Bench, of, started, words


class ScoresOfNobody(SiteScores):
    """Scores that forget: what bans a site is not what is looked at."""

    def count(self, site: str, outcome: SiteOutcome, now: float) -> None:
        del site, outcome, now


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


def test_what_has_hosts_runs_whatever_the_batch_system_says_of_it() -> None:
    bench = Bench(a=ONE_SLOT)
    bench.demand(TaskGroup(100.0))
    started(bench)
    actions = bench.do(BatchMoved("a/b1", BatchState.QUEUED, "PartitionConfig", is_hopeless=True))
    assert of(CancelBlock, actions) == of(SiteChanged, actions) == []


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
        SiteWithdrawn("a"),
    ]
    assert bench.until(1000) == [], "it is said once"
    assert bench.demand(group, group) == [refused, refused], "what comes later is refused, too"
    assert bench.do(SiteResumed(1, "a")) == [
        SiteOffers("a", 2, 4),
        SiteAnswered(1),
        SiteChanged(bench.now, "a", "open", "slurm", 1),
    ]
    bench.do(BlockGone("a/b1", "cancelled"))
    assert words(bench.demand(group)) == ["a/b2 wanted", "SubmitBlock", "a/b2 submitted"]


def test_what_a_site_brings_is_withdrawn_when_it_is_given_up_also_if_another_host_is_there() -> None:
    bench = Bench(is_attended=False, a=ONE_SLOT | {"slots": 2})
    bench.do(HostsThere(there=True))
    bench.demand(TaskGroup(7000.0, count=8))
    started(bench)
    bench.demand(TaskGroup(7000.0, count=8), TaskGroup(6999.0, count=8))
    assert of(SiteWithdrawn, hopeless(bench, "a/b2")) == [], "there is a block"
    assert bench.sites.withdrawn() == ""
    why = bench.sites.sites["a"].paused
    record = bench.sites.blocks["a/b1"].record(bench.now)
    assert bench.do(BlockGone("a/b1", "its time is over")) == [
        replace(record, state="over", up=0, detail="its time is over")
    ]
    assert bench.until(bench.now + 2) == [SiteWithdrawn("a")]
    assert bench.sites.withdrawn() == f"site a is paused: {why}; {NOBODY}"
    assert bench.until(1000) == [], "it is said once"


def test_what_a_paused_site_brings_is_not_withdrawn_if_it_may_be_resumed() -> None:
    attended, paused = Bench(a=ONE_SLOT), Bench(is_attended=False, a=ONE_SLOT)
    attended.demand(TaskGroup(100.0))
    paused.do(SitePaused(1, "a"))
    actions = hopeless(attended, "a/b1") + attended.do(BlockGone("a/b1", "cancelled"))
    assert of(SiteWithdrawn, actions + attended.until(1000) + paused.until(1000)) == []


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
        (SiteOutcome.HOPELESS, 1, "no such queue"),
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
