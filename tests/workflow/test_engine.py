"""The workflow engine: firings, results, dump and load (WE-1, WE-2)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from gspc_trio.core.machine import IllegalEvent
from gspc_trio.core.task import CORE, Task, TaskError, TaskOptions, TaskState
from gspc_trio.workflow.arcs import WorkflowError, each, forward, take
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net
from tests.workflow.support import CODEC, Driver, compute, engine_for, reloaded

BOOM = TaskError("ValueError", "boom")


def double(number: int) -> int:
    return 2 * number


def one_task_net() -> Net:
    net = Net("doubles")
    net.transition("double", double, {"number": net.input("numbers")}, net.output("doubles"))
    return net


def data(*values: Any) -> tuple[bytes, ...]:
    return tuple(map(pickle.dumps, values))


def test_a_task_goes_through_next_extract_and_inject() -> None:
    engine = engine_for(one_task_net(), numbers=[3])
    assert engine.next() == 1
    assert engine.next() is None
    assert engine.extract(1) == Task(1, "double", 0, data(3), CORE, TaskOptions())
    assert engine.counts() == {"ready": 0, "submitted": 1, "finished": 0, "failed": 0, "cancelled": 0}
    assert not engine.is_at_rest()
    engine.inject(1, (data(6),))
    assert engine.next() is None
    assert engine.is_at_rest()
    assert engine.explain_stuck() == []
    assert engine.outputs() == {"doubles": [6]}
    assert engine.counts() == {"ready": 0, "submitted": 0, "finished": 1, "failed": 0, "cancelled": 0}
    assert engine.state(1) is TaskState.FINISHED


def test_nothing_is_kept_of_a_finished_task_but_its_tokens() -> None:
    engine = engine_for(one_task_net(), numbers=range(3))
    while (task_id := engine.next()) is not None:
        engine.inject(task_id, compute(engine, engine.extract(task_id)))
    assert engine.activities == {}


def illegal_calls(engine: WorkflowEngine) -> dict[str, Any]:
    return {
        "extract": lambda: engine.extract(1),
        "inject": lambda: engine.inject(1, (data(0),)),
        "fail": lambda: engine.fail(1, BOOM),
        "cancelled": lambda: engine.cancelled(1),
        "restore": lambda: engine.restore(1),
    }


@pytest.mark.parametrize(
    ("prepare", "legal"),
    [
        ("", ""),
        ("next", "extract cancelled"),
        ("next extract", "inject fail cancelled restore"),
        ("next extract inject", ""),
        ("next extract fail", "restore"),
        ("next extract cancelled", "restore"),
        ("next extract fail restore", "extract cancelled"),
    ],
)
def test_an_illegal_call_raises_and_changes_nothing(prepare: str, legal: str) -> None:
    def prepared() -> WorkflowEngine:
        engine = engine_for(one_task_net(), numbers=[3])
        for call in prepare.split():
            if call == "next":
                engine.next()
            else:
                illegal_calls(engine)[call]()
        return engine

    for name in illegal_calls(prepared()):
        engine = prepared()
        before = engine.dump()
        if name in legal.split():
            illegal_calls(engine)[name]()
        else:
            with pytest.raises(IllegalEvent, match="task 1 cannot be"):
                illegal_calls(engine)[name]()
            assert engine.dump() == before
        engine.check()


def test_a_result_that_does_not_fit_the_outputs_is_refused() -> None:
    engine = engine_for(one_task_net(), numbers=[3])
    engine.next()
    engine.extract(1)
    for values in ((), (data(1, 2),), (data(1), data(2)), ((),)):
        with pytest.raises(IllegalEvent):
            engine.inject(1, values)
    assert engine.state(1) is TaskState.SUBMITTED


def test_a_failed_task_keeps_its_tokens_and_can_be_tried_again() -> None:
    engine = engine_for(one_task_net(), numbers=[3])
    engine.next()
    engine.extract(1)
    engine.fail(1, BOOM)
    assert engine.next() is None
    assert engine.explain_stuck() == ["task 1 (double) was failed and keeps the tokens it took: boom"]
    engine.restore(1)
    assert engine.next() == 1
    assert engine.next() is None
    assert engine.extract(1).arguments == data(3)


def test_a_task_restored_twice_is_handed_out_once() -> None:
    engine = engine_for(one_task_net(), numbers=[3])
    engine.next()
    engine.extract(1)
    for _ in range(2):
        engine.restore(1)
        engine.cancelled(1)
    engine.restore(1)
    assert [engine.next(), engine.next()] == [1, None]


def test_a_dump_keeps_failed_tasks_and_makes_extracted_ones_ready() -> None:
    engine = engine_for(one_task_net(), numbers=range(5))
    ids = [engine.next() for _ in range(4)]
    assert ids == [1, 2, 3, 4]
    for task_id in (1, 2, 3):
        engine.extract(task_id)
    engine.fail(1, BOOM)
    engine.inject(2, (data(2),))
    loaded = reloaded(engine)
    assert loaded.counts() == {"ready": 2, "submitted": 0, "finished": 1, "failed": 1, "cancelled": 0}
    assert [(told.done, told.fired) for told in loaded.describe().transitions] == [(0, 3)]  # since then
    assert [loaded.next() for _ in range(4)] == [3, 4, 5, None]
    assert loaded.extract(3).arguments == data(2)
    assert loaded.outputs() == {"doubles": [2]}
    loaded.restore(1)
    assert loaded.next() == 1
    loaded.check()


def test_a_dump_keeps_the_tokens_of_a_batch_apart() -> None:
    net = Net("batch")
    numbers, back, sums = net.input("numbers"), net.output("back"), net.output("sums")
    net.transition("look", sum, [take(numbers, 2)], [sums, forward(0, each(back))])
    engine = engine_for(net, numbers=[1, 2])
    engine.next()
    loaded = Driver(reloaded(engine)).run().engine
    assert loaded.outputs() == {"back": [1, 2], "sums": [3]}


@pytest.mark.parametrize("state", [{}, {"format": 2}, None])
def test_what_is_no_dump_is_refused(state: Any) -> None:
    with pytest.raises(WorkflowError, match="no dump of a workflow engine"):
        WorkflowEngine.load(one_task_net(), state, **CODEC)


def test_a_dump_of_another_net_is_refused() -> None:
    other = Net("other")
    other.transition("triple", double, [other.input("numbers")], other.output("doubles"))
    with pytest.raises(WorkflowError, match="the dump belongs to another net: its transitions are double"):
        WorkflowEngine.load(other, engine_for(one_task_net(), numbers=[1]).dump(), **CODEC)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "net 'doubles' needs values for its input port 'numbers'"),
        ({"numbers": [1], "number": [1]}, "no input port 'number'; its input ports are: numbers"),
        ({"numbers": "123"}, "place 'numbers' needs a list of tokens, not '123'; for one token write"),
        ({"numbers": 3}, "place 'numbers' needs a list of tokens, not 3"),
        ({"doubles": [3]}, "no input port 'doubles'"),
    ],
)
def test_values_that_do_not_fit_the_net_are_refused(values: Any, message: str) -> None:
    with pytest.raises(WorkflowError, match=message):
        WorkflowEngine(one_task_net(), values, **CODEC)


def test_a_dump_keeps_the_order_in_which_tokens_came_to_different_places() -> None:
    net = Net("order")
    left, right = net.input("left", default=[]), net.input("right", default=[])
    net.transition(
        "pair",
        lambda left, right: (left, right),
        {"left": left, "right": right},
        net.output("pairs"),
        condition=lambda left, right: left == right % 10,
        inline=True,
    )
    engine = engine_for(net)
    for port, value in (("left", 1), ("right", 12), ("right", 11), ("left", 2)):
        engine.put(port, [value])
    loaded = reloaded(engine)
    assert [engine.next(), loaded.next()] == [None, None]
    assert loaded.outputs() == engine.outputs() == {"pairs": [(1, 11), (2, 12)]}
