"""The run-time system with real RIFs in memory, whose tasks take simulated time (RTS-1, RTS-2)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from attrs import define, field

from gspc_trio.components.embed import EmbeddedStrategy
from gspc_trio.components.rm.messages import Demand, Grant, Lapsed, Recall, Release
from gspc_trio.components.rts.messages import RegisterJob, RifUp
from gspc_trio.components.rts.shell.service import RtsService, open_rts_service
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.messages import DefineCode, Finished, OpenJob, Submission, Submit
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE, Reason
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.testing.simulated.backend import (
    Behaviour,
    SimulatedBackend,
    by_task,
    open_simulated_backend,
)

# The clock of a test is found among its own arguments, so each names ``autojump_clock``.
# ruff: noqa: ARG001

RTS = "memory:rts"


def one_core(rif_id: str, cores: int) -> tuple[Resource, ...]:
    return (Resource(f"{rif_id}.node", "node"), Resource(f"{rif_id}.core0", "core", (f"{rif_id}.node",)))


@define
class Stage:
    network: Network
    service: RtsService
    backend: SimulatedBackend

    @asynccontextmanager
    async def job(self) -> AsyncIterator[Job]:
        async with self.network.connect(RTS, role="job", name="job", expect="rts") as peer:
            registered = await peer.call(RegisterJob("job", 1, "anna"))
            yield Job(registered.job, peer)


@define
class Job:
    job: str
    rts: Peer
    waiting: list[Any] = field(factory=list)

    async def next(self, kind: type) -> Any:
        """Return the next message of this kind from the RTS."""
        with trio.fail_after(100):
            while True:
                while self.waiting:
                    message = self.waiting.pop(0)
                    if isinstance(message, kind):
                        return message
                self.waiting += await self.rts.receive()

    async def acquire(self, seen: tuple[int, int] = NO_GRANT) -> Grant:
        self.rts.post(Demand(self.job, CORE, 1, seen))
        grant = await self.next(Grant)
        assert isinstance(grant, Grant)
        return grant


async def begin(rif: Peer, job: Job, grant: Grant, task: int) -> None:
    rif.post(OpenJob(job.job))
    rif.post(DefineCode(job.job, 1, b"code"))
    rif.post(Submit(job.job, grant.grant_id, grant.resources, (Submission(task, 1, 1),)))


@pytest.fixture
def stage(monkeypatch) -> Callable[[], Any]:
    monkeypatch.setenv("GSPC_CHECK", "1")

    @asynccontextmanager
    async def opened() -> AsyncIterator[Stage]:
        network = Network(wire_codec)
        async with open_simulated_backend(by_task({7: Behaviour(duration_s=1000.0)})) as backend:
            strategies = {"embedded": EmbeddedStrategy(network, backend, one_core)}
            async with open_rts_service(network, listen=(RTS,), strategies=strategies) as service:
                report = await service.bootstrap(("anna",), "embedded")
                assert report.failed == {}
                yield Stage(network, service, backend)

    return opened


def dial(stage: Stage, up: RifUp, job: Job) -> Any:
    connect = partial(stage.network.connect, role="job", name=job.job, expect="rif")
    return connect(up.address)


async def test_a_task_runs_on_what_was_granted(stage, autojump_clock):
    async with stage() as there, there.job() as job:
        up = await job.next(RifUp)
        grant = await job.acquire()
        async with dial(there, up, job) as rif:
            await begin(rif, job, grant, 1)
            (finished,) = await rif.receive()
            assert isinstance(finished, Finished)
            assert [outcome.reason for outcome in finished.outcomes] == [Reason.FINISHED]


async def test_what_a_lost_job_held_is_free_within_a_second_though_its_task_was_running(
    stage, autojump_clock
):
    async with stage() as there, there.job() as other:
        async with there.job() as job:
            up = await job.next(RifUp)
            grant = await job.acquire()
            async with dial(there, up, job) as rif:
                await begin(rif, job, grant, 7)
                await trio.testing.wait_all_tasks_blocked()
                before = trio.current_time()
                job.rts.drop("killed")
                rif.drop("killed")
                again = await other.acquire()
        assert again.resources == grant.resources
        assert trio.current_time() - before < 1.0
        assert there.service.status().classes["core"].held == 1
        assert len(there.service.jobs()) == 1


async def test_what_a_job_held_that_lost_only_its_rts_is_free_when_its_task_has_been_stopped(
    stage, autojump_clock
):
    async with stage() as there, there.job() as other:
        async with there.job() as job:
            up = await job.next(RifUp)
            grant = await job.acquire()
            async with dial(there, up, job) as rif:
                await begin(rif, job, grant, 7)
                await trio.testing.wait_all_tasks_blocked()
                job.rts.drop("killed")
                assert (await other.acquire()).resources == grant.resources
                assert there.backend.computes == []


async def test_a_removed_resource_is_lost_to_its_job_and_gone_at_the_rif(stage, autojump_clock):
    async with stage() as there, there.job() as job:
        up = await job.next(RifUp)
        grant = await job.acquire()
        async with dial(there, up, job) as rif:
            await begin(rif, job, grant, 7)
            await trio.testing.wait_all_tasks_blocked()
            report = await there.service.remove("r1", ("r1.core0",))
            assert [worker.resource_id for worker in report.workers] == ["r1.core0"]
            assert (await job.next(Lapsed)).grant_ids == (grant.grant_id,)
            left = await job.next(RifUp)
            assert [resource.resource_id for resource in left.resources] == ["r1.node"]


async def test_a_removal_that_waits_is_answered_when_the_job_has_let_go(stage, autojump_clock):
    async with stage() as there, there.job() as job, trio.open_nursery() as nursery:
        grant = await job.acquire()
        done = trio.Event()

        async def remove() -> None:
            await there.service.remove("r1", ("r1.core0",), "wait")
            done.set()

        nursery.start_soon(remove)
        recall = await job.next(Recall)
        assert recall.grant_ids == (grant.grant_id,)
        assert not done.is_set()
        job.rts.post(Release(job.job, grant.grant_id))
        await done.wait()
        assert there.service.host_to_resource() == {"anna": ("r1.node",)}


async def test_a_held_resource_that_must_not_be_held_is_not_removed(stage, autojump_clock):
    async with stage() as there, there.job() as job:
        await job.acquire()
        with pytest.raises(Exception, match=r"r1\.core0 cannot be removed: j1 holds r1\.core0"):
            await there.service.remove("r1", ("r1.core0",), "refuse")
        with pytest.raises(Exception, match="cannot be added below"):
            await there.service.add("r1", (Resource("r1.half", "half", ("r1.core0",)),))
        assert there.service.host_to_resource() == {"anna": ("r1.node", "r1.core0")}
        added = await there.service.add("r1", (Resource("r1.gpu", "gpu"),))
        assert [worker.resource_id for worker in added.workers] == ["r1.gpu"]
