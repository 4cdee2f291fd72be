"""What queues of resources and a performance model cost on the whole path of a task.

``schedule.w1_plain_us``  CPU time of a no-op task of many (W1) without both
``schedule.w1_ratio``     this time over that with both

Two executors take turns, each with a run-time system and two cores of its own: so what else the machine does
concerns both. CPU time is that of the client and of all processes below it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from cost import bulk_us, warm_up
from figures import Figures

from gspc_trio import Executor

PAIRS, TASKS = 15, 20_000


def measure(figures: Figures, small: bool, _traces: Path) -> None:
    """Run pairs of bulks of tasks."""
    pairs, tasks = (1, 1_000) if small else (PAIRS, TASKS)
    with (
        tempfile.TemporaryDirectory() as folder,
        Executor(cores=2, assign="queues", model=f"{folder}/times.json") as queued,
        Executor(cores=2) as plain,
    ):
        warm_up(queued)
        warm_up(plain)
        costs: dict[Executor, list[float]] = {queued: [], plain: []}
        for pair in range(pairs):
            for executor in (
                (queued, plain) if pair % 2 else (plain, queued)
            ):  # the first finds a colder machine
                costs[executor].append(bulk_us(executor, tasks))
        ratios = [alone / more for alone, more in zip(costs[plain], costs[queued], strict=True)]
    figures.add("schedule.w1_plain_us", median(costs[plain]), "us")
    figures.add("schedule.w1_ratio", median(ratios), "of plain")
