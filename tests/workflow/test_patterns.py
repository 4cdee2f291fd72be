"""Patterns that build nets (ASP-2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.code import Program, SourceFile
from gspc_trio.core.task import Requirement
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.patterns import COUNT_BATCH_MAX, farm, map_reduce
from tests.workflow.support import Driver, engine_for, reloaded, run


def square(number: int) -> int:
    return number * number


def concatenate(parts: list[list[int]]) -> list[int]:
    assert type(parts) is list
    return [number for part in parts for number in part]


def test_a_farm_runs_one_task_for_each_item() -> None:
    driver = run(farm(square), {"items": range(4)})
    assert driver.engine.outputs() == {"results": [0, 1, 4, 9]}
    assert driver.fired == ["square"] * 4
    assert driver.engine.explain_stuck() == []


def test_a_farm_states_its_ports_defaults_and_settings() -> None:
    net = farm(
        Program(["du", "{item}"]),
        default=["/"],
        input_port="paths",
        output_port="sizes",
        requires="io",
        attempts=2,
    )
    engine = engine_for(net)
    task = engine.extract(engine.next() or 0)
    assert (task.name, task.shape.requirements, task.options.attempts) == ("du", (Requirement("io"),), 2)
    assert engine.code_table[0].parameters == ("item",)
    assert (net.inputs, net.outputs) == (["paths"], ["sizes"])


def test_a_source_file_gets_its_item_by_position() -> None:
    engine = engine_for(farm(SourceFile("job.py", "go")), items=[1])
    assert [(entry.run, entry.parameters) for entry in engine.code_table] == [
        (SourceFile("job.py", "go"), ())
    ]


@pytest.mark.parametrize("number", [0, 1, 2, 15, 16, 17, 31, 256, COUNT_BATCH_MAX, COUNT_BATCH_MAX + 1])
def test_map_reduce_gives_one_result_for_any_number_of_items(number: int) -> None:
    driver = run(map_reduce(square, sum, initial="nothing"), {"items": range(number)})
    expected = sum(map(square, range(number))) if number else "nothing"
    assert driver.engine.outputs() == {"result": [expected]}
    assert driver.fired.count("map") == number
    assert driver.fired.count("reduce") == (max(number - 1, 0) + 14) // 15
    assert driver.engine.explain_stuck() == []


@settings(deadline=None)
@given(
    number=st.integers(0, 60),
    fan_in=st.integers(2, 7),
    picks=st.lists(st.integers(0, 100), min_size=1, max_size=20),
    loads=st.lists(st.booleans(), min_size=1, max_size=5),
)
def test_every_item_is_reduced_once_whatever_ends_first(
    number: int, fan_in: int, picks: list[int], loads: list[bool]
) -> None:
    widths: list[int] = []

    def reduce(parts: list[list[int]]) -> list[int]:
        widths.append(len(parts))
        return concatenate(parts)

    net = map_reduce(lambda item: [item], reduce, initial=[], fan_in=fan_in)
    turn, round_ = iter(range(10**6)), iter(range(10**6))
    driver = Driver(
        engine_for(net, items=range(number)),
        order=lambda extracted: picks[next(turn) % len(picks)] % extracted,
        between=lambda engine: reloaded(engine) if loads[next(round_) % len(loads)] else engine,
    ).run()
    [result] = driver.engine.outputs()["result"]
    assert sorted(result) == list(range(number))
    assert all(2 <= width <= fan_in for width in widths)
    assert driver.engine.explain_stuck() == []


def test_map_and_reduce_state_their_own_settings() -> None:
    net = map_reduce(square, sum, map_settings={"attempts": 2}, reduce_settings={"requires": "node"})
    assert net.transitions["map"].options.attempts == 2
    assert net.transitions["reduce"].shape.requirements == (Requirement("node"),)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: farm(lambda: 0), r"does not fit its inputs \(items\): too many positional arguments"),
        (lambda: farm(3), "runs 3, which is no function, Program or SourceFile"),
        (lambda: farm(Program(["du", "{path}"])), r"'du' asks for \{path\}; its inputs are: item"),
        (lambda: farm(square, atempts=3), "unknown setting 'atempts'; there are: requires, "),
        (lambda: map_reduce(square, sum, fan_in=1), "fan_in of at least 2, not 1"),
        (
            lambda: map_reduce(square, lambda a, b: a + b),
            "transition 'reduce': .* missing a required argument: 'b'",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_once(build: Any, message: str) -> None:
    with pytest.raises(WorkflowError, match=message):
        build()
