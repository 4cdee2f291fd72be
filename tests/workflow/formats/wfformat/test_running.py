"""Recorded runs that run again, and records that become such runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from gspc_trio.core.code import Program, fill
from gspc_trio.core.task import TaskState
from gspc_trio.records.facts import JobChanged, ResourceChanged, StreamOpened, TaskChanged, TaskFlow
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.definition import SettingError
from gspc_trio.workflow.formats.format import FormatError, NewFile, ReadOptions, Source, Surroundings
from gspc_trio.workflow.formats.in_tasks.python import RecordedWork, SyntheticFile
from gspc_trio.workflow.formats.wfformat.read import read_trace
from gspc_trio.workflow.formats.wfformat.running import TraceWorkflow, running_trace
from gspc_trio.workflow.formats.wfformat.trace import RecordedMachine, Trace, TraceTask
from gspc_trio.workflow.formats.wfformat.write import trace_of_records, write_trace
from tests.workflow.support import Driver, engine_for


def iso_time(at_s: float) -> str:
    return f"at {at_s:g}"


DIAMOND = Trace(
    "diamond",
    {
        "a": TraceTask("a", "split", (), ("in",), ("l", "r"), 2.0),
        "b": TraceTask("b", "work", ("a",), ("l",), ("lo",), 4.0, 3, ("echo", "{b}", "-n")),
        "c": TraceTask("c", "work", ("a",), ("r",), ("../ro*",), 4.0),
        "d": TraceTask("d", "join", ("b", "c"), ("lo", "../ro*"), ()),
        "e": TraceTask("e", "alone"),
    },
    {"in": 1000, "l": 500, "r": 600, "lo": 1, "../ro*": 2},
)


def running(trace: Trace = DIAMOND, **options: object) -> TraceWorkflow:
    return running_trace(trace, Source("runs/diamond.json", b""), ReadOptions(**options))  # type: ignore[arg-type]


def test_tasks_run_after_their_parents() -> None:
    workflow = running(scale=0.0)
    driver = Driver(engine_for(workflow.net), order=lambda number: number - 1).run()
    fired = driver.fired
    assert sorted(fired) == ["a", "b", "c", "d", "e"]
    assert all(fired.index(parent) < fired.index(child) for parent, child in DIAMOND.edges())
    outputs = driver.engine.outputs()
    assert list(workflow.show_outputs(outputs)) == ["diamond: 5 tasks of 10 recorded seconds have ended"]
    assert workflow.plain_outputs(outputs) == {"tasks": 5, "last_tasks": 2, "last_tasks_ended": 2}
    assert list(workflow.show_outputs({"ended": [None]})) == [
        "diamond: 1 of 2 tasks for which no other waits have ended"
    ]


def test_a_task_takes_as_long_and_as_many_cores_as_the_recorded_one() -> None:
    transitions = running(scale=0.5).net.transitions
    assert transitions["b"].run == RecordedWork(2.0)
    assert [need.resource_class for need in transitions["b"].shape.requirements] == ["core"] * 3
    assert transitions["b"].shape.same_host
    assert running(work="cpu", scale=0.1).net.transitions["b"].run == RecordedWork(0.4, 3)
    RecordedWork(0.001, 2)()


def test_the_recorded_program_runs_as_it_was_written() -> None:
    alone = Trace("w", {"b": DIAMOND.tasks["b"]}, {}).tasks["b"]
    net = running(Trace("w", {"b": TraceTask("b", "b", command=alone.command)}, {}), work="command").net
    transition = net.transitions["b"]
    assert isinstance(transition.run, Program)
    assert [fill(word, {"brace": "{"}) for word in transition.run.arguments] == ["echo", "{b}", "-n"]
    assert net.places["(brace)"].initial == ("{",)
    with pytest.raises(FormatError, match="the program of task 'a' is not recorded"):
        running(work="command")


def test_files_of_the_recorded_sizes_are_made_and_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = running(files=0.01, scale=0.0)
    assert workflow.files == (NewFile("diamond-files/in", 10),)
    transition = workflow.net.transitions["c"]
    assert transition.stage is not None
    assert transition.stage.fetch == (("r", "diamond-files/r"),)
    assert transition.stage.store == (("ro%2A", "diamond-files/ro%2A"),)
    assert running(files=1.0, scale=0.0).net.transitions["a"].run == RecordedWork(
        0.0, 0, (SyntheticFile("l", 500), SyntheticFile("r", 600))
    )
    monkeypatch.chdir(tmp_path)
    RecordedWork(0.0, 0, (SyntheticFile("x/l", 3_000_000), SyntheticFile("none", 0)))()
    assert (tmp_path / "x/l").stat().st_size == 3_000_000
    assert (tmp_path / "none").stat().st_size == 0


def test_a_trace_takes_no_values() -> None:
    with pytest.raises(SettingError, match="there is no input port 'x'"):
        running().workflow(["x=1"])


def finished(task_id: int, name: str, began_s: float, took_s: float, resource: str) -> TaskChanged:
    return TaskChanged(9.0, "j1", task_id, TaskState.FINISHED, 1, name, resource, "", began_s, took_s)


def test_records_become_the_graph_of_their_tokens() -> None:
    records = [
        StreamOpened(0.0, 0.0, "1"),
        JobChanged(0.0, "j1", "running", "squares"),
        ResourceChanged(0.0, "r1.core0", "core", "added", "n1"),
        ResourceChanged(0.0, "r1.core1", "core", "added", "n1"),
        TaskFlow(1.0, "j1", 1, "square", (), 1, ("data/in/x",), ("data/out/1",)),
        TaskFlow(1.0, "j1", 2, "square"),
        TaskFlow(2.0, "j1", 3, "the sum", (1, 2), 2, ("data/out/1",)),
        finished(1, "square", 100.0, 2.0, "r1.core0"),
        finished(2, "square", 101.0, 3.0, "r2.core7"),
        finished(3, "the sum", 104.0, 1.0, "r1.core1"),
        JobChanged(9.0, "j1", "finished", "squares"),
    ]
    sizes = {"data/in/x": 7}
    recorded = trace_of_records(records, Surroundings(sizes.get, iso_time))
    assert recorded.lost == ("file 'data/out/1': its size, for it is not there any more",)
    trace = read_trace(Source("t.json", write_trace(recorded.trace).encode()))
    assert trace.tasks == {
        "square#1": TraceTask(
            "square#1",
            "square",
            (),
            ("in/x",),
            ("out/1",),
            2.0,
            1,
            (),
            ("n1",),
            "at 100",
        ),
        "square#2": TraceTask("square#2", "square", (), (), (), 3.0, 1, (), ("r2",), "at 101"),
        "the_sum": TraceTask(
            "the_sum",
            "the sum",
            ("square#1", "square#2"),
            ("out/1",),
            (),
            1.0,
            2,
            (),
            ("n1",),
            "at 104",
        ),
    }
    assert trace.files == {"in/x": 7, "out/1": 0}
    assert trace.machines == (RecordedMachine("n1", 2), RecordedMachine("r2", 0))
    assert (trace.name, trace.makespan_s) == ("squares", 5.0)


def test_what_the_format_cannot_say_is_listed() -> None:
    records = [
        JobChanged(0.0, "j1", "running", "w"),
        TaskFlow(1.0, "j1", 5, "x", (4,)),
        TaskChanged(2.0, "j1", 5, TaskState.FAILED, 1, "x", "r1.core0", "it raised"),
        TaskFlow(1.0, "j1", 6, "y", ()),  # sent ahead and moved to another worker: one attempt
        TaskChanged(1.5, "j1", 6, TaskState.READY, 0, "y", detail="taken back"),
        finished(6, "y", 2.0, 0.5, "r1.core0"),
    ]
    lost = trace_of_records(records, Surroundings(lambda _: None, iso_time)).lost
    assert lost == (
        "task 'x': how it ended: it ended as failed",
        "task 'x': some tasks that it waits for, which these records do not have",
        "attempts: 1 task had several, or failed",
    )


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "of no task"),
        ([finished(1, "a", 1.0, 1.0, "")], "nothing of what tasks take"),
        ([JobChanged(0.0, "j1", "running"), JobChanged(0.0, "j2", "running")], "records of 2 jobs"),
    ],
)
def test_records_that_tell_too_little_are_refused(records: Sequence[object], said: str) -> None:
    with pytest.raises(WorkflowError, match=said):
        trace_of_records(records, Surroundings(lambda _: None, iso_time))  # type: ignore[arg-type]


def test_what_is_written_is_of_the_newest_version() -> None:
    told = json.loads(write_trace(DIAMOND))
    assert told["schemaVersion"] == "1.6"
    assert told["workflow"]["specification"]["tasks"][0]["children"] == ["b", "c"]
