"""The fold of records: what it tells, and that a snapshot tells the same."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.task import FINAL_STATES, TaskState
from gspc_trio.records import progress as progress_module
from gspc_trio.records.facts import (
    AnomalyChanged,
    BlockChanged,
    GrantChanged,
    HostLoad,
    JobChanged,
    LocalityChanged,
    Record,
    ResourceChanged,
    RifChanged,
    SiteChanged,
    StreamOpened,
    TaskChanged,
    TaskCounts,
    WorkerChanged,
)
from gspc_trio.records.progress import ENDED_JOBS_MAX, FAILURES_MAX, LATELY_MAX, RECENT_SECONDS, Progress

READY, SUBMITTED, RUNNING = TaskState.READY, TaskState.SUBMITTED, TaskState.RUNNING
FINISHED, FAILED, CANCELLED = TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED


def fold(records: Iterable[Record]) -> Progress:
    progress = Progress()
    for record in records:
        progress.apply(record)
    return progress


def task(
    at_s: float, task_id: int, state: TaskState, detail: str = "", duration_s: float = 0.0
) -> TaskChanged:
    return TaskChanged(at_s, "j1", task_id, state, 1, "work", "", detail, 0.0, duration_s)


def test_each_task_is_counted_in_its_last_state() -> None:
    job = fold(
        [
            *(task(1.0, n, READY) for n in range(1, 7)),
            *(task(2.0, n, SUBMITTED) for n in range(1, 5)),
            task(2.5, 1, RUNNING),
            task(3.0, 1, FINISHED, duration_s=0.5),
            task(3.0, 2, RUNNING),
            task(3.5, 5, CANCELLED),
            task(4.0, 3, FAILED, "ValueError: boom"),
        ]
    ).jobs["j1"]
    assert job.counts == {READY: 1, SUBMITTED: 1, RUNNING: 1, FINISHED: 1, FAILED: 1, CANCELLED: 1}
    assert (job.total, job.ended) == (6, 3)
    assert sorted(job.live) == [2, 4, 6]
    assert job.longest_running(5) == (task(3.0, 2, RUNNING),)
    assert list(job.failures.values()) == [task(4.0, 3, FAILED, "ValueError: boom")]
    assert (job.first_s, job.last_s, job.computed_s) == (1.0, 4.0, 0.5)


def test_a_failed_task_that_is_retried_is_live_again() -> None:
    job = fold(
        [task(1.0, 1, READY), task(2.0, 1, FAILED, "boom"), task(3.0, 1, READY, "retried on request")]
    ).jobs["j1"]
    assert job.counts == {READY: 1, SUBMITTED: 0, RUNNING: 0, FINISHED: 0, FAILED: 0, CANCELLED: 0}
    assert not job.failures


def test_a_task_that_is_ready_again_is_counted_once() -> None:
    job = fold([task(1.0, 1, READY), task(2.0, 1, RUNNING), task(3.0, 1, READY, "lost: gone")]).jobs["j1"]
    assert job.counts[READY] == job.total == 1
    assert not job.running


def test_the_longest_running_come_first_and_only_so_many() -> None:
    job = fold([task(float(9 - n), n, RUNNING) for n in range(1, 9)]).jobs["j1"]
    assert [record.task_id for record in job.longest_running(3)] == [8, 7, 6]


def test_the_rate_is_that_of_the_last_seconds() -> None:
    job = fold([task(0.0, 1, READY), *(task(n / 10, n, FINISHED) for n in range(200))]).jobs["j1"]
    assert len(job.recent) == RECENT_SECONDS
    assert job.finished_per_s(20.0) == pytest.approx(10.0)
    assert job.finished_per_s(25.0) == pytest.approx(5.0)
    assert job.finished_per_s(60.0) == 0.0


def test_the_rate_of_a_job_that_just_began_is_not_exaggerated() -> None:
    job = fold([task(5.0, 1, READY), task(5.1, 1, FINISHED)]).jobs["j1"]
    assert job.finished_per_s(5.2) == 1.0
    assert job.finished_per_s(7.0) == 0.5


def test_what_is_held_is_known() -> None:
    progress = fold(
        [
            GrantChanged(1.0, "j1", (1, 1), ("r1.core1", "r1.core0"), True),
            GrantChanged(1.0, "j1", (1, 2), ("r1.core2",), True),
            GrantChanged(2.0, "j1", (1, 2), ("r1.core2",), False),
        ]
    )
    assert progress.jobs["j1"].held_resources == ("r1.core0", "r1.core1")


def test_only_the_last_failures_are_kept() -> None:
    job = fold(task(float(n), n, FAILED, "boom") for n in range(100)).jobs["j1"]
    assert list(job.failures) == list(range(100 - FAILURES_MAX, 100))
    assert job.counts[FAILED] == 100
    job.apply_task(task(200.0, 90, FAILED, "boom"))
    assert list(job.failures)[-2:] == [99, 90]


def test_only_the_last_ended_jobs_are_kept() -> None:
    progress = fold(JobChanged(float(n), f"j{n}", "finished", "work") for n in range(ENDED_JOBS_MAX + 5))
    assert list(progress.jobs) == progress.ended == [f"j{n}" for n in range(5, ENDED_JOBS_MAX + 5)]
    assert progress.jobs["j9"].state == "finished"
    assert progress.jobs["j9"].name == "work"


def test_what_is_gone_is_forgotten() -> None:
    progress = fold(
        [
            RifChanged(1.0, "r1", "h", "up"),
            RifChanged(1.0, "r2", "h", "failed", "no ssh"),
            ResourceChanged(1.0, "r1.core0", "core", "added", "h"),
            WorkerChanged(1.0, "r1.core0", "busy", "j1", 17),
            WorkerChanged(2.0, "r1.core0", "stopped"),
            ResourceChanged(2.0, "r1.core0", "core", "removed", "h"),
            RifChanged(2.0, "r1", "h", "down"),
        ]
    )
    assert (progress.resources, progress.workers) == ({}, {})
    assert progress.rifs == {"r2": RifChanged(1.0, "r2", "h", "failed", "no ssh")}


def test_a_new_stream_begins_anew() -> None:
    opened = StreamOpened(5.0, 1e9, "0.1")
    progress = fold([task(1.0, 1, READY), RifChanged(1.0, "r1", "h", "up"), opened])
    assert progress == Progress(opened)


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(TypeError, match="str is no record"):
        Progress().apply("hello")  # type: ignore[arg-type]


def test_a_short_snapshot_names_few_tasks_and_counts_them_all() -> None:
    records: list[Record] = [task(1.0, n, READY) for n in range(1000)]
    records += [task(2.0, n, RUNNING) for n in range(500)]
    job = fold(fold(records).snapshot(named_max=3)).jobs["j1"]
    assert job.counts[READY] == job.counts[RUNNING] == 500
    assert list(job.live) == [0, 1, 2, 500, 501, 502]
    assert list(job.running) == [0, 1, 2]


def test_a_host_that_is_gone_has_no_load() -> None:
    load = HostLoad(1.0, "r1", "h", 1.5, 2, 0.5, 10, 100)
    up = fold([RifChanged(0.0, "r1", "h", "up"), load])
    assert up.loads == {"r1": load}
    up.apply(RifChanged(2.0, "r1", "h", "lost", "gone"))
    assert not up.loads


def test_a_snapshot_names_live_tasks_and_counts_the_others() -> None:
    records: list[Record] = [task(1.0, n, READY) for n in range(1000)]
    records += [task(2.0, n, FINISHED, duration_s=0.25) for n in range(998)]
    assert fold(records).snapshot() == (
        TaskCounts(
            2.0,
            "j1",
            dict.fromkeys(TaskState, 0) | {FINISHED: 998},
            249.5,
            1.0,
            ((2, 998),),
            tuple(task(2.0, n, FINISHED, duration_s=0.25) for n in range(998 - LATELY_MAX, 998)),
        ),
        task(1.0, 998, READY),
        task(1.0, 999, READY),
    )


jobs = st.sampled_from(["j1", "j2", "j3"])
times = st.floats(0, 100)
grant_ids = st.tuples(st.just(1), st.integers(1, 4))
rif_ids = st.sampled_from(["r1", "r2"])
names = st.sampled_from(["r1.core0", "r1.core1", "r2.node"])
details = st.sampled_from(["", "lost: gone"])
any_record: st.SearchStrategy[Record] = st.one_of(
    st.builds(
        TaskChanged, times, jobs, st.integers(1, 6), st.sampled_from(TaskState), st.integers(0, 3),
        st.just("t"), names, details, times, times,
    ),
    st.builds(JobChanged, times, jobs, st.sampled_from(["running", "finished", "failed", "stopped"])),
    st.builds(GrantChanged, times, jobs, grant_ids, st.tuples(names), st.booleans()),
    st.builds(ResourceChanged, times, names, st.just("core"), st.sampled_from(["added", "removed"])),
    st.builds(WorkerChanged, times, names, st.sampled_from(["idle", "busy", "lost", "stopped"])),
    st.builds(RifChanged, times, rif_ids, st.just("h"), st.sampled_from(["up", "down"])),
    st.builds(HostLoad, times, rif_ids, st.just("h"), times, st.just(2), times, st.just(1), st.just(4)),
    st.builds(SiteChanged, times, rif_ids, st.sampled_from(["open", "paused", "removed"])),
    st.builds(
        BlockChanged, times, names, st.just("a"), st.sampled_from(["queued", "running", "over"]),
        st.just(1), st.just(4), times,
    ),
    st.builds(AnomalyChanged, times, rif_ids, names, st.sampled_from(["on", "over"]), st.booleans()),
    st.builds(LocalityChanged, times, st.just(1), st.just(2), st.just(3)),
    st.builds(StreamOpened, times, times, st.just("1")),
)  # fmt: skip


@settings(max_examples=80)
@given(st.lists(any_record, max_size=60), st.data())
def test_a_snapshot_and_the_rest_tell_what_all_records_tell(
    records: list[Record], data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(records)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress_module, "FAILURES_MAX", 2)
        patch.setattr(progress_module, "ENDED_JOBS_MAX", 2)
        patch.setattr(progress_module, "RECENT_SECONDS", 3)
        late = fold((*fold(records[:position]).snapshot(), *records[position:]))
        everything = fold(records)
    assert late == everything
    for mine, theirs in zip(late.jobs.values(), everything.jobs.values(), strict=True):
        assert mine.longest_running(9) == everything.jobs[mine.job].longest_running(9)
        assert list(theirs.failures) == list(late.jobs[theirs.job].failures)


@settings(max_examples=50)
@given(st.lists(any_record, max_size=60))
def test_a_snapshot_of_a_snapshot_is_the_same(records: list[Record]) -> None:
    snapshot = fold(records).snapshot()
    assert fold(snapshot).snapshot() == snapshot


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from(TaskState)), max_size=60))
def test_counts_equal_a_recount(changes: list[tuple[int, TaskState]]) -> None:
    states: dict[int, TaskState] = {}
    records = []
    for task_id, state in changes:
        before = states.get(task_id)
        if before in (FINISHED, CANCELLED) or (before is FAILED and state is not READY):
            continue
        detail = "again" if state is READY and before is not None else ""
        states[task_id] = state
        records.append(task(float(len(records)), task_id, state, detail))
    progress = fold(records)
    recount = {state: sum(s is state for s in states.values()) for state in TaskState}
    assert (progress.jobs["j1"].counts if records else recount) == recount
    if records:
        job = progress.jobs["j1"]
        assert set(job.live) == {task_id for task_id, state in states.items() if state not in FINAL_STATES}
        assert set(job.running) == {task_id for task_id, state in states.items() if state is RUNNING}
        assert len(job.recent) <= RECENT_SECONDS
