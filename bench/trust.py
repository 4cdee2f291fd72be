"""What trust costs: journal, encryption, hostile peers.

    python bench/trust.py [--json] [--small]

``journal.w1_ratio``        no-op tasks per second of a journaled job over those of a plain one
``journal.restore_s``       seconds from a journal of 100,000 finished tasks to an engine that goes on
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from pathlib import Path

import trio
from figures import Figures

from gspc_trio import Net, farm, open_job, open_rts
from gspc_trio.components.client import RunTimeSystem
from gspc_trio.components.journal import create_journal, open_journal
from gspc_trio.core.scheduler import TaskDone
from gspc_trio.core.task import Outcome, Reason, TaskState
from gspc_trio.protocol.journal import About
from gspc_trio.protocol.values import dumps

ABOUT = About("bench", "trust.py", "", (), {})


def noop(value: int) -> int:
    """Return the argument: the smallest task."""
    return value


def net_of(tasks: int) -> Net:
    """Return a workflow of so many no-op tasks."""
    return farm(noop, name="noops", default=list(range(tasks)))


async def plain_run(rts: RunTimeSystem, tasks: int) -> float:
    """Return the seconds of a job without a journal."""
    begun = time.perf_counter()
    async with open_job(net_of(tasks), rts=rts) as job:
        result = await job.wait()
    assert result.tasks["finished"] == tasks
    return time.perf_counter() - begun


async def journaled_run(rts: RunTimeSystem, tasks: int) -> float:
    """Return the seconds of the same job with one."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with create_journal(Path(folder), ABOUT) as journal:
            async with open_job(net_of(tasks), rts=rts, journal=journal) as job:
                result = await job.wait()
        assert result.tasks["finished"] == tasks
        return time.perf_counter() - begun


async def measure_journal(figures: Figures, tasks: int, runs: int) -> None:
    """Compare jobs with and without a journal, in turn so that both meet the same neighbours."""
    async with open_rts(cores=2) as rts:
        await plain_run(rts, tasks)
        pairs = [(await plain_run(rts, tasks), await journaled_run(rts, tasks)) for _ in range(runs)]
    figures.add("journal.w1_ratio", statistics.median(plain / kept for plain, kept in pairs), "")


async def restore_s(tasks: int) -> float:
    """Return the seconds it takes to read and replay a journal of so many finished tasks."""
    with tempfile.TemporaryDirectory() as folder:
        with create_journal(Path(folder), ABOUT, file_bytes_max=2**40) as journal:
            engine = await journal.recover(net_of(tasks), {})
            async with trio.open_nursery() as nursery:
                waiting: list[TaskDone] = []

                def kept(count: int) -> None:
                    for done in waiting[:count]:
                        engine.inject(done.task_id, done.outcome.values)
                    del waiting[:count]
                    if not waiting:
                        nursery.cancel_scope.cancel()

                while len(waiting) < tasks - 1 and (task_id := engine.next()) is not None:
                    task = engine.extract(task_id)
                    outcome = Outcome(task_id, 1, Reason.FINISHED, ((dumps(task_id),),))
                    waiting.append(TaskDone(task_id, TaskState.FINISHED, outcome, task.name))
                for done in waiting:
                    journal.keep(done)
                nursery.start_soon(journal.run, kept)
        begun = time.perf_counter()
        with open_journal(Path(folder)) as journal:
            await journal.recover(net_of(tasks), {})
            assert journal.finished_before == tasks - 1
        return time.perf_counter() - begun


def main() -> None:
    """Measure and print."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--json", action="store_true", help="a line of JSON for each figure")
    parser.add_argument("--small", action="store_true", help="see in seconds that the benchmark works")
    options = parser.parse_args()
    tasks, runs = (1_000, 1) if options.small else (20_000, 5)
    figures = Figures(options.json)
    trio.run(measure_journal, figures, tasks, runs)
    tasks = 5_000 if options.small else 100_000
    figures.add("journal.restore_s", min((trio.run(restore_s, tasks) for _ in range(runs)), default=math.nan), "s")


if __name__ == "__main__":
    main()
