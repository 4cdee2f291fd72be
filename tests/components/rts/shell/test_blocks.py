"""Blocks asked for in the process of a run-time system: suspended, cancelled, refused; all in memory."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable

import pytest
import trio

from gspc_trio.components.provision.blocks import (
    BlockMoved,
    BlockNews,
    BlockOrder,
    BlockOver,
    NodeCame,
    NodeLost,
    SavedBlock,
)
from gspc_trio.components.provision.strategy import RifOrder
from gspc_trio.components.rm.messages import Demand, Grant, Release
from gspc_trio.components.rts.messages import RifGone
from gspc_trio.components.rts.shell.service import open_rts_service
from gspc_trio.components.rts.site_lines import describe_blocks
from gspc_trio.components.rts.site_messages import EndBlock, ListSites
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.task import CORE
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import RemoteError
from tests.components.rts.shell.support import RTS, Cluster, FakeRifs, one

# The clock of a test is found among its own arguments, so each names ``autojump_clock``.
# ruff: noqa: ARG001

ORDER = BlockOrder("s/b1", "fake", 2, 2)


class FakeBlocks(FakeRifs):
    """A strategy of blocks, each of which is over with its last RIF."""

    come_up_s = math.inf

    async def run(self, order: RifOrder) -> str:
        assert order.enrolments is not None
        if not any(other.block == order.block for other in self.orders):
            order.enrolments.open_block(Side(), order.block, order.nodes, bytes(32), "1", 0)
        order.enrolments.hand_in(order.block, order.node, order.incarnation, taken=True)
        try:
            return await super().run(order)
        finally:
            if len(self.ended) == order.nodes:
                order.enrolments.tell(BlockOver(order.block, "ended", "it ended"))


class Side:
    """A block that nobody keeps."""

    def order_for(self, node: int) -> str:
        raise AssertionError(node)

    def end_node(self, node: int, incarnation: int, reason: str) -> None:
        raise AssertionError((node, incarnation, reason))

    def job_seen(self, job_id: str) -> None:
        raise AssertionError(job_id)

    def connected_changed(self, count: int) -> None:
        del count

    def stray_canceller(self) -> Callable[[str], None]:
        return pytest.fail

    def save(self, restarts: int) -> SavedBlock:
        raise AssertionError(restarts)


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GSPC_CHECK", "1")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    network = Network(wire_codec)
    rifs = FakeBlocks(network)
    async with open_rts_service(network, listen=(RTS,), strategies={"fake": rifs}, epoch=3) as service:
        yield Cluster(network, rifs, service)


async def test_a_suspended_block_gets_no_task_and_each_node_ends_with_its_last(cluster, autojump_clock):
    news: list[BlockNews] = []
    blocks = cluster.service.blocks
    async with cluster.job() as job, trio.open_nursery() as nursery:
        blocks.open(ORDER, news.append)
        await trio.sleep(1)
        assert [rif.host for rif in blocks.rifs("s/b1")] == ["s/b1.0", "s/b1.1"]
        job.peer.post(Demand(job.job, CORE, 1, NO_GRANT))
        grant = await one(job, Grant)
        assert isinstance(grant, Grant)
        nursery.start_soon(blocks.suspend, "s/b1")
        idle = await one(job, RifGone)
        assert isinstance(idle, RifGone)
        assert not grant.resources[0].startswith(idle.rif_id)
        job.peer.post(Demand(job.job, CORE, 1, grant.grant_id))
        await trio.sleep(50)
        assert len(blocks.rifs("s/b1")) == 1, "one has work yet, and gets no more"
        assert not any(isinstance(message, Grant) for message in job.heard)
        job.peer.post(Release(job.job, grant.grant_id))
        await one(job, RifGone)
    assert blocks.rifs("s/b1") == ()
    assert sorted(one.node for one in news if isinstance(one, NodeCame)) == [0, 1]
    assert news[-1] == BlockOver("s/b1", "ended", "it ended")


async def test_a_cancelled_block_ends_with_what_runs_there(cluster, autojump_clock):
    news: list[BlockNews] = []
    cluster.service.blocks.open(ORDER, news.append)
    await trio.sleep(1)
    await cluster.service.blocks.cancel("s/b1")
    assert cluster.service.blocks.rifs("s/b1") == ()
    assert news[-1] == BlockOver("s/b1", "ended", "it ended")


async def test_a_lost_node_is_told_of_and_the_other_stays(cluster, autojump_clock):
    news: list[BlockNews] = []
    cluster.rifs.lingers = True
    cluster.service.blocks.open(ORDER, news.append)
    await trio.sleep(1)
    cluster.rifs.peers["r2"].drop("cut")
    await trio.sleep(100)
    assert [rif.state for rif in cluster.service.blocks.rifs("s/b1")] == ["up", "lost"]
    assert [type(told) for told in news] == [NodeCame, NodeCame, NodeLost]


async def test_a_block_of_a_strategy_that_has_none_is_over_at_once(cluster, autojump_clock):
    news: list[BlockNews] = []
    cluster.service.blocks.open(BlockOrder("s/b1", "nope"), news.append)
    await trio.sleep(1)
    assert news == [BlockOver("s/b1", "refused", "there is no strategy 'nope'; there are: fake")]


async def test_a_block_that_somebody_has_started_is_listed_and_can_be_cancelled(cluster, autojump_clock):
    service = cluster.service
    await service.bootstrap(["night"], "fake", 2, {"time": "10m"}, 2)
    cluster.rifs.orders[0].enrolments.tell(BlockMoved("night", "running", "17", "", "job 17 runs"))
    async with cluster.network.connect(RTS, role="control", name="c", expect="rts") as client:
        (block,) = (await client.call(ListSites())).blocks
        line = "night is running, batch job 17, 2 of 2 nodes up, 4 cores, 600 s, started by hand"
        assert list(describe_blocks([block])) == [line]
        with pytest.raises(RemoteError, match=r"no block nigth.*there are: night"):
            await client.call(EndBlock("nigth"))
        await client.call(EndBlock("night"))
        assert (await client.call(ListSites())).blocks == ()
    assert service.blocks.rifs("night") == ()
