"""From where tasks took data, as hosts tell it and the store keeps it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from gspc_trio.components.monitor.locality import DISTANCES, DataRead, DataReads, read_topology, rows_of_reads
from gspc_trio.components.monitor.messages import MonitorTold
from gspc_trio.components.monitor.shell.collector import open_collector
from gspc_trio.components.monitor.shell.sampling import sample
from gspc_trio.components.monitor.shell.store import query
from gspc_trio.components.monitor.tables import Row
from gspc_trio.components.rts.shell.system import RtsSettings
from gspc_trio.core.task import Outcome, Reason, TaskError
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.protocol.listening import BadSetting
from tests.components.monitor.test_collector import Rif

RACKS = {"a": "left", "b": "left", "c": "right"}


def test_frames_are_told_once_when_they_are_over() -> None:
    reads = DataReads()
    reads.took("j1", "a", 32, 1001.0)  # nobody wanted to know
    reads.is_wanted = True
    for at_s, source, size in ((1001.0, "a", 1), (1004.9, "a", 2), (1004.0, "b", 4), (1005.0, "a", 8)):
        reads.took("j1", source, size, at_s)
    assert reads.close(1005.5) == ()
    assert reads.close(1006.0) == (DataRead(1000, "j1", "a", 3), DataRead(1000, "j1", "b", 4))
    reads.took("j1", "a", 16, 1002.0)  # the clock was set back: no old frame is opened
    assert reads.close(1011.0) == (DataRead(1005, "j1", "a", 24),)
    assert reads.close(2000.0) == ()


def test_bytes_are_sorted_by_distance() -> None:
    told = [DataRead(1000, "j1", source, 10) for source in ("a", "b", "c", "d")]
    told.append(DataRead(1005, "j2", "a", 1))
    assert list(rows_of_reads("a", told, RACKS)) == [
        Row(1000, ("a", "j1"), 5.0, {"node_bytes": 10, "rack_bytes": 10, "inter_rack_bytes": 20}),
        Row(1005, ("a", "j2"), 5.0, {"node_bytes": 1}),
    ]
    assert [row.values for row in rows_of_reads("x", [DataRead(0, "j", "y", 7)], {})] == [{"rack_bytes": 7}]
    with pytest.raises(ValueError, match="no task of a has taken so much"):
        list(rows_of_reads("a", [DataRead(0, "j", "a", 1 << 63)], RACKS))


@given(
    st.lists(st.tuples(st.floats(0, 40), st.sampled_from("abcd"), st.integers(0, 99))),
    st.lists(st.floats(0, 60)),
)
def test_no_byte_is_lost_or_counted_twice(told: list[tuple[float, str, int]], looks: list[float]) -> None:
    reads, rows = DataReads(), list[Row]()
    reads.is_wanted = True
    for at_s, source, size in told:
        reads.took("j", source, size, at_s)
        if looks:
            rows += rows_of_reads("a", reads.close(looks.pop()), RACKS)
    rows += rows_of_reads("a", reads.close(1e9), RACKS)
    sums = [sum(row.values.get(name, 0) for row in rows) for name in DISTANCES]
    groups = ("a", "b", "cd")
    assert sums == [sum(size for _, source, size in told if source in group) for group in groups]
    assert reads.close(1e10) == ()


async def test_a_clock_that_is_set_back_or_forward_opens_no_old_frame_and_loses_no_byte(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    steps, told = {17: -3600.0, 64: 7200.0}, list[DataRead]()
    reads, begin, off_s = DataReads(), autojump_clock.current_time(), 0.0

    def wall() -> float:
        return 1000.0 + off_s + autojump_clock.current_time() - begin

    def post(one: MonitorTold) -> None:
        told.extend(one.reads)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(sample, post, reads, root=tmp_path, wall=wall))
        await trio.sleep(0.5)
        for second in range(90):
            off_s += steps.get(second, 0.0)
            reads.took("j1", "b", 1, wall())
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    frames = [one.begin_s for one in told]
    assert frames == sorted(set(frames)), "each is told once, and none that is older than one before"
    # While the clock is an hour behind, frames last twice as long; then it is an hour ahead.
    assert [one.read_bytes for one in told] == [5, 5, 5, 10, 10, 10, 10, 9, 1, 5, 5, 5, 5]
    assert sum(one.read_bytes for one in told) + sum(one.read_bytes for one in reads.close(1e9)) == 90


@pytest.mark.parametrize("text", ["left", "left:", ": a", "left right: a", "left: a\nright: b a"])
def test_a_topology_that_says_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "topology").write_text(text)
    with pytest.raises(BadSetting, match=r"line [12]"):
        RtsSettings(monitor=tmp_path, topology=tmp_path / "topology").checked()
    with pytest.raises(BadSetting, match="it is for what"):
        RtsSettings(topology=tmp_path / "topology").checked()
    assert read_topology("# nothing\n\nleft: a b\nright: c") == RACKS


async def test_racks_come_from_a_file_or_from_the_options_of_hosts(tmp_path: Path) -> None:
    rif = cast("Peer", Rif())
    async with open_collector(tmp_path, 1 << 30, racks={"b": "left"}) as collector:
        collector.greet(rif, "a", "left")
        collector.greet(rif, "c")
        collector.heard(rif, "a", MonitorTold(reads=tuple(DataRead(0, "j", source, 1) for source in "abc")))
    assert query(tmp_path, f"SELECT {', '.join(DISTANCES)} FROM locality").rows == [(1, 1, 1)]


def test_tasks_that_fail_because_a_device_does_are_counted() -> None:
    reads = DataReads()
    bad, missing = "[Errno 5] Input/output error", "[Errno 2] No such file or directory"
    errors = (TaskError("OSError", bad), TaskError("OSError", missing), TaskError("ValueError", bad), None)
    reads.ended(Outcome(1, 1, Reason.FAILED, error=error) for error in errors)
    assert reads.io_errors == 1
