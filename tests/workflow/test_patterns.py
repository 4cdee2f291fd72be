"""Patterns that build nets (ASP-2)."""

from __future__ import annotations

import pickle
import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.code import Program, SourceFile
from gspc_trio.core.staging import split_plan
from gspc_trio.core.task import Requirement, TaskError
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import farm
from gspc_trio.workflow.patterns.map_reduce import COUNT_BATCH_MAX, map_reduce
from tests.workflow.support import Driver, compute, engine_for, next_task, reloaded, run


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


@pytest.mark.parametrize("ordered", [False, True])
def test_only_so_many_iterations_of_a_farm_are_in_flight(ordered: bool) -> None:
    engine = engine_for(farm(square, in_flight=3, ordered=ordered), items=range(10))
    tasks = [engine.extract(task_id) for task_id in iter(lambda: next_task(engine), None)]
    assert len(tasks) == 3
    engine.fail(tasks[0].task_id, TaskError("ValueError", "boom"))  # it has ended too
    engine.inject(tasks[1].task_id, compute(engine, tasks[1]))
    engine.cancelled(tasks[2].task_id)
    assert len(list(iter(lambda: next_task(engine), None))) == 3
    engine.check()


def test_a_farm_of_very_many_items_takes_no_room_for_those_that_wait() -> None:
    tracemalloc.start()
    try:
        engine = engine_for(farm(square, in_flight=100), items=range(1_000_000))
        assert len(list(iter(engine.next, None))) == 100
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 2**20
    assert next(place.tokens for place in engine.describe().places if place.name == "items") == 999_900


def test_map_reduce_has_only_so_many_items_in_flight() -> None:
    engine = engine_for(map_reduce(square, concatenate, in_flight=2), items=range(10))
    assert len(list(iter(lambda: next_task(engine), None))) == 2


@pytest.mark.parametrize("in_flight", [0, -1, True, 1.5, "many"])
def test_what_is_no_number_in_flight_is_refused(in_flight: Any) -> None:
    with pytest.raises(WorkflowError, match="in_flight must be"):
        farm(square, in_flight=in_flight)


def test_an_inline_transition_has_nothing_in_flight() -> None:
    net = Net("inline")
    items = net.input("items")
    with pytest.raises(WorkflowError, match="in_flight is for tasks"):
        net.transition("pass", None, items, net.output("out"), in_flight=2)


@settings(max_examples=40)
@given(st.lists(st.integers(), max_size=30), st.integers(0, 1 << 32).map(Random), st.booleans())
def test_an_ordered_farm_gives_results_in_the_order_of_its_items(
    items: list[int], random: Random, pairs: bool
) -> None:
    """Whatever task ends first; also when the engine is loaded from a dump after each."""
    engine = engine_for(farm(square, ordered=True, pairs=pairs), items=items)
    driver = Driver(engine, lambda number: random.randrange(number), reloaded).run()
    expected = [(item, item * item) if pairs else item * item for item in items]
    assert driver.engine.outputs() == {"results": expected}
    assert driver.engine.explain_stuck() == []


def test_an_ordered_farm_holds_no_task_back_and_no_result_longer_than_needed() -> None:
    opened = []

    def loads(data: bytes) -> object:
        opened.append(pickle.loads(data))
        return opened[-1]

    engine = WorkflowEngine(farm(square, ordered=True), {"items": range(4)}, dumps=pickle.dumps, loads=loads)
    tasks = [next_task(engine) for _ in range(5)]
    assert tasks == [1, 2, 3, 4, None]
    for task_id in (1, 2, 3, 4):
        assert pickle.loads(engine.extract(task_id).arguments[0]) == task_id - 1
    for task_id, there in ((3, 0), (1, 1), (4, 1), (2, 4)):
        engine.inject(task_id, ((pickle.dumps(f"result {task_id}"),),))
        assert next_task(engine) is None
        assert len(engine.output_tokens("results", 0)) == there
    assert [value for value in opened if isinstance(value, str)] == []  # nobody but who asks opens results
    assert engine.outputs() == {"results": [f"result {number}" for number in (1, 2, 3, 4)]}


def test_an_ordered_farm_has_the_item_for_programs_and_names_of_files() -> None:
    net = farm(Program(["du", "{item}"]), ordered=True, stage_in={"in": "corpus/{item}"})
    engine = engine_for(net, items=["a", "b"])
    task = engine.extract(next_task(engine) or 0)
    plan, values, _ = split_plan(task.arguments)
    assert plan is not None
    assert plan.fetch == (("in", "corpus/a"),)
    assert [pickle.loads(value) for value in values] == ["a"]
    by_position = engine_for(farm(len, ordered=True, stage_in={"in": "corpus/{item}"}), items=["a"])
    plan, _, _ = split_plan(by_position.extract(next_task(by_position) or 0).arguments)
    assert plan is not None
    assert plan.fetch == (("in", "corpus/a"),)


def test_behind_an_item_that_fails_there_are_no_ordered_results() -> None:
    engine = engine_for(farm(square, ordered=True), items=range(3))
    for _ in range(3):
        engine.extract(next_task(engine) or 0)
    for task_id in (1, 3):
        engine.inject(task_id, ((pickle.dumps(task_id),),))
    engine.fail(2, TaskError("ValueError", "no"))
    assert next_task(engine) is None
    assert engine.outputs() == {"results": [1]}
    assert any("task 2 (square) was failed" in line for line in engine.explain_stuck())


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


@settings(max_examples=40)
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
