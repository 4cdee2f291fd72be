"""Token flow: from which tasks a task takes what it takes."""

from __future__ import annotations

from typing import Any

from gspc_trio import farm, map_reduce, pipeline
from gspc_trio.core.task import Task
from gspc_trio.workflow.arcs import each, forward, take
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from tests.workflow.support import compute, engine_for, next_task


def parents(net: Net, **values: Any) -> dict[int, tuple[str, tuple[int, ...]]]:
    """Run a net; task -> its transition, and the tasks from which it takes something."""
    engine: WorkflowEngine = engine_for(net, **values)
    engine.note_flow()
    found = {}
    while (task_id := next_task(engine)) is not None:
        task = engine.extract(task_id)
        found[task_id] = (task.name, engine.flow(task_id).parents)
        engine.inject(task_id, compute(engine, task))
    return found


def negative(number: int) -> int:
    return -number


def total(numbers: list[int]) -> int:
    return sum(numbers)


def test_a_task_takes_from_those_that_made_its_tokens_behind_inline_transitions_too() -> None:
    net = Net("n")
    items, made, doubled, several, end = net.input("items"), *map(net.place, "mds"), net.output("end")
    net.transition("make", negative, [items], made)
    net.transition("double", lambda number: [number, number], [made], each(doubled), inline=True)
    net.transition("pass", None, {"each": take(doubled, 4)}, forward("each", several))
    net.transition("sum", total, [several], end)
    assert parents(net, items=[1, 2]) == {1: ("make", ()), 2: ("make", ()), 3: ("sum", (1, 2))}


def test_what_is_put_back_ties_nothing_together() -> None:
    net = Net("n")
    items, count, made, end = net.input("items"), net.place("count", [0]), net.place("m"), net.output("end")
    net.transition("make", negative, [items], made)
    net.transition(
        "number",
        lambda number, count: {"count": count + 1, "pair": (count, number)},
        {"number": made, "count": count},
        {"count": count, "pair": net.place("pairs")},
        inline=True,
    )
    net.transition("use", lambda pair: pair, ["pairs"], end)
    found = parents(net, items=[1, 2])
    assert [flow for flow in found.values() if flow[0] == "use"] == [("use", (1,)), ("use", (2,))]


def test_the_results_of_a_map_are_the_parents_of_its_reductions() -> None:
    found = parents(map_reduce(negative, total, fan_in=2), items=[1, 2, 3])
    maps = [task for task, (name, _) in found.items() if name == "map"]
    reduced = [flow for name, flow in found.values() if name == "reduce"]
    assert sorted(task for flow in reduced for task in flow if task in maps) == maps
    assert all(len(flow) == 2 for flow in reduced)


def test_tasks_of_an_ordered_farm_depend_on_none() -> None:
    assert set(parents(farm(negative, ordered=True), items=[1, 2, 3]).values()) == {("negative", ())}


def test_results_in_order_have_the_makers_they_had_out_of_order() -> None:
    engine = engine_for(pipeline(farm(negative), farm(negative)), items=[1, 2, 3])
    engine.note_flow()
    waiting: list[Task] = []
    found: dict[int, tuple[int, ...]] = {}
    while True:
        while (task_id := next_task(engine)) is not None:
            waiting.append(engine.extract(task_id))
            found[task_id] = engine.flow(task_id).parents
        if not waiting:
            break
        task = waiting.pop()  # the last first
        engine.inject(task.task_id, compute(engine, task))
    assert found == {1: (), 2: (), 3: (), 4: (1,), 5: (2,), 6: (3,)}
