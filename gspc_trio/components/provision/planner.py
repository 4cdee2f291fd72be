"""Which blocks a site is asked for, and what the blocks that it has are given (SWF-4, SWF-5).

This is the planning of Swift/Coasters, section 0.5: sort the waiting tasks by walltime, put them into the
blocks there are, find how many new blocks there may be, divide the size of the rest among them, find the
shape of each, and commit to it what fits. Where that document leaves a formula open, it is stated here:

- A task has the size c * w^p (c cores, w seconds, p the parallelism), a block of W cores and h seconds
  has the capacity W * h^p. With p = 0 only widths count, with p = 1 everything is packed tightly.
- The sum of the sizes is divided in full. (The original's exponential spread gives out a part of it only,
  and the sum that it divides is one of sizes that are over-allocated already.)
- The height of a block is a whole multiple of the longest walltime of its share. (The original says "the
  first task in the queue", and adds one more walltime to exact multiples.)

All works by groups of tasks that are alike: a million tasks cost what their groups cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from attrs import frozen

from gspc_trio.components.provision.block_settings import TOLERANCE, BlockSettings
from gspc_trio.components.provision.waiting import Group, Taken, WaitingTasks


@frozen
class RunningTasks:
    """Tasks that run in a block.

    Attributes:
        cores: that each of them has.
        rest_s: of the walltime of each, seconds; 0 when it is over.
        count: how many they are.
    """

    cores: int
    rest_s: float
    count: int = 1


@frozen
class BlockView:
    """A block that has not ended, as the planner sees it.

    Attributes:
        block_id: its name.
        cores: that it has, or will have.
        walltime_s: that it was asked for with, seconds.
        ends_at: when the batch system ends it, None as long as it is queued.
        running: what runs there.
        takes_tasks: False when it gets no new task: it is suspended, or held for so long that nobody
            counts on it.
        needed_at: when it last got a task, was planned to, or had no core free; first, when it was asked
            for or came up.
        idle_since: since when nothing runs there; None if something does, or it is queued.
        is_suspended: it ends with its last task.
    """

    block_id: str
    cores: int
    walltime_s: float
    ends_at: float | None = None
    running: Sequence[RunningTasks] = ()
    takes_tasks: bool = True
    needed_at: float = 0.0
    idle_since: float | None = None
    is_suspended: bool = False

    def left_s(self, now: float, reserve_s: float) -> float:
        """Return the time in which tasks may run there, seconds: of a queued block all but the reserve."""
        end = self.walltime_s if self.ends_at is None else self.ends_at - now
        return max(0.0, end - reserve_s)


@frozen
class RefusedTasks:
    """Tasks that no block of the site can ever run.

    Attributes:
        group: their number, in the order in which the groups were given.
        reason: one line for people.
    """

    group: int
    reason: str


@frozen
class NewBlock:
    """A block to ask for.

    Attributes:
        nodes: how many.
        cores: of all of them.
        height_s: time for tasks, without the reserve, seconds.
        walltime_s: what to ask for: with the reserve, in whole units of the batch system.
        tasks: that are committed to it.
        why: for people.
    """

    nodes: int
    cores: int
    height_s: float
    walltime_s: float
    tasks: tuple[Taken, ...]
    why: str


@frozen
class BlockPlan:
    """What is to be done for the tasks that wait.

    Attributes:
        refused: tasks that can never run on this site.
        given: block -> tasks that have room there; without those that got nothing.
        unused: blocks that got nothing.
        unplaced: number of tasks that have no room in any block there is.
        new_blocks: to ask for, smallest first.
        left_over: number of tasks that have no room in these either.
        why: for people: why so many blocks are asked for.
    """

    refused: tuple[RefusedTasks, ...]
    given: Mapping[str, tuple[Taken, ...]]
    unused: tuple[str, ...]
    unplaced: int
    new_blocks: tuple[NewBlock, ...]
    left_over: int
    why: str


def plan(
    groups: Sequence[Group], blocks: Sequence[BlockView], settings: BlockSettings, now: float
) -> BlockPlan:
    """Return what each block is given, and which new blocks to ask for.

    Args:
        groups: tasks that wait.
        blocks: all that are not ended; each of them uses a slot.
        settings: of the site.
        now: on the clock of ``BlockView.ends_at``, seconds.
    """
    refused = tuple(
        RefusedTasks(number, reason)
        for number, group in enumerate(groups)
        if (reason := refusal(group, settings)) is not None
    )
    never = {one.group for one in refused}
    possible = [number for number in range(len(groups)) if number not in never]
    waiting = WaitingTasks(groups, possible, settings.parallelism)
    wanted = waiting.count
    given = _fill(waiting, blocks, settings, now)
    unplaced = waiting.count
    may = settings.new_blocks_max(len(blocks))
    new_blocks = _new_blocks(waiting, may, settings)
    return BlockPlan(
        refused=refused,
        given=given,
        unused=tuple(block.block_id for block in blocks if block.block_id not in given),
        unplaced=unplaced,
        new_blocks=new_blocks,
        left_over=waiting.count,
        why=_why(wanted, unplaced, may, len(blocks), len(new_blocks), settings),
    )


def refusal(group: Group, settings: BlockSettings) -> str | None:
    """Return why no block of the site can ever run such a task, None if one can."""
    if group.walltime_s > settings.usable_s * (1 + TOLERANCE):
        return (
            f"a task of {group.walltime_s:g} s does not fit into a block, which has at most "
            f"{settings.usable_s:g} s for tasks (max_time_s {settings.max_time_s:g}, reserve_s "
            f"{settings.reserve_s:g})"
        )
    if group.cores > settings.cores_max:
        return (
            f"a task of {group.cores} cores does not fit into a block, which has at most "
            f"{settings.cores_max} (nodes {settings.nodes_max}, cores_per_node {settings.cores_per_node})"
        )
    return None


# Blocks that are there --------------------------------------------------------------------------------------


def _fill(
    waiting: WaitingTasks, blocks: Sequence[BlockView], settings: BlockSettings, now: float
) -> dict[str, tuple[Taken, ...]]:
    """Put tasks into the blocks there are, those that end first at first, as section 0.6 does."""
    power, reserve_s = settings.parallelism, settings.reserve_s
    found = []
    for block in blocks:
        left_s = block.left_s(now, reserve_s)
        if block.takes_tasks and left_s > 0:
            capacity = block.cores * left_s**power
            busy = math.fsum(one.count * one.cores * max(0.0, one.rest_s) ** power for one in block.running)
            found.append((left_s, capacity - busy, block.block_id, block.cores, capacity))
    found.sort()
    given: dict[str, tuple[Taken, ...]] = {}
    for left_s, room, block_id, cores, capacity in found:
        if not waiting.count:
            break
        taken = _take_longest(waiting, left_s, cores, room, capacity)
        if taken:
            given[block_id] = tuple(taken)
    return given


def _take_longest(
    waiting: WaitingTasks, left_s: float, cores: int, room: float, capacity: float
) -> list[Taken]:
    """Take what a block has room for, longest tasks first."""
    room += TOLERANCE * max(1.0, capacity)
    taken = []
    place = waiting.longest(waiting.up_to(left_s * (1 + TOLERANCE)), cores, room)
    while place >= 0:
        taken.append(waiting.take(place, room))
        room -= taken[-1].count * waiting.sizes[place]
        place = waiting.longest(place, cores, room)
    return taken


# New blocks -------------------------------------------------------------------------------------------------


def shares(total: float, number: int, settings: BlockSettings) -> list[float]:
    """Return the sizes of ``number`` new blocks, smallest first; their sum is ``total``.

    Linear: total/n * ((1 - spread) + 2 * spread * i/(n - 1)). Exponential with the ratio e:
    total * (e - 1) * e^i / (e^n - 1).
    """
    ratio, spread = settings.exponential_spread, settings.spread
    if number == 1:
        return [total]
    if ratio:
        # Divided by e^n, for large n and e.
        scale = total * (ratio - 1) / -math.expm1(-number * math.log(ratio))
        return [scale * ratio ** (place - number) for place in range(number)]
    mean, last = total / number, number - 1
    return [mean * ((1 - spread) + 2 * spread * place / last) for place in range(number)]


def reuses(walltime_s: float, settings: BlockSettings) -> int:
    """Return how many tasks of this walltime a block is to run one after the other.

    The over-allocation goes from low_overallocation for the shortest tasks to high_overallocation for long
    ones, and is rounded; it is at least 1 and at most what max_time allows.
    """
    low, high = settings.low_overallocation, settings.high_overallocation
    wanted = (low - high) * math.exp(-settings.overallocation_decay * walltime_s) + high
    possible = settings.usable_s / walltime_s * (1 + TOLERANCE)
    return max(1, math.floor(min(wanted + 0.5 + TOLERANCE, possible)))


def nodes_for(cores: float, settings: BlockSettings) -> int:
    """Return how many nodes so many cores are: a multiple of the granularity, within max_nodes."""
    step = settings.node_granularity
    steps = math.ceil(cores / (step * settings.cores_per_node) * (1 - TOLERANCE))
    return min(max(1, steps) * step, settings.nodes_max)


def _new_blocks(waiting: WaitingTasks, number: int, settings: BlockSettings) -> tuple[NewBlock, ...]:
    """Return new blocks for what waits; what is committed to them waits no longer."""
    if not number:
        return ()
    found: list[NewBlock] = []
    total = left = waiting.size
    for share in shares(total, number, settings):
        if not waiting.count:
            break
        block, size = _new_block(waiting, min(share, left), total, settings)
        found.append(block)
        left = max(0.0, left - size)
    return tuple(found)


def _new_block(
    waiting: WaitingTasks, share: float, total: float, settings: BlockSettings
) -> tuple[NewBlock, float]:
    """Return the block for the shortest tasks that wait, and the size of what is committed to it."""
    longest_s, widest, tasks = _share_tasks(waiting, share)
    times = reuses(longest_s, settings)
    height_s = longest_s * times
    needed = max(share / math.pow(height_s, settings.parallelism), widest)
    nodes = nodes_for(needed, settings)
    cores = nodes * settings.cores_per_node
    taken, size = _commit(waiting, cores, height_s, settings.parallelism)
    most = "" if needed <= cores * (1 + TOLERANCE) else ", more are not allowed"
    why = (
        f"its share of {share / total:.3g} of what waits is {_tasks(tasks)} of up to {longest_s:g} s and "
        f"{_number(widest, 'core')}; {_number(times, 'task')} one after the other {_take(times)} "
        f"{height_s:g} s; it needs {_number(math.ceil(needed * (1 - TOLERANCE)), 'core')}: "
        f"{_number(nodes, 'node')} of {settings.cores_per_node}{most}; {settings.reserve_s:g} s in reserve"
    )
    return NewBlock(nodes, cores, height_s, settings.walltime_s(height_s), tuple(taken), why), size


def _share_tasks(waiting: WaitingTasks, share: float) -> tuple[float, int, int]:
    """Return the longest walltime, the most cores and the number of the tasks that make up a share."""
    missing = share - TOLERANCE * max(1.0, share)
    longest_s, widest, tasks = 0.0, 0, 0
    for place, count in enumerate(waiting.counts):
        if count:
            if tasks and missing <= 0:
                break
            size = waiting.sizes[place]
            needed = max(1, math.ceil(missing / size)) if missing < count * size else count
            longest_s, widest = waiting.walltimes_s[place], max(widest, waiting.cores[place])
            tasks += needed
            missing -= needed * size
    return longest_s, widest, tasks


def _commit(waiting: WaitingTasks, cores: int, height_s: float, power: float) -> tuple[list[Taken], float]:
    """Take what a new block has room for, shortest tasks first; return it and its size."""
    capacity = cores * height_s**power
    room = begun = capacity + TOLERANCE * max(1.0, capacity)
    end = waiting.up_to(height_s * (1 + TOLERANCE))
    taken = []
    place = waiting.shortest(0, end, cores, room)
    while place >= 0:
        taken.append(waiting.take(place, room))
        room -= taken[-1].count * waiting.sizes[place]
        place = waiting.shortest(place + 1, end, cores, room)
    return taken, begun - room


# Words for people -------------------------------------------------------------------------------------------


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _tasks(count: int) -> str:
    return _number(count, "task")


def _take(count: int) -> str:
    return "takes" if count == 1 else "take"


def _why(wanted: int, unplaced: int, may: int, used: int, new: int, settings: BlockSettings) -> str:
    if not wanted:
        return "no task waits"
    if not unplaced:
        return f"the blocks there are have room for all of {_tasks(wanted)} that wait"
    slots = f"{used} of {_number(settings.slots, 'slot')} used"
    if not may:
        return f"{_tasks(unplaced)} without room in a block, and no slot is free: {slots}"
    text = f"{_tasks(unplaced)} without room in a block; {slots}, so {_number(may, 'new block')} at most"
    return text if new == may else f"{text}; {new} will do"
