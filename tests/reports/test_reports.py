from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.cli.common import CommandError, UsageError
from gspc_trio.cli.pictures import convert, write_report
from gspc_trio.components.job.shell.workflow_file import WorkflowFileError
from gspc_trio.components.monitor.io_frames import IO
from gspc_trio.components.monitor.shell.store import Store, StoredEvent
from gspc_trio.components.monitor.tables import Row
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import (
    JobChanged,
    Record,
    ResourceChanged,
    StreamOpened,
    TaskChanged,
    TaskFlow,
    WorkerChanged,
)
from gspc_trio.records.lines import decode_record, encode_record
from gspc_trio.reports.charts import BINS, there_cores, used_cores
from gspc_trio.reports.page import report_page
from gspc_trio.reports.run import NoTasks, critical_path, recorded_run
from gspc_trio.reports.trace_event import trace_lines

READY, SUBMITTED, RUNNING = TaskState.READY, TaskState.SUBMITTED, TaskState.RUNNING
FINISHED, FAILED = TaskState.FINISHED, TaskState.FAILED

RUN: list[Record] = [
    StreamOpened(0.0, 1000.0, "0.1"),
    ResourceChanged(0.0, "r1.core0", "core", "added", "east"),
    ResourceChanged(0.0, "r2.core0", "core", "added", "west"),
    JobChanged(0.0, "j1", "running", "flow"),
    TaskFlow(0.0, "j1", 1, "make"),
    TaskFlow(0.0, "j1", 2, "make"),
    TaskChanged(0.0, "j1", 1, READY, name="make"),
    TaskChanged(0.0, "j1", 2, READY, name="make"),
    TaskChanged(1.0, "j1", 1, SUBMITTED, 1, "make", "r1.core0"),
    TaskChanged(1.0, "j1", 2, SUBMITTED, 1, "make", "r2.core0"),
    TaskChanged(2.0, "j1", 2, FINISHED, 1, "make", "r2.core0", "", 1001.0, 1.0),
    TaskChanged(4.0, "j1", 1, FINISHED, 1, "make", "r1.core0", "", 1001.0, 3.0),
    TaskFlow(4.0, "j1", 3, "join", (1, 2)),
    TaskChanged(4.0, "j1", 3, READY, name="join"),
    TaskChanged(4.0, "j1", 3, RUNNING, 1, "join", "r1.core0"),
    WorkerChanged(5.0, "r1.core0", "lost"),
    TaskChanged(5.0, "j1", 3, READY, 1, "join", detail="lost: it died"),
    TaskChanged(5.0, "j1", 3, SUBMITTED, 2, "join", "r2.core0"),
    TaskChanged(
        8.0, "j1", 3, FINISHED, 2, "join", "r2.core0", "", 1006.0, 1.0, (1005.0, 1006.0, 1007.0, 1008.0),
        (("east", 2048, 0.5),),
    ),
    TaskChanged(8.0, "j1", 4, READY, name="<b>"),
    TaskChanged(8.0, "j1", 4, SUBMITTED, 1, "<b>", "r1.core0"),
    TaskChanged(
        10.0, "j1", 4, FAILED, 1, "<b>", "r1.core0", "no <i>", 1008.0, 2.0, output="\x1b[31mprinted <u>"
    ),
    JobChanged(10.0, "j1", "failed", "flow", "some tasks failed"),
]  # fmt: skip


def test_a_run_is_folded() -> None:
    run = recorded_run(RUN)
    assert (run.begin_s, run.end_s) == (1000.0, 1010.0)
    told = [(it.task_id, it.number, it.state, it.resource_id, it.waited_s) for it in run.attempts]
    assert told == [
        (2, 1, FINISHED, "r2.core0", 1.0),
        (1, 1, FINISHED, "r1.core0", 1.0),
        (3, 1, READY, "r1.core0", 1.0),
        (3, 2, FINISHED, "r2.core0", 0.0),
        (4, 1, FAILED, "r1.core0", 0.0),
    ]
    assert run.jobs["j1"].tasks == 4
    assert {state: count for state, count in run.jobs["j1"].counts.items() if count} == {
        FINISHED: 3,
        FAILED: 1,
    }
    assert run.moved == {("east", "west"): (2048, 0.5, 1)}


def test_a_task_that_is_taken_back_before_it_began_has_no_attempt_there() -> None:
    sent = TaskChanged(1.0, "j1", 1, SUBMITTED, 1, "make", "r1.core0")
    back = TaskChanged(2.0, "j1", 1, READY, 0, "make", detail="taken back")
    run = recorded_run([*RUN[:5], RUN[6], sent, back, *RUN[9:11], *RUN[8:9], *RUN[11:12]])
    told = [(it.task_id, it.number, it.state) for it in run.attempts]
    assert told == [(2, 1, FINISHED), (1, 1, FINISHED)]


def test_the_critical_path_goes_back_along_the_parents_that_ended_last() -> None:
    run = recorded_run(RUN)
    assert [it.task_id for it in critical_path(run, "j1")] == [1, 3]
    assert critical_path(run, "j2") == []


