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
from gspc_trio.workflow.patterns import farm
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 1}, "this is no dump of a job"),
        ({"transitions": ["other"]}, "the dump belongs to another net: its transitions are other"),
        ({"places": {}}, "the dump belongs to another net: its places are"),
        ({"places": 3}, "the dump is damaged"),
        ({"tasks": [{}]}, "the dump is damaged: KeyError"),
        ({"tasks": [{"id": 1, "transition": "abs", "state": "gone", "inputs": []}]}, "the dump is damaged"),
    ],
)
def test_what_is_no_dump_of_this_net_is_refused(change: dict[str, Any], message: str) -> None:
    net = farm(abs)
    with pytest.raises(WorkflowError, match=message):
        started(net, dumped(engine_for(net, items=[1])) | change)
