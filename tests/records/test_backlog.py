"""What a watcher has not had yet: everything while little happens, sums when much does, the truth always."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.task import TaskState
from gspc_trio.records import backlog as backlog_module
from gspc_trio.records.backlog import COALESCE_AT, TASKS_NAMED_MAX, TASKS_TOLD_MAX, Backlog
from gspc_trio.records.facts import (
    GrantChanged,
    JobChanged,
    Record,
    ResourceChanged,
    TaskChanged,
    TaskCounts,
    WorkerChanged,
)
from gspc_trio.records.progress import Progress

READY, RUNNING, FINISHED, FAILED = TaskState.READY, TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED


def task(at_s: float, task_id: int, state: TaskState, job: str = "j1") -> TaskChanged:
    return TaskChanged(at_s, job, task_id, state, 1, "work")


class Stream:
    """A fold, and a watcher that has its own."""

    def __init__(self) -> None:
        self.all, self.seen, self.backlog = Progress(), Progress(), Backlog()

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self.all.apply(record)
            self.backlog.append(record)

    def look(self) -> tuple[Record, ...]:
        return self.see(self.backlog.take(self.all))

    def begin(self) -> tuple[Record, ...]:
        return self.see(self.backlog.begin(self.all))

    def see(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        for record in records:
            self.seen.apply(record)
        return records


def test_while_little_happens_every_record_is_sent() -> None:
    stream = Stream()
    assert stream.begin() == ()
    records: list[Record] = [
        task(1.0, 1, READY),
        task(1.1, 1, RUNNING),
        WorkerChanged(1.1, "r1.core0", "busy", "j1"),
    ]
    stream.add(records)
    assert stream.look() == tuple(records)
    assert stream.look() == ()


def test_when_much_happens_a_summary_is_sent() -> None:
    stream = Stream()
    stream.begin()
    number = 50 * TASKS_TOLD_MAX
    stream.add(task(1.0, n, state) for n in range(number) for state in (READY, RUNNING, FINISHED))
    sent = stream.look()
    assert len(sent) < 10
    assert stream.seen == stream.all
    assert stream.seen.jobs["j1"].counts[FINISHED] == number


def test_who_does_not_know_all_tasks_is_told_how_many_until_there_are_few() -> None:
    stream = Stream()
    stream.begin()
    stream.add(task(1.0, n, READY) for n in range(2000))
    stream.look()
    assert stream.backlog.behind
    few = [task(2.0, n, state) for n in range(3) for state in (RUNNING, FINISHED)]
    stream.add(few)
    *told, totals = stream.look()
    assert told == few
    assert isinstance(totals, TaskCounts)
    assert stream.seen.jobs["j1"].counts == stream.all.jobs["j1"].counts
    assert len(stream.seen.jobs["j1"].live) == TASKS_NAMED_MAX - 3
    stream.add(task(3.0, n, FINISHED) for n in range(3, 1990))
    stream.look()
    assert not stream.backlog.behind
    last = task(4.0, 1995, RUNNING)
    stream.add([last])
    assert stream.look() == (last,)
    assert stream.seen == stream.all


def test_who_comes_late_to_many_tasks_is_told_few_by_name() -> None:
    stream = Stream()
    stream.add(task(1.0, n, READY) for n in range(2000))
    assert len(stream.begin()) == TASKS_NAMED_MAX + 1
    stream.add([task(2.0, 1500, RUNNING)])
    stream.look()
    assert stream.seen.jobs["j1"].counts == stream.all.jobs["j1"].counts
    assert 1500 in stream.seen.jobs["j1"].running


def test_who_never_looks_costs_no_memory() -> None:
    stream = Stream()
    stream.begin()
    for n in range(3 * COALESCE_AT):
        stream.add(
            [WorkerChanged(float(n), "r1.core0", "busy" if n % 2 else "idle", "j1"), task(float(n), n, READY)]
        )
        assert len(stream.backlog) < COALESCE_AT
    stream.look()
    assert stream.seen.workers == stream.all.workers
    assert stream.seen.jobs["j1"].counts == stream.all.jobs["j1"].counts


def test_a_failure_is_told_by_name_however_much_happens() -> None:
    stream = Stream()
    stream.begin()
    stream.add([task(1.0, 7, READY), task(1.0, 7, FAILED)])
    stream.add(task(1.0, n, state) for n in range(10, 9999) for state in (READY, FINISHED))
    stream.look()
    assert list(stream.seen.jobs["j1"].failures) == [7]


def life(job: str, task_id: int, at_s: float) -> Iterator[Record]:
    yield task(at_s, task_id, READY, job)
    yield task(at_s, task_id, RUNNING, job)
    yield task(at_s, task_id, FAILED if task_id % 7 == 3 else FINISHED, job)


job_ids = st.sampled_from(["j1", "j2"])
grant_ids = st.tuples(st.just(1), st.integers(1, 3))
names = st.sampled_from(["r1.core0", "r1.core1"])
others: st.SearchStrategy[Record] = st.one_of(
    st.builds(GrantChanged, st.just(1.0), job_ids, grant_ids, st.just(("r1.core0",)), st.booleans()),
    st.builds(ResourceChanged, st.just(1.0), names, st.just("core"), st.sampled_from(["added", "removed"])),
    st.builds(JobChanged, st.just(1.0), job_ids, st.sampled_from(["running", "finished"])),
)
steps = st.lists(st.one_of(st.integers(1, 9), others, st.just("look")), max_size=60)


@settings(max_examples=100)
@given(steps, st.integers(0, 1 << 32).map(Random))
def test_a_watcher_that_has_looked_counts_what_there_is(plan: list[object], random: object) -> None:
    """Tasks of two jobs live at one time, in any order, and the watcher looks now and then."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("TASKS_TOLD_MAX", 3), ("TASKS_NAMED_MAX", 2), ("COALESCE_AT", 8)):
            patch.setattr(backlog_module, name, value)
        stream = Stream()
        stream.add(life("j1", 0, 0.0))
        stream.begin()
        lives: list[Iterator[Record]] = []
        last = 0
        for step in plan:
            if isinstance(step, int):
                last += 1
                lives.append(life("j1" if last % 3 else "j2", last, float(last)))
                for _ in range(step):
                    one = random.choice(lives)  # type: ignore[attr-defined]
                    stream.add(record for record in (next(one, None),) if record is not None)
            elif step == "look":
                stream.look()
                _agree(stream)
            else:
                stream.add([step])  # type: ignore[list-item]
        stream.look()
        _agree(stream)


def _agree(stream: Stream) -> None:
    seen, everything = stream.seen, stream.all
    assert (seen.resources, seen.workers, seen.ended) == (
        everything.resources,
        everything.workers,
        everything.ended,
    )
    assert seen.jobs.keys() == everything.jobs.keys()
    for job_id, job in everything.jobs.items():
        mine = seen.jobs[job_id]
        assert mine.counts == job.counts
        assert (mine.held, mine.state, mine.failures) == (job.held, job.state, job.failures)
        assert mine.live.items() <= job.live.items()
