"""How the items of a map are cut into ranges."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.components.job.ranges import (
    FIRST_PATIENCE_S,
    GROWTH,
    PATIENCE_S,
    QUICK_PATIENCE_S,
    REMEMBERED,
    TASKS_MAX,
    TASKS_PER_CORE,
    CoresKnown,
    Event,
    ItemsAdded,
    RangeCancelled,
    RangeEnded,
    RangeLost,
    Ranges,
    RunItems,
    Stop,
)
from gspc_trio.core.machine import Tick

SHORT_S = 1e-6

WHAT = ("ended", "ended", "ended", "early", "lost", "cancelled", "tick", "stop")


def ones(begin: int, end: int) -> list[tuple[int, int]]:
    return [(item, item + 1) for item in range(begin, end)]


def runs(ranges: Ranges, event: Event, now: float) -> list[tuple[int, int]]:
    actions = ranges.handle(event, now)
    ranges.check()
    return [(action.begin, action.end) for action in actions if isinstance(action, RunItems)]


def test_ranges_grow_while_items_are_short_and_end_small() -> None:
    ranges = Ranges(1)
    first = runs(ranges, ItemsAdded(0, 5000, 500), 0.0)
    assert first == ones(0, 16)
    assert runs(ranges, RangeEnded(1, 1, SHORT_S), 0.001) == []  # there are enough under way
    for number in range(2, 5):
        assert runs(ranges, RangeEnded(number, 1, SHORT_S), 0.001) == []
    assert runs(ranges, RangeEnded(5, 1, SHORT_S), 0.001) == [(16, 20), (20, 24)]  # more, for they came soon
    sizes = [1] * 11 + [4, 4]
    for number, size in enumerate(sizes, 6):
        sizes += [end - begin for begin, end in runs(ranges, RangeEnded(number, size, size * SHORT_S), 1.0)]
    assert max(sizes) == 256  # four times as many as before, of the half of the rest at most
    assert sizes[-1] < 40
    assert sum(sizes) + 5 == 5000


def test_long_items_are_tasks_of_their_own_and_all_are_seen() -> None:
    ranges = Ranges(2)
    assert len(runs(ranges, ItemsAdded(0, 20_000, 500), 0.0)) == 32
    assert len(runs(ranges, RangeEnded(1, 1, 1.0), 1.0)) == 33
    assert len(runs(ranges, RangeEnded(2, 1, 1.0), 1.0)) == 65
    assert ranges.deadline() == 1.0 + PATIENCE_S
    assert runs(ranges, Tick(), 1.05) == []
    assert len(runs(ranges, Tick(), 1.0 + PATIENCE_S)) == 7 * 128
    while (due := ranges.deadline()) is not None:
        ranges.handle(Tick(), due)
    assert ranges.tasks == TASKS_MAX
    assert runs(ranges, RangeEnded(3, 1, 1.0), 2.0) == [(10_002, 10_003)]


def test_short_items_get_more_patience_than_long_ones() -> None:
    ranges = Ranges(1)
    runs(ranges, ItemsAdded(0, 5000, 500), 0.0)
    for number in range(1, 17):
        runs(ranges, RangeEnded(number, 1, SHORT_S), 1.0)
    assert ranges.is_quick
    assert ranges.deadline() == 1.0 + QUICK_PATIENCE_S
    assert runs(ranges, Tick(), 1.0 + PATIENCE_S) == []
    assert ranges.is_quick, "a busy machine makes no item long"
    ranges.handle(Tick(), 1.0 + QUICK_PATIENCE_S)
    assert not ranges.is_quick


def test_a_range_is_worth_its_task_however_few_items_wait() -> None:
    ranges = Ranges(4)
    runs(ranges, ItemsAdded(0, 10_000, 500), 0.0)
    under = dict.fromkeys(range(1, 65), 1)
    while under:
        number = min(under)
        event = RangeEnded(number, under.pop(number), 1e-6)
        for action in ranges.handle(event, 1.0):
            assert isinstance(action, RunItems)
            under[action.number] = action.end - action.begin
    assert len(runs(ranges, ItemsAdded(10_000, 10_100, 500), 2.0)) <= 2, "a fair share would be 13 of them"


def test_before_the_first_has_ended_processes_may_have_to_start() -> None:
    ranges = Ranges(1)
    assert len(runs(ranges, ItemsAdded(0, 1000, 500), 0.0)) == TASKS_PER_CORE
    assert ranges.deadline() == FIRST_PATIENCE_S
    assert runs(ranges, CoresKnown(4), 0.5) == ones(16, 4 * TASKS_PER_CORE)
    assert len(runs(ranges, Tick(), FIRST_PATIENCE_S)) == 7 * 4 * TASKS_PER_CORE


def test_what_comes_back_goes_first_and_what_was_lost_alone() -> None:
    ranges = Ranges(1)
    runs(ranges, ItemsAdded(0, 24, 500), 0.0)
    for number in range(1, 5):
        runs(ranges, RangeEnded(number, 1, SHORT_S), 0.0)
    assert runs(ranges, RangeEnded(5, 1, SHORT_S), 0.0) == [(16, 20), (20, 22)]
    assert runs(ranges, RangeEnded(17, 2, 1.0), 0.0) == [*ones(18, 20), *ones(22, 24)]  # one was long
    assert runs(ranges, RangeLost(18), 0.0) == [(20, 21), (21, 22)]
    assert runs(ranges, RangeLost(19), 0.0) == []  # of a single item it is the end
    assert ranges.computing == 16
    for wrong in (RangeEnded(20, 2, 0.0), RangeLost(19), RangeCancelled(1), ItemsAdded(23, 30, 1)):
        with pytest.raises(ValueError, match=type(wrong).__name__):
            ranges.handle(wrong, 0.0)
        assert ranges.computing == 16
    assert runs(ranges, RangeCancelled(20), 0.0) == []


def test_the_items_of_a_lost_range_go_before_what_waits_however_much_is_under_way() -> None:
    ranges = Ranges(1)
    runs(ranges, ItemsAdded(0, 400, 500), 0.0)
    for number in range(1, 6):
        last = runs(ranges, RangeEnded(number, 1, SHORT_S), 0.0)
    assert last == [(16, 20), (20, 24)]
    assert runs(ranges, RangeLost(18), 0.0) == [(20, 21), (21, 22), (22, 23), (23, 24), *ones(24, 28)]
    assert runs(ranges, RangeLost(17), 0.0) == [(16, 17), (17, 18), (18, 19), (19, 20), (28, 29)]


def test_what_waited_for_a_busy_machine_makes_no_single_tasks_of_all_behind_it() -> None:
    ranges = Ranges(1)
    under = runs(ranges, ItemsAdded(0, 100_000, 500), 0.0)
    for number in range(1, 17):
        under += runs(ranges, RangeEnded(number, 1, SHORT_S), 0.001)
    assert under[16:18] == [(16, 20), (20, 24)]
    assert runs(ranges, RangeEnded(17, 4, 4 * SHORT_S), 0.001)[0] == (under[-1][1], under[-1][1] + 16)
    for number in range(18, 17 + REMEMBERED):
        waited = runs(ranges, RangeEnded(number, 4, 1.0), 1.0)
        assert {end - begin for begin, end in waited} == {16}, "one of the last was quick"
    slow = runs(ranges, RangeEnded(17 + REMEMBERED, 4, 1.0), 1.0)
    assert {end - begin for begin, end in slow} == {16 // GROWTH}
    slower = runs(ranges, RangeEnded(18 + REMEMBERED, 4, 1.0), 1.0)
    assert {end - begin for begin, end in slower} == {1}
    assert len(slower) <= 2 * TASKS_PER_CORE


@pytest.mark.parametrize(("join", "cut"), [(True, [(16, 20), (20, 24)]), (False, [(16, 20), (20, 23)])])
def test_those_that_join_may_be_in_a_range_with_those_before(join: bool, cut: list[tuple[int, int]]) -> None:
    ranges = Ranges(1)
    runs(ranges, ItemsAdded(0, 23, 500), 0.0)
    for number in range(1, 5):
        assert runs(ranges, RangeEnded(number, 1, SHORT_S), 0.0) == []
    assert ranges.is_quick
    assert runs(ranges, ItemsAdded(23, 100, 500, join), 0.0) == []
    assert runs(ranges, RangeEnded(5, 1, SHORT_S), 0.0) == cut


def test_with_apart_no_more_ranges_are_made() -> None:
    ranges = Ranges(1)
    runs(ranges, ItemsAdded(0, 100, 500), 0.0)
    assert len(runs(ranges, RangeEnded(1, 1, SHORT_S, apart=True), 0.0)) == 17
    for number in range(2, 20):
        assert all(end - begin == 1 for begin, end in runs(ranges, RangeEnded(number, 1, SHORT_S), 0.0))


@settings(max_examples=20)
@given(st.data())
def test_each_item_has_one_end_whatever_happens(data: st.DataObject) -> None:
    """Against a naive model: what waits, is computed and has ended is a number of times for each item."""
    draw = data.draw
    ranges, now = Ranges(1), 0.0
    under: dict[int, range] = {}
    ends: Counter[int] = Counter()
    back: set[int] = set()
    added: set[int] = set()
    is_stopped = False

    def take(event: Event) -> None:
        for action in ranges.handle(event, now):
            items = range(action.begin, action.end)
            if isinstance(action, RunItems):
                assert len(items) == 1 or not back.intersection(items), "what was lost is alone"
                assert not ends.keys() & set(items)
                under[action.number] = items
            else:
                ends.update(items)
        ranges.check()

    for _ in range(draw(st.integers(1, 4))):
        begin = max(added, default=-1) + 1 + draw(st.integers(0, 2))
        items = range(begin, begin + draw(st.integers(1, 60)))
        added.update(items)
        take(ItemsAdded(items.start, items.stop, draw(st.sampled_from([1, 7, 500])), draw(st.booleans())))
    while under:
        now += draw(st.sampled_from([0.0, 0.001, 1.0]))
        number = draw(st.sampled_from(sorted(under)[:8]))
        items = under[number]
        match draw(st.sampled_from(WHAT)):
            case "tick":
                take(Tick())
                continue
            case "stop":
                if not is_stopped and not draw(st.integers(0, 9)):
                    is_stopped = True
                    take(Stop())
                continue
            case "early":
                del under[number]
                done = draw(st.integers(0, len(items)))
                ends.update(items[:done])
                take(RangeEnded(number, done, draw(st.sampled_from([SHORT_S, 0.5]))))
            case "lost":
                del under[number]
                if len(items) == 1:
                    ends.update(items)
                else:
                    back.update(items)
                take(RangeLost(number))
            case "cancelled":
                del under[number]
                ends.update(items)
                take(RangeCancelled(number))
            case _:
                del under[number]
                ends.update(items)
                take(RangeEnded(number, len(items), draw(st.sampled_from([SHORT_S, SHORT_S, 0.5]))))
        assert ranges.computing == sum(map(len, under.values())) == len({*chain(*under.values())})
    assert ends == Counter(added)
    assert ranges.waiting == ranges.tasks == 0
