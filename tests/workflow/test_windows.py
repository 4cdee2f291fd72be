"""Patterns of streams against naive models: windows, filters, farms and split-joins in pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.core.code import Program
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.accumulate import accumulate
from gspc_trio.workflow.patterns.farm import farm
from gspc_trio.workflow.patterns.filters import discard, keep
from gspc_trio.workflow.patterns.pipeline import pipeline
from tests.workflow.support import Driver, engine_for, reloaded

RANDOM = st.randoms(use_true_random=False)
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


@settings(max_examples=100)
@given(ITEMS, st.integers(1, 6), st.integers(0, 5), st.booleans(), RANDOM, st.booleans())
def test_windows_overlap_by_so_many_items(
    items: list[int], window: int, offset: int, partial: bool, random: Random, reload: bool
) -> None:
    offset = min(offset, window - 1)
    net = accumulate(window, offset, [], append, partial=partial)
    assert results(net, items, random, reload=reload) == windows(items, window, window - offset, partial)


@settings(max_examples=100)
@given(ITEMS, st.integers(1, 5), st.integers(1, 9), st.booleans(), RANDOM)
def test_windows_begin_so_many_items_apart_also_behind_a_stage(
    items: list[int], window: int, step: int, partial: bool, random: Random
) -> None:
    net = pipeline(
        increment, accumulate(window, init=[], combine=append, step=step, partial=partial), len, buffer=2
    )
    changed = [item + 1 for item in items]
    assert results(net, items, random) == [len(one) for one in windows(changed, window, step, partial)]


@settings(max_examples=50)
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
