"""A job server and its run-time system die; both are started again, and find their RIFs in any order."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.worker.messages import Submission
from gspc_trio.testing.cluster import open_cluster
from gspc_trio.testing.simulated.backend import Behaviour
from gspc_trio.testing.simulated.disk import SimulatedDisk
from gspc_trio.testing.simulated.rts_memory import RtsMemory
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import farm

HANG_S = 500.0
TASKS = 8
TASK_S = 2.0


def work(item: Any) -> Any:
    return item


def net() -> Net:
    made = farm(work, name="work", default=list(range(TASKS)))
    assert isinstance(made, Net)
    return made


@pytest.mark.parametrize("after_s", [0.5 * TASK_S, 1.5 * TASK_S])
@pytest.mark.parametrize("away_s", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("later_s", [0.0, 0.3, 3.0])
async def test_no_task_that_was_under_way_begins_twice(
    after_s: float, away_s: float, later_s: float, autojump_clock: MockClock
) -> None:
    """Neither what runs on nor what has ended meanwhile: each RIF is heard before anything is run again.

    Args:
        after_s: when all die: the first results have come, or not yet.
        away_s: how long there is no run-time system.
        later_s: how much later than that the job is resumed.
        autojump_clock: lets no time pass for nothing.
    """
    del autojump_clock
    begun: Counter[int] = Counter()

    def behave(submission: Submission, code: bytes) -> Behaviour:
        del code
        begun[submission.task_id] += 1
        return Behaviour(TASK_S, ((submission.arguments[0],),))

    with trio.fail_after(HANG_S):
        opened = open_cluster(3, hosts=2, cores=1, behave=behave, memory=RtsMemory(), latency_s=0.001)
        async with opened as cluster:
            rts = await cluster.start_rts()
            disk = SimulatedDisk("disk", Random(1))
            job = cluster.start_job("flow", net(), disk=disk)
            await trio.sleep(after_s)
            before = len(begun)
            assert before < TASKS
            rts.kill()
            job.process.kill()
            await trio.sleep(away_s)
            await cluster.start_rts()
            await trio.sleep(later_s)
            again = cluster.start_job("flow", net(), disk=disk)
            await again.process.ended.wait()
            assert again.result is not None
            assert (again.result.state, again.result.tasks["finished"]) == ("finished", TASKS)
    assert set(begun.values()) == {1}, begun
