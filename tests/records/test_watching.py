"""How closely tasks are recorded."""

from __future__ import annotations

from gspc_trio.components.job.scheduler.interface import Watched
from gspc_trio.records.backlog import FAST_PER_S, MANY_LIVE, MEASURED_S, SLOW_PER_S, Mode, Watching
from gspc_trio.records.facts import TaskChanged
from gspc_trio.records.progress import LATELY_MAX, Progress
from tests.components.job.scheduler.support import (
    FINISHED,
    READY,
    RUNNING,
    World,
    bad,
    finished,
    grant,
    ok,
    ready,
)


def test_while_nobody_watches_tasks_are_counted() -> None:
    watching = Watching()
    assert watching.decide(0.0, watched=False, ended=0) is Mode.COUNTS
    assert watching.decide(1.0, watched=True, ended=10**6) is Mode.EACH
    assert watching.decide(2.0, watched=False, ended=10**7) is Mode.COUNTS


def test_watchers_of_a_fast_run_get_glances_until_it_is_slow_again() -> None:
    watching = Watching()

    def decide(now: float, ended: float) -> Mode:
        return watching.decide(now, watched=True, ended=int(ended))

    assert decide(10.0, 0) is Mode.EACH
    few = FAST_PER_S * MEASURED_S - 1
    assert decide(10.0 + MEASURED_S / 2, few) is Mode.EACH  # too early to tell
    assert decide(12.0, 2 * FAST_PER_S) is Mode.GLANCES
    between = (FAST_PER_S + SLOW_PER_S) / 2
    assert decide(13.0, 2 * FAST_PER_S + between) is Mode.GLANCES
    assert decide(14.0, 2 * FAST_PER_S + between + SLOW_PER_S) is Mode.EACH
    assert decide(15.0, 2 * FAST_PER_S + 2 * between + SLOW_PER_S) is Mode.EACH


def test_a_burst_is_fast_before_its_rate_is_measured() -> None:
    watching = Watching()
    watching.decide(10.0, watched=True, ended=0)
    assert watching.decide(10.01, watched=True, ended=int(FAST_PER_S * MEASURED_S)) is Mode.GLANCES


def test_watchers_of_very_many_tasks_get_glances() -> None:
    watching = Watching()

    def decide(now: float, live: int) -> Mode:
        return watching.decide(now, watched=True, ended=0, live=live)

    assert decide(0.0, MANY_LIVE + 1) is Mode.GLANCES
    assert decide(1.0, MANY_LIVE) is Mode.GLANCES
    assert decide(2.0, MANY_LIVE // 2) is Mode.EACH
    assert decide(3.0, MANY_LIVE) is Mode.EACH
    assert decide(3.0, MANY_LIVE + 1) is Mode.GLANCES  # at once: nobody reads of so many one by one


def fold_glance(world: World, named_max: int = 2) -> Progress:
    progress = Progress()
    for record in world.scheduler.glance(world.now, named_max):
        progress.apply(record)
    return progress


def test_a_glance_counts_all_and_names_some() -> None:
    world = World()
    world(Watched(False))
    world(ready(*range(1, 21)))
    for number in (1, 2, 3):
        world(grant(number), 1.0)
    world(finished(1, ok(1, 1, 0.5)), 2.0)
    world(finished(2, bad(2)), 3.0)
    job = fold_glance(world).jobs["j1"]
    assert job.counts == dict(world.scheduler.status())
    assert len(job.running) == 2
    assert len(job.live) == 4
    assert [record.task_id for record in job.failures.values()] == [2]
    assert [record.task_id for record in job.lately] == [1]
    assert (job.computed_s, world.scheduler.ended) == (0.5, 2)


def test_what_has_run_for_long_is_known_to_who_watches_late() -> None:
    world = World()
    world(Watched(False))
    world(ready(1, 2), 1.0)
    world(grant(1), 5.0)
    named = {
        record.task_id: record for record in world(Watched(True), 900.0) if isinstance(record, TaskChanged)
    }
    assert (named[1].state, named[1].at_s) == (RUNNING, 5.0)
    assert named[2].state is READY
    assert fold_glance(world).jobs["j1"].running[1].at_s == 5.0


def test_what_finished_last_is_kept_while_nobody_is_told() -> None:
    world = World()
    world(Watched(False))
    world(ready(*range(1, 200)))
    world(grant(1))
    for task_id in range(1, 100):
        world(finished(1, ok(task_id)))
    lately = fold_glance(world).jobs["j1"].lately
    assert [record.task_id for record in lately] == list(range(100 - LATELY_MAX, 100))
    assert {record.state for record in lately} == {FINISHED}