@given(
    st.lists(
        st.tuples(st.floats(0, 90), st.floats(0, 10), st.sampled_from(["r1.core0", "r2.core0"])), min_size=1
    )
)
def test_utilisation_adds_up_to_the_compute(spans: list[tuple[float, float, str]]) -> None:
    records: list[Record] = [
        StreamOpened(0.0, 1000.0, "0.1"),
        JobChanged(0.0, "j", "running"),
        ResourceChanged(0.0, "r1.core0", "core", "added", "east"),
        ResourceChanged(50.0, "r1.core0", "core", "removed", "east"),
    ]
    for number, (begin_s, took_s, name) in enumerate(spans, 1):
        records.append(TaskChanged(100.0, "j", number, FINISHED, 1, "t", name, "", 1000.0 + begin_s, took_s))
    run = recorded_run(records)
    bin_s = (run.end_s - run.begin_s) / BINS
    assert sum(used_cores(run)) * bin_s == pytest.approx(sum(took_s for _, took_s, _ in spans), abs=1e-6)
    expected_s = 50.0 if any(name == "r1.core0" for *_, name in spans) else 0.0
    assert sum(there_cores(run)) * bin_s == pytest.approx(expected_s, abs=1e-6)


def events_of(records: Iterable[Record]) -> list[dict[str, object]]:
    events: list[dict[str, object]] = json.loads("".join(trace_lines(recorded_run(records))))["traceEvents"]
    return events


def test_a_timeline_has_hosts_workers_phases_arrows_and_counters() -> None:
    events = events_of(RUN)
    named = [event["args"] for event in events if event["ph"] == "M"]
    names = {str(args["name"]) for args in named if isinstance(args, dict)}
    assert names >= {"east", "west", "r1.core0", "r2.core0", "r2.core0 stage-in", "r2.core0 stage-out"}
    slices = [event for event in events if event["ph"] == "X"]
    assert sorted(str(it["cat"]) for it in slices) == ["compute"] * 5 + ["stage-in", "stage-out"]
    assert {it["cname"] for it in slices if "cname" in it} == {"bad", "terrible"}
    arrows = [event for event in events if event.get("cat") == "token"]
    assert [event["ph"] for event in arrows] == ["s", "f", "s", "f"]
    last = {event["name"]: event["args"] for event in events if event["ph"] == "C"}
    assert last == {"computing": {"tasks": 0}, "waiting": {"tasks": 0}}


def test_slices_of_a_thread_do_not_cross_and_arrows_begin_in_slices() -> None:
    events = events_of(RUN)
    slices: dict[object, list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            begin, took = float(str(event["ts"])), float(str(event["dur"]))
            slices.setdefault(event["tid"], []).append((begin, begin + took))
    for spans in slices.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))
    for event in events:
        if event["ph"] in "sf":
            at = float(str(event["ts"]))
            assert any(begin <= at < end for begin, end in slices[event["tid"]])


def test_a_page_says_it_all_and_loads_nothing() -> None:
    page = report_page(recorded_run(RUN), "a <run>", str)
    assert "<h1>a &lt;run&gt;</h1>" in page
    assert "printed &lt;u&gt;" in page
    assert "no &lt;i&gt;" in page
    assert "lost: it died. It was tried again." in page
    assert "2.0 KiB" in page
    assert "The end of the job waited for 2 tasks, one after another: 4.00 s of compute in 8.00 s." in page
    assert not re.search(r"https?:|<script|<link|@import|url\(", page)
    assert not re.search(r"<(b|i|u)>[^<]*printed|\x1b", page)


def test_commands_write_files_and_tell_what_is_wrong(tmp_path: Path) -> None:
    records, page, trace = tmp_path / "run.jsonl", tmp_path / "run.html", tmp_path / "run.trace.json"
    records.write_text("".join(encode_record(record) + "\n" for record in RUN))
    assert [decode_record(line) for line in records.read_text().splitlines()] == RUN
    write_report(records, page)
    assert page.read_text().startswith("<!doctype html>")
    convert(records, trace)
    assert json.loads(trace.read_text())["traceEvents"]
    with pytest.raises(UsageError, match="is the file of records itself"):
        write_report(records, records)
    with pytest.raises(UsageError, match=r"a timeline is written of records \(\.jsonl\)"):
        convert(page, trace)
    with pytest.raises(WorkflowFileError, match="cannot read"):
        write_report(tmp_path / "none.jsonl", page)
    records.write_text(encode_record(RUN[0]) + "\n")
    with pytest.raises(WorkflowFileError, match="these records tell of no task"):
        write_report(records, page)
    records.write_text("{}\n")
    with pytest.raises(WorkflowFileError, match=r"run\.jsonl:1: not a record"):
        write_report(records, page)


def test_what_was_read_and_written_is_beside_it(tmp_path: Path) -> None:
    records = tmp_path / "run.jsonl"
    records.write_text("".join(f"{encode_record(record)}\n" for record in RUN))
    write_report(records, tmp_path / "plain.html")
    assert "Read and written" not in (tmp_path / "plain.html").read_text()
    with pytest.raises(CommandError, match="there are no metrics in"):
        write_report(records, tmp_path / "page.html", tmp_path)
    calls = {"file_read_ns": 5000, "file_read_random": 2, "file_read_to_1KiB": 2}
    store = Store(tmp_path, 1 << 30, wall=lambda: 1100.0)
    amounts = {"read_calls": 2, "read_bytes": 4096, "storage_read_bytes": 1024, **calls}
    rows = [Row(1010, ("east", job, 3, 1), 5.0, amounts) for job in ("j1", "j2")]
    store.write({IO.name: rows}, [StoredEvent(1003.0, "user", "half <way>", "east", "j1", 3)])
    store.close()
    write_report(records, tmp_path / "page.html", tmp_path)
    page = (tmp_path / "page.html").read_text().partition("Read and written")[2]
    assert "<td>j1</td>" in page
    assert "j2" not in page
    for told in ("4.0 KiB", "75%", "≤ 1KiB", "≤ 10 µs", "half &lt;way&gt;", "819 B in a second"):
        assert told in page


def test_records_without_tasks_make_no_report() -> None:
    with pytest.raises(NoTasks):
        recorded_run(RUN[:4])
