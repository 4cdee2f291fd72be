"""Pools of tasks: what each gets, when it runs, what it needs."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.code import Program, SourceFile
from gspc_trio.core.staging import Named
from gspc_trio.core.task import Requirement
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.formats.in_tasks.python import NextToken, PoolTask, SourceCall
from gspc_trio.workflow.patterns.pool import DataLayout, PoolTaskDescription, pool, task
from tests.workflow.support import Driver, engine_for


def listed(*arguments: object) -> list[object]:
    return list(arguments)


def threads() -> str:
    return os.environ["OMP_NUM_THREADS"]


def test_a_task_gets_its_input_then_the_outputs_of_its_dependencies_then_its_arguments() -> None:
    a = task("", "", listed, [1], id="a")
    b = task("in/x.txt", "out/b.txt", listed, [2], id="b")
    c = task("y.txt", "", listed, [3], dependencies=[a, b], id="c")
    transition = pool([c, b, a], "three").transitions["c"]
    assert isinstance(transition.run, PoolTask)
    assert transition.run(["made by a"]) == ["y.txt", ["made by a"], "b.txt", 3]
    assert [arc.place for arc in transition.inputs if arc.passed] == ["a -> c"]
    assert [arc.place for arc in transition.inputs if not arc.passed] == ["b -> c"]
    assert transition.stage is not None
    assert transition.stage.fetch == (("y.txt", "y.txt"), ("b.txt", "out/b.txt"))


def test_a_task_waits_for_who_makes_what_it_reads() -> None:
    made = task("", "iml:numbers", listed, id="make")
    read = task(["iml:numbers", "iml:elsewhere"], "", listed, ["end"], id="read")
    net = pool([read, made])
    assert [arc.place for arc in net.transitions["read"].inputs] == ["make -> read", "data:elsewhere"]
    assert net.transitions["make"].run == PoolTask(listed, (), 1, "numbers", 1)
    assert net.places["data:elsewhere"].initial == (Named("elsewhere"),)
    assert net.outputs == ["read"]


def test_threads_are_cores_of_one_host_and_the_code_is_told() -> None:
    layout = DataLayout("x.txt", ("n1", "n2"))
    net = pool([task(layout, "", threads, threads=3, id="t", attempts=2)])
    transition = net.transitions["t"]
    assert transition.shape.requirements == (Requirement("core", ("n1.node", "n2.node")),) * 3
    assert transition.shape.same_host
    assert transition.options.attempts == 2
    before = os.environ.get("OMP_NUM_THREADS")
    assert PoolTask(threads, (), 3)() == "3"
    assert os.environ.get("OMP_NUM_THREADS") == before


def test_a_program_gets_what_it_names() -> None:
    a, b = task("", "", listed, id="a"), task("", "b.txt", Program(["touch", "b.txt"]), id="b")
    c = task("", "", Program(["cat", "b.txt", "{a}"]), ["-n"], 2, ["a", "b"], id="c")
    transition = pool([a, b, c]).transitions["c"]
    assert transition.run == Program(["cat", "b.txt", "{a}", "-n"], environment={"OMP_NUM_THREADS": "2"})
    assert [(arc.name, arc.place) for arc in transition.inputs] == [("a", "a -> c"), ("_0", "b -> c")]
    assert transition.stage is not None
    assert transition.stage.fetch == (("b.txt", "b.txt"),)


def make(*args: Any, **more: Any) -> PoolTaskDescription:
    return task(*args, **{"id": "a", **more})


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            lambda: make("ftp:x/y", "", listed),
            "'ftp:x/y' is no data that it could have: a path, file:PATH",
        ),
        (lambda: make("dir://u:secret@x/y", "", listed), r"dir://u:\*\*\*@x/y: dir:// is not for data"),
        (lambda: make("", "iml:", listed), "'iml:' is no data"),
        (lambda: make("", "", listed, threads=0), "threads must be at least 1, not 0"),
        (lambda: make("", "", listed, id=""), "its id is empty"),
        (lambda: make("", DataLayout("iml:x", policy="spread:2"), listed), "the policy 'spread:2' is none"),
        (lambda: make("", DataLayout("iml:x", policy="striped:0"), listed), "the policy 'striped:0' is none"),
        (lambda: make("", DataLayout("iml:x", policy="single:"), listed), "the policy 'single:' is none"),
        (lambda: make(DataLayout("iml:x", policy="twice"), "", listed), "the policy 'twice' is none"),
        (lambda: make("", DataLayout("x", policy="striped:2"), listed), "is for output in the memory"),
        (
            lambda: make("", DataLayout("x", policy="replicated:2"), listed),
            "is for output in the memory",
        ),
        (lambda: make("", "iml:x", Program(["x"])), "only what a function returns can be published"),
        (lambda: make("", "", listed, requires="gpu"), "leave requires and same_host out"),
        (lambda: pool([make("", "", listed), make("", "", listed)]), "two tasks have the id 'a'"),
        (lambda: pool([make("", "", listed, dependencies=["b"])]), "task 'a': there is no task 'b'"),
        (lambda: pool([make("", "", listed, dependencies=["a"])]), "'a' waits for 'a'"),
        (lambda: pool([make(["x/f", "y/f"], "", listed)]), "two of its files have the name 'f'"),
        (lambda: pool([make("", "", listed, attempts=0)]), "task 'a': .*attempts must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(build: Any, said: str) -> None:
    with pytest.raises(WorkflowError, match=said):
        build()


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=1, max_size=8), st.randoms())
@settings(max_examples=40)
def test_results_are_those_of_a_plain_walk_in_order(drawn: list[list[int]], random: Any) -> None:
    tasks, expected = [], {}
    for number, waits in enumerate(drawn):
        parents = list(dict.fromkeys(wait for wait in waits if wait < number))
        tasks.append(
            task("", "", listed, [number], dependencies=[f"t{one}" for one in parents], id=f"t{number}")
        )
        expected[f"t{number}"] = [*(expected[f"t{one}"] for one in parents), number]
    random.shuffle(tasks)
    outputs = Driver(engine_for(pool(tasks)), order=random.randrange).run().engine.outputs()
    assert outputs == {name: [expected[name]] for name in outputs}
    assert outputs.keys() == expected.keys() - {name for one in tasks for name in one.dependencies}


def test_a_function_of_a_source_file_travels_with_its_text(tmp_path: Path) -> None:
    path = tmp_path / "steps-1.py"  # no name of a module
    path.write_text("import os\n\ndef threads(*given):\n    return [os.environ['OMP_NUM_THREADS'], *given]\n")
    code = SourceFile(str(path), "threads")
    net = pool([task("", "", code, [7], threads=3, id="a"), task("", "", code, dependencies=["a"], id="b")])
    sent = pickle.loads(pickle.dumps(net.transitions["a"].run))
    path.unlink()
    assert sent() == ["3", 7]
    path.write_text("from os import *\ndef main(): return __name__\n")
    assert SourceCall(str(path), "main")() == "steps-1"
    assert pickle.loads(pickle.dumps(SourceCall(str(path), "getcwd")))() == os.getcwd()
    path.write_text("x = 1\n")
    for text, wrong in (("x = 1\n", ValueError), ("x =\n", SyntaxError)):
        path.write_text(text)
        with pytest.raises(wrong):
            pickle.dumps(SourceCall(str(path), "main"))


def test_published_output_lies_as_its_policy_says() -> None:
    for policy, copies, stripes in (("single", 1, 1), ("replicated:3", 3, 1), ("striped:2", 1, 2)):
        output = DataLayout("iml:x", policy=policy)
        run = pool([task("", output, listed, id="a")]).transitions["a"].run
        assert isinstance(run, PoolTask)
        assert (run.publishes, run.copies, run.stripes) == ("x", copies, stripes)


def test_a_token_is_no_value_of_the_user() -> None:
    assert PoolTask(listed, (NextToken(), "x"))("token") == ["token", "x"]
