"""Code with variants in nets, patterns and graphs: what the tasks are told of them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from gspc_trio.core.code import Program, Variant, Variants, checked_size
from gspc_trio.core.task import CORE, Requirement, Shape, Task, TaskVariant, TaskVariants
from gspc_trio.executor.codes import name_of
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.calls import function_name
from gspc_trio.workflow.graph import Ref, TaskGraph
from gspc_trio.workflow.net import Net, Subnet, Transition
from gspc_trio.workflow.patterns.farm import farm
from gspc_trio.workflow.patterns.pool import task
from tests.workflow.support import engine_for, next_task, reloaded, run

GPU = Shape((Requirement("gpu"),))


def on_gpu(item: int) -> str:
    return f"{item} on a GPU"


def on_core(item: int) -> str:
    return f"{item} on a core"


BOTH = Variants(gpu=Variant(on_gpu, requires="gpu"), cpu=Variant(on_core, estimate_s=3))


def with_before(code: Any, **settings: Any) -> Net:
    """A net whose first transition has other code."""
    net = Net("n")
    items, between, results = net.input("items"), net.place("between"), net.output("results")
    net.transition("before", on_core, [items], between)
    net.transition("work", code, [between], results, **settings)
    return net


def test_tasks_have_the_variants_with_their_code_and_what_each_needs() -> None:
    engine = engine_for(with_before(BOTH, memory_bytes=5, attempts=2), items=[1])
    assert [entry.run for entry in engine.code_table] == [on_core, on_gpu, on_core]
    first = engine.extract(next_task(engine) or 0)
    assert first.variants is None
    engine.inject(first.task_id, ((first.arguments[0],),))
    found = engine.extract(next_task(engine) or 0)
    gpu, core = (Shape((Requirement(name),), 5) for name in ("gpu", "core"))
    cpu = TaskVariant("cpu", 2, Shape(core.requirements, 5, 4.0), 3.0)
    assert found.variants == TaskVariants((TaskVariant("gpu", 1, gpu), cpu))
    assert (found.code_id, found.shape, found.options.attempts) == (1, core, 2)
    again = reloaded(engine)
    assert again.extract(next_task(again) or 0).variants == found.variants, "resumed, it has them again"


def test_activities_have_variants_with_the_numbers_of_the_whole_net() -> None:
    inner = Net("inner")
    inner.transition("work", BOTH, [inner.input("a", default=())], inner.output("b"))
    net = Net("n")
    a, b, c = net.input("a"), net.place("b"), net.output("c")
    net.transition("before", on_core, [a], b)
    whole = Transition("whole", None, (), subnet=Subnet(inner, ("a",), ("b",), (None,)))
    shaped = net.transition("like", on_core, [b], c)
    net.transitions["like"] = Transition(
        "like", None, shaped.inputs, (), shaped.outputs, shaped.output_arcs, subnet=whole.subnet
    )
    engine = engine_for(net, a=[1])
    first = engine.extract(next_task(engine) or 0)
    engine.inject(first.task_id, ((first.arguments[0],),))
    found = engine.extract(next_task(engine) or 0)
    assert found.variants is not None
    assert found.code_id == found.variants.ways[0].code_id == 1
    assert [engine.code_table[way.code_id].run for way in found.variants.ways] == [on_gpu, on_core]


def test_a_farm_runs_variants() -> None:
    """Programs know their item by name: so do functions beside them."""
    assert run(farm(BOTH), {"items": [1, 2]}).engine.outputs()["results"] == ["1 on a GPU", "2 on a GPU"]
    net = farm(Variants.by_order(program=Program(["echo", "{item}"]), function=on_core))
    assert net.name == "echo"
    assert net.transitions["echo"].parameters == ("item",)
    variants = net.transitions["echo"].variants
    assert variants is not None
    assert variants.in_order


def with_size(size: Any) -> Net:
    net = Net("n")
    item, b = net.input("item"), net.output("b")
    net.transition("work", Variants(a=on_core, size=size), {"item": item}, b)
    return net


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: with_before(Variants(a=Variant(on_core, requires={"core": 2}))),
            "variant 'a': requires is a",
        ),  # type: ignore[arg-type]
        (lambda: with_before(Variants(a=on_core, b=lambda: None)), "does not fit its inputs"),
        (lambda: with_before(Variants(a=7)), "which is no function, Program or SourceFile"),
        (lambda: with_before(BOTH, inline=True), "the engine itself cannot run 'on_gpu'"),
        (lambda: farm(BOTH, pairs=True), "pairs=True is for a function"),
        (lambda: task((), "iml:out", BOTH, id="t"), "task 't': its code is one function, SourceFile"),
        (lambda: Variants(), "Variants needs at least one"),
        (lambda: Variants(**{"": on_core}), "'' is no name for a variant: it has up to 64 letters"),
        (lambda: Variants.by_order(**{"a[b]": on_core}), "'a[b]' is no name".replace("[", r"\[")),
        (lambda: Variants(a=on_core, size=5), "size is a function of the arguments, not 5"),
        (lambda: with_size(lambda more: len(more)), "size of its Variants asks for 'more'"),
        (lambda: checked_size("much"), "size of Variants returned 'much'; it returns a number"),
        (lambda: checked_size(-1), "size of Variants returned -1"),
        (lambda: Variants(a=BOTH), "a variant runs a function, Program or SourceFile, not"),
        (lambda: Variant(on_core, estimate_s=-1), "estimate_s must be finite and more than 0, not -1"),
        (lambda: Variant(on_core, estimate_s=True), "estimate_s is a number of seconds, not True"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, says: str) -> None:
    with pytest.raises((WorkflowError, TypeError, ValueError), match=says.replace("(", r"\(")):
        make()


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (len, 5),
        (lambda item: len(item) / 10, 1),
        (lambda item: -len(item), None),
        (lambda item: item.x, None),
    ],
)
def test_the_size_of_an_input_is_what_is_said_of_it_or_not_known(size: Any, told: int | None) -> None:
    """In a net what cannot be said of some item is not known; for an executor it is an error."""
    engine = engine_for(with_size(size), item=["gamma"])
    found = engine.extract(next_task(engine) or 0)
    assert found.variants is not None
    assert found.variants.size == told


def test_a_graph_keeps_the_variants_of_its_tasks() -> None:
    graph = TaskGraph()
    ways = TaskVariant("a", 3, GPU, 2.0, (b"f",)), TaskVariant("b", 4)
    variants = TaskVariants(ways, in_order=True, size=9)
    graph.add("first", 0)
    graph.add("second", 3, [Ref(1)], GPU, variants=variants)
    loaded = TaskGraph.load(pickle.loads(pickle.dumps(graph.dump())))
    assert [loaded.extract(loaded.next() or 0)] == [Task(1, "first", 0, (), CORE)]
    loaded.inject(1, ((b"A",),))
    found = loaded.extract(loaded.next() or 0)
    assert found == Task(2, "second", 3, (b"A",), GPU, found.options, -1, variants)


def test_before_people_variants_have_the_shortest_name_of_their_code() -> None:
    def solve(item: int) -> int:
        return item

    def solve_gpu(item: int) -> int:
        return item

    both = Variants(gpu=Variant(solve_gpu, requires="gpu"), cpu=solve)
    assert (function_name(both), name_of(both)) == ("solve", "solve")
