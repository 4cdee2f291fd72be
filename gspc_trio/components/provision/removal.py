"""Which blocks are not needed any more (SWF-7).

"Remaining blocks enter a suspended state if they have not seen any new tasks for a certain amount of time.
Once suspended, a block gets shut down as soon as it finishes running its last task" (Swift/Coasters, section
0.6). The planner has filled the blocks that end first at first, so that as much as possible is left over.

A block that is full sees no new task either, but it is not idle: the time counts from when it had a free
core.

A suspended block is never used again: the next demand finds room elsewhere or asks for a new block. Queued
blocks are cancelled before running ones are suspended, as nothing has been lost with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from attrs import frozen

from gspc_trio.components.provision.block_settings import BlockSettings
from gspc_trio.components.provision.planner import BlockPlan, BlockView


class TakeDown(StrEnum):
    """How a block is taken down."""

    CANCEL = "cancel"
    """It is queued: its batch job is cancelled."""
    SUSPEND = "suspend"
    """Tasks run there: it gets no new one, for good, and ends with its last."""
    END = "end"
    """Nothing runs there: it ends now."""


@frozen
class BlockRemoval:
    """A block to take down.

    Attributes:
        block_id: its name.
        how: what is to be done.
        reason: one line for people.
    """

    block_id: str
    how: TakeDown
    reason: str


@frozen
class Removals:
    """Blocks to take down.

    Attributes:
        blocks: queued ones first.
        check_at: when to look again if nothing changes before; None if nothing would come of that.
    """

    blocks: tuple[BlockRemoval, ...]
    check_at: float | None

    def those(self, how: TakeDown) -> tuple[str, ...]:
        """Return the blocks that are taken down like this."""
        return tuple(one.block_id for one in self.blocks if one.how is how)


def removals(blocks: Sequence[BlockView], found: BlockPlan, settings: BlockSettings, now: float) -> Removals:
    """Return which blocks to take down, and when to look again.

    As long as a task waits that has no room in any block, only those end that are suspended or have been
    empty for ``idle_end_s``.

    Args:
        blocks: all that are not ended.
        found: what ``plan`` found for them.
        settings: of the site.
        now: on the clock of the blocks, seconds.
    """
    unused = set() if found.unplaced else set(found.unused)
    chosen: list[BlockRemoval] = []
    later: list[float] = []
    for block in blocks:
        removal, due = _removal(block, block.block_id in unused, settings, now)
        if removal is not None:
            chosen.append(removal)
        elif due is not None:
            later.append(due)
    chosen.sort(key=lambda one: one.how is not TakeDown.CANCEL)
    return Removals(tuple(chosen), min(later, default=None))


def _removal(
    block: BlockView, is_unused: bool, settings: BlockSettings, now: float
) -> tuple[BlockRemoval | None, float | None]:
    """Return how to take the block down now, and otherwise when it may be time."""
    is_queued = block.ends_at is None
    is_empty = not is_queued and not block.running
    if is_empty and block.is_suspended:
        return BlockRemoval(
            block.block_id, TakeDown.END, "it is suspended, and its last task has ended"
        ), None
    due: float | None = None
    if is_empty and block.idle_since is not None:
        due = block.idle_since + settings.idle_end_s
        if now >= due:
            reason = f"nothing has run there for {settings.idle_end_s:g} s"
            return BlockRemoval(block.block_id, TakeDown.END, reason), None
    if not is_unused or block.is_suspended:
        return None, due
    unneeded_at = block.needed_at + settings.idle_suspend_s
    if now < unneeded_at:
        return None, unneeded_at if due is None else min(due, unneeded_at)
    how = TakeDown.CANCEL if is_queued else TakeDown.END if is_empty else TakeDown.SUSPEND
    reason = f"no task waits for it, and none has for {settings.idle_suspend_s:g} s"
    return BlockRemoval(block.block_id, how, reason), None
