"""The reader of WfFormat: what it takes in, and what it says of what is wrong."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.workflow.formats.format import FormatError, Source
from gspc_trio.workflow.formats.wfformat.read import find_offsets, read_trace
from gspc_trio.workflow.formats.wfformat.trace import RecordedMachine, Trace, TraceTask
from gspc_trio.workflow.formats.wfformat.write import write_trace
from gspc_trio.workflow.structure import find_cycle


def wfformat(tasks: Any, execution: Any = None, **more: Any) -> str:
    """Return a file with these tasks."""
    workflow: dict[str, Any] = {"specification": {"tasks": tasks, **more}}
    if execution is not None:
        workflow["execution"] = execution
    return json.dumps({"name": "w", "schemaVersion": "1.5", "workflow": workflow})


def read(text: str | bytes) -> Trace:
    return read_trace(Source("w.json", text.encode() if isinstance(text, str) else text))


def problems(text: str | bytes) -> list[str]:
    """Return what is wrong, a line each."""
    with pytest.raises(FormatError) as error:
        read(text)
    return str(error.value).splitlines()


def test_what_is_recorded_of_tasks_files_and_machines_is_read() -> None:
    tasks = [
        {"id": "a", "name": "split", "parents": [], "children": ["b"], "outputFiles": ["x"]},
        {"id": "b", "name": "work", "parents": ["a"], "children": [], "inputFiles": ["x"]},
    ]
    execution = {
        "makespanInSeconds": 7,
        "executedAt": "2026-01-01T00:00:00Z",
        "tasks": [
            {"id": "b", "runtimeInSeconds": 2.5, "coreCount": 1.5, "machines": ["n1"]},
            {"id": "a", "runtimeInSeconds": 1, "command": {"program": "split", "arguments": ["-n", "2"]}},
        ],
        "machines": [{"nodeName": "n1", "cpu": {"coreCount": 8}}, {"nodeName": "n2"}],
    }
    trace = read(wfformat(tasks, execution, files=[{"id": "x", "sizeInBytes": 9}]))
    assert trace == Trace(
        "w",
        {
            "a": TraceTask("a", "split", (), (), ("x",), 1, 1, ("split", "-n", "2")),
            "b": TraceTask("b", "work", ("a",), ("x",), (), 2.5, 2, (), ("n1",)),
        },
        {"x": 9},
        (RecordedMachine("n1", 8), RecordedMachine("n2", 0)),
        7,
        "2026-01-01T00:00:00Z",
    )


def test_a_dependency_counts_that_one_side_has_stated() -> None:
    one = read(wfformat([{"id": "a", "children": ["b"]}, {"id": "b", "parents": []}]))
    other = read(wfformat([{"id": "a"}, {"id": "b", "parents": ["a", "a"]}]))
    assert list(one.edges()) == list(other.edges()) == [("a", "b")]


def test_a_workflow_that_never_ran_has_tasks_without_run_times() -> None:
    assert read(wfformat([{"id": "a"}])).tasks == {"a": TraceTask("a", "a")}


def test_all_that_is_wrong_is_said_with_its_place() -> None:
    text = """{"schemaVersion": "1.6", "workflow": {"specification": {"tasks": [
{"id": "a", "parents": ["c"], "children": ["bb"]},
{"id": "b", "parents": ["a"], "children": ["a"]},
{"id": 3}, {"id": "a"}, {"name": "nameless"}, {"id": ""}, 7]},
 "execution": {"tasks": [{"id": "q"}, {"id": "a", "coreCount": -1, "runtimeInSeconds": "1 s"}]}}}"""
    assert problems(text) == [
        "w.json:2:1: tasks wait for each other in a circle: 'a' waits for 'b' waits for 'a'",
        "w.json:2:25: there is no task 'c'",
        "w.json:2:44: there is no task 'bb'",
        "w.json:4:8: workflow.specification.tasks.id is 3; a text is wanted",
        "w.json:4:19: two tasks have the id 'a'",
        "w.json:4:25: workflow.specification.tasks.id is missing: a text is wanted",
        "w.json:4:54: the id is empty",
        "w.json:4:59: workflow.specification.tasks is 7; an object is wanted",
        "w.json:5:33: there is no task 'q'",
        "w.json:5:64: workflow.execution.tasks.coreCount is -1; a number from 0 to 2^63 is wanted",
        "w.json:5:88: workflow.execution.tasks.runtimeInSeconds is '1 s'; a number from 0 to 2^63 is wanted",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "w.json:1:1: this is no JSON: Expecting value"),
        ('{"a"\n:1,', "w.json:2:4: this is no JSON: Expecting property name enclosed in double quotes"),
        ("[" * 100_000, "w.json: this is no WfFormat: too many lists in lists"),
        ('{"a": NaN}', "w.json: this is no JSON: NaN is no number of JSON"),
        ('{"a":\n ' + "1" * 4301 + "}", "w.json:2:2: a number of more than 4,300 digits"),
        ("[]", "w.json:1:1: the file is []; an object is wanted"),
        ("[" * 800 + "]" * 800, "w.json:1:1: the file is [[[[[[[...]]]]]]]; an object is wanted"),
        (
            '{"schemaVersion": "1.4"}',
            "w.json:1:19: this is WfFormat '1.4'; 1.5 and 1.6 are read: bring it there with the migration "
            "tool of WfFormat",
        ),
        ('{"a": 1}', "w.json:1:1: there is no schemaVersion; 1.5 and 1.6 are read"),
        ('{"schemaVersion": "1.5"}', "w.json:1:1: workflow is missing: an object is wanted"),
        (wfformat([]), "w.json:1:79: there are no tasks"),
    ],
)
def test_what_is_no_wfformat_is_one_line(text: str, said: str) -> None:
    assert problems(text) == [said]


def test_what_is_wrong_ten_thousand_times_is_looked_for_a_thousand_times() -> None:
    said = problems(wfformat([{"id": ""} for _ in range(10_000)]))
    assert said[-1] == "w.json: and at least 950 more"


@given(st.data())
@settings(max_examples=30)
def test_nothing_but_its_own_error_leaves_the_reader(data: st.DataObject) -> None:
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["a", "b", "1.5", ""]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["id", "parents", "children", "tasks", "cpu", "machines", "command", "coreCount"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=12,
    )
    text = wfformat(data.draw(values), data.draw(values), files=data.draw(values))
    cut = data.draw(st.integers(0, len(text)))
    for each in (text, text[:cut], text[:cut] + data.draw(st.text(max_size=3)) + text[cut:]):
        with suppress(FormatError):
            read(each.encode(errors="surrogatepass"))


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Draw a trace whose tasks wait for earlier ones."""
    ids = [f"t{number}" for number in range(draw(st.integers(1, 8)))]
    tasks = {
        task_id: TraceTask(
            task_id,
            draw(st.sampled_from(["split", "work"])),
            tuple(draw(st.lists(st.sampled_from(ids[:number]), unique=True)) if number else ()),
            tuple(draw(st.lists(st.sampled_from(["x", "y"]), unique=True))),
            (),
            draw(st.floats(0, 1e6)),
            draw(st.integers(1, 64)),
            draw(st.sampled_from([(), ("sh", "-c", "{a}")])),
            draw(st.sampled_from([(), ("n1",)])),
        )
        for number, task_id in enumerate(ids)
    }
    return Trace("w", tasks, {"x": 1, "y": 2}, (RecordedMachine("n1", 4),), 3.0, "2026-01-01T00:00:00Z")


