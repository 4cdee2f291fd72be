"""What a job with a memory layer knows of hosts: also of servers that come after it."""

from __future__ import annotations

from collections.abc import Mapping

import trio
from trio.testing import MockClock

from gspc_trio.components.job.shell.data import DataHosts
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Task
from gspc_trio.policies.transfer import TransferCost
from tests.iml.shell.support import MEMORY_BYTES, open_stage


class NoData:
    """A job without data."""

    def places_of(self, task: Task) -> Mapping[str, int]:
        del task
        return {}

    def bytes_of(self, task: Task) -> int:
        del task
        return 0


async def test_a_server_that_comes_after_its_job_is_known_by_its_size(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A RIF starts it for the job: a task whose data it cannot hold was sent there all the same."""
    del autojump_clock
    async with open_stage("here") as stage, stage.client() as iml:
        policy = TransferCost(NoData())
        hosts = DataHosts(iml, policy)
        hosts.note_up("here", [Resource("r1.node", "node"), Resource("r1.core0", "core", ("r1.node",))])
        nursery.start_soon(hosts.follow)
        await trio.sleep(1)
        assert (policy.tops, policy.memory_bytes) == ({"here": ["r1.node"]}, {"here": MEMORY_BYTES})
        hosts.note_up("there", [Resource("r2.node", "node")])
        await trio.sleep(100)
        await stage.add("there", 1 << 20)
        await trio.sleep(100)
        assert policy.memory_bytes == {"here": MEMORY_BYTES, "there": 1 << 20}
        hosts.note_lost(["r1.node", "r9.node"])
        assert policy.tops == {"there": ["r2.node"]}
        hosts.note_lost(["r1.core0"])
        assert policy.classes == {"there": {"r2.node": "node"}}
        nursery.cancel_scope.cancel()
