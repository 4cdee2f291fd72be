"""What was read and written, added up from a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gspc_trio.components.monitor.io_frames import IO
from gspc_trio.components.monitor.messages import NodeFrame
from gspc_trio.components.monitor.reports import GetIo, IoEvent, IoReport, IoSum
from gspc_trio.components.monitor.shell.reports import read_io, records_of
from gspc_trio.components.monitor.shell.store import Store, StoredEvent, StoreError
from gspc_trio.components.monitor.tables import NODES, Row
from gspc_trio.records.facts import HostLoad, RifChanged, StreamOpened


def store_of(directory: Path, *rows: Row, events: tuple[StoredEvent, ...] = ()) -> None:
    store = Store(directory, 1 << 30, wall=lambda: 2000.0)
    store.write({IO.name: [row for row in rows if len(row.keys) > 1]}, events)
    store.write({NODES.name: [row for row in rows if len(row.keys) == 1]})
    store.close()


CALLS = {
    "file_read_ns": 90_000, "file_read_random": 3, "file_read_to_100": 3,
    "file_write_ns": 500, "file_write_forward": 1, "file_write_to_1KiB": 1,
}  # fmt: skip
FIRST = {"read_calls": 3, "read_bytes": 100, "storage_read_bytes": 25, "write_bytes": 7, **CALLS}


def test_a_job_is_added_up_with_its_calls_its_steps_and_its_events(tmp_path: Path) -> None:
    store_of(
        tmp_path,
        Row(1000, ("a", "j1", 1, 1), 5.0, FIRST),
        Row(1005, ("b", "j1", 2, 1), 5.0, {"read_bytes": 10}),
        Row(1005, ("a", "j2", 1, 1), 5.0, {"read_bytes": 1000}),
        Row(900, ("a", "j1", 1, 1), 5.0, {"read_bytes": 5000}),  # before
        Row(1010, ("a", "j1", 1, 1), 5.0, {"read_bytes": 5000}),  # may be incomplete
        events=(
            StoredEvent(1001.0, "user", "half way", "a", "j1", 1),
            StoredEvent(1002.0, "swapping", "a lot", "b"),
            StoredEvent(1003.0, "user", "of another", "a", "j2", 1),
        ),
    )
    found = read_io(tmp_path, GetIo("job", "j1", 15), 1013.5)
    amounts = {**FIRST, "read_bytes": 110}
    assert found == IoReport(
        995, 5, ((0,) * 6, (3, 0, 100, 7, 25, 0), (0, 0, 10, 0, 0, 0)),
        (IoSum(("j1",), amounts, (0, 107, 10), (0, 0, 3, 0, 0, 0, 0), (1, 0, 0, 0, 0, 0, 0)),),
        0,
        (
            IoEvent(1001.0, "user", "a", "j1", 1, "half way"),
            IoEvent(1002.0, "swapping", "b", "", 0, "a lot"),
        ),
    )  # fmt: skip
    assert found.series("read_bytes", "write_bytes") == [0.0, 107 / 5, 2.0]
    assert found.hits() == [None, 0.75, 1.0]
    assert found.sums[0].sizes("read")[:2] == (3, 0)
    assert [one.keys for one in read_io(tmp_path, GetIo("task", "", 15), 1013.5).sums] == [
        ("j2", "1", "1"), ("j1", "1", "1"), ("j1", "2", "1"),
    ]  # fmt: skip
    assert read_io(tmp_path, GetIo("job", "j9", 15), 1013.5).sums == ()
    with pytest.raises(StoreError, match=r"by=hosts: there are job, task, host \(did you mean 'host'"):
        read_io(tmp_path, GetIo("hosts"), 1013.5)


def test_jobs_of_earlier_runs_are_told_apart_and_a_live_run_sees_its_own(tmp_path: Path) -> None:
    for host, amount in (("a", 7), ("b", 100)):
        row = Row(1000, (host, "j1", 1, 1), 5.0, {"read_bytes": amount})
        store_of(tmp_path, row, events=(StoredEvent(1001.0, "user", host),))
    found = read_io(tmp_path, GetIo("task", "j1", 15), 1013.5)
    shown = [(one.keys, one.run, one.amounts["read_bytes"], sum(one.moved_bytes)) for one in found.sums]
    assert shown == [(("j1", "1", "1"), 0, 100, 100), (("j1", "1", "1"), 1, 7, 7)]
    assert (found.more, [one.detail for one in found.events]) == (0, ["a", "b"])
    own = read_io(tmp_path, GetIo("job", "", 15), 1013.5, run=1)
    assert [(one.keys, one.run, one.amounts["read_bytes"]) for one in own.sums] == [(("j1",), 0, 7)]
    assert [one.detail for one in own.events] == ["a"]
    assert [one.run for one in read_io(tmp_path, GetIo("host", "", 15), 1013.5).sums] == [0, 0]


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.integers(1, 9))),
    st.integers(0, 2000),
    st.sampled_from([5, 600, 601, 1999]),
)
def test_steps_and_sums_agree_with_a_naive_model(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[int, int, int]], until_s: int, last_s: int
) -> None:
    directory = tmp_path_factory.mktemp("store")
    store_of(
        directory,
        *(Row(5 * at, ("a", f"j{job}", 1, 1), 5.0, {"write_bytes": amount}) for at, job, amount in told),
    )
    found = read_io(directory, GetIo(last_s=last_s), float(until_s))
    end_s = (until_s - 3) // 5 * 5  # what is told later may be incomplete
    inside = [(5 * at, job, amount) for at, job, amount in told if found.begin_s <= 5 * at < end_s]
    assert abs(end_s - last_s - found.begin_s) <= found.step_s
    jobs = {job for _, job, _ in inside}
    assert {one.keys: one.amounts["write_bytes"] for one in found.sums} == {
        (f"j{job}",): sum(amount for _, of, amount in inside if of == job) for job in jobs
    }
    for one in found.sums:
        assert sum(one.moved_bytes) == one.amounts["write_bytes"]
    assert sum(step[3] for step in found.steps) == sum(amount for _, _, amount in inside)


def test_a_store_can_be_replayed(tmp_path: Path) -> None:
    frame = NodeFrame(1000, 5.0)
    values = {"load": 1.5, "cpu_user_ms": 4000, "cpu_system_ms": 1000, "cpu_idle_ms": 5000}
    memory = {"memory_bytes": 102_400.0, "memory_available_bytes": 25_600.0}  # as kernels tell it: in KiB
    with pytest.raises(StoreError, match=r"monitor\.db is missing"):
        list(records_of(tmp_path))
    store_of(tmp_path, Row(frame.begin_s, ("a",), frame.covered_s, {**values, **memory}))
    up = RifChanged(5.0, "a", "a", "up")
    load = HostLoad(5.0, "a", "a", 1.5, 2, 0.5, 76_800, 102_400)
    assert list(records_of(tmp_path)) == [StreamOpened(0.0, 1000.0, ""), up, load, up]
