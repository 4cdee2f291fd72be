"""Sites of a run-time system: blocks come and go as tasks wait, among RIFs and jobs in memory."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from msgspec.structs import replace

from gspc_trio.components.provision.blocks import BlockOver, Over, SavedSite
from gspc_trio.components.provision.strategy import OutOfSight, RifOrder
from gspc_trio.components.rm.messages import Demand, Grant, Refuse, Release
from gspc_trio.components.rts.events import RifRestored
from gspc_trio.components.rts.messages import Bootstrap, RifUp
from gspc_trio.components.rts.shell.service import open_rts_service
from gspc_trio.components.rts.site_lines import describe_plans, describe_site
from gspc_trio.components.rts.site_messages import (
    AddSite,
    BlockOutput,
    ChangeSite,
    EndBlock,
    GetBlockOutput,
    ListSites,
    SiteChange,
    SiteList,
)
from gspc_trio.components.rts.state import Limits
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.demand import DemandWanted, EndedTasks, GroupRefused, RunningGroup, TaskDemand, TaskGroup
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer, RemoteError
from gspc_trio.protocol.plain import from_json, to_json
from tests.components.rts.shell.support import RTS, Cluster, FakeRifs, JobServer, lost, one

# The clock of a test is found among its own arguments, so each names ``autojump_clock``.
# ruff: noqa: ARG001

SMALL = {"provider": "fake", "max_time": "1h", "cores_per_node": "2", "slots": "1"}


class FakeBlocks(FakeRifs):
    """A strategy of blocks of one node, which are over with their RIF."""

    come_up_s = math.inf
    ends_early = False

    async def run(self, order: RifOrder) -> str:
        assert order.enrolments is not None
        if self.ends_early:
            order.enrolments.tell(BlockOver(order.block, "ended", "it ended", said=("one", "no python")))
            return "it ended"
        how: Over = "refused" if order.host in self.broken else "ended"
        said = ("it said so",) if order.host in self.broken else ()
        try:
            return await super().run(order)
        finally:
            order.enrolments.tell(
                BlockOver(order.block, how, self.broken.get(order.host, "it ended"), said=said)
            )


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    monkeypatch.setenv("GSPC_CHECK", "1")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    network = Network(wire_codec)
    rifs = FakeBlocks(network)
    async with open_rts_service(network, listen=(RTS,), strategies={"fake": rifs}, epoch=3) as service:
        yield Cluster(network, rifs, service)


def demand(job: JobServer, credit: int, shape: Shape = CORE) -> Demand:
    return Demand(job.job, shape, credit, NO_GRANT)


def waiting(job: JobServer, count: int, walltime_s: float = 100.0) -> TaskDemand:
    return TaskDemand(job.job, (TaskGroup(walltime_s, count=count),) if count else ())


async def blocks(client: Peer) -> dict[str, str]:
    listed: SiteList = await client.call(ListSites())
    return {block.block_id: block.state for site in listed.sites for block in site.blocks}


async def test_a_block_comes_when_tasks_wait_and_goes_when_none_do(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job:
        assert await client.call(ListSites()) == SiteList(())
        await client.call(AddSite("hpc", SMALL))
        assert await one(job, DemandWanted) == DemandWanted(True)
        job.peer.post(demand(job, 2))
        job.peer.post(waiting(job, 2))
        up = await one(job, RifUp)
        assert isinstance(up, RifUp)
        assert (up.host, len(up.resources)) == ("hpc/b1.0", 3)
        assert [await one(job, Grant), await one(job, Grant)]
        (order,) = cluster.rifs.orders
        assert (order.cores, order.options) == (2, {"time": "960s"})
        job.peer.post(TaskDemand(job.job, (), (RunningGroup("r1", 100.0, count=2),)))
        await trio.sleep(20)
        assert await blocks(client) == {"hpc/b1": "running"}
        job.peer.post(TaskDemand(job.job))  # it keeps its grants
        await trio.sleep(29)
        assert await blocks(client) == {"hpc/b1": "running"}
        await trio.sleep(5)
        assert await blocks(client) == {}
        assert cluster.rifs.ended == ["r1"]
        assert cluster.service.status().rifs == ()


async def test_a_block_that_is_held_by_somebody_who_tells_no_demand_is_not_ended(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job, cluster.job("holder") as holder:
        await client.call(AddSite("hpc", SMALL))
        holder.peer.post(demand(holder, 1))
        job.peer.post(waiting(job, 1))
        grant = await one(holder, Grant)
        assert isinstance(grant, Grant)
        job.peer.post(TaskDemand(job.job))
        await trio.sleep(500)
        assert await blocks(client) == {"hpc/b1": "running"}
        holder.peer.post(Release(holder.job, grant.grant_id))
        await trio.sleep(35)
        assert await blocks(client) == {}


async def test_what_a_site_could_bring_is_waited_for_and_other_things_are_refused(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job:
        job.peer.post(demand(job, 1))
        assert isinstance(await one(job, Refuse), Refuse), "nobody could ever give it"
        await client.call(AddSite("hpc", SMALL))
        job.peer.post(demand(job, 1, Shape((Requirement("gpu"),))))
        job.peer.post(demand(job, 1))
        refused = await one(job, Refuse)
        assert isinstance(refused, Refuse)
        assert str(refused.shape) == "gpu"
        await trio.sleep(100)
        assert not any(isinstance(message, Refuse) for message in job.heard)
        await client.call(ChangeSite("hpc", SiteChange.REMOVE))
        assert isinstance(await one(job, Refuse), Refuse), "the site that could is gone"


async def test_what_would_be_asked_for_is_told_without_asking_for_it(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job:
        await client.call(AddSite("hpc", SMALL))
        await client.call(ChangeSite("hpc", SiteChange.PAUSE))
        job.peer.post(waiting(job, 2))
        await trio.sleep(5)
        listed: SiteList = await client.call(ListSites(planned=True))
        (site,) = listed.sites
        assert site.plan == "2 tasks without room in a block; 0 of 1 slot used, so 1 new block at most"
        (block,) = site.planned
        assert (block.nodes, block.cores, block.walltime_s) == (1, 2, 960)
        assert list(describe_plans(listed.sites)) == [
            f"hpc (paused: somebody has paused it): {site.plan}",
            "  1 node with 2 cores for 960 s: its share of 1 of what waits is 2 tasks of up to 100 s and 1 "
            "core; 9 tasks one after the other take 900 s; it needs 2 cores: 1 node of 2; 60 s in reserve",
        ]
        assert await blocks(client) == {}
        assert (await client.call(ListSites())).sites[0].planned == ()


async def test_tasks_that_no_block_can_run_are_refused_with_both_numbers(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job:
        await client.call(AddSite("hpc", SMALL))
        job.peer.post(waiting(job, 2, 9000.0))
        refused = await one(job, GroupRefused)
        assert isinstance(refused, GroupRefused)
        assert "9000 s" in refused.reason
        assert "3540 s" in refused.reason
        assert await blocks(client) == {}


async def test_tasks_are_refused_when_the_only_site_has_paused_and_nobody_can_resume_it(
    cluster, autojump_clock, caplog
):
    cluster.service.sites.is_attended = False
    cluster.rifs.broken |= {f"hpc/b{number}.0": "invalid partition" for number in range(1, 11)}
    async with cluster.client() as client, cluster.job() as job:
        await client.call(AddSite("hpc", SMALL))
        job.peer.post(waiting(job, 2))
        await trio.sleep(600)
        refused = await one(job, GroupRefused)
        assert refused == GroupRefused(
            TaskGroup(100.0, count=2),
            "site hpc is paused: 10 refusals, the last one: invalid partition; "
            "nobody can resume it here: mend that, or the file of sites, and run again",
        )
        assert len(cluster.rifs.orders) == 10
        warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warned) == 10, "one for each block: its nodes say nothing new"
        assert warned[-1] == "site hpc is paused: 10 refusals, the last one: invalid partition"
        await client.call(ChangeSite("hpc", SiteChange.RESUME))
        job.peer.post(waiting(job, 2))
        assert isinstance(await one(job, RifUp), RifUp), "a program can resume it"


async def test_what_only_a_site_could_meet_is_refused_when_it_has_paused_though_another_host_is_there(
    cluster, autojump_clock
):
    cluster.service.sites.is_attended = False
    cluster.rifs.broken |= {f"hpc/b{number}.0": "invalid partition" for number in range(1, 11)}
    wide = Shape((Requirement("core"),) * 3)
    async with cluster.client() as client, cluster.job() as job:
        await client.call(Bootstrap(("anna",), "fake", nodes=1))
        await client.call(AddSite("hpc", SMALL | {"cores_per_node": "4"}))
        job.peer.post(demand(job, 1, wide))
        job.peer.post(TaskDemand(job.job, (TaskGroup(100.0, cores=3),)))
        await trio.sleep(600)
        refused = await one(job, Refuse)
        assert isinstance(refused, Refuse)
        words = "site hpc is paused: 10 refusals, the last one: invalid partition; nobody can resume it here"
        assert words in refused.reason
        job.peer.post(demand(job, 1))
        assert isinstance(await one(job, Grant), Grant), "anna can do it"
        await client.call(ChangeSite("hpc", SiteChange.RESUME))
        job.peer.post(demand(job, 1, wide))
        job.peer.post(TaskDemand(job.job, (TaskGroup(100.0, cores=3),)))
        assert isinstance(await one(job, Grant), Grant), "a program can resume it"


async def test_a_site_that_pauses_says_what_its_last_block_has_printed(cluster, autojump_clock):
    cluster.service.sites.is_attended = False
    cluster.rifs.ends_early = True
    async with cluster.client() as client, cluster.job() as job:
        await client.call(AddSite("hpc", SMALL))
        job.peer.post(waiting(job, 2))
        refused = await one(job, GroupRefused)
        assert isinstance(refused, GroupRefused)
        words = "3 blocks without any RIF, the last one: it ended; it said: no python; nobody can"
        assert refused.reason.startswith(f"site hpc is paused: {words}")


async def test_a_block_that_is_lost_is_not_started_again_but_another_is_asked_for(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job:
        await client.call(AddSite("hpc", SMALL))
        job.peer.post(waiting(job, 2))
        await one(job, RifUp)
        cluster.rifs.scopes["r1"].cancel()
        up = await one(job, RifUp)
        assert isinstance(up, RifUp)
        assert up.host == "hpc/b2.0"
        await trio.sleep(60)
        assert await blocks(client) == {"hpc/b2": "running"}
        assert [order.host for order in cluster.rifs.orders] == ["hpc/b1.0", "hpc/b2.0"]


async def test_a_site_that_refuses_is_asked_again_and_a_block_is_ended_on_request(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job:
        cluster.rifs.broken["hpc/b1.0"] = "invalid partition"
        await client.call(AddSite("hpc", SMALL))
        job.peer.post(waiting(job, 2))
        up = await one(job, RifUp)
        assert isinstance(up, RifUp)
        assert up.host == "hpc/b2.0"
        await client.call(ChangeSite("hpc", SiteChange.PAUSE))
        with pytest.raises(RemoteError, match=r"site hpc has a block: hpc/b2 \(running\); pause it"):
            await client.call(ChangeSite("hpc", SiteChange.REMOVE))
        await client.call(EndBlock("hpc/b2"))
        await trio.sleep(30)
        assert await blocks(client) == {}
        listed: SiteList = await client.call(ListSites())
        assert [(site.site, site.state) for site in listed.sites] == [("hpc", "paused")]


async def test_a_plan_has_the_script_of_each_block_and_what_the_batch_system_says(cluster, autojump_clock):
    async with cluster.client() as client:
        await client.call(AddSite("here", {"provider": "local", "max_nodes": "2", "shared": "/s"}))
        assert (await client.call(ListSites(planned=True))).sites[0].planned == ()
        listed: SiteList = await client.call(ListSites(planned=True, check=True))
        (block,) = listed.sites[0].planned
        assert (block.state, block.nodes, block.check) == ("largest", 2, "local cannot be asked")
        assert "# the block here/BLOCK of gspc-trio" in block.script
        assert "/s/BLOCK/enrol" in block.script


async def test_the_next_run_time_system_has_the_sites_that_were_added_by_hand(cluster, autojump_clock):
    async with cluster.client() as client:
        await client.call(AddSite("lab", SMALL | {"provider": "local", "host_job": "off"}))
        await client.call(AddSite("hpc", SMALL))
        await client.call(ChangeSite("hpc", SiteChange.PAUSE))
    hpc = replace(cluster.service.sites.kept()[1], history=-2.5)
    before = from_json(to_json((cluster.service.sites.kept()[0], hpc)), tuple[SavedSite, ...])
    network = Network(wire_codec)
    strategies = {"fake": FakeBlocks(network)}
    async with open_rts_service(network, listen=("memory:next",), strategies=strategies, epoch=4) as service:
        assert service.sites.kept() == ()
        await service.sites.add_again(before)
        assert service.sites.kept() == before
        assert [(site.site, site.paused, site.by_hand) for site in before] == [
            ("lab", "", True),
            ("hpc", "somebody has paused it", True),
        ]
        gone = replace(hpc, site="old", settings={"provider": "nobody"})
        await service.sites.add_again((gone, *before))
        assert service.sites.kept() == before, "what cannot be had any more is left out"


async def test_tasks_that_end_at_a_site_make_its_history_better(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job:
        await client.call(AddSite("hpc", SMALL))
        job.peer.post(waiting(job, 2))
        await one(job, RifUp)
        await trio.sleep(2)
        (before,) = (await client.call(ListSites())).sites
        job.peer.post(TaskDemand(job.job, ended=(EndedTasks("r1", 25), EndedTasks("r9", 1000))))
        await trio.sleep(2)
        (after,) = (await client.call(ListSites())).sites
        assert after.history - before.history == pytest.approx(2.5)
        assert after.score > before.score


async def test_what_a_batch_job_has_printed_is_told_when_it_is_over(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job:
        cluster.rifs.broken["hpc/b1.0"] = "no python"
        await client.call(AddSite("hpc", SMALL))
        job.peer.post(waiting(job, 2))
        await one(job, RifUp)
        assert await client.call(GetBlockOutput("hpc/b1")) == BlockOutput(("it said so",), "no python")
        assert await client.call(GetBlockOutput("hpc/b2")) == BlockOutput(())
        with pytest.raises(RemoteError, match=r"no block hpc/b3 .*; there are: hpc/b2, hpc/b1"):
            await client.call(GetBlockOutput("hpc/b3"))
        await trio.sleep(5)
        (site,) = (await client.call(ListSites())).sites
        assert list(describe_site(site))[:3] == [
            "hpc (fake) is open; 1 of 1 slots",
            "  hpc/b2 is running, 1 of 1 nodes up, 2 cores, 960 s, ends in 955 s, 0 tasks on 0 cores",
            "score 0.791: history -0.4, 0 tasks on 2 cores",
        ]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (AddSite("hpc", SMALL | {"provider": "slrum"}), "there is no provider 'slrum'"),
        (AddSite("hpc", SMALL | {"provider": "kubernetes"}), "kubernetes needs an image"),
        (AddSite("hpc", SMALL | {"provider": "slurm", "image": "x"}), "slurm has no setting 'image'"),
        (AddSite("hpc", SMALL | {"provider": "local", "queue": "x"}), "local has no queues and no accounts"),
        (AddSite("hpc", SMALL | {"max_nods": "2"}), "did you mean 'max_nodes'?"),
        (AddSite("a.b", SMALL), "a name has letters"),
        (AddSite("hpc", SMALL | {"provider": "slurm", "max_time": "90s"}), "in units of 60 s"),
        (ChangeSite("hpc", SiteChange.PAUSE), "there is no site 'hpc'; there are: none"),
        (EndBlock("hpc/b1"), "there is no block hpc/b1; there are: none"),
    ],
)
async def test_what_cannot_be_is_one_line_and_changes_nothing(cluster, autojump_clock, question, words):
    async with cluster.client() as client:
        with pytest.raises(RemoteError) as caught:
            await client.call(question)
        assert words in str(caught.value)
        assert caught.value.kind == "RtsError"
        assert await client.call(ListSites()) == SiteList(())


async def test_who_tells_the_demand_of_another_job_is_dropped(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job:
        await client.call(AddSite("hpc", SMALL))
        job.peer.post(TaskDemand("j7", (TaskGroup(1.0),)))
        await lost(job.peer)
        assert await blocks(client) == {}


async def test_a_job_that_ends_needs_nothing_any_more(cluster, autojump_clock):
    async with cluster.client() as client:
        await client.call(AddSite("hpc", SMALL))
        async with cluster.job() as job:
            job.peer.post(waiting(job, 2))
            await one(job, RifUp)
        await trio.sleep(40)
        assert await blocks(client) == {}


async def test_a_site_of_the_name_of_one_that_was_removed_has_its_own_batch_system(cluster, autojump_clock):
    machine = cluster.service.machine
    local = {"provider": "local", "max_time": "1h", "slots": "1"}
    async with cluster.client() as client, cluster.job() as job:
        await client.call(AddSite("hpc", local))
        assert await one(job, DemandWanted) == DemandWanted(True)
        assert machine.has_blocks("site hpc")
        await client.call(ChangeSite("hpc", SiteChange.PAUSE))
        job.peer.post(waiting(job, 1))
        await client.call(ChangeSite("hpc", SiteChange.REMOVE))
        assert not machine.has_blocks("site hpc")
        assert await one(job, DemandWanted) == DemandWanted(False), "nobody asks for blocks any more"
        async with cluster.job("late") as late:
            await client.call(AddSite("hpc", SMALL))
            assert await one(late, DemandWanted) == DemandWanted(True)
            await trio.sleep(5)
            assert await blocks(client) == {}, "nobody has said since that it needs something"
            job.peer.post(waiting(job, 1))
            up = await one(job, RifUp)
            assert isinstance(up, RifUp)
            assert up.host == "hpc/b1.0"


class Unseen:
    """A strategy of blocks that cannot look for the batch jobs of an earlier run-time system."""

    come_up_s = math.inf

    async def run(self, order: RifOrder) -> str:
        del order
        raise OutOfSight("nobody knows its batch job any more")


async def test_a_block_of_before_whose_job_nobody_can_look_for_does_not_keep_its_slot(autojump_clock):
    kept = ("r1", 1, "hpc/b1.0", "fake", 2, {"time": "960s"}, False, False, "hpc/b1", 0, 1, True)
    network = Network(wire_codec)
    options: Any = {"strategies": {"fake": Unseen()}, "limits": Limits(grace_s=30.0)}
    options["prepare"] = lambda service: service.restore(RifRestored(*kept))
    async with (
        open_rts_service(network, listen=(RTS,), **options) as service,
        network.connect(RTS, role="control", name="client", expect="rts") as client,
    ):
        await client.call(AddSite("hpc", SMALL))
        assert await blocks(client) == {"hpc/b1": "submitted"}
        await trio.sleep(100)
        assert service.blocks.rifs("hpc/b1") == ()
        assert await blocks(client) == {}
