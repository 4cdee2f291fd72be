"""The planner of blocks: the worked examples of its formulas (SWF-4, SWF-5)."""

from __future__ import annotations

import math

import pytest
from attrs import evolve

from gspc_trio.components.provision.block_settings import BlockSettings
from gspc_trio.components.provision.planner import (
    BlockView,
    RunningTasks,
    nodes_for,
    plan,
    reuses,
    shares,
)
from gspc_trio.components.provision.waiting import Group, Taken

SETTINGS = BlockSettings(max_time_s=7200, max_nodes=4, cores_per_node=16)
TIGHT = evolve(SETTINGS, parallelism=1.0)


def block(
    name: str, cores: int, left_s: float, *running: RunningTasks, takes_tasks: bool = True
) -> BlockView:
    """Return a running block with so much time for tasks, at the time 1000."""
    return BlockView(name, cores, 7200, 1000 + left_s + 60, running, takes_tasks)


def test_nothing_is_asked_for_when_nothing_waits() -> None:
    found = plan([], [block("b1", 16, 600)], SETTINGS, 1000)
    assert (found.new_blocks, found.unplaced, found.unused) == ((), 0, ("b1",))
    assert found.why == "no task waits"


def test_what_can_never_run_is_refused_at_once() -> None:
    groups = [Group(7140, 64), Group(7141, 1, 3), Group(1, 65)]
    found = plan(groups, [], SETTINGS, 0)
    assert [(one.group, one.reason) for one in found.refused] == [
        (
            1,
            "a task of 7141 s does not fit into a block, which has at most 7140 s for tasks "
            "(max_time_s 7200, reserve_s 60)",
        ),
        (
            2,
            "a task of 65 cores does not fit into a block, which has at most 64 (nodes 4, cores_per_node 16)",
        ),
    ]
    assert [one.tasks for one in found.new_blocks] == [(Taken(0, 1),)]


def test_what_fits_only_into_nodes_beyond_the_granularity_is_refused() -> None:
    settings = evolve(SETTINGS, max_nodes=5, node_granularity=2)
    assert plan([Group(60, 65)], [], settings, 0).refused
    assert plan([Group(60, 64)], [], settings, 0).new_blocks[0].nodes == 4


def test_the_slots_are_counted_in_exact_decimals() -> None:
    assert 0.07 * 100 > 7  # what floating-point numbers say
    assert evolve(SETTINGS, slots=100, allocation_step=0.07).new_blocks_max(0) == 7
    assert [SETTINGS.new_blocks_max(used) for used in (0, 1, 10, 11, 19, 20, 25)] == [2, 2, 1, 1, 1, 0, 0]


def test_the_linear_spread_goes_over_the_whole_size() -> None:
    settings = evolve(SETTINGS, spread=0.9)
    assert shares(100, 1, settings) == [100]
    assert shares(100, 2, settings) == pytest.approx([5, 95])
    assert shares(300, 3, settings) == pytest.approx([10, 100, 190])
    assert shares(300, 3, evolve(SETTINGS, spread=0.0)) == pytest.approx([100, 100, 100])


def test_the_exponential_spread_goes_over_the_whole_size() -> None:
    settings = evolve(SETTINGS, exponential_spread=2.0)
    assert shares(70, 3, settings) == pytest.approx([10, 20, 40])
    assert shares(70, 1, settings) == [70]
    many = shares(1.0, 2000, evolve(SETTINGS, exponential_spread=10.0))
    assert math.fsum(many) == pytest.approx(1)
    assert many[-1] == pytest.approx(0.9)


@pytest.mark.parametrize(("walltime_s", "times"), [(1, 10), (600, 6), (1000, 4), (3570, 1), (3571, 1)])
def test_short_tasks_are_put_one_after_the_other(walltime_s: float, times: int) -> None:
    # 9 * exp(-w/1000) + 1 = 9.99, 5.94, 4.31, 1.25
    assert reuses(walltime_s, SETTINGS) == times


def test_so_many_only_as_the_longest_block_has_time_for() -> None:
    assert reuses(600, evolve(SETTINGS, max_time_s=1860)) == 3
    assert reuses(600, evolve(SETTINGS, max_time_s=1859)) == 2


def test_the_width_is_a_multiple_of_the_granularity() -> None:
    wide = evolve(SETTINGS, max_nodes=7)
    assert [nodes_for(cores, wide) for cores in (1, 16, 16.5, 1000)] == [1, 1, 2, 7]
    even = evolve(wide, node_granularity=2)
    assert [nodes_for(cores, even) for cores in (1, 32, 33, 1000)] == [2, 2, 4, 6]
    assert nodes_for(16 * (1 + 1e-12), wide) == 1


def test_a_block_is_wide_enough_for_its_widest_task() -> None:
    found = plan([Group(60, 1, 3), Group(70, 40)], [], evolve(TIGHT, slots=1), 0)
    assert [(one.nodes, one.tasks) for one in found.new_blocks] == [(3, (Taken(0, 3), Taken(1, 1)))]


