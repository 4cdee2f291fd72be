from __future__ import annotations

from typing import Any

import pytest

from gspc_trio.core.code import Program, SourceFile
from gspc_trio.core.task import Requirement
from gspc_trio.workflow.arcs import WorkflowError, each, forward, take
from gspc_trio.workflow.net import Net


def add(a: int, b: int) -> int:
    return a + b


def net() -> Net:
    made = Net("n")
    made.input("a")
    made.place("b", [1])
    made.output("out")
    return made


BAD: list[tuple[dict[str, Any], str]] = [
    ({"run": add, "inputs": ["a"]}, r"add\(a, b\) does not fit its inputs \(a\): missing .*'b'"),
    ({"run": add, "inputs": {"a": "a", "c": "b"}}, r"does not fit its inputs \(a, c\): missing .*'b'"),
    ({"run": add, "inputs": {"a": "a"}, "reads": {"a": "b"}}, "'a' is both an input and a read"),
    ({"run": add, "inputs": {"a": "a"}, "reads": ["b"]}, "inputs have names, so the reads need names too"),
    ({"run": add, "reads": ["a", "b"]}, "it takes no token, so it could fire for ever"),
    ({"run": add, "inputs": ["a"], "reads": {"b": "a"}}, "it both takes from and reads place 'a'"),
    ({"run": add, "inputs": ["a"], "reads": {"b": take("b", 2)}}, "the read 'b' must not take tokens"),
    ({"run": add, "inputs": {"a": "a", "b": 3}}, "the input 'b' is 3; it must be a place, its name, take"),
    ({"run": abs, "inputs": ["a"], "outputs": [3]}, "the output 3 is no place, name, each"),
    (
        {"run": abs, "inputs": ["a"], "outputs": forward("b", "out")},
        "it forwards 'b', which is none of its inputs: 0",
    ),
    (
        {"run": abs, "inputs": ["a"], "outputs": forward(0, each("out"))},
        "it forwards each of '0', which is one",
    ),
    ({"inputs": ["a", "b"], "outputs": "out"}, "it runs nothing, so its outputs must be forward"),
    ({"run": "ls", "inputs": ["a"]}, "it runs 'ls', which is no function, Program or SourceFile"),
    ({"run": Program(["ls", "{x}"]), "inputs": {"a": "a"}}, r"'ls' asks for \{x\}; its inputs are: a"),
    ({"run": SourceFile("x.py"), "inputs": ["a"], "inline": True}, "the engine itself cannot run 'main'"),
    ({"inputs": {"x": "a"}, "condition": lambda y: y}, "its condition asks for 'y'; its inputs are: x"),
    ({"inputs": {"x": "a"}, "match": "id"}, "match joins single tokens of two or more inputs"),
    (
        {"inputs": {"x": "a", "y": "b"}, "match": {"z": "id", "x": "id"}},
        "it matches 'z'; its inputs are: x, y",
    ),
    ({"run": abs, "inputs": ["a"], "attempts": 0}, "attempts must be at least 1"),
    ({"run": abs, "inputs": ["a"], "timeout_s": 0}, "timeout_s must be more than 0"),
    ({"run": abs, "inputs": ["a"], "memory_bytes": -1}, "memory_bytes must be at least 0, not -1"),
    ({"run": abs, "inputs": ["a"], "memories": [5, 0]}, "a size in memories must be at least 1, not 0"),
    ({"run": abs, "inputs": ["a"], "memories": 5}, "memories is a list of sizes in bytes, not 5"),
    ({"run": abs, "inputs": ["a"], "memory_bytes": 1e9}, "memory_bytes must be a whole number, not 1000"),
    ({"run": abs, "inputs": ["a"], "attempts": "2"}, "attempts must be a whole number, not '2'"),
    ({"run": abs, "inputs": ["a"], "timeout_s": "1"}, "timeout_s must be a number of seconds, not '1'"),
    ({"run": abs, "inputs": ["a"], "may_rerun": "no"}, "may_rerun is True or False, not 'no'"),
    ({"run": abs, "inputs": ["a"], "estimate_s": float("inf")}, "estimate_s must be finite"),
    ({"run": abs, "inputs": ["a"], "requires": []}, "requires must name at least one resource class"),
    ({"run": abs, "inputs": ["a"], "requires": {"core": 5}}, "not a mapping"),
    ({"run": abs, "inputs": ["a"], "requires": 5}, "requires is a resource class or a list of them, not 5"),
    ({"run": abs, "inputs": ["a"], "requires": ""}, "requires has a resource class without a name"),
    ({"run": abs, "inputs": ["a"], "requires": ["core", 5]}, "requires lists resource classes, not 5"),
    ({"run": abs, "inputs": ["a"], "retries": 1}, "unknown setting 'retries'; there are: requires, "),
    ({"run": abs, "inputs": [Net("other").place("a")]}, "place 'a' belongs to another net"),
    (
        {"run": abs, "inputs": ["a"], "outputs": {"x": [each(Net("other").place("a"))]}},
        "belongs to another net",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_a_transition_that_makes_no_sense_is_one_clear_line(arguments: dict[str, Any], message: str) -> None:
    made = net()
    with pytest.raises(WorkflowError, match=message) as caught:
        made.transition("t", **arguments)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("transition 't': ")
    assert made.transitions == {}


@pytest.mark.parametrize("bounds", [{"number": 0}, {"least": 3, "most": 2}, {"least": 0, "most": 2}, {}])
def test_take_needs_a_range(bounds: dict[str, int]) -> None:
    with pytest.raises(WorkflowError, match="take from 'a': "):
        take("a", **bounds)


def test_names_are_unique() -> None:
    made = net()
    made.transition("t", abs, "a")
    with pytest.raises(WorkflowError, match="transition 't': the name is taken"):
        made.transition("t", abs, "a")
    with pytest.raises(WorkflowError, match="net 'n' has two places named 'a'"):
        made.output("a")


def test_a_net_is_checked_as_a_whole() -> None:
    made = net()
    made.transition("t", abs, "a", "later")
    with pytest.raises(
        WorkflowError, match="transition 't': there is no place 'later'; there are: a, b, out"
    ):
        made.check()
    made.place("later", may_keep=True)
    made.replace_place("b", may_keep=True)
    made.check()
    made.place("dry")
    made.transition("u", abs, "dry")
    with pytest.raises(WorkflowError, match="transition 'u' takes from place 'dry', where no token can come"):
        made.check()


def test_a_copy_grows_by_itself() -> None:
    made = net()
    made.transition("t", abs, "a")
    copy = made.copy("copy")
    copy.place("more")
    copy.replace_place("b", may_keep=True)
    copy.transition("u", abs, "a")
    assert (list(made.places), list(made.transitions)) == (["a", "b", "out"], ["t"])
    assert (made.places["b"].may_keep, copy.places["b"].may_keep) == (False, True)
    assert copy.transitions["t"] is made.transitions["t"]
    with pytest.raises(WorkflowError, match="net 'copy' has no place 'x'"):
        copy.replace_place("x")


def test_requirements_are_classes_or_say_more() -> None:
    made = net()
    gpu = Requirement("gpu", ("r1.gpu0",))
    assert made.transition("one", abs, "a", requires=gpu).shape.requirements == (gpu,)
    assert made.transition("two", abs, "a", requires=["node", gpu]).shape.requirements == (
        Requirement("node"),
        gpu,
    )


def test_memory_is_asked_for_and_limited() -> None:
    made = net().transition("t", abs, "a", memory_bytes=5, memories=[2, 3])
    assert (made.shape.memory_bytes, made.shape.memories, made.options.memory_bytes) == (5, (2, 3), 5)
