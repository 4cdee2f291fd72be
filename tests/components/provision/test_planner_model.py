"""The planner finds what its formulas say, task by task; and what holds for every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from gspc_trio.components.provision.block_settings import BlockSettings
from gspc_trio.components.provision.planner import BlockView, RunningTasks, plan
from gspc_trio.components.provision.removal import TakeDown, removals
from gspc_trio.components.provision.waiting import Group, Taken
from tests.components.provision.model import naive_plan

NOW = 5000.0
QUARTERS = st.integers(1, 4000).map(lambda quarters: quarters / 4)
WALLTIMES = st.one_of(st.sampled_from([60.0, 120.0, 300.0, 600.0, 1140.0]), QUARTERS)
GROUPS = st.lists(
    st.builds(Group, walltime_s=WALLTIMES, cores=st.integers(1, 12), count=st.integers(1, 25)), max_size=8
)


@st.composite
def site_settings(draw: st.DrawFn) -> BlockSettings:
    max_nodes = draw(st.integers(1, 6))
    unit_s = draw(st.sampled_from([1.0, 60.0]))
    return BlockSettings(
        max_time_s=unit_s * draw(st.integers(5, 20)) * (60 / unit_s),
        max_nodes=max_nodes,
        cores_per_node=draw(st.integers(1, 4)),
        slots=draw(st.integers(1, 30)),
        allocation_step=draw(st.sampled_from([0.07, 0.1, 0.3, 1.0])),
        low_overallocation=draw(st.sampled_from([10.0, 1.0, 2.5, 100.0])),
        high_overallocation=draw(st.sampled_from([1.0, 3.0, 0.0])),
        overallocation_decay=draw(st.sampled_from([0.001, 0.0, 0.1])),
        spread=draw(st.sampled_from([0.9, 0.0, 1.0, 0.5])),
        exponential_spread=draw(st.sampled_from([0.0, 0.0, 2.0, 1.5])),
        parallelism=draw(st.sampled_from([0.01, 0.0, 1.0, 0.5])),
        node_granularity=draw(st.integers(1, max_nodes)),
        reserve_s=draw(st.sampled_from([60.0, 0.0, 30.0])),
        time_unit_s=unit_s,
    )


@st.composite
def views(draw: st.DrawFn, number: int) -> BlockView:
    running = draw(
        st.lists(
            st.builds(
                RunningTasks,
                cores=st.integers(1, 4),
                rest_s=st.sampled_from([0.0, -5.0, 30.0, 60.0, 250.25]),
                count=st.integers(1, 3),
            ),
            max_size=2,
        )
    )
    is_queued = draw(st.booleans())
    return BlockView(
        block_id=f"b{number}",
        cores=draw(st.integers(1, 24)),
        walltime_s=draw(st.sampled_from([120.0, 600.0, 1200.0])),
        ends_at=None if is_queued else NOW + draw(QUARTERS),
        running=() if is_queued else running,
        takes_tasks=draw(st.sampled_from([True, True, True, False])),
        needed_at=NOW - draw(st.sampled_from([0, 29, 30, 200])),
        idle_since=None if is_queued or running else NOW - draw(st.sampled_from([0, 119, 120])),
        is_suspended=draw(st.sampled_from([False, False, True])),
    )


@st.composite
def sites(draw: st.DrawFn) -> list[BlockView]:
    return [draw(views(number)) for number in range(draw(st.integers(0, 5)))]


def counted(taken: Iterable[Taken]) -> Counter[int]:
    return Counter({one.group: one.count for one in taken})


@given(groups=GROUPS, blocks=sites(), chosen=site_settings())
@settings(max_examples=80)
def test_the_planner_finds_what_its_formulas_say(
    groups: list[Group], blocks: list[BlockView], chosen: BlockSettings
) -> None:
    found = plan(groups, blocks, chosen, NOW)
    expected = naive_plan(groups, blocks, chosen, NOW)
    assert {one.group for one in found.refused} == expected.refused
    assert {name: counted(taken) for name, taken in found.given.items()} == expected.given
    assert (found.unplaced, found.left_over) == (expected.unplaced, expected.left_over)
    shapes = [(one.nodes, one.height_s, one.walltime_s) for one in found.new_blocks]
    assert shapes == [(one.nodes, one.height_s, one.walltime_s) for one in expected.new_blocks]
    assert [counted(one.tasks) for one in found.new_blocks] == [one.tasks for one in expected.new_blocks]


@given(groups=GROUPS, blocks=sites(), chosen=site_settings())
@settings(max_examples=60)
def test_what_holds_for_every_plan(
    groups: list[Group], blocks: list[BlockView], chosen: BlockSettings
) -> None:
    found = plan(groups, blocks, chosen, NOW)
    possible = sum(group.count for group in groups) - sum(groups[one.group].count for one in found.refused)
    placed = sum(one.count for taken in found.given.values() for one in taken)
    committed = sum(one.count for block in found.new_blocks for one in block.tasks)
    assert placed + found.unplaced == possible
    assert committed + found.left_over == found.unplaced
    assert len(found.new_blocks) <= max(0, chosen.slots - len(blocks))
    assert {*found.unused, *found.given} == {block.block_id for block in blocks}
    for new in found.new_blocks:
        assert new.tasks
        assert new.nodes % chosen.node_granularity == 0
        assert 0 < new.nodes <= chosen.max_nodes
        assert new.height_s + chosen.reserve_s <= new.walltime_s * (1 + 1e-9)
        assert new.walltime_s <= chosen.max_time_s
        for one in new.tasks:
            assert groups[one.group].walltime_s <= new.height_s * (1 + 1e-9)
            assert groups[one.group].cores <= new.cores
    gone = removals(blocks, found, chosen, NOW)
    by_id = {block.block_id: block for block in blocks}
    for removal in gone.blocks:
        block = by_id[removal.block_id]
        assert (removal.how is TakeDown.CANCEL) == (block.ends_at is None)
        assert (removal.how is TakeDown.SUSPEND) == bool(block.running)
        if block.block_id in found.given:
            assert block.is_suspended or NOW - (block.idle_since or NOW) >= chosen.idle_end_s
    assert gone.check_at is None or gone.check_at > NOW
