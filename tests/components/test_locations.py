"""Tasks run where their location says, in all four modes (ASP-7)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from gspc_trio import Net, open_iml
from gspc_trio.components.embed import open_job, open_rts
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.shell.host import ranked_hosts
from gspc_trio.iml.shell.server_process import open_server_process
from gspc_trio.policies.location import Level, Target, location
from tests.components.tasks.locations import where

pytestmark = pytest.mark.process

MIB = 1 << 20
HANG_S = 100.0


async def test_a_task_runs_at_the_rank_that_its_location_names(tmp_path: Path) -> None:
    publish = tmp_path / "run" / "rts.json"
    with trio.fail_after(HANG_S):
        async with open_rts(cores=2, host="alpha", data_bytes=16 * MIB, publish=publish) as rts:
            assert rts.data is not None
            server = open_server_process("beta", Quota(16 * MIB), layer=rts.data)
            async with server, open_iml(layer=rts.data) as iml:
                report = await rts.bootstrap(["beta"], "local", cores=2)
                assert not report.failed, report.failed
                await iml.set_rank("file", 1)
                rank = await iml.get_rank("file")
                hosts = await ranked_hosts(rts, iml)
                assert {number: host.host for number, host in hosts.items()} == {0: "alpha", 1: "beta"}
                net = Net("places")
                for target in Target:
                    for level in Level:
                        name = f"{target.value}_{level.value}"
                        net.input(name, [1, 2, 3, 4])
                        net.output(f"{name}_seen")
                        place = location(rank, target, level, hosts)
                        net.transition(name, where, inputs=[name], outputs=[f"{name}_seen"], requires=place)
                async with open_job(net, rts=rts) as job:
                    result = await job.wait()
    seen = result.outputs
    assert {host for host, _ in seen["hard_rank_seen"]} == {"beta"}
    assert len({pid for _, pid in seen["hard_rank_seen"]}) == 1  # one very worker
    assert {host for host, _ in seen["hard_node_seen"]} == {"beta"}
    assert len(seen["soft_rank_seen"]) == len(seen["soft_node_seen"]) == 4  # wherever there was room
