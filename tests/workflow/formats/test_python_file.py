from __future__ import annotations

import math
from typing import Any

from gspc_trio.core.task import Requirement
from gspc_trio.workflow.arcs import each, forward, take
from gspc_trio.workflow.formats.python_file import python_of
from gspc_trio.workflow.net import Net

NEEDS: Any = {"requires": ["gpu", "core"], "attempts": 3, "timeout_s": 2.5, "wait": True, "memories": (5,)}


def written(net: Net) -> tuple[Net, tuple[str, ...]]:
    made = python_of(net)
    names: dict[str, Any] = {}
    exec(made.data.decode(), names)
    again = names["workflow"]()
    assert isinstance(again, Net)
    return again, made.lost


def test_a_net_is_written_as_a_workflow_file() -> None:
    net = Net("it's a net")
    items, permit = net.input("items", [1, "two", None]), net.place("permit", [None] * 3)
    numbers = net.input("numbers", range(5))
    results, more = net.output("results", final=True), net.place("more", output=True, may_keep=True)
    net.transition("root", math.sqrt, [numbers], results, priority=2, in_flight=3, **NEEDS)
    net.transition("pass", None, {"x": items, "_p": permit}, [forward("x", results), forward("_p", permit)])
    net.transition(
        "some", math.hypot, [take(more, least=1, most=3)], each(more), reads=["permit"], inline=True
    )
    again, lost = written(net)
    assert lost == ()
    assert again.name == net.name
    for name, place in net.places.items():
        for field in place.__struct_fields__:
            assert getattr(again.places[name], field) == getattr(place, field), (name, field)
    for name, transition in net.transitions.items():
        for field in transition.__struct_fields__:
            assert getattr(again.transitions[name], field) == getattr(transition, field), (name, field)


def test_what_python_cannot_say_is_listed() -> None:
    net = Net("n")
    items = net.input("items", [object()])
    net.transition("work", lambda x: {"y": x}, [items], {"y": items}, requires=Requirement("gpu", ("a",)))
    net.transition("other", None, [items], [items], condition=lambda x: x)
    _, lost = written(net)
    assert [line.split("<")[0] for line in lost] == [
        "place 'items': the value '",
        "transition 'work': what it runs",
        "transition 'work': which part of the result goes to 'items'",
        "transition 'work': which resources its tasks prefer",
        "transition 'other': its condition",
    ]
