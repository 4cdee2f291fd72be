"""Hosts that are killed every few seconds are started again and again, and jobs wait for them."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.worker.messages import Submission
from gspc_trio.testing.cluster import Cluster, open_cluster
from gspc_trio.testing.simulated.backend import Behaviour
from gspc_trio.workflow.net import Net
from gspc_trio.workflow.patterns.farm import farm

HANG_S = 2000.0
KILL_INTERVAL_S = 3.0
KILLS = 12
"""More than a host is started again within seconds."""


def work(item: Any) -> Any:
    return item


def behave(submission: Submission, code: bytes) -> Behaviour:
    del code
    return Behaviour(1.0, ((submission.arguments[0],),))


def kill_rifs(cluster: Cluster) -> None:
    for process in [one for one in cluster.processes if one.role == "rif"]:
        process.kill()


@pytest.mark.parametrize("hosts", [1, 2])
async def test_a_job_ends_well_though_its_hosts_are_killed_again_and_again(
    hosts: int, autojump_clock: MockClock
) -> None:
    del autojump_clock
    net = farm(work, name="work", default=list(range(12)), loss_attempts=50)
    assert isinstance(net, Net)
    with trio.fail_after(HANG_S):
        async with open_cluster(5, hosts=hosts, cores=1, behave=behave, latency_s=0.001) as cluster:
            await cluster.start_rts()
            job = cluster.start_job("job", net)
            for _ in range(KILLS):
                await trio.sleep(KILL_INTERVAL_S)
                kill_rifs(cluster)
            assert cluster.rts is not None
            states = {rif.rif_id: (str(rif.state), rif.incarnation) for rif in cluster.rts.machine.rifs}
            assert all(state in ("lost", "starting", "up") for state, _ in states.values()), states
            assert set(states) == {f"r{number + 1}" for number in range(hosts)}, "none was given up"
            await job.process.ended.wait()
    assert job.result is not None
    assert job.result.state == "finished", job.result.failures
    assert sorted(job.result.outputs["results"]) == list(range(12))
