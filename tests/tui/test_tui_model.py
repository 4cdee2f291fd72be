"""The fold behind the terminal: what it tells of jobs, tasks, resources and workers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gspc_trio.components.job.scheduler.interface import CancelTasks, ResourcesUp, RetryTask, TasksReady
from gspc_trio.components.rm.events import Added, JobGone, JobJoined
from gspc_trio.components.rm.machine import ResourceManager
from gspc_trio.components.rm.messages import ClassStatus, Demand, Grant, Release
from gspc_trio.components.worker.messages import Finished
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import (
    Outcome,
    Reason,
    Requirement,
    Shape,
    Task,
    TaskError,
    TaskOptions,
    TaskState,
)
from gspc_trio.policies.scheduling import USUAL
from gspc_trio.records.backlog import Backlog
from gspc_trio.records.facts import (
    RECORD_TYPES,
    AnomalyChanged,
    GrantChanged,
    JobChanged,
    ResourceChanged,
    RifChanged,
    TaskChanged,
    TaskCounts,
)
from gspc_trio.tui.hierarchy import Use
from gspc_trio.tui.model import ENDED_MAX, RTS, Model
from gspc_trio.tui.news import END_SHOWN_S, Level, alerts
from gspc_trio.tui.once import as_lines
from tests.components.job.scheduler.support import singly
from tests.tui.support import (
    CANCELLED,
    FAILED,
    FINISHED,
    READY,
    RUNNING,
    SUBMITTED,
    WALL_S,
    fold,
    grant,
    host,
    opened,
    small_run,
    task,
)


def test_a_job_is_put_together_from_both_streams() -> None:
    model = small_run()
    first, second, last = model.jobs()
    assert [first.job, second.job, last.job] == ["j2", "j1", "j0"]
    assert (second.name, second.state, second.held, second.connected) == ("fit", "running", 3, True)
    assert second.counts == {READY: 1, SUBMITTED: 1, RUNNING: 3, FINISHED: 4, FAILED: 1, CANCELLED: 0}
    assert (second.total, second.ended) == (10, 5)
    assert second.elapsed_s == pytest.approx(8.0)
    assert second.rate_per_s == pytest.approx(4 / 8)
    assert second.left_s == pytest.approx(10.0)
    assert (first.total, first.held, first.connected) == (0, 0, False)
    assert (last.state, last.elapsed_s) == ("finished", pytest.approx(0.7))


def test_the_job_itself_knows_best_how_it_ended() -> None:
    model = small_run()
    model.apply(RTS, JobChanged(9.0, "j1", "finished", "fit"))
    assert model.job("j1").state == "finished"
    model.apply("j1", JobChanged(9.0, "j1", "failed", "fit", "some tasks failed"))
    assert (model.job("j1").state, model.job("j1").detail) == ("failed", "some tasks failed")
    assert model.job("j1").held == 0


@pytest.mark.parametrize("first", [RTS, "j1"])
def test_the_end_of_a_job_is_told_once_whoever_tells_it_first(first: str) -> None:
    model = small_run()
    told = len(model.log)
    model.apply(first, JobChanged(9.0, "j1", "failed", "fit", "some tasks failed"))
    model.apply("j1" if first == RTS else RTS, JobChanged(9.0, "j1", "failed", "fit", "some tasks failed"))
    assert [line.text for line in list(model.log)[told:]] == ["job j1 (fit) failed: some tasks failed"]


def test_that_a_job_has_failed_is_no_alert_for_ever() -> None:
    model = small_run()
    model.apply("j1", JobChanged(9.0, "j1", "failed", "fit", "some tasks failed"))
    told = (Level.ERROR, "j1 (fit) failed: some tasks failed")
    assert told in alerts(model)
    model.tick(WALL_S + 9.0 + END_SHOWN_S)
    assert told not in alerts(model)


def test_times_of_different_streams_are_brought_together() -> None:
    model = small_run()
    (running,) = model.longest_running("j1", 1)
    assert model.wall_s(running) == WALL_S + 7.0
    assert model.held_for_s(model.held["r2.core0"]) == pytest.approx(7.5)


def test_what_is_free_held_and_blocked_and_by_whom() -> None:
    model = small_run()
    tree = model.hierarchy
    assert tree.use("r1.core0", model.held) == (Use.HELD, "r1.core0")
    assert tree.use("r1.node", model.held) == (Use.BLOCKED, "r1.core0")
    assert tree.use("r2.core1", model.held) == (Use.FREE, None)
    model.apply(RTS, grant(9.0, 9, "r2.node", job="j2"))
    assert tree.use("r2.core1", model.held) == (Use.BLOCKED, "r2.node")
    assert model.cores_in_use == 4


def test_classes_are_counted_where_nobody_can_be_asked() -> None:
    model = small_run()
    told = model.classes
    model.status = None
    assert model.classes == told
    model.apply(RTS, grant(9.0, 9, "r2.node", job="j2"))
    assert model.classes["node"] == ClassStatus(total=2, free=0, held=1, blocked=1)


def test_the_tree_shows_what_is_opened_and_what_is_searched() -> None:
    tree = small_run().hierarchy
    keys = [row.key for row in tree.rows(frozenset(), frozenset())]
    assert keys == [
        "host alpha", "r1.node", "r1.core0", "r1.core1", "host beta", "r2.node", "r2.core0", "r2.core1",
    ]  # fmt: skip
    assert [row.key for row in tree.rows(frozenset(["r1.node", "host beta"]), frozenset())] == [
        "host alpha", "r1.node", "host beta",
    ]  # fmt: skip
    found = [row.key for row in tree.rows(frozenset(), frozenset(), "CORE1")]
    assert found == ["host alpha", "r1.node", "r1.core1", "host beta", "r2.node", "r2.core1"]


def test_a_large_tree_shows_hosts_until_they_are_opened() -> None:
    model = Model()
    for number in range(1, 101):
        fold(model, RTS, host(f"r{number}", f"h{number}", 3))
    tree = model.hierarchy
    assert len(tree.rows(frozenset(), frozenset())) == 100
    assert len(tree.rows(frozenset(), frozenset(["host h7", "r7.node"]))) == 104


def test_tasks_are_found_by_state_and_text() -> None:
    model = small_run()
    assert [it.task_id for it in model.tasks("j1")] == [6, 7, 8, 5, 9, 10, 4, 3, 2, 1]
    assert [it.task_id for it in model.tasks(None, states=[FAILED])] == [5]
    assert [it.task_id for it in model.tasks("j1", "it is WRONG")] == [5]
    assert [it.task_id for it in model.tasks("j1", "r2.core0", [RUNNING, SUBMITTED])] == [8, 9]
    assert model.tasks("j7") == []


def test_only_the_last_ended_tasks_are_kept() -> None:
    model = fold(Model(), "j1", (task(1.0, n, FINISHED) for n in range(ENDED_MAX + 10)))
    assert len(model.tasks("j1")) == ENDED_MAX
    assert model.job("j1").counts[FINISHED] == ENDED_MAX + 10


def test_a_task_that_is_retried_is_listed_once() -> None:
    model = small_run()
    model.apply("j1", task(8.0, 5, READY, detail="retried on request"))
    assert [it.state for it in model.tasks("j1") if it.task_id == 5] == [READY]


def test_what_finished_in_a_summary_is_known_by_name() -> None:
    model = small_run()
    lately = (task(8.0, 11, FINISHED, "r1.core0", started_s=WALL_S + 7.5, duration_s=0.25),)
    model.apply("j1", TaskCounts(8.0, "j1", {TaskState.FINISHED: 500}, lately=lately))
    model.apply("j1", TaskCounts(8.1, "j1", {TaskState.FINISHED: 501}, lately=lately))
    assert [it.task_id for it in model.tasks("j1", states=[FINISHED])] == [11, 4, 3, 2, 1]
    spans = [span for span in model.lanes.workers["r1.core0"].spans[1] if span.task_id == 11]
    assert [(span.begin_s, span.end_s) for span in spans] == [(WALL_S + 7.5, WALL_S + 7.75)]


def test_what_is_at_each_worker_begins_with_what_runs() -> None:
    model = small_run()
    at = {name: [it.task_id for it in live] for name, live in model.live_at_workers().items()}
    assert at == {"r1.core0": [6], "r1.core1": [7], "r2.core0": [8, 9]}
    fold(model, "j1", [task(8.0, 10, SUBMITTED, "r2.core1"), task(8.1, 11, RUNNING, "r2.core1")])
    assert [it.task_id for it in model.live_at_workers()["r2.core1"]] == [11, 10]
    assert [span.begin_s for span in model.spans_of(model.live_at_workers()["r2.core0"])] == [
        WALL_S + 7.5,
        WALL_S + 7.5,
    ]


def test_series_are_noted_each_second() -> None:
    model = small_run()
    assert model.cores.now == 3.0
    assert len(model.cores.last(60)) == 10
    fold(model, "j1", (task(9.1, n, FINISHED) for n in (6, 7, 8)))
    model.tick(WALL_S + 10.2)
    assert model.rate.now == 3.0
    model.tick(WALL_S + 14.0)
    assert model.rate.now == 0.0
    assert len(model.rate.last(60)) == 15


def test_a_snapshot_takes_the_place_of_what_was_known() -> None:
    model = small_run()
    model.begin(RTS)
    assert not model.rts.resources
    assert model.cores_in_use == 0
    model.begin("j1")
    assert model.job("j1").total == 0


def test_another_run_time_system_has_none_of_the_jobs_of_the_one_before() -> None:
    model = small_run()
    for opening, expected in ((opened(), ["j1"]), (opened(at_s=500.0), [])):
        model.connected.clear()
        model.begin(RTS)
        model.apply(RTS, opening, quiet=True)
        assert [job.job for job in model.jobs()] == expected
    assert not list(model.tasks(None))


def test_the_log_tells_what_is_worth_it() -> None:
    texts = [line.text for line in small_run().log]
    assert "job j1 (fit) began" in texts
    assert texts.count("task 5 (work) failed on r2.core0: ValueError: it is wrong") == 1
    assert not any("task 1 " in text for text in texts)


def test_a_snapshot_is_no_news() -> None:
    model = Model()
    for record in (opened(), *host("r1", "alpha", 2), task(1.0, 1, FAILED)):
        model.apply(RTS, record, quiet=True)
    assert not model.log


def test_an_anomaly_is_an_alert_until_it_is_over() -> None:
    model = small_run()
    begun = AnomalyChanged(8.0, "beta", "leak", "on", detail="memory that no task uses rises by 2.0%/min")
    model.apply(RTS, begun)
    model.apply(RTS, replace(begun, by_tasks=True, detail=""))
    texts = [text for _, text in alerts(model)]
    assert "beta has an anomaly: leak: memory that no task uses rises by 2.0%/min" in texts
    assert "beta has an anomaly: leak by tasks" in texts
    model.apply(RTS, replace(begun, state="over"))
    assert not any("no task uses" in text for _, text in alerts(model))
    assert [line.text for line in model.log if line.source == "beta"][-1] == "the anomaly is over: leak"


def test_what_is_wrong_is_told() -> None:
    model = small_run()
    model.link = "the run-time system is gone"
    model.apply(RTS, RifChanged(8.0, "r2", "beta", "lost", "no heartbeat"))
    model.now_s = WALL_S + 100.0
    texts = [text for _, text in alerts(model)]
    assert "the run-time system is gone" in texts
    assert "beta (r2) is lost: no heartbeat" in texts
    assert "j1 (fit): 1 task failed" in texts
    assert "j1 (fit): task 6 (work) has run for 1m33s on r1.core0, others take 0.5 s" in texts
    assert [level for level, _ in alerts(model)] == sorted((it for it, _ in alerts(model)), reverse=True)


def test_the_end_of_a_host_comes_nearer() -> None:
    model = small_run()
    assert model.ends_in_s(model.rifs["beta"]) is None
    model.apply(RTS, RifChanged(8.0, "r2", "beta", "up", "", 800.0))
    model.now_s = WALL_S + 83.0
    assert model.ends_in_s(model.rifs["beta"]) == 725.0
    (line,) = [line for line in as_lines(model) if line.startswith("beta")]
    assert line.endswith("  ends in 12m05s")


def test_a_job_that_gets_nothing_says_why() -> None:
    model = small_run()
    fold(model, "j2", [opened(), JobChanged(2.0, "j2", "running", "plot"), task(2.0, 1, READY, job="j2")])
    assert not any("j2" in text for _, text in alerts(model))
    model.now_s = WALL_S + 30.0
    reason = "0 of 2 node free; r1.node is blocked by r1.core0, held by j1"
    assert (Level.WARNING, f"j2 (plot): 1 task ready and none runs: {reason}") in alerts(model)


def test_a_copy_goes_its_own_way() -> None:
    model = small_run()
    other = model.copy()
    assert other.jobs() == model.jobs()
    assert other.tasks(None) == model.tasks(None)
    assert other.held == model.held
    other.apply("j1", task(9.0, 6, FINISHED))
    other.apply(RTS, grant(9.0, 1, "r1.core0", held=False))
    other.tick(WALL_S + 20)
    assert model.job("j1").counts[FINISHED] == 4
    assert model.cores_in_use == 3
    assert len(model.cores.last(60)) == 10


# Against the machines themselves ----------------------------------------------------------------------------

SHAPES = [Shape(), Shape((Requirement("node"),)), Shape((Requirement("core"), Requirement("core")))]


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_uses_are_those_of_the_resource_manager(seed: int, steps: int) -> None:
    random, rm, model = Random(seed), ResourceManager(1), Model()
    given_out: list[Grant] = []
    seen = dict.fromkeys(("j1", "j2"), NO_GRANT)

    def do(event: object, now: float) -> None:
        for action in rm.handle(event, now):
            if isinstance(action, RECORD_TYPES):
                model.apply(RTS, action)
            elif isinstance(action, Grant):
                given_out.append(action)
                seen[action.job] = action.grant_id

    def add(number: int) -> Added:
        cores = [Resource(f"r{number}.core{n}", "core", (f"r{number}.node",)) for n in range(2)]
        return Added((Resource(f"r{number}.node", "node"), *cores), f"h{number}")

    for job in seen:
        do(JobJoined(job), 0.0)
    for step in range(steps):
        now = float(step)
        kind = random.random()
        if kind < 0.15:
            do(add(step), now)
        elif kind < 0.6 or not given_out:
            job = random.choice([*seen])
            do(Demand(job, random.choice(SHAPES), random.randrange(3), seen[job]), now)
        elif kind < 0.95:
            one = given_out.pop(random.randrange(len(given_out)))
            do(Release(one.job, one.grant_id), now)
        elif "j2" in seen:
            given_out = [one for one in given_out if one.job != "j2"]
            do(JobGone("j2", fenced=True), now)
            del seen["j2"]
    counted: dict[str, dict[str, int]] = {}
    for resource in model.rts.resources.values():
        uses = counted.setdefault(resource.resource_class, dict.fromkeys(Use, 0))
        uses[model.hierarchy.use(resource.resource_id, model.held)[0]] += 1
    told = {
        name: {use.value: getattr(entry, use.value) for use in Use}
        for name, entry in rm.status().classes.items()
        if entry.total
    }
    assert {name: {use.value: n for use, n in uses.items()} for name, uses in counted.items()} == told


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 80))
def test_counts_are_those_of_the_scheduler_however_often_one_looks(seed: int, steps: int) -> None:
    """Records go through a backlog, as to a real watcher; a seed decides what happens."""
    random, model, backlog = Random(seed), Model(), Backlog()
    scheduler = USUAL.scheduler("j1")
    full = Model()

    def do(event: object, now: float) -> list[object]:
        actions = singly(scheduler.handle(event, now))
        for action in actions:
            if isinstance(action, TaskChanged | GrantChanged):
                full.apply("j1", action)
                backlog.append(action)
        return actions

    cores = [f"r1.core{n}" for n in range(3)]
    do(ResourcesUp(tuple(Resource(name, "core") for name in cores)), 0.0)
    for number, name in enumerate(cores, 1):
        do(TasksReady(tuple(tasks(number * 1000, 1))), 0.0)
        do(Grant("j1", Shape(), (1, number), (name,)), 0.0)
    for step in range(steps):
        now, kind = float(step), random.random()
        if kind < 0.3:
            do(TasksReady(tuple(tasks(10_000 + 100 * step, random.randrange(1, 90)))), now)
        elif kind < 0.4:
            live = list(full.streams["j1"].jobs["j1"].live)
            do(CancelTasks(tuple(random.sample(live, min(3, len(live))))), now)
        elif kind < 0.5:
            for task_id in list(full.streams["j1"].jobs["j1"].failures)[:1]:
                do(RetryTask(task_id), now)
        else:
            for outcome in outcomes(full, random.choice(cores), random):
                do(outcome, now)
        if random.random() < 0.3:
            for record in backlog.take(full.streams["j1"]):
                model.apply("j1", record)
    for record in backlog.take(full.streams["j1"]):
        model.apply("j1", record)
    assert model.job("j1").counts == dict(scheduler.status())
    assert full.job("j1").counts == dict(scheduler.status())


def tasks(first: int, number: int) -> list[Task]:
    return [Task(first + n, "work", 1, (), Shape(), TaskOptions(attempts=2)) for n in range(number)]


def outcomes(model: Model, core: str, random: Random) -> Iterator[Finished]:
    """The head of a worker's queue ends, one way or another."""
    for record in model.tasks("j1", states=[TaskState.RUNNING]):
        if record.resource_id == core:
            reason = random.choice([Reason.FINISHED, Reason.FINISHED, Reason.FAILED, Reason.RETURNED])
            error = TaskError("ValueError", "wrong") if reason is Reason.FAILED else None
            yield Finished("j1", core, (Outcome(record.task_id, record.attempt, reason, error=error),))
            return


def test_resources_that_come_together_are_one_line_of_the_log_and_told_by_the_rts_alone() -> None:
    model = fold(Model(), RTS, [opened()])
    for record in host("r1", "alpha", 2):
        model.apply(RTS, record)
        model.apply("j1", record)
    told = [(line.source, line.text) for line in model.log if line.source == "alpha"]
    assert told[-1] == ("alpha", "3 resources were added: r1.node … r1.core1")
    assert not model.streams.get("j1") or not model.streams["j1"].resources
    for record in host("r2", "beta", 0):
        model.apply(RTS, record)
    model.apply(RTS, ResourceChanged(5.0, "r1.core1", "core", "removed", "alpha"))
    assert [line.text for line in model.log][-2:] == ["r2.node was added", "r1.core1 was removed"]
