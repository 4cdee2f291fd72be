# ruff: noqa: ARG001
"""The record stream of one component, and those who watch it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.core.task import TaskState
from gspc_trio.nursery.connections.memory import memory_pair
from gspc_trio.nursery.connections.rpc import Peer, PeerGone
from gspc_trio.records.backlog import COALESCE_AT, TASKS_TOLD_MAX
from gspc_trio.records.columns import columns_of, facts_of
from gspc_trio.records.facts import RifChanged, TaskChanged, TaskCounts, TaskFlow, WorkerChanged
from gspc_trio.records.lines import decode_record, decode_records
from gspc_trio.records.messages import RecordBatch
from gspc_trio.records.progress import Progress
from gspc_trio.records.shell.stream import SNAPSHOT_RECORDS_MAX, STALL_S, RecordStream, Watcher


def ready(task_id: int) -> TaskChanged:
    return TaskChanged(trio.current_time(), "j1", task_id, TaskState.READY, 0, "work")


@asynccontextmanager
async def watched(stream: RecordStream, credit: int) -> AsyncIterator[tuple[Peer, Watcher]]:
    """Somebody watches; yields the watcher's end of the connection."""
    watcher = Watcher()
    watcher.add_credit(credit)
    async with trio.open_nursery() as nursery:
        here, there = memory_pair("job", "j1", "control", "top", nursery)
        nursery.start_soon(stream.feed, there, watcher)
        yield here, watcher
        nursery.cancel_scope.cancel()


async def batches(peer: Peer) -> list[RecordBatch]:
    found: list[Any] = await peer.receive()
    assert all(isinstance(batch, RecordBatch) for batch in found)
    return found


async def test_a_watcher_gets_a_snapshot_and_then_what_happens(autojump_clock: MockClock) -> None:
    stream = RecordStream("test")
    stream.append(ready(1))
    async with watched(stream, 9) as (peer, _):
        (snapshot,) = await batches(peer)
        assert (snapshot.snapshot, snapshot.more) == (True, False)
        assert snapshot.records[0] == stream.opened
        assert snapshot.records[-1] == ready(1)
        stream.append(ready(2))
        stream.append(ready(3))
        (batch,) = await batches(peer)
        assert [record.task_id for record in batch.records if isinstance(record, TaskChanged)] == [2, 3]
        assert not batch.snapshot


async def test_a_long_snapshot_comes_in_parts(autojump_clock: MockClock) -> None:
    stream = RecordStream("test")
    for number in range(2 * SNAPSHOT_RECORDS_MAX):
        stream.append(RifChanged(0.0, f"r{number}", "h", "up"))
    async with watched(stream, 1) as (peer, _):
        parts = await batches(peer)
        assert [(part.snapshot, part.more) for part in parts] == [(True, True), (False, True), (False, False)]
        assert sum(len(part.records) for part in parts) == 2 * SNAPSHOT_RECORDS_MAX + 1


async def test_without_credit_nothing_is_sent(autojump_clock: MockClock) -> None:
    stream = RecordStream("test")
    async with watched(stream, 1) as (peer, watcher):
        await batches(peer)
        stream.append(ready(1))
        with trio.move_on_after(STALL_S / 2) as scope:
            await peer.receive()
        assert scope.cancelled_caught
        watcher.add_credit(1)
        (batch,) = await batches(peer)
        assert batch.records == (ready(1),) or batch.records[0].at_s < trio.current_time()


async def test_a_watcher_that_reads_no_more_costs_little_and_is_dropped(autojump_clock: MockClock) -> None:
    stream = RecordStream("test")
    async with watched(stream, 1) as (peer, watcher):
        await batches(peer)
        for number in range(3 * COALESCE_AT):
            stream.append(WorkerChanged(float(number), "r1.core0", "busy", "j1"))
            stream.append(ready(number))
        assert len(watcher.backlog) < COALESCE_AT
        with pytest.raises(PeerGone, match=f"it watched, and read nothing for {STALL_S:g} s"):
            await peer.receive()
        await trio.testing.wait_all_tasks_blocked()
        stream.append(ready(0))
        assert not stream._watchers


async def test_what_is_left_is_sent_at_the_end(autojump_clock: MockClock) -> None:
    stream = RecordStream("test")
    async with watched(stream, 1) as (peer, _):
        await batches(peer)
        stream.append(ready(1))
        stream.send_the_rest()
        (batch,) = await batches(peer)
        assert len(batch.records) == 1


async def test_two_watchers_see_the_same(autojump_clock: MockClock) -> None:
    stream = RecordStream("test")
    folds = [Progress(), Progress()]
    async with watched(stream, 99) as (first, _), watched(stream, 99) as (second, _):
        for number in range(500):
            stream.append(ready(number))
            if number % 50 == 0:
                await trio.sleep(0.07)
        await trio.sleep(1)
        for fold, peer in zip(folds, (first, second), strict=True):
            for batch in await batches(peer):
                for record in batch.records:
                    fold.apply(record)
    assert folds[0].jobs["j1"].counts == folds[1].jobs["j1"].counts == stream.progress.jobs["j1"].counts