def test_two_blocks_for_a_thousand_tasks() -> None:
    found = plan([Group(60, 1, 1000)], [], TIGHT, 0)
    # T = 60,000 core-seconds: 3,000 and 57,000. 9 * exp(-0.06) + 1 = 9.48, so 9 tasks one after the other:
    # 540 s. 3,000 / 540 = 5.6 cores: 1 node of 16, which has room for 144 tasks. 51,360 / 540 = 95.1 cores.
    small, large = found.new_blocks
    assert (small.nodes, small.height_s, small.walltime_s) == (1, 540, 600)
    assert small.tasks == (Taken(0, 144),)
    assert (large.nodes, large.height_s, large.walltime_s) == (4, 540, 600)
    assert large.tasks == (Taken(0, 576),)
    assert (found.unplaced, found.left_over) == (1000, 280)
    assert "it needs 96 cores: 4 nodes of 16, more are not allowed" in large.why
    assert found.why == "1,000 tasks without room in a block; 0 of 20 slots used, so 2 new blocks at most"
    assert small.why == (
        "its share of 0.05 of what waits is 50 tasks of up to 60 s and 1 core; 9 tasks one after the other "
        "take 540 s; it needs 6 cores: 1 node of 16; 60 s in reserve"
    )


def test_a_task_wider_than_a_new_block_is_not_committed_to_it() -> None:
    found = plan([Group(10, 1, 20), Group(20, 64)], [], TIGHT, 0)
    shapes = [(one.nodes, one.height_s, one.tasks) for one in found.new_blocks]
    assert shapes == [(1, 100, (Taken(0, 20),)), (4, 200, (Taken(1, 1),))]


def test_width_counts_alone_without_parallelism() -> None:
    found = plan([Group(60, 1, 20)], [], evolve(SETTINGS, parallelism=0.0), 0)
    assert [(one.nodes, one.tasks) for one in found.new_blocks] == [(1, (Taken(0, 16),)), (1, (Taken(0, 4),))]


def test_the_time_is_rounded_up_to_the_unit_of_the_batch_system() -> None:
    minutes = evolve(SETTINGS, time_unit_s=60)
    assert minutes.walltime_s(100) == 180
    assert minutes.walltime_s(120) == 180
    assert minutes.walltime_s(120.5) == 240
    assert evolve(minutes, max_time_s=7230).usable_s == 7140


def test_blocks_that_end_first_are_filled_first() -> None:
    blocks = [block("late", 2, 1000), block("early", 2, 100), BlockView("queued", 2, 7200)]
    found = plan([Group(100, 1, 3), Group(500, 1, 2)], blocks, evolve(SETTINGS, parallelism=0.0), 1000)
    assert found.given == {"early": (Taken(0, 2),), "late": (Taken(1, 2),), "queued": (Taken(0, 1),)}
    assert (found.unused, found.unplaced, found.new_blocks) == ((), 0, ())
    assert found.why == "the blocks there are have room for all of 5 tasks that wait"


def test_what_runs_takes_room_for_its_rest() -> None:
    group = [Group(100, 1, 100)]
    # 2 cores * 1000 s - 2 * 250 s - 0 s that are over
    found = plan(group, [block("b", 2, 1000, RunningTasks(1, 250, 2), RunningTasks(1, -5))], TIGHT, 1000)
    assert found.given == {"b": (Taken(0, 15),)}


def test_sums_of_what_is_no_binary_fraction_are_compared_with_a_tolerance() -> None:
    assert 4 * 60**0.01 - 3 * 60**0.01 < 60**0.01  # what floating-point numbers say
    found = plan([Group(60, 1, 9)], [block("b", 4, 60, RunningTasks(1, 60, 3))], SETTINGS, 1000)
    assert found.given == {"b": (Taken(0, 1),)}
    equal = evolve(SETTINGS, spread=0.0, slots=2, allocation_step=1.0)
    assert 600**0.01 * 62 / 2 / 600**0.01 > 31
    found = plan([Group(600, 1, 62)], [], equal, 1000)
    assert found.new_blocks[0].why.startswith("its share of 0.5 of what waits is 31 tasks of")


def test_longest_tasks_go_first_and_wide_ones_only_where_they_fit() -> None:
    groups = [Group(100, 1, 1), Group(200, 4, 1), Group(200, 1, 1), Group(901, 1, 1)]
    found = plan(groups, [block("b", 2, 900)], TIGHT, 1000)
    assert found.given == {"b": (Taken(2, 1), Taken(0, 1))}
    assert found.unplaced == 2


def test_blocks_that_take_no_tasks_use_a_slot() -> None:
    settings = evolve(SETTINGS, slots=1)
    found = plan([Group(60, 1)], [block("b", 16, 600, takes_tasks=False)], settings, 1000)
    assert (found.given, found.unused, found.new_blocks) == ({}, ("b",), ())
    assert found.why == "1 task without room in a block, and no slot is free: 1 of 1 slot used"
