"""Places that count the tokens of others, and places that always have a token."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from gspc_trio.core.task import TaskError
from gspc_trio.workflow.arcs import InputArc, OutputArc, Place
from gspc_trio.workflow.calls import FunctionCall, TransitionFailed
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net, Transition


def engine_of(net: Net) -> WorkflowEngine:
    return WorkflowEngine(net, dumps=pickle.dumps, loads=pickle.loads)


def reloaded(engine: WorkflowEngine) -> WorkflowEngine:
    again = WorkflowEngine.load(engine.net, engine.dump(), dumps=pickle.dumps, loads=pickle.loads)
    again.check()
    return again


def direct(
    name: str,
    function: Callable[..., object],
    inputs: tuple[InputArc, ...],
    outputs: dict[str, bool],
    condition: Callable[..., object] | None = None,
) -> Transition:
    """A transition whose function returns a value for each place; True: for each element a token."""
    every = tuple(range(len(inputs)))
    return Transition(
        name,
        function,
        inputs,
        outputs=tuple(outputs.items()),
        output_arcs=tuple(OutputArc(place, index) for index, place in enumerate(outputs)),
        condition=FunctionCall(condition, every) if condition else None,
        inline_call=FunctionCall(function, every),
        is_inline=True,
        is_direct=True,
    )


def add(net: Net, *transitions: Transition) -> None:
    net.transitions.update({one.name: one for one in transitions})


def counting() -> Net:
    """Tasks take from ``work``; when none is left or under way, ``finish`` fires."""
    net = Net("counting")
    work, done = net.place("work", [1, 2]), net.output("done")
    net.place("go", [None])
    net.places["left"] = Place("left", may_keep=True, counts="work")
    net.transition("work", lambda number: number, [work], done)
    finish = direct(
        "finish",
        lambda _, left: (left,),
        (InputArc("go", "go"), InputArc("left", "left", consumed=False)),
        {"finished": False},
        lambda _, left: left == 0,
    )
    net.output("finished")
    add(net, finish)
    return net


def test_tokens_count_until_the_results_of_their_tasks_are_there() -> None:
    engine = engine_of(counting())
    first, second = engine.next(), engine.next()
    assert first is not None
    assert second is not None
    assert engine.next() is None
    engine.extract(first)
    engine.extract(second)
    engine.inject(first, ((pickle.dumps(1),),))
    assert engine.next() is None
    assert engine.outputs()["finished"] == []
    engine.fail(second, TaskError("failed", "once"))
    engine.restore(second)
    assert engine.next() == second
    engine.extract(second)
    engine.inject(second, ((pickle.dumps(2),),))
    assert engine.next() is None
    assert engine.outputs() == {"done": [1, 2], "finished": [0]}
    engine.check()


def test_a_dump_knows_how_many_tokens_tasks_have_taken() -> None:
    engine = engine_of(counting())
    first = engine.next()
    assert first is not None
    again = reloaded(engine)
    assert again.dump() == engine.dump()
    for _ in range(2):
        task_id = again.next()
        assert task_id is not None
        again.extract(task_id)
        assert again.outputs()["finished"] == []
        again.inject(task_id, ((pickle.dumps(task_id),),))
    assert again.next() is None
    assert again.outputs()["finished"] == [0]


def up_to_two(value: object) -> object:
    assert isinstance(value, int)
    if value == 2:
        raise OverflowError("no number is left")
    return value + 1


def numbering(items: int) -> Net:
    net = Net("numbering")
    net.place("items", ["x"] * items)
    net.places["numbers"] = Place("numbers", (0,), may_keep=True, successor=up_to_two)
    net.output("numbered")
    inputs = (InputArc("item", "items"), InputArc("number", "numbers"))
    add(net, direct("number", lambda item, number: (f"{item}{number}",), inputs, {"numbered": False}))
    return net


def test_a_generator_has_another_value_each_time() -> None:
    engine = engine_of(numbering(2))
    assert engine.next() is None
    assert engine.outputs() == {"numbered": ["x0", "x1"]}
    again = reloaded(engine)
    assert [token.data for token in again.running.places["numbers"]] == [pickle.dumps(2)]


def test_a_generator_without_a_further_value_fails_and_keeps_the_tokens() -> None:
    engine = engine_of(numbering(3))
    with pytest.raises(TransitionFailed, match="no further value: OverflowError: no number is left"):
        engine.next()
    assert len(engine.running.places["items"]) == 1
    assert len(engine.running.places["numbers"]) == 1


def test_elements_of_a_result_become_tokens() -> None:
    net = Net("parts")
    net.place("lists", [[1, 2], []])
    net.output("parts")
    net.output("sizes")
    function = direct(
        "split", lambda one: (one, len(one)), (InputArc("one", "lists"),), {"parts": True, "sizes": False}
    )
    add(net, function)
    engine = engine_of(net)
    assert engine.next() is None
    assert engine.outputs() == {"parts": [1, 2], "sizes": [2, 0]}
