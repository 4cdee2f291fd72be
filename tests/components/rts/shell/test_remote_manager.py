"""A run-time system whose resource manager runs elsewhere, over messages in memory (RTS-4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from msgspec.structs import replace

from gspc_trio.components.rm.explain import (
    Explained,
    ExplainedRequest,
    ExplainJob,
    GetManagerStatus,
    ManagerStatus,
)
from gspc_trio.components.rm.messages import Demand, Grant, ManagerReady, Release, ServeRts
from gspc_trio.components.rm.shell.remote import ManagerGone, RemoteManager
from gspc_trio.components.rm.shell.server import open_manager
from gspc_trio.components.rts.messages import AddDag, Explain, GetStatus, StopRts
from gspc_trio.components.rts.shell.service import open_rts_service
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.messages import Done
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, RemoteError
from tests.components.rts.shell.support import RTS, Cluster, FakeRifs, JobServer, lost, one

# The clock of a test is found among its own arguments, so each names ``autojump_clock``.
# ruff: noqa: ARG001

RM = "memory:rm"


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    monkeypatch.setenv("GSPC_CHECK", "1")


def manager(network: Network):
    return open_manager(network, RM, lambda: 100.0)


def connecting(network: Network):
    return partial(network.connect, RM, role="rts", name="rts", expect="rm")


@asynccontextmanager
async def system(network: Network, address: str = RTS) -> AsyncIterator[Cluster]:
    """A run-time system with one host of two cores, and its resource manager elsewhere."""
    rifs = FakeRifs(network)
    opening = open_rts_service(
        network, listen=(address,), strategies={"fake": rifs}, epoch=3, manager=connecting(network)
    )
    async with opening as service:
        await service.bootstrap(("anna",), "fake")
        yield Cluster(network, rifs, service)


async def serve_manager(network: Network, task_status=trio.TASK_STATUS_IGNORED) -> None:
    """Serve until the scope is cancelled that this starts with."""
    with trio.CancelScope() as scope:
        async with manager(network):
            task_status.started(scope)
            await trio.sleep_forever()


async def granted(job: JobServer) -> Grant:
    grant = await one(job, Grant)
    assert isinstance(grant, Grant)
    return grant


async def free(client: Peer) -> int:
    return (await client.call(GetStatus())).classes["core"].free


async def test_jobs_get_grants_and_people_answers_through_the_run_time_system(autojump_clock):
    network = Network(wire_codec)
    async with manager(network), system(network) as cluster, cluster.job() as job, cluster.client() as client:
        job.peer.post(Demand(job.job, CORE, 3, NO_GRANT))
        grants = [await granted(job), await granted(job)]
        assert [grant.grant_id for grant in grants] == [(100, 1), (100, 2)]
        assert await free(client) == 0
        (waiting,) = (await client.call(Explain(job.job))).waiting
        assert waiting.credit == 1
        with pytest.raises(RemoteError, match="j9"):
            await client.call(Explain("j9"))
        report = await client.call(AddDag("r1", (Resource("r1.gpu0", "gpu"),)))
        assert [worker.resource_id for worker in report.workers] == ["r1.gpu0"]
        job.peer.post(Release(job.job, (100, 1)))
        assert (await granted(job)).grant_id == (100, 3)


async def test_an_explanation_has_its_times_on_the_clock_of_the_run_time_system(autojump_clock):
    waiting = ExplainedRequest("1 core", 1, 82_000.0, {}, (), 1, 82_010.5, None, "none is free", ())
    answers = {
        ServeRts: ManagerReady(100),
        GetManagerStatus: ManagerStatus({}, {}, {}, {}, (), (), None),
        ExplainJob: Explained((waiting, replace(waiting, patient_until_s=None)), 82_003.0),
    }

    async def serve(peer: Peer) -> None:
        while True:
            for message in await peer.receive():
                if isinstance(message, IncomingCall):
                    message.reply(answers[type(message.body)])

    network = Network(wire_codec)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(network.listen, RM, serve, role="rm", name="rm"))
        opening = open_rts_service(
            network, listen=(RTS,), strategies={}, epoch=3, manager=connecting(network)
        )
        async with opening as service, Cluster(network, FakeRifs(network), service).job() as job:
            await service.rm.look(job.job)
            found = service.explain(job.job)
        nursery.cancel_scope.cancel()
    assert [(entry.waited_s, entry.patience_left_s) for entry in found] == [(3.0, 7.5), (3.0, None)]


async def test_a_job_that_says_what_cannot_be_loses_its_connection_and_nobody_else(autojump_clock):
    network = Network(wire_codec)
    async with manager(network), system(network) as cluster, cluster.job() as job, cluster.job() as other:
        job.peer.post(Release(job.job, (100, 7)))
        await lost(job.peer)
        assert "UnknownGrant" in job.peer.reason or "never given" in job.peer.reason
        other.peer.post(Demand(other.job, CORE, 1, NO_GRANT))
        assert (await granted(other)).grant_id == (100, 1)


async def test_work_goes_on_under_its_grants_while_the_resource_manager_is_away(autojump_clock):
    network = Network(wire_codec)
    async with trio.open_nursery() as nursery:
        first = await nursery.start(serve_manager, network)
        async with system(network) as cluster, cluster.job() as job, cluster.job() as other:
            job.peer.post(Demand(job.job, CORE, 1, NO_GRANT))
            kept = await granted(job)
            job.peer.post(Demand(job.job, Shape((Requirement("node"),)), 1, kept.grant_id))
            first.cancel()
            await trio.sleep(5)
            other.peer.post(Demand(other.job, CORE, 2, NO_GRANT))
            async with cluster.client() as client:
                with pytest.raises(RemoteError, match="the resource manager is away"):
                    await client.call(Explain(other.job))
                assert (await client.call(GetStatus())).rifs[0].state == "up"
            async with manager(network), cluster.client() as client:
                new = await granted(other)
                assert new.resources != kept.resources
                assert new.grant_id[0] > kept.grant_id[0], "hosts fence what is older"
                assert await free(client) == 0
                job.peer.post(Release(job.job, kept.grant_id))
                assert (await granted(other)).resources == kept.resources


async def test_who_asks_why_while_the_connection_to_the_resource_manager_ends_is_told(autojump_clock):
    network = Network(wire_codec)

    async def answer_once_and_go(peer: Peer) -> None:
        while True:
            for message in await peer.receive():
                if isinstance(message, IncomingCall) and isinstance(message.body, ServeRts):
                    message.reply(ManagerReady(100))
                elif isinstance(message, IncomingCall):
                    message.reply(ManagerStatus({}, {}, {}, {}, (), (), None))
                    peer.drop()

    connect = partial(network.connect, RM, role="rts", name="rts", expect="rm")
    remote = RemoteManager(connect, "rts", 3, lambda _: None, lambda _: None)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(network.listen, role="rm", name="rm"), RM, answer_once_and_go)
        await nursery.start(remote.run)
        for _ in range(10):
            with pytest.raises(RemoteError, match="the resource manager is away"):
                await remote.look("j1")
            await trio.sleep(1)  # then there is a connection again
        nursery.cancel_scope.cancel()


async def test_a_resource_manager_serves_one_run_time_system():
    token = bytes(32)
    async with open_manager(Network(wire_codec, token), "ws://127.0.0.1:0", lambda: 100.0) as server:

        def connect():
            return Network(wire_codec, token).connect(server.address, role="rts", name="rts", expect="rm")

        with trio.fail_after(60):
            async with connect() as first, connect() as second:
                assert (await first.call(ServeRts(120, "one"))).epoch == 121, "epochs only grow"
                with pytest.raises(
                    RemoteError, match=r"serves another run-time system \(one\), one at a time"
                ):
                    await second.call(ServeRts(0, "two"))
            async with connect() as third:
                assert (await third.call(ServeRts(0, "three"))).epoch == 122
            network = Network(wire_codec, token)
            client = network.connect(server.address, role="control", name="client", expect="rm")
            async with client as peer:
                assert await peer.call(StopRts()) == Done()
            await server.stopped.wait()


async def test_a_run_time_system_ends_whose_resource_manager_does_not_come_back(autojump_clock):
    network = Network(wire_codec)
    with pytest.RaisesGroup(ManagerGone, flatten_subgroups=True, allow_unwrapped=False) as gone:
        async with trio.open_nursery() as nursery:
            scope = await nursery.start(serve_manager, network)
            async with system(network):
                scope.cancel()
                await trio.sleep_forever()
    assert "did not come back within 30 s" in str(gone.value.exceptions[0])
