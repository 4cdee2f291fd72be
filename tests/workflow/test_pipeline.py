"""Pipelines (ASP-2): items go from stage to stage in order, and wait where there is room for them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.code import Program
from gspc_trio.workflow.arcs import WorkflowError, take
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.pipeline import pipeline, stage
from tests.workflow.support import Driver, engine_for, next_task, reloaded, run


def increment(number: int) -> int:
    return number + 1


def add_up(number: int, total: int) -> tuple[int, int]:
    return total + number, total + number


def results(driver: Driver) -> list[Any]:
    assert driver.engine.explain_stuck() == []
    return driver.engine.outputs()["results"]


def test_items_go_through_all_stages_in_order() -> None:
    driver = run(pipeline(increment, str, "".join), {"items": range(3)})
    assert results(driver) == ["1", "2", "3"]
    assert driver.fired == ["increment", "str", "join"]


@settings(max_examples=50)
@given(
    st.lists(st.integers(-9, 9), max_size=40),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 1 << 32).map(Random),
)
def test_whatever_ends_first_and_however_little_room_there_is_the_results_are_the_same(
    items: list[int], batch: int, buffer: int, random: Random
) -> None:
    """Also when the engine is loaded from a dump after each task: the state of a stage is a token."""
    net = pipeline(increment, stage(add_up, state=0), stage(increment, batch=2), batch=batch, buffer=buffer)
    driver = Driver(engine_for(net, items=items), lambda number: random.randrange(number), reloaded).run()
    total, expected = 0, []
    for item in items:
        total += item + 1
        expected.append(total + 1)
    assert results(driver) == expected


def test_one_worker_at_a_time_takes_as_many_items_as_wait_and_as_there_is_room_for() -> None:
    engine = engine_for(pipeline(increment, increment, batch=5, buffer=3), items=range(20))
    first = next_task(engine)
    assert first is not None
    assert next_task(engine) is None
    task = engine.extract(first)
    assert engine.codec.loads(task.arguments[0]) == [0, 1, 2]
    waiting = {place.name: place.tokens for place in engine.describe().places}
    assert (waiting["items"], waiting["(increment 2 room)"]) == (17, 0)


def test_a_stage_waits_while_there_is_no_room_behind_it() -> None:
    """The second stage does not begin: no more items are taken than wait before it."""
    engine = engine_for(pipeline(increment, increment, buffer=4), items=range(100))
    names = []
    held = []
    while (task_id := next_task(engine)) is not None:
        task = engine.extract(task_id)
        names.append(task.name)
        if task.name == "increment":
            numbers = engine.codec.loads(task.arguments[0])
            engine.inject(task_id, (tuple(engine.codec.dumps(one + 1) for one in numbers),))
        else:
            held.append(task)
    assert names == ["increment", "increment 2", "increment"]
    waiting = {place.name: place.tokens for place in engine.describe().places}
    assert (waiting["items"], waiting["(increment 2 items)"]) == (92, 4)


def test_a_stage_with_a_state_that_forgets_it_is_told() -> None:
    with pytest.raises(TypeError, match=r"max has a state, so it has to return \(result, state\), not 2"):
        run(pipeline(stage(max, state=0)), {"items": [2]})


def test_of_several_items_in_a_task_the_one_is_named_that_fails() -> None:
    with pytest.raises(ValueError, match="invalid literal") as caught:
        run(pipeline(int), {"items": ["1", "two", "3"]})
    assert caught.value.__notes__ == ["the item was 'two'"]


async def later(_item: int) -> None:
    """No task can run it."""


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((), "a pipeline needs a stage"),
        ((3,), "3 is no stage: a pipeline takes functions"),
        ((Program(["du", "{item}"]),), "'du' is no function of an item; as a stage write farm"),
        ((Net("other"),), "<Net other: 0 places, 0 transitions> is no stage"),
        ((pipeline(increment, default=[1]),), "'increment' is a stage of a pipeline and gets its items"),
        ((add_up,), r"add_up\(number, total\) is called with an item: missing a required argument"),
        ((later,), "later is async"),
    ],
)
def test_what_is_no_stage_is_refused(stages: tuple[Any, ...], message: str) -> None:
    with pytest.raises(WorkflowError, match=message):
        pipeline(*stages)


@pytest.mark.parametrize(
    "settings", [{"batch": 0}, {"buffer": 0}, {"batch": True}, {"attempts": 0}, {"color": 1}]
)
def test_settings_that_make_no_sense_are_refused(settings: Any) -> None:
    with pytest.raises(WorkflowError):
        pipeline(increment, **settings)


def test_a_stage_with_a_state_is_called_with_both() -> None:
    with pytest.raises(WorkflowError, match=r"increment.* is called with an item and the state"):
        stage(increment, state=0)


def test_a_pipeline_in_a_pipeline_is_its_stages() -> None:
    inner = pipeline(increment, increment)
    assert results(run(pipeline(inner, increment), {"items": [1]})) == [4]


def test_as_many_tokens_are_taken_from_two_places() -> None:
    net = Net("pairs")
    left, right, out = net.input("left"), net.input("right"), net.output("out")
    net.transition("zip", zip, [take(left, most=3), take(right, as_many_as=0)], out, inline=True)
    engine = engine_for(net, left=range(5), right=range(4))
    while engine.next() is not None or engine.has_more:
        pass
    assert [list(values) for values in engine.outputs()["out"]] == [[(0, 0), (1, 1), (2, 2)], [(3, 3)]]


def test_as_many_as_has_to_name_an_input_that_takes_several() -> None:
    net = Net("pairs")
    left, right = net.input("left"), net.input("right")
    with pytest.raises(WorkflowError, match="the input '1' takes as many tokens as '0', which must be"):
        net.transition("zip", zip, [left, take(right, as_many_as=0)], net.output("out"))
    with pytest.raises(WorkflowError, match="as_many_as says how many"):
        take(right, 3, as_many_as=0)
    with pytest.raises(WorkflowError, match="as_many_as does not go with a condition"):
        net.transition(
            "zip",
            zip,
            {"a": take(left, most=2), "b": take(right, as_many_as="a")},
            "out",
            condition=bool,
        )
