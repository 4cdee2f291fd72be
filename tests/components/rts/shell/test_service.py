"""The run-time system's service among RIFs, jobs and clients that speak messages in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from gspc_trio.components.job.messages import WaitJob
from gspc_trio.components.provision.strategy import RifOrder
from gspc_trio.components.rif.messages import RifHello, StopRif
from gspc_trio.components.rm.messages import ClassStatus, Demand, Grant, Lapsed, Refuse, Release, Revoked
from gspc_trio.components.rts.messages import (
    AddDag,
    AwaitedHost,
    Bootstrap,
    BootstrapReport,
    EndState,
    Explain,
    Explanation,
    GetEndedJob,
    GetHostToResource,
    HostToResource,
    JobEnd,
    JobEntry,
    JobList,
    JobSummary,
    LeaveJob,
    ListJobs,
    RegisterJob,
    RemoveDag,
    RifGone,
    RifUp,
    StopRts,
    Teardown,
    TeardownReport,
)
from gspc_trio.components.rts.shell.service import RtsError, open_rts_service
from gspc_trio.components.rts.state import Limits
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.messages import Done
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape, TaskState
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.policies.placement import PLACEMENTS
from gspc_trio.records.facts import ResourceChanged, RifChanged, StreamOpened, WorkerChanged
from gspc_trio.records.messages import RecordBatch, Watch
from tests.components.rts.shell.support import RTS, Cluster, FakeRifs, lost, one

# The clock of a test is found among its own arguments, so each names ``autojump_clock``.
# ruff: noqa: ARG001


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    monkeypatch.setenv("GSPC_CHECK", "1")


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    network = Network(wire_codec)
    rifs = FakeRifs(network)
    async with open_rts_service(network, listen=(RTS,), strategies={"fake": rifs}, epoch=3) as service:
        yield Cluster(network, rifs, service)


def demand(job: str, credit: int, seen: tuple[int, int] = NO_GRANT) -> Demand:
    return Demand(job, CORE, credit, seen)


async def test_why_a_host_never_came_up_is_logged_once(cluster, autojump_clock, caplog):
    cluster.rifs.broken["anna"] = "it has no option 'nonsense'"
    await cluster.service.bootstrap(("anna",), "fake")
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len([line for line in told if "nonsense" in line]) == 1


async def test_bootstrap_reports_hosts_that_fail_beside_those_that_came_up(cluster, autojump_clock):
    cluster.rifs.broken["bert"] = "no route to host"
    report = await cluster.service.bootstrap(("anna", "bert", "cleo"), "fake")
    assert report == BootstrapReport(
        {"anna": "r1", "cleo": "r3"}, {"bert": "no route to host; it said: Traceback"}
    )
    assert cluster.service.status().classes["core"].free == 4, "the RM knows them when the answer comes"
    assert cluster.service.host_to_resource() == {
        "anna": ("r1.node", "r1.core0", "r1.core1"),
        "cleo": ("r3.node", "r3.core0", "r3.core1"),
    }


async def test_what_cannot_be_done_is_one_clear_line(cluster, autojump_clock):
    with pytest.raises(RtsError, match="there is no strategy 'ssh'; there are: fake"):
        await cluster.service.bootstrap(("anna",), "ssh")
    async with cluster.client() as client:
        with pytest.raises(RemoteError, match="there is no RIF r9; there are: none") as caught:
            await client.call(Teardown(("r9",)))
        assert caught.value.kind == "RtsError"
        with pytest.raises(RemoteError, match="does not answer WaitJob"):
            await client.call(WaitJob())
        with pytest.raises(RemoteError, match="j7"):
            await client.call(Explain("j7"))


async def test_a_client_can_do_all_that_a_user_may(cluster, autojump_clock):
    async with cluster.client() as client, cluster.job() as job:
        report = await client.call(Bootstrap(("anna",), "fake", 1))
        assert report == BootstrapReport({"anna": "r1"}, {})
        added = await client.call(AddDag("r1", (Resource("r1.gpu", "gpu", ("r1.node",)),)))
        assert [worker.resource_id for worker in added.workers] == ["r1.gpu"]
        removed = await client.call(RemoveDag("r1", ("r1.core0",)))
        assert [worker.resource_id for worker in removed.workers] == ["r1.core0"]
        hosts = await client.call(GetHostToResource())
        assert hosts == HostToResource({"anna": ("r1.node", "r1.gpu")})
        jobs = await client.call(ListJobs())
        assert jobs == JobList((JobEntry("j1", "count", 5, "anna", "", 1.0),))
        waiting = await client.call(Explain(job.job))
        assert waiting == Explanation(())
        stopped = await client.call(Teardown(("r1",)))
        assert stopped == TeardownReport(("r1",))
        assert not cluster.service.stopped.is_set()
        assert await client.call(StopRts()) == Done()
        assert cluster.service.stopped.is_set()


async def test_a_job_hears_of_rifs_first_then_gets_what_it_demands(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake")
    async with cluster.job() as job:
        job.peer.post(demand(job.job, 2))
        heard: list[object] = []
        while sum(isinstance(message, Grant) for message in heard) < 2:
            heard += await job.peer.receive()
        assert isinstance(heard[0], RifUp)
        assert heard[0].resources == (
            Resource("r1.node", "node"),
            Resource("r1.core0", "core", ("r1.node",)),
            Resource("r1.core1", "core", ("r1.node",)),
        )
        assert heard[1:] == [
            Grant("j1", CORE, (3, 1), ("r1.core0",)),
            Grant("j1", CORE, (3, 2), ("r1.core1",)),
        ]
        status = cluster.service.status()
        assert status.classes["core"] == ClassStatus(total=2, free=0, held=2, blocked=0)
        assert status.jobs[0].held == 2
        assert status.jobs[0].share == 1.0
        assert status.jobs[0].priority == 3
        assert status.rifs[0].workers == 3
        assert status.rifs[0].state == "up"


async def test_a_demand_before_the_first_rif_is_up_is_met_by_it(cluster, autojump_clock):
    async with cluster.job() as job, trio.open_nursery() as nursery:
        nursery.start_soon(cluster.service.bootstrap, ("anna",), "fake")
        await trio.testing.wait_all_tasks_blocked()
        job.peer.post(demand(job.job, 1))
        assert await job.hear(Grant) == [Grant("j1", CORE, (3, 1), ("r1.core0",))]


async def test_a_job_that_is_cut_off_gives_everything_back_when_its_work_has_stopped(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake")
    async with cluster.job() as other:
        async with cluster.job() as job:
            job.peer.post(demand(job.job, 2))
            await job.hear(Grant, 2)
            other.peer.post(demand(other.job, 2))
            await trio.testing.wait_all_tasks_blocked()
            job.peer.drop("killed")
            before = trio.current_time()
            assert len(await other.hear(Grant, 2)) == 2
            assert trio.current_time() - before <= 1.0
        assert cluster.rifs.closed_jobs == ["j2"]
        assert [revoke.grant_id for revoke in cluster.rifs.revoked] == [(3, 1), (3, 2)]
        assert [job.job for job in cluster.service.jobs()] == ["j1"]


async def test_a_job_that_leaves_is_told_so_and_forgotten_but_for_its_end(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake")
    end = JobEnd(EndState.FAILED, "a task failed", {TaskState.FINISHED: 3, TaskState.FAILED: 1}, 1.5)
    async with cluster.job() as job:
        assert await job.peer.call(LeaveJob(end=end)) == Done()
        await lost(job.peer)
    assert cluster.service.jobs() == ()
    assert cluster.service.status().jobs == ()
    (ended,) = cluster.service.ended_jobs()
    assert (ended.job, ended.state, ended.detail) == ("j1", "failed", "a task failed")
    assert {state: number for state, number in ended.tasks.items() if number} == {"finished": 3, "failed": 1}
    assert ended.elapsed_s == pytest.approx(1.5)


async def test_a_client_waits_for_the_end_of_a_job(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake")
    ends = {}

    async def wait_for(client, job):
        ended = await client.call(GetEndedJob(job, wait=True))
        ends[job] = (ended.state, ended.detail, ended.summary.report)

    async with cluster.client() as client, cluster.job() as first, cluster.job() as second, cluster.job():
        with pytest.raises(RemoteError, match="job j1 is still running"):
            await client.call(GetEndedJob("j1"))
        with pytest.raises(RemoteError, match="there is no job 'j9'"):
            await client.call(GetEndedJob("j9", wait=True))
        async with trio.open_nursery() as nursery:
            for job in ("j1", "j2", "j3"):
                nursery.start_soon(wait_for, client, job)
            async with cluster.client() as other:
                with trio.move_on_after(1):
                    await other.call(GetEndedJob("j1", wait=True))  # and is gone when the answer comes
            await first.peer.call(LeaveJob(end=JobEnd(summary=JobSummary(report="well"))))
            second.peer.drop("killed")
            await lost(second.peer)
            await trio.testing.wait_all_tasks_blocked()
            await cluster.service.stop()
    assert ends.pop("j3")[0] == "stopped"
    lost_server = "its job server was lost: killed"
    assert ends == {"j1": ("finished", "", "well"), "j2": ("stopped", lost_server, None)}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Release("j1", (3, 77)), "grant"),
        (demand("j2", 1), "in the name of j2"),
        (demand("j1", -1), "credit"),
        (StopRif(), "may not say StopRif"),
    ],
)
async def test_a_job_that_says_what_it_must_not_loses_its_connection_and_nobody_else_does(
    cluster, message, reason, autojump_clock
):
    await cluster.service.bootstrap(("anna",), "fake")
    async with cluster.job() as bad, cluster.job() as good:
        bad.peer.post(message)
        await lost(bad.peer)
        assert reason in bad.peer.reason
        good.peer.post(demand(good.job, 1))
        assert len(await good.hear(Grant)) == 1


async def test_a_rif_that_is_killed_is_started_again_and_jobs_are_told_of_all_of_it(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake", 1)
    async with cluster.job() as job:
        job.peer.post(demand(job.job, 1))
        (grant,) = await job.hear(Grant)
        cluster.rifs.scopes["r1"].cancel()
        job.heard += [await one(job, RifGone)]
        lapsed = await one(job, Lapsed)
        assert lapsed.grant_ids == (grant.grant_id,)
        job.peer.post(demand(job.job, 1, grant.grant_id))
        up = await one(job, RifUp)
        assert up.incarnation == 2
        assert [resource.resource_id for resource in up.resources] == ["r1.node", "r1.core0"]
        assert await one(job, Grant) == Grant("j1", CORE, (3, 2), ("r1.core0",))
    assert [order.incarnation for order in cluster.rifs.orders] == [1, 2]
    assert [order.cores for order in cluster.rifs.orders] == [1, 1]


async def test_jobs_wait_for_a_host_that_is_lost_until_somebody_takes_it_down(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake", 1)
    async with cluster.job() as job:
        cluster.rifs.broken["anna"] = "host is down"
        cluster.rifs.scopes["r1"].cancel()
        await one(job, RifGone)
        job.peer.post(demand(job.job, 1))
        await trio.sleep(0.01 + sum(Limits().retry_delays_s))
        (rif,) = cluster.service.status().rifs
        shown = "host is down; it said: Traceback; it is tried again after 60 s"
        assert (rif.state, rif.incarnation, rif.detail) == ("lost", 8, shown)
        assert 59 < rif.retry_in_s < 60
        (entry,) = cluster.service.explain(job.job)
        assert entry.reason == f"not there yet: there is 0 core now; anna is lost: {shown}"
        assert entry.awaits == (AwaitedHost("r1", "anna", rif.retry_in_s),)
        job.peer.post(Demand(job.job, Shape((Requirement("gpu"),)), 1, NO_GRANT))
        (refusal,) = await job.hear(Refuse)
        assert refusal.shape.requirements[0].resource_class == "gpu", "what no host could meet"
        await cluster.service.teardown(("r1",))
        (refusal,) = await job.hear(Refuse)
        assert refusal.reason == "asked for core, but there is no core; there is: nothing"


async def test_a_rif_that_does_not_confirm_a_revoke_is_replaced(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake", 1)
    async with cluster.job() as other:
        async with cluster.job() as job:
            job.peer.post(demand(job.job, 1))
            await job.hear(Grant)
            cluster.rifs.mute = True
        other.peer.post(demand(other.job, 1))
        gone = await one(other, RifGone)
        assert gone.reason == "it did not say in time that revoked work has ended"
        cluster.rifs.mute = False
        assert (await one(other, Grant)).resources == ("r1.core0",)


async def test_a_rif_that_runs_on_without_its_connection_is_ended_and_started_again(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake")
    cluster.rifs.lingers = True
    async with cluster.job() as job:
        cluster.rifs.peers["r1"].drop("cable cut")
        assert (await one(job, RifGone)).reason == "cable cut"
        up = await one(job, RifUp)
        assert up.incarnation == 2
    assert cluster.rifs.ended == ["r1"]


async def test_a_rif_with_the_name_of_another_one_is_cut_off(cluster, autojump_clock):
    async with cluster.network.connect(RTS, role="rif", name="r2", expect="rts") as other:
        other.post(RifHello("r1", 1, 1, "anna", "memory:x", ()))
        await lost(other)
        assert other.reason == "r2 says hello as r1"


async def test_a_late_old_incarnation_is_cut_off(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake")
    async with cluster.network.connect(RTS, role="rif", name="r1", expect="rts") as old:
        old.post(RifHello("r1", 0, 1, "anna", "memory:old", ()))
        await lost(old)
        assert old.reason == "r1 incarnation 0 is refused: the newest is 1"
    assert cluster.service.status().rifs[0].state == "up"


async def test_a_rif_that_answers_for_another_one_is_cut_off_and_started_again(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna", "bert"), "fake")
    cluster.rifs.peers["r1"].post(Revoked((3, 1), ("r2.core0",)))
    await lost(cluster.rifs.peers["r1"])
    await trio.sleep(5)
    assert [rif.state for rif in cluster.service.status().rifs] == ["up", "up"]
    assert [rif.incarnation for rif in cluster.service.status().rifs] == [2, 1]


@pytest.mark.parametrize("role", ["rif", "job", "iml"])
async def test_who_begins_with_something_else_is_cut_off(cluster, role, autojump_clock):
    async with cluster.network.connect(RTS, role=role, name="x", expect="rts") as peer:
        peer.post(StopRif())
        await lost(peer)
    assert cluster.service.status().rifs == ()


async def test_a_rif_that_never_speaks_fails_its_bootstrap_in_thirty_seconds(autojump_clock):
    class Silent:
        async def run(self, order: RifOrder) -> str:
            order.said.append("loading")
            await trio.sleep_forever()
            raise AssertionError

    network = Network(wire_codec)
    async with open_rts_service(network, listen=(RTS,), strategies={"silent": Silent()}) as service:
        before = trio.current_time()
        report = await service.bootstrap(("anna",), "silent")
        assert trio.current_time() - before == pytest.approx(30)
        reason = "it did not come up within 30 s; it was ended; it said: loading"
        assert report == BootstrapReport({}, {"anna": reason})


async def test_a_watcher_gets_a_snapshot_then_what_changes(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake")
    async with cluster.client() as client:
        client.post(Watch(10))
        (first,) = await client.receive()
        assert first.snapshot
        assert isinstance(first.records[0], StreamOpened)
        await cluster.service.bootstrap(("bert",), "fake", 1)
        records = []
        while not any(isinstance(one, RifChanged) and one.state == "up" for one in records):
            for batch in await client.receive():
                assert not batch.snapshot
                records += batch.records
        states = [(one.rif_id, one.state) for one in records if isinstance(one, RifChanged)]
        assert states == [("r2", "starting"), ("r2", "up")]
        added = [(one.resource_id, one.host) for one in records if isinstance(one, ResourceChanged)]
        assert added in ([], [("r2.node", "bert"), ("r2.core0", "bert")])


async def test_records_of_a_rif_join_the_stream_on_the_clock_of_the_rts(cluster, autojump_clock):
    await cluster.service.bootstrap(("anna",), "fake")
    async with cluster.client() as client:
        client.post(Watch(10))
        ((opened, *_),) = [batch.records for batch in await client.receive()]
        ahead = StreamOpened(0.0, opened.wall_offset_s + 100.0, "1")
        busy = WorkerChanged(5.0, "r1.core0", "busy", "j1", 9)
        cluster.rifs.peers["r1"].post(RecordBatch((ahead, busy)))
        (batch,) = await client.receive()
        assert batch.records == (WorkerChanged(105.0, "r1.core0", "busy", "j1", 9),)


async def test_leaving_the_service_takes_rifs_down_in_good_order(autojump_clock):
    network = Network(wire_codec)
    rifs = FakeRifs(network)
    before = trio.current_time()
    async with open_rts_service(network, listen=(RTS,), strategies={"fake": rifs}) as service:
        await service.bootstrap(("anna", "bert"), "fake")
    assert sorted(rifs.ended) == ["r1", "r2"]
    assert trio.current_time() - before < 0.5


async def test_a_rif_that_does_not_stop_is_killed_after_a_second(autojump_clock):
    network = Network(wire_codec)
    rifs = FakeRifs(network)
    async with open_rts_service(network, listen=(RTS,), strategies={"fake": rifs}) as service:
        await service.bootstrap(("anna",), "fake")
        rifs.mute = True
        before = trio.current_time()
        assert await service.teardown(("r1",)) == ("r1",)
        assert trio.current_time() - before == pytest.approx(1.0)
        assert rifs.ended == ["r1"]


async def test_cancelling_the_owner_leaves_nothing_behind(autojump_clock):
    network = Network(wire_codec)
    rifs = FakeRifs(network)
    with trio.move_on_after(1):
        async with open_rts_service(network, listen=(RTS,), strategies={"fake": rifs}) as service:
            await service.bootstrap(("anna",), "fake")
            await trio.sleep_forever()
    assert rifs.ended == ["r1"]
    assert trio.current_time() == pytest.approx(1.0, abs=0.1)


async def test_a_job_learns_that_the_run_time_system_was_stopped(autojump_clock):
    network = Network(wire_codec)
    async with trio.open_nursery() as nursery:
        async with open_rts_service(network, listen=(RTS,), strategies={}):
            connection = network.connect(RTS, role="job", name="j", expect="rts")
            peer = await connection.__aenter__()
            await peer.call(RegisterJob("count", 1, "anna"))
        await lost(peer)
        assert peer.reason == "the run-time system was stopped"
        await connection.__aexit__(None, None, None)
        nursery.cancel_scope.cancel()


async def test_a_placement_fills_hosts_up_or_takes_them_in_turn(autojump_clock):
    found = {}
    for name in PLACEMENTS:
        network = Network(wire_codec)
        service = open_rts_service(
            network, listen=(RTS,), strategies={"fake": FakeRifs(network)}, epoch=3, placement=name
        )
        async with service as rts:
            await rts.bootstrap(("anna", "bert"), "fake")
            cluster = Cluster(network, FakeRifs(network), rts)
            async with cluster.job() as job:
                cores = []
                for number in range(2):
                    job.peer.post(demand(job.job, 1, (3, number) if number else NO_GRANT))
                    cores += (await one(job, Grant)).resources
                found[name] = len({core.partition(".")[0] for core in cores})
    assert found == {"fifo": 1, "compact": 1, "fair": 2, "progressive": 2}, "hosts that two cores are on"
