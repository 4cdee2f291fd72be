"""Tasks run where their location says, in all four modes (ASP-7)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from gspc_trio import Net, open_iml
from gspc_trio.components.embed import open_rts
from gspc_trio.components.embedded_job import open_job
from gspc_trio.iml.quota import Quota
from gspc_trio.iml.shell.host import ranked_workers
from gspc_trio.iml.shell.server_process import open_server_process
from gspc_trio.policies.location import Level, Target, UnknownRank, location
from tests.components.tasks.locations import where, worker

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
                ranks = await ranked_workers(rts, iml)
                assert [worker.host for worker in ranks.values()] == ["alpha", "alpha", "beta", "beta"]
                names = [f"file {number}" for number in range(40)]
                assert {await ranks.get_rank(name) for name in names} == {0, 1, 2, 3}, "by their hashes"
                await ranks.set_rank("file", 3)
                rank = await ranks.get_rank("file")
                assert (rank, await iml.get_rank("file")) == (3, ranks[3].server)
                await iml.set_rank("file", 0)
                assert await ranks.get_rank("file") in (0, 1)
                with pytest.raises(UnknownRank, match="no worker has the rank 4; there are: 0 to 3"):
                    await ranks.set_rank("file", 4)
                net = Net("places")
                for target in Target:
                    for level in Level:
                        name = f"{target.value}_{level.value}"
                        net.input(name, [1, 2, 3, 4])
                        net.output(f"{name}_seen")
                        place = location(rank, target, level, ranks)
                        net.transition(name, where, inputs=[name], outputs=[f"{name}_seen"], requires=place)
                for each in ranks:
                    net.input(f"to_{each}", [1, 2])
                    net.output(f"at_{each}")
                    net.transition(
                        f"go_{each}",
                        worker,
                        inputs=[f"to_{each}"],
                        outputs=[f"at_{each}"],
                        requires=location(each, Target.HARD, Level.RANK, ranks),
                    )
                async with open_job(net, rts=rts) as job:
                    result = await job.wait()
    seen = result.outputs
    assert {host for host, _ in seen["hard_rank_seen"]} == {"beta"}
    assert len({pid for _, pid in seen["hard_rank_seen"]}) == 1  # one very worker
    assert {host for host, _ in seen["hard_node_seen"]} == {"beta"}
    assert len(seen["soft_rank_seen"]) == len(seen["soft_node_seen"]) == 4  # wherever there was room
    for each in range(4):
        assert len(set(seen[f"at_{each}"])) == 1, "each rank is one very worker"
    assert len({seen[f"at_{each}"][0] for each in range(4)}) == 4, "each worker has a rank of its own"
