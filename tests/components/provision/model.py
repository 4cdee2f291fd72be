"""The planner as its formulas say it: task by task, with exact sums, without a thought for speed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from attrs import frozen

from gspc_trio.components.provision.block_settings import BlockSettings
from gspc_trio.components.provision.planner import BlockView
from gspc_trio.components.provision.waiting import Group

EPSILON = Fraction(1, 10**9)


@frozen
class NaiveTask:
    """One task of a group."""

    walltime_s: float
    cores: int
    group: int


@frozen
class NaiveBlock:
    """A new block: nodes, height without the reserve, what to ask for, group -> number of its tasks."""

    nodes: int
    height_s: float
    walltime_s: float
    tasks: Counter[int]


@frozen
class NaivePlan:
    """What the naive planner found."""

    refused: set[int]
    given: dict[str, Counter[int]]
    unplaced: int
    new_blocks: list[NaiveBlock]
    left_over: int


def size(cores: int, time_s: float, settings: BlockSettings) -> Fraction:
    """Return size = c * w^p, or capacity = W * h^p."""
    return Fraction(cores * time_s**settings.parallelism)


def slack(amount: Fraction | float) -> Fraction:
    """Return by how much two numbers of this size may differ and still be equal."""
    return EPSILON * max(Fraction(1), Fraction(amount))


def is_at_most(time_s: float, other_s: float) -> bool:
    return Fraction(time_s) <= Fraction(other_s) * (1 + EPSILON)


def naive_shares(total: Fraction, number: int, settings: BlockSettings) -> list[Fraction]:
    """Return the shares of new blocks, smallest first."""
    ratio, spread = Fraction(settings.exponential_spread), Fraction(settings.spread)
    if ratio:
        return [total * (ratio - 1) * ratio**i / (ratio**number - 1) for i in range(number)]
    if number == 1:
        return [total]
    return [total / number * ((1 - spread) + 2 * spread * i / (number - 1)) for i in range(number)]


def take(
    tasks: list[NaiveTask],
    cores: int,
    time_s: float,
    room: Fraction,
    capacity: Fraction,
    settings: BlockSettings,
) -> Counter[int]:
    """Take one task after the other that fits, in the order of the list; return group -> number."""
    taken: Counter[int] = Counter()
    for task in list(tasks):
        needed = size(task.cores, task.walltime_s, settings)
        fits = is_at_most(task.walltime_s, time_s) and task.cores <= cores
        if fits and needed <= room + slack(capacity):
            room -= needed
            taken[task.group] += 1
            tasks.remove(task)
    return taken


def fill(
    tasks: list[NaiveTask], blocks: Sequence[BlockView], settings: BlockSettings, now: float
) -> dict[str, Counter[int]]:
    """Fill existing blocks, smallest left first; in each, longest tasks first."""
    found = []
    for block in blocks:
        left_s = block.walltime_s if block.ends_at is None else block.ends_at - now
        left_s -= settings.reserve_s
        if block.takes_tasks and left_s > 0:
            capacity = size(block.cores, left_s, settings)
            rests = [(one.count, one.cores, max(0.0, one.rest_s)) for one in block.running]
            running = sum(
                (count * size(each, rest_s, settings) for count, each, rest_s in rests), Fraction(0)
            )
            found.append((left_s, capacity - running, block.block_id, block.cores, capacity))
    given = {}
    for left_s, room, block_id, cores, capacity in sorted(found):
        tasks.reverse()
        given[block_id] = take(tasks, cores, left_s, room, capacity, settings)
        tasks.reverse()
    return {block_id: taken for block_id, taken in given.items() if taken}


def new_block(tasks: list[NaiveTask], share: Fraction, settings: BlockSettings) -> NaiveBlock:
    """Return the block of a share, and take what is committed to it from the tasks."""
    reached = Fraction(0)
    chosen: list[NaiveTask] = []
    for task in tasks:
        if chosen and reached >= share - slack(share):
            break
        chosen.append(task)
        reached += size(task.cores, task.walltime_s, settings)
    longest_s = chosen[-1].walltime_s
    usable_s = settings.max_time_s - settings.reserve_s
    low, high = settings.low_overallocation, settings.high_overallocation
    wanted = (low - high) * math.exp(-settings.overallocation_decay * longest_s) + high
    times = max(1, math.floor(Fraction(wanted) + Fraction(1, 2) + EPSILON))
    times = min(times, math.floor(Fraction(usable_s) / Fraction(longest_s) * (1 + EPSILON)))
    height_s = longest_s * times
    cores = max(share / size(1, height_s, settings), Fraction(max(task.cores for task in chosen)))
    nodes = settings.node_granularity
    while (
        Fraction(nodes * settings.cores_per_node) < cores * (1 - EPSILON)
        and nodes + settings.node_granularity <= settings.max_nodes
    ):
        nodes += settings.node_granularity
    capacity = size(nodes * settings.cores_per_node, height_s, settings)
    taken = take(tasks, nodes * settings.cores_per_node, height_s, capacity, capacity, settings)
    unit = Fraction(settings.time_unit_s)
    units = math.ceil((Fraction(height_s) + Fraction(settings.reserve_s)) / unit * (1 - EPSILON))
    return NaiveBlock(nodes, height_s, float(units * unit), taken)


def naive_plan(
    groups: Sequence[Group], blocks: Sequence[BlockView], settings: BlockSettings, now: float
) -> NaivePlan:
    """Return what the planner has to find; ``max_time_s`` is in whole units of the batch system."""
    usable_s = settings.max_time_s - settings.reserve_s
    widest = settings.max_nodes // settings.node_granularity * settings.node_granularity
    refused = {
        number
        for number, group in enumerate(groups)
        if not is_at_most(group.walltime_s, usable_s) or group.cores > widest * settings.cores_per_node
    }
    tasks = [
        NaiveTask(group.walltime_s, group.cores, number)
        for number, group in enumerate(groups)
        if number not in refused
        for _ in range(group.count)
    ]
    tasks.sort(key=lambda task: (task.walltime_s, task.cores))
    given = fill(tasks, blocks, settings, now)
    unplaced = len(tasks)
    free = settings.slots - len(blocks)
    number = max(0, math.ceil(Fraction(str(settings.allocation_step)) * free))
    left = sum((size(task.cores, task.walltime_s, settings) for task in tasks), Fraction(0))
    new_blocks = []
    for share in naive_shares(left, number, settings) if number else []:
        if tasks:
            left = sum((size(task.cores, task.walltime_s, settings) for task in tasks), Fraction(0))
            new_blocks.append(new_block(tasks, min(share, left), settings))
    return NaivePlan(refused, given, unplaced, new_blocks, len(tasks))
