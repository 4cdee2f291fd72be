"""Patterns of streams against naive models: windows, filters, farms and split-joins in pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.code import Program
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.definition import Workflow, transformed
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.accumulate import accumulate
from gspc_trio.workflow.patterns.farm import farm
from gspc_trio.workflow.patterns.filters import discard, keep
from gspc_trio.workflow.patterns.map_reduce import map_reduce
from gspc_trio.workflow.patterns.pipeline import pipeline
from gspc_trio.workflow.patterns.split_join import split_join
from tests.workflow.support import Driver, engine_for, reloaded

RANDOM = st.integers(0, 1 << 32).map(Random)
"""Many times as fast as numbers that Hypothesis draws one by one."""
ITEMS = st.lists(st.integers(-9, 9), max_size=25)


def results(net: Net, items: Sequence[Any], random: Random, *, reload: bool = False) -> list[Any]:
    """Run a net to its end, whatever task ends first; the engine may be loaded from a dump after each."""
    between = reloaded if reload else (lambda engine: engine)
    driver = Driver(engine_for(net, items=items), lambda number: random.randrange(number), between).run()
    assert driver.engine.explain_stuck() == []
    return driver.engine.outputs()["results"]


def append(so_far: list[Any], item: Any) -> list[Any]:
    so_far.append(item)
    return so_far


def increment(number: int) -> int:
    return number + 1


def is_even(number: int) -> bool:
    return number % 2 == 0


def windows(items: Sequence[Any], window: int, step: int, partial: bool) -> list[list[Any]]:
    """What ``accumulate`` is to fold: whole windows, and with ``partial`` what is in none of them."""
    found, begin = [], 0
    while begin + window <= len(items):
        found.append(list(items[begin : begin + window]))
        begin += step
    covered = begin - step + window if found else 0
    if partial and len(items) > max(covered, begin):
        found.append(list(items[begin:]))
    return found


@settings(max_examples=25)
@given(ITEMS, st.integers(1, 6), st.integers(0, 5), st.booleans(), RANDOM, st.booleans())
def test_windows_overlap_by_so_many_items(
    items: list[int], window: int, offset: int, partial: bool, random: Random, reload: bool
) -> None:
    offset = min(offset, window - 1)
    net = accumulate(window, offset, [], append, partial=partial)
    assert results(net, items, random, reload=reload) == windows(items, window, window - offset, partial)


@settings(max_examples=25)
@given(ITEMS, st.integers(1, 5), st.integers(1, 9), st.booleans(), RANDOM)
def test_windows_begin_so_many_items_apart_also_behind_a_stage(
    items: list[int], window: int, step: int, partial: bool, random: Random
) -> None:
    net = pipeline(
        increment, accumulate(window, init=[], combine=append, step=step, partial=partial), len, buffer=2
    )
    changed = [item + 1 for item in items]
    assert results(net, items, random) == [len(one) for one in windows(changed, window, step, partial)]


@settings(max_examples=20)
@given(ITEMS, st.integers(1, 4), st.integers(1, 3), RANDOM, st.booleans())
def test_farms_and_filters_in_a_pipeline_keep_the_order_of_items(
    items: list[int], buffer: int, in_flight: int, random: Random, reload: bool
) -> None:
    net = pipeline(
        farm(increment, in_flight=in_flight),
        keep(is_even, in_flight=in_flight),
        increment,
        discard((3).__le__, in_flight=in_flight),
        farm(increment),
        accumulate(2, 1, [], append, partial=True, in_flight=2),
        buffer=buffer,
    )
    kept = [item + 2 for item in items if is_even(item + 1)]
    expected = windows([item + 1 for item in kept if not item >= 3], 2, 1, True)
    assert results(net, items, random, reload=reload) == expected


@settings(max_examples=15)
@given(ITEMS, RANDOM)
def test_results_come_in_any_order_if_that_is_asked_for(items: list[int], random: Random) -> None:
    net = pipeline(farm(increment), farm(increment), ordered=False)
    assert sorted(results(net, items, random)) == sorted(item + 2 for item in items)


def test_a_program_is_a_farm_in_a_pipeline() -> None:
    net = pipeline(str, farm(Program(["echo", "{item}"])))
    engine = engine_for(net, items=[1])
    assert [entry.parameters for entry in engine.code_table] == [(), ("item",)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": 0}, "window must be at least 1"),
        ({"window": 2, "offset": 2}, "less than 2, not 2; for a distance use step="),
        ({"window": 2, "offset": 1, "step": 1}, "give one"),
        ({"window": 2, "combine": None}, "needs combine"),
        ({"window": 2, "combine": increment}, "is called with what it has so far and an item"),
    ],
)
def test_windows_that_make_no_sense_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(WorkflowError, match=message):
        accumulate(**{"init": [], "combine": append, **arguments})


def one_by_one(parts: list[int]) -> int:
    assert len(parts) > 1
    return sum(parts)


def by_rest(number: int) -> Any:
    return (number % 3, number) if number % 2 else [(number % 3, number), ("even", number)]


@settings(max_examples=20)
@given(ITEMS, st.integers(2, 4), RANDOM, st.booleans())
def test_a_stream_is_mapped_and_reduced_when_it_has_ended(
    items: list[int], fan_in: int, random: Random, reload: bool
) -> None:
    reduced = map_reduce(increment, one_by_one, initial=-1, fan_in=fan_in, in_flight=3)
    net = pipeline(increment, reduced, str, buffer=2)
    expected = [str(sum(item + 2 for item in items) if items else -1)]
    assert results(net, items, random, reload=reload) == expected


@settings(max_examples=20)
@given(ITEMS, RANDOM, st.booleans())
def test_one_task_reduces_the_values_of_each_key_in_the_order_of_their_items(
    items: list[int], random: Random, reload: bool
) -> None:
    expected: dict[Any, list[int]] = {}
    for item in items:
        for key in (item % 3,) if item % 2 else (item % 3, "even"):
            expected.setdefault(key, []).append(item)
    net = map_reduce(by_rest, list, by_key=True, fan_in=3, output_port="results")
    found = results(net, items, random, reload=reload)
    assert found == list(expected.items())
    behind = pipeline(keep(is_even), map_reduce(by_rest, len, by_key=True), str)
    assert results(behind, [], random) == []


def half(number: int) -> int:
    return number // 2


STREAMS: list[tuple[Any, Any]] = [
    (increment, lambda items: [item + 1 for item in items]),
    (keep(is_even), lambda items: [item for item in items if is_even(item)]),
    (
        [farm(half, in_flight=2), accumulate(2, 0, [], append, partial=True)],
        lambda items: windows([item // 2 for item in items], 2, 2, True),
    ),
    (accumulate(3, 1, [], append), lambda items: windows(items, 3, 2, False)),
]


def split_and_joined(items: list[Any], split: str, join: str, models: Sequence[Any], fill: Any) -> list[Any]:
    """What ``split_join`` is to give."""
    count = len(models)
    dealt = [items[number::count] if split == "round_robin" else items for number in range(count)]
    made = [list(model(part)) for model, part in zip(models, dealt, strict=True)]
    if join == "tuple":
        return list(zip_longest(*made, fillvalue=fill))
    found = []
    while any(made):
        for part in made:
            found += [part.pop(0)] if part else []
    return found


@settings(max_examples=20)
@given(
    st.lists(st.integers(-9, 9), max_size=12),
    st.sampled_from(["duplicate", "round_robin"]),
    st.sampled_from(["round_robin", "tuple"]),
    st.lists(st.sampled_from(STREAMS), min_size=1, max_size=3),
    st.integers(1, 4),
    RANDOM,
    st.booleans(),
)
def test_substreams_get_their_items_and_are_joined_in_turn(
    items: list[int], split: str, join: str, parts: Any, buffer: int, random: Random, reload: bool
) -> None:
    more = {"fill": -1} if join == "tuple" else {}
    inner = split_join(split, join, *(part for part, _ in parts), **more)
    net = pipeline(increment, inner, farm(list_of, in_flight=2), buffer=buffer)
    models = [model for _, model in parts]
    joined = split_and_joined([item + 1 for item in items], split, join, models, -1)
    assert results(net, items, random, reload=reload) == [[one] for one in joined]


def list_of(one: Any) -> list[Any]:
    return [one]


def test_a_tuple_without_partners_fails_unless_something_stands_for_them() -> None:
    inner = split_join("duplicate", "tuple", increment, keep(is_even))
    with pytest.raises(WorkflowError, match=r"a tuple lacks the results of 1 of 2 substreams.*with fill="):
        results(pipeline(inner), [1, 2, 3], Random(1))
    assert results(pipeline(inner), [2, 4], Random(1)) == [(3, 2), (5, 4)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("copy", "tuple", increment), "the policy to split is 'duplicate' or 'round_robin', not 'copy'"),
        (("duplicate", "zip", increment), "the policy to join is 'round_robin' or 'tuple', not 'zip'"),
        (("duplicate", "tuple"), "needs a substream"),
        (("duplicate", "tuple", []), "a substream is a stage"),
        (("duplicate", "tuple", 3), "3 is no stage"),
    ],
)
def test_what_cannot_be_split_or_joined_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(WorkflowError, match=message):
        split_join(*arguments)


def test_a_split_join_alone_says_that_it_belongs_into_a_pipeline() -> None:
    alone: Any = split_join("duplicate", "round_robin", increment)
    for run in (Workflow, transformed):
        with pytest.raises(WorkflowError, match="works only inside a pipeline"):
            run(alone, {}) if run is Workflow else run(alone, ())
    with pytest.raises(WorkflowError, match="fill stands in tuples"):
        split_join("duplicate", "round_robin", increment, fill=0)