@given(traces())
@settings(max_examples=20)
def test_what_is_written_reads_back_to_the_same(trace: Trace) -> None:
    found = read(write_trace(trace))
    assert {task_id: set(task.parents) for task_id, task in found.tasks.items()} == {
        task_id: set(task.parents) for task_id, task in trace.tasks.items()
    }
    assert write_trace(found) == write_trace(read(write_trace(found)))
    assert [task.command for task in found.tasks.values()] == [task.command for task in trace.tasks.values()]


@given(st.dictionaries(st.integers(0, 6), st.lists(st.integers(0, 6), max_size=3), min_size=1))
@settings(max_examples=30)
def test_a_cycle_is_found_if_there_is_one(drawn: dict[int, list[int]]) -> None:
    parents = {str(task): tuple(str(one) for one in given if one in drawn) for task, given in drawn.items()}
    cycle = find_cycle(parents)
    for task, parent in pairwise(cycle):
        assert parent in parents[task]
    if cycle:
        assert cycle[0] == cycle[-1]
    left = dict(parents)
    while free := [task for task, waits in left.items() if not any(one in left for one in waits)]:
        for task in free:
            del left[task]
    assert bool(cycle) == bool(left)


def test_offsets_are_those_of_the_values() -> None:
    text = '{"a": [1, {"b\\"": "x:,"}], "c": true}'
    wanted = {("a",), ("a", 1), ("a", 1, 'b"'), ("c",), ("d",)}
    assert {path: text[at:][:4] for path, at in find_offsets(text, wanted).items()} == {
        ("a",): "[1, ",
        ("a", 1): '{"b\\',
        ("a", 1, 'b"'): '"x:,',
        ("c",): "true",
    }
