"""Which blocks are taken down (SWF-7)."""

from __future__ import annotations

from attrs import evolve

from gspc_trio.components.provision.block_settings import BlockSettings
from gspc_trio.components.provision.planner import BlockView, RunningTasks, plan
from gspc_trio.components.provision.removal import Removals, removals
from gspc_trio.components.provision.waiting import Group

SETTINGS = BlockSettings(max_time_s=7200, max_nodes=4, cores_per_node=16)
BUSY = BlockView("busy", 16, 3600, 4600, [RunningTasks(1, 60)], needed_at=1000)
EMPTY = BlockView("empty", 16, 3600, 4600, needed_at=1000, idle_since=1000)
QUEUED = BlockView("queued", 16, 3600, needed_at=1000)
SUSPENDED = evolve(BUSY, block_id="suspended", takes_tasks=False, is_suspended=True)


def removed(blocks: list[BlockView], now: float, *groups: Group) -> Removals:
    return removals(blocks, plan(groups, blocks, SETTINGS, now), SETTINGS, now)


def told(found: Removals) -> list[tuple[str, str]]:
    return [(one.block_id, one.how.value) for one in found.blocks]


def test_blocks_without_work_are_taken_down_after_half_a_minute() -> None:
    blocks = [BUSY, EMPTY, QUEUED, SUSPENDED]
    assert removed(blocks, 1029.9) == Removals((), 1030)
    found = removed(blocks, 1030)
    assert told(found) == [("queued", "cancel"), ("busy", "suspend"), ("empty", "end")]
    assert {one.reason for one in found.blocks} == {"no task waits for it, and none has for 30 s"}
    assert found.check_at is None


def test_a_suspended_block_ends_with_its_last_task() -> None:
    found = removed([evolve(SUSPENDED, running=())], 1001)
    assert told(found) == [("suspended", "end")]
    assert found.blocks[0].reason == "it is suspended, and its last task has ended"


def test_blocks_that_are_given_tasks_stay() -> None:
    assert removed([BUSY, QUEUED], 1030, Group(60, 1, 17)) == Removals((), None)
    assert told(removed([BUSY, QUEUED], 1030, Group(60, 1, 1))) == [("queued", "cancel")]


def test_no_block_is_taken_down_while_a_task_has_no_room() -> None:
    wide = Group(60, 64)
    assert removed([BUSY, EMPTY, QUEUED], 1030, wide) == Removals((), 1120)


def test_a_block_that_stays_empty_ends_anyway() -> None:
    found = removed([BUSY, EMPTY, QUEUED], 1120, Group(60, 64))
    assert told(found) == [("empty", "end")]
    assert found.blocks[0].reason == "nothing has run there for 120 s"
    assert removed([EMPTY], 1119, Group(60, 1)) == Removals((), 1120)
    assert told(removed([EMPTY], 1120, Group(60, 1))) == [("empty", "end")]