def test_the_file_has_a_line_for_each_record(tmp_path: Path) -> None:
    async def main() -> None:
        stream = RecordStream("test")
        stream.open_file(tmp_path / "run.records")
        stream.append(ready(1))
        stream.close_file()
        stream.append(ready(2))
        lines = (tmp_path / "run.records").read_text().splitlines()
        assert [type(decode_record(line)).__name__ for line in lines] == ["StreamOpened", "TaskChanged"]

    trio.run(main)


async def test_when_the_disk_is_full_the_file_ends_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    stream = RecordStream("test")
    stream.open_file(Path("/dev/full"))
    for task_id in range(1000):
        stream.append(ready(task_id))
    stream.close_file()
    assert [record.getMessage() for record in caplog.records] == [
        "the file of records /dev/full ends here: No space left on device"
    ]
    assert sum(stream.progress.jobs["j1"].counts.values()) == 1000


async def test_it_asks_how_closely_to_look(autojump_clock: MockClock, tmp_path: Path) -> None:
    told: list[tuple[bool, bool]] = []

    def look(to_file: bool, watched: bool) -> bool:
        told.append((to_file, watched))
        return False

    stream = RecordStream("test", look)
    async with watched(stream, 1), watched(stream, 1):
        await trio.sleep(1)
        assert set(told) == {(False, True)}
    assert told[-1] == (False, False)
    stream.open_file(tmp_path / "run.records")
    assert told[-1] == (True, False)
    stream.close_file()
    assert told[-1] == (False, False)


async def test_a_glance_takes_the_place_of_what_was_known(autojump_clock: MockClock) -> None:
    stream = RecordStream("test", lambda _, watched: watched)
    seen = Progress()
    async with watched(stream, 9) as (peer, _):
        stream.append(ready(1))
        stream.renew([TaskCounts(0.0, "j1", {TaskState.FINISHED: 70}), ready(8)])
        await trio.sleep(1)
        for batch in await batches(peer):
            for record in batch.records:
                seen.apply(record)
    assert list(seen.jobs["j1"].live) == [8]
    assert seen.jobs["j1"].counts == stream.progress.jobs["j1"].counts
    assert seen.jobs["j1"].counts[TaskState.FINISHED] == 70


async def test_columns_go_to_the_file_as_they_are_and_to_watchers_one_by_one(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    stream = RecordStream("test")
    stream.open_file(tmp_path / "run")
    [columns] = columns_of(
        TaskChanged, {"at_s": 1.0, "job": "j1", "state": TaskState.READY}, {"task_id": [1, 2]}
    )
    stream.more = lambda: [TaskFlow(2.0, "j1", 1)]
    async with watched(stream, 9) as (peer, _):
        await batches(peer)
        stream.append(columns)
        stream.folds_tasks = False  # from now on the file alone has them
        stream.append(columns)
        stream.append(ready(3))
        (batch,) = await batches(peer)
        assert list(batch.records) == facts_of(columns)
    assert stream.progress.jobs["j1"].counts[TaskState.READY] == 2
    stream.close_file()
    lines = (tmp_path / "run").read_bytes().splitlines()
    kinds = [decode_records(line) for line in lines]
    assert [len(facts) for facts in kinds] == [1, 2, 2, 1, 1]
    assert kinds[-1] == [TaskFlow(2.0, "j1", 1)]


async def test_it_looks_again_before_very_many_are_told_one_by_one(autojump_clock: MockClock) -> None:
    def look(to_file: bool, watched: bool) -> bool:
        stream.folds_tasks = is_little
        return False

    is_little = True
    stream = RecordStream("test", look)
    same = {"at_s": 1.0, "job": "j1", "state": TaskState.READY}
    async with watched(stream, 9) as (peer, _):
        await batches(peer)
        is_little = False
        stream.append(columns_of(TaskChanged, same, {"task_id": range(9)})[0])
        stream.append(columns_of(TaskChanged, same, {"task_id": range(10, 10 + TASKS_TOLD_MAX + 1)})[0])
    assert stream.progress.jobs["j1"].counts[TaskState.READY] == 9


async def test_few_at_a_time_are_very_many_too(autojump_clock: MockClock) -> None:
    def look(to_file: bool, watched: bool) -> bool:
        looks.append(stream.progress.jobs["j1"].total if stream.progress.jobs else 0)
        return False

    looks: list[int] = []
    stream = RecordStream("test", look)
    same = {"at_s": 1.0, "job": "j1", "state": TaskState.READY}
    async with watched(stream, 9) as (peer, _):
        await batches(peer)
        looks.clear()
        for begin in range(0, 3 * TASKS_TOLD_MAX, 10):
            stream.append(columns_of(TaskChanged, same, {"task_id": range(begin, begin + 10)})[0])
        assert looks == [TASKS_TOLD_MAX, 2 * TASKS_TOLD_MAX + 10]
