"""Endpoints of single workers, opened on request (RIF-4), of a whole RIF in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from gspc_trio.components.rif.messages import CloseJobEverywhere, Endpoint, Hold, OpenEndpoint
from gspc_trio.components.rif.shell.endpoints import UNUSED_S
from gspc_trio.components.rm.messages import Revoke, Revoked
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.messages import DefineCode, OpenJob, Submission, Submit
from gspc_trio.nursery.connections.errors import AuthenticationFailed, ConnectFailed
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.testing.simulated.backend import Behaviour, by_task, open_simulated_backend
from tests.components.rif.shell.support import FakeScheduler, Stage, open_stage

# The clock of a test is found among its own arguments.
# ruff: noqa: ARG001


async def ask(stage: Stage, resource_id: str = "r1.core0", grant: int = 5) -> Endpoint:
    return await stage.rts.peer.call(OpenEndpoint("j1", resource_id, (1, grant)))


@asynccontextmanager
async def direct(stage: Stage, endpoint: Endpoint) -> AsyncIterator[FakeScheduler]:
    connection = stage.network.connect(endpoint.address, role="job", name="direct", expect="worker")
    async with connection as peer, trio.open_nursery() as nursery:
        scheduler = FakeScheduler(peer, endpoint.job)
        nursery.start_soon(scheduler.listen)
        peer.post(OpenJob(endpoint.job))
        peer.post(DefineCode(endpoint.job, 7, b"code"))
        yield scheduler
        nursery.cancel_scope.cancel()


async def closed(scheduler: FakeScheduler) -> str:
    with trio.fail_after(UNUSED_S / 2):
        await scheduler.peer.lost.wait()
    return scheduler.peer.reason


async def test_two_workers_are_spoken_to_beside_the_connection_to_their_rif(
    autojump_clock: MockClock,
) -> None:
    async with open_simulated_backend() as backend, open_stage(backend) as stage:
        first, second = await ask(stage), await ask(stage, "r1.core1", 6)
        assert first.address != second.address
        async with stage.job("j2") as other, direct(stage, first) as one, direct(stage, second) as two:
            one.submit("r1.core0", 1, grant=5)
            two.submit("r1.core1", 1, grant=6)
            assert await one.wait(1) == await two.wait(1) == [(1, "finished")]
            await trio.sleep(2 * UNUSED_S)
            one.submit("r1.core0", 2, grant=5)
            assert await one.wait(2) == [(1, "finished"), (2, "finished")]
            other.submit("r1.core0", 3, grant=9)  # the grant was given back, and the worker to others
            assert await other.wait(1) == [(3, "finished")]
            one.submit("r1.core0", 4, grant=5)
            assert (await one.wait(3))[-1] == (4, "returned"), "the fence watches there, too"


@pytest.mark.parametrize("what", ["another worker", "another grant", "a hold", "another job"])
async def test_only_what_its_grant_allows_is_taken(what: str, autojump_clock: MockClock) -> None:
    async with open_simulated_backend() as backend, open_stage(backend) as stage:
        endpoint = await ask(stage)
        async with direct(stage, endpoint) as worker:
            job, task = endpoint.job, (Submission(1, 1, 7),)
            worker.peer.post(
                {
                    "another worker": Submit(job, (1, 5), ("r1.core1",), task),
                    "another grant": Submit(job, (1, 6), ("r1.core0",), task),
                    "a hold": Hold(job, (1, 5), ("r1.core0",)),
                    "another job": Submit("j1", (1, 5), ("r1.core0",), task),
                }[what]
            )
            assert "r1.core0 under (1, 5)" in await closed(worker) or what == "another job"
            assert worker.peer.reason
        assert backend.runs == []
        with pytest.raises(ConnectFailed):
            async with direct(stage, endpoint):
                pass


async def test_an_endpoint_closes_with_its_grant_and_its_job_and_when_nobody_comes(
    autojump_clock: MockClock,
) -> None:
    behave = by_task({1: Behaviour(3600.0)})
    async with open_simulated_backend(behave) as backend, open_stage(backend) as stage:
        async with direct(stage, await ask(stage)) as worker:
            worker.submit("r1.core0", 1, grant=5)
            await trio.sleep(1)
            stage.rts.peer.post(Revoke((1, 5), ("r1.core0",)))
            assert "was revoked" in await closed(worker)
            await trio.sleep(1)
            assert stage.rts.said == [Revoked((1, 5), ("r1.core0",))], "what ran there has stopped"
        with pytest.raises(RemoteError, match=r"grant \(1, 5\) was revoked"):
            await ask(stage)
        async with direct(stage, await ask(stage, grant=6)) as worker:
            await trio.sleep(1)
            stage.rts.peer.post(CloseJobEverywhere("j1"))
            assert "job j1 is over" in await closed(worker)
        unused = await ask(stage, grant=7)
        await trio.sleep(UNUSED_S + 1)
        with pytest.raises(ConnectFailed):
            async with direct(stage, unused):
                pass
        with pytest.raises(RemoteError, match=r"r1 has no resource r1\.gpu0"):
            await ask(stage, "r1.gpu0")


@pytest.mark.parametrize("by", ["its grant", "its job"])
async def test_an_endpoint_that_is_closed_while_it_opens_is_refused_and_its_rif_goes_on(
    by: str, autojump_clock: MockClock
) -> None:
    refused = []

    async def try_to_ask(stage: Stage, grant: int) -> None:
        try:
            await ask(stage, grant=grant)
        except RemoteError as error:
            refused.append(error.message)

    async with open_simulated_backend() as backend, open_stage(backend) as stage:
        for number in range(40):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(try_to_ask, stage, 5 + number)
                for _ in range(number % 8):  # the end comes at each moment of the opening
                    await trio.lowlevel.checkpoint()
                revoke = Revoke((1, 5 + number), ("r1.core0",))
                stage.rts.peer.post(revoke if by == "its grant" else CloseJobEverywhere("j1"))
        assert any("was revoked" in message or "j1 is over" in message for message in refused)
        async with direct(stage, await ask(stage, grant=50)) as worker:
            worker.submit("r1.core0", 1, grant=50)
            assert await worker.wait(1) == [(1, "finished")]


async def test_an_endpoint_has_a_secret_of_its_own() -> None:
    network = Network(wire_codec, bytes(32))
    where = ("ws://127.0.0.1:0", "ws://127.0.0.1:0")
    async with open_simulated_backend() as backend:
        with trio.fail_after(60):
            async with open_stage(backend, addresses=where, network=network) as stage:
                endpoint = await ask(stage)
                with pytest.raises(AuthenticationFailed):  # not even with that of the run-time system
                    async with direct(stage, endpoint):
                        pass
                stage.network = Network(wire_codec, endpoint.token)
                async with direct(stage, endpoint) as worker:
                    worker.submit("r1.core0", 1, grant=5)
                    assert await worker.wait(1) == [(1, "finished")]
                with pytest.RaisesGroup(AuthenticationFailed):  # nor with its secret elsewhere
                    async with stage.job("j2"):
                        pass
