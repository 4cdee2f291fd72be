"""A job server that reads a stream dies at any time, and the one that goes on gives equal results."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from random import Random

import cloudpickle
import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.worker.messages import Submission
from gspc_trio.compute.code import ImportedFunction, PickledFunction, decode_code
from gspc_trio.core.rules import split_outputs
from gspc_trio.protocol.values import dumps, loads
from gspc_trio.testing.cluster import open_cluster
from gspc_trio.testing.simulated.backend import Behaviour
from gspc_trio.testing.simulated.disk import SimulatedDisk
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.accumulate import accumulate
from gspc_trio.workflow.patterns.farm import farm
from gspc_trio.workflow.patterns.filters import keep
from gspc_trio.workflow.patterns.pipeline import pipeline, stage
from gspc_trio.workflow.patterns.split_join import split_join

HANG_S = 500.0
ITEMS = 40
TASK_S = 0.2


def add_up(number: int, total: int) -> tuple[int, int]:
    return total + number, total + number


def double(number: int) -> int:
    return 2 * number


def is_even(number: int) -> bool:
    return number % 2 == 0


def add(so_far: int, pair: tuple[int, int]) -> int:
    return so_far + sum(pair)


def net() -> Net:
    joined = split_join("duplicate", "tuple", double, farm(double, in_flight=3))
    windows = accumulate(2, 1, 0, add, partial=True)
    return pipeline(
        stage(add_up, state=0, batch=3), keep(is_even), joined, windows, default=range(ITEMS), buffer=4
    )


def expected() -> list[int]:
    sums = [number * (number + 1) // 2 for number in range(ITEMS)]
    kept = [4 * number for number in sums if number % 2 == 0]
    return [first + second for first, second in pairwise(kept)]


def behave(submission: Submission, code: bytes) -> Behaviour:
    """Compute what a task gives, as a compute process would."""
    found = decode_code(code)
    if isinstance(found, ImportedFunction):
        function = getattr(import_module(found.module), found.qualname)
    else:
        assert isinstance(found, PickledFunction)
        function = cloudpickle.loads(found.data)
    value = function(*map(loads, submission.arguments))
    tokens = split_outputs(value, found.outputs)
    return Behaviour(TASK_S, tuple(tuple(map(dumps, each)) for each in tokens))


@pytest.mark.parametrize("seed", range(4))
async def test_killed_at_any_time_a_stream_comes_to_the_same_end(
    seed: int, autojump_clock: MockClock
) -> None:
    del autojump_clock
    random = Random(seed)
    with trio.fail_after(HANG_S):
        async with open_cluster(2, hosts=2, cores=2, behave=behave, latency_s=0.001) as cluster:
            await cluster.start_rts()
            disk = SimulatedDisk("disk", Random(seed))
            job = cluster.start_job("flow", net(), disk=disk)
            for _ in range(2):
                await trio.sleep(random.uniform(0.5, 2.5))
                job.process.kill()
                await trio.sleep(random.choice([0.0, 1.0]))
                job = cluster.start_job("flow", net(), disk=disk)
            await job.process.ended.wait()
            assert job.result is not None
            assert job.result.state == "finished", job.result.detail
            assert job.result.outputs["results"] == expected()
