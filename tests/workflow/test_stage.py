"""What transitions say about the files and ranges of their tasks."""

from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.core.code import Program
from gspc_trio.core.staging import Data, Gather, Named, Scatter, optional, split_plan
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.workflow.arcs import WorkflowError, each, take
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import farm

RUN = Program(["true"])


def transition(**settings: Any) -> None:
    net = Net("files")
    name, text = net.input("name"), net.input("text")
    outputs = settings.pop("outputs", {"stdout": net.output("told"), "made": net.output("made")})
    net.transition("run", RUN, settings.pop("inputs", {"name": name, "text": text}), outputs, **settings)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"stage_in": {"/etc/passwd": "a"}}, "'/etc/passwd' is absolute"),
        ({"stage_in": {"a": "../b"}}, "leads out"),
        ({"stage_out": {"a/../../b": "b"}}, "leads out"),
        ({"stage_out": {"a": "/b"}}, "is absolute"),
        ({"stage_in": {"a": 5}}, "is a name or Data"),
        ({"stage_in": {5: "a"}}, "5 is no name"),
        ({"stage_in": "a"}, "is True, False or a mapping"),
        ({"stage_in": {"a": Data("nobody")}}, "'nobody', which is no input; there are: name, text"),
        ({"stage_out": {"a": Data("nothing")}}, "the port 'nothing'; there are: 'stdout', 'made'"),
        ({"stage_out": {"a": Data("made"), "b": Data("made")}}, "two files are one output"),
        ({"output_ranges": {"made": "nobody"}}, "no input"),
        ({"output_ranges": {"nothing": "text"}}, "the port 'nothing'"),
        ({"output_ranges": {"made": "text"}, "stage_out": {"a": Data("made")}}, "cannot fill a range"),
        ({"stage_in": {"a": Data("text")}, "inputs": {"text": take("text", 2)}}, "several tokens"),
        ({"stage_in": {"a": "in-{text}"}, "inputs": {"text": take("text", 2)}}, "which is a batch of tokens"),
        ({"stage_out": {"a": Data("made")}, "outputs": {"made": each("made")}}, "one token"),
        ({"stage_out": {"a/": Data("made")}, "outputs": {"made": each("made")}}, "a directory, which is one"),
        (
            {"stage_in": {"a": "in/*.txt"}},
            r"stands for several files: end the name .* or put {index} into it",
        ),
        ({"stage_in": {"a": ["b", "c"]}}, "is a list of files: end the name"),
        ({"stage_in": {"a/": []}}, "is empty"),
        ({"stage_in": {"a": "in/"}}, "'in/' is a directory: so must 'a' be"),
        ({"stage_in": {"a/": "in/*/"}}, "is a pattern of directories"),
        ({"stage_in": {"a/": "../b/*"}}, "leads out"),
        ({"stage_in": {"../a/": "b/*"}}, "leads out"),
        ({"stage_in": {"a/": optional(Data("text"))}}, "which is always there: leave optional out"),
        ({"stage_in": {"a/": Named("text")}}, "has no name of a file: say 'a/text'"),
        ({"stage_out": {"*.txt": "b"}}, r"stands for several files: end 'b' with /, or put {index} into it"),
        ({"stage_out": {"a/": "b-{index}"}}, "'a/' stands for several files: end 'b-{index}' with /"),
        (
            {"stage_in": {"a": "b/{nme}.txt"}, "inputs": {"name": "text"}},
            r"'b/{nme}.txt' has {nme}, which is no input \(did you mean 'name'\?\); there are: name",
        ),
        ({"stage_in": {"a/": ["b", "{nme}"]}, "inputs": {"name": "text"}}, "has {nme}, which is no input"),
        ({"stage_out": {"a": "{nme}/b"}, "inputs": {"name": "text"}}, "has {nme}, which is no input"),
        ({"stage_out": {"*": "{nme}-{index}"}, "inputs": {"name": "text"}}, "has {nme}, which is no input"),
        ({"stage_out": {"a": "b-{index:02}"}}, "has {index}, which numbers several files, and this is one"),
        (
            {"stage_in": {"{name}": "b"}, "inputs": {"name": "text"}},
            "only its name on the host of the job may",
        ),
        (
            {"stage_out": {"{name}": "b"}, "inputs": {"name": "text"}},
            "only its name on the host of the job may",
        ),
        ({"stage_out": {"../*": "b/"}}, "leads out"),
        ({"stage_out": {"*": "/b/"}}, "is absolute"),
        (
            {"stage_out": {"*": "b-{index}"}, "inputs": {"index": "text"}},
            "numbers files, but 'index' is an input, too",
        ),
        ({"stage_out": {"a": Data("made")}, "outputs": ["made"]}, "its outputs are no mapping"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(WorkflowError, match=problem):
        transition(**settings)


def test_the_engine_itself_has_no_files() -> None:
    net = Net("inline")
    with pytest.raises(WorkflowError, match="only tasks have files"):
        net.transition("x", str, net.input("a"), net.output("b"), inline=True, stage_in={"f": "g"})


def engine_of(net: Net, **values: Any) -> WorkflowEngine:
    return WorkflowEngine(net, values, dumps=dumps, loads=loads)


def test_a_task_carries_the_plan_of_its_files() -> None:
    net = Net("files")
    name, text, status = net.input("name"), net.input("text"), net.output("status")
    net.transition(
        "run",
        RUN,
        {"name": name, "_text": text},
        {"made": net.output("made"), "exit_status": status},
        stage_in={"in.txt": "corpus/{name}.txt", "text.txt": Data("_text")},
        stage_out={"out/x": Data("made"), "n": "counts/{name}"},
    )
    engine = engine_of(net, name=["a"], text=[b"content"])
    task_id = engine.next()
    assert task_id is not None
    task = engine.extract(task_id)
    plan, values, behind = split_plan(task.arguments)
    assert plan is not None
    assert (values, behind) == ((dumps("a"), dumps(b"content")), ())
    assert (plan.arguments, plan.ranges) == (1, ())
    assert plan.fetch == (("in.txt", "corpus/a.txt"), ("text.txt", 1))
    assert plan.store == (("out/x", 1), ("n", "counts/a"))  # outputs from files come last
    assert task.options.stage_in
    assert task.options.stage_out
    assert [entry.outputs for entry in engine.code_table] == [(("exit_status", False),)]
    engine.inject(task_id, ((dumps(0),), (dumps(b"made"),)))
    assert engine.outputs() == {"made": [b"made"], "status": [0]}


def test_a_farm_has_a_file_for_each_item() -> None:
    engine = engine_of(farm(len, stage_in={"f": "in/{item}"}, stage_out={"g": "out/{items}"}), items=["a"])
    task_id = engine.next()
    assert task_id is not None
    plan, _, _ = split_plan(engine.extract(task_id).arguments)
    assert plan is not None
    assert (plan.fetch, plan.store) == ((("f", "in/a"),), (("g", "out/a"),))


def test_staging_without_files_is_as_ever() -> None:
    net = farm(len, stage_in=True)
    engine = engine_of(net, items=["a"])
    task_id = engine.next()
    assert task_id is not None
    task = engine.extract(task_id)
    assert task.arguments == (dumps("a"),)
    assert (task.options.stage_in, task.options.stage_out) == (True, False)


def test_a_task_carries_sets_of_files() -> None:
    net = Net("sets")
    name, parts, more = net.input("name"), net.input("parts"), net.input("more")
    net.transition(
        "run",
        RUN,
        {"name": name, "_parts": take(parts, 2), "_more": more},
        {"exit_status": net.output("status"), "made": each(net.output("made"))},
        stage_in={
            "in/": "{name}/*.txt",
            "part-{index}": Data("_parts"),
            "more/": ["x", "{_more}/", "[{name}]"],
            "notes": optional("notes/{name}"),
            "lone": "lone/{name}",
        },
        stage_out={"*.csv": Data("made"), "out/": optional("out/{name}/"), "log": "logs/{name}/"},
    )
    engine = engine_of(net, name=["a*"], parts=[b"1", b"2"], more=[["y", "z"]])
    task_id = engine.next()
    assert task_id is not None
    plan, values, _ = split_plan(engine.extract(task_id).arguments)
    assert plan is not None
    assert values == (dumps("a*"), dumps(b"1"), dumps(b"2"))
    assert plan.fetch == (("lone", "lone/a*"),)
    assert plan.gather == (
        Gather("in/", ("a[*]/*.txt",)),
        Gather("part-{index}", (1, 2)),
        Gather("more/", ("x", "y/", "z/", "[a[*]]")),
        Gather("notes", ("notes/a[*]",), True),
    )
    assert plan.scatter == (Scatter("*.csv", 1, True), Scatter("out/", "out/a*/", is_optional=True))
    assert plan.store == (("log", "logs/a*/log"),)
    assert plan.file_arguments == {1, 2}
    engine.inject(task_id, ((dumps(0),), (dumps(b"1"), dumps(b"2"))))
    assert engine.outputs()["made"] == [b"1", b"2"]
