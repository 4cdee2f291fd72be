"""Whole clusters simulated from seeds: any role may be killed at any step, the result stays what it is."""

from __future__ import annotations

from random import Random

import trio
from trio.testing import MockClock

from gspc_trio.testing.cluster import open_cluster
from gspc_trio.testing.faults import Faults
from gspc_trio.testing.simulation import Options, simulate
from gspc_trio.testing.workload import Workload, behave, in_order


def test_a_cluster_whose_processes_are_killed_computes_what_a_plain_loop_does():
    report = simulate(0)
    assert report.broken == "", report


def test_a_seed_replays_event_by_event():
    first, second = simulate(8), simulate(8)
    assert first.happened
    assert first == second
    quiet = Options(jobs=1, tasks=5, faults=Faults.none())
    assert simulate(8, quiet).digest != simulate(9, quiet).digest


def test_an_undisturbed_cluster_is_open_to_users():
    workload = Workload.make(Random(5), 30, [{"attempts": 3}])

    async def main() -> None:
        async with open_cluster(5, hosts=2, cores=2, behave=behave) as cluster:
            await cluster.start_rts()
            job = cluster.start_job("job", workload.net())
            await job.process.ended.wait()
            assert job.result is not None
            assert job.result.state == "finished"
            outputs = {port: in_order(tokens) for port, tokens in job.result.outputs.items()}
            assert outputs == workload.results()

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_an_empty_menu_lets_nothing_happen():
    assert simulate(0, Options(faults=Faults.none())).happened == ()
