"""Dumps as JSON: what people and jq can read, and what starts a job again (WE-2)."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gspc_trio.core.task import TaskError
from gspc_trio.workflow.arcs import WorkflowError, take
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import farm
from gspc_trio.workflow.plain_dump import engine_from_dump, plain_dump
from tests.workflow.support import CODEC, Driver, engine_for

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2) | st.just("$tuple") | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


def dumped(engine: WorkflowEngine) -> dict[str, Any]:
    """The dump of an engine as JSON brings it back."""
    plain = plain_dump(engine.net.name, engine.dump(), CODEC["loads"])
    again: dict[str, Any] = json.loads(json.dumps(plain))
    return again


def started(net: Net, dump: Any) -> WorkflowEngine:
    engine = engine_from_dump(net, dump, **CODEC)
    engine.check()
    return engine


@given(st.lists(PLAIN, max_size=4))
def test_plain_values_come_back_the_same(values: list[Any]) -> None:
    net = farm(abs)
    engine = engine_for(net, items=values)
    for _ in values[:2]:
        engine.extract(engine.next() or 0)
    dump = dumped(engine)
    assert dump["not_said"] == []
    again = started(net, dump)
    taken = [again.codec.decode(again.activities[n].binding[0]) for n in again.activities]
    left = [again.codec.decode(token) for token in again.running.places["items"]]
    assert repr([*taken, *left]) == repr(values)  # the types, too


def test_a_dump_says_what_a_person_wants_to_know() -> None:
    net = Net("sums")
    numbers, sums = net.input("numbers"), net.output("sums")
    net.transition("sum", sum, take(numbers, 2), sums)
    engine = engine_for(net, numbers=[1, 2, 3, 4, 5])
    engine.extract(engine.next() or 0)
    engine.extract(engine.next() or 0)
    engine.fail(1, TaskError("ValueError", "no", "Traceback", b"pickle"))
    dump = dumped(engine)
    assert dump == {
        "format": "gspc-trio job dump 1",
        "net": "sums",
        "last_task_id": 2,
        "not_said": [],
        "tasks": [
            {
                "id": 1,
                "transition": "sum",
                "state": "failed",
                "inputs": [{"$batch": [1, 2]}],
                "error": {"kind": "ValueError", "message": "no", "traceback": "Traceback"},
            },
            {"id": 2, "transition": "sum", "state": "submitted", "inputs": [{"$batch": [3, 4]}]},
        ],
        "places": {"numbers": {"tokens": [5]}, "sums": {"tokens": []}},
        "transitions": ["sum"],
        "ready": ["sum"],
    }
    again = started(net, json.loads(json.dumps(dump, sort_keys=True)))  # a tool may have sorted it
    assert sorted(Driver(again).run().engine.outputs()["sums"]) == [3, 7]  # what failed is tried again


def test_who_edits_a_dump_adds_tokens() -> None:
    net = Net("pairs")
    left, right = net.input("left"), net.input("right")
    net.transition(
        "pair",
        lambda left, right: [left, right],
        {"left": left, "right": right},
        net.output("pairs"),
        condition=lambda left, right: left == right,
    )
    engine = engine_for(net, left=[1, 2], right=[])
    assert engine.next() is None
    dump = dumped(engine)
    dump["places"]["right"]["tokens"] += [2, 1]
    outputs = Driver(started(net, dump)).run().engine.outputs()
    assert sorted(outputs["pairs"]) == [[1, 1], [2, 2]]


class Shapeless:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_what_json_cannot_hold_is_said_and_starts_no_job() -> None:
    net = farm(abs)
    loop: list[Any] = []
    loop.append(loop)
    engine = engine_for(net, items=[1, [2, 3j], Shapeless(), loop, math.inf])
    engine.next()
    dump = dumped(engine)
    assert dump["not_said"] == [
        "place 'items', token 1: builtins.complex",
        "place 'items', token 2: tests.workflow.test_plain_dump.Shapeless",
        "place 'items', token 3: nested too deeply, or contains itself",
    ]
    assert dump["places"]["items"]["tokens"][0] == [2, {"$unsaid": "builtins.complex", "text": "3j"}]
    with pytest.raises(WorkflowError, match="JSON cannot hold what it had: place 'items', token 1: builtins"):
        started(net, dump)
    with pytest.raises(WorkflowError, match="JSON could not hold 3j"):
        started(net, dump | {"not_said": []})


TASK = {"id": 3, "transition": "abs", "state": "ready", "inputs": [-3]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 1}, "this is no dump of a job"),
        ({"transitions": ["other"]}, "the dump belongs to another net: its transitions are other"),
        ({"places": {}}, "the dump belongs to another net: its places are"),
        ({"places": 3}, "places: Expected an object, got a whole number"),
        ({"places": {"items": {"tokens": "ab"}}}, "place 'items', tokens: Expected a list, got a text"),
        (
            {"places": {"items": {"tokens": [1, 2], "arrived": [3, 3]}}},
            "place 'items', arrived: a number is there twice",
        ),
        (
            {"places": {"items": {"tokens": [1, {"$bytes": 5}]}, "results": {"tokens": []}}},
            "place 'items', token 2 is no value",
        ),
        ({"ready": ["sum"]}, "'sum' under ready, which is no transition"),
        ({"net": 5}, "net: Expected a text, got a whole number"),
        ({"not_said": 5}, "not_said: Expected a list, got a whole number"),
        ({"last_task_id": None}, "last_task_id: Expected a whole number, got null"),
        ({"last_task_id": 2}, "task 3, but its last_task_id is 2: it must be 3 or more"),
        ({"tasks": {}}, "tasks: Expected a list, got an object"),
        ({"tasks": [{}]}, r"tasks\[0\]: Object missing required field `id`"),
        ({"tasks": [TASK | {"id": -4}]}, r"tasks\[0\], id: Expected a whole number >= 1"),
        ({"tasks": [TASK | {"id": True}]}, r"tasks\[0\], id: Expected a whole number, got true or false"),
        ({"tasks": [TASK | {"id": 10**30}]}, r"tasks\[0\], id: Expected a whole number <= 9007199254740991"),
        ({"tasks": [TASK, TASK]}, "task 3 twice: give each an id of its own"),
        ({"tasks": [TASK | {"state": "finished"}]}, "its state is 'finished'; it must be one of ready, sub"),
        (
            {"tasks": [TASK | {"transition": "sum"}]},
            r"task 3 \(sum\), but this transition is not in this net",
        ),
        ({"tasks": [TASK | {"inputs": []}]}, "has 0 inputs in the dump; its transition takes 1"),
        ({"tasks": [TASK | {"inputs": [1, 2]}]}, "has 2 inputs in the dump; its transition takes 1"),
        ({"tasks": [TASK | {"inputs": [{"$batch": 1}]}]}, r"input 1, \$batch: Expected a list"),
        ({"tasks": [TASK | {"inputs": [{"$float": "x"}]}]}, r"task 3 \(abs\), input 1 is no value"),
        ({"tasks": [TASK | {"error": "no"}]}, "error: Expected an object or null, got a text"),
    ],
)
def test_what_is_no_dump_of_this_net_is_refused(change: dict[str, Any], message: str) -> None:
    net = farm(abs)
    dump = dumped(engine_for(net, items=[1])) | {"last_task_id": 3, "tasks": [TASK]}
    started(net, dump)
    with pytest.raises(WorkflowError, match=message) as raised:
        started(net, dump | change)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([[1, 2]], "input 1 is one token in the dump; it must be a batch of 2 to 2"),
        ([{"$batch": [1, 2, 3]}], "input 1 is a batch of 3 in the dump; it must be a batch of 2 to 2"),
    ],
)
def test_a_batch_of_another_size_is_refused(inputs: list[Any], message: str) -> None:
    net = Net("sums")
    net.transition("sum", sum, take(net.input("numbers"), 2), net.output("sums"))
    engine = engine_for(net, numbers=[1, 2])
    engine.next()
    dump = dumped(engine)
    dump["tasks"][0]["inputs"] = inputs
    with pytest.raises(WorkflowError, match=message):
        started(net, dump)
