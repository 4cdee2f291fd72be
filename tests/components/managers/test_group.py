"""A run-time system with two resource managers, over messages in memory (ASP-11)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from gspc_trio.components.managers.messages import ManagerOrder
from gspc_trio.components.managers.shell.process import serve_as_manager
from gspc_trio.components.rm.messages import Demand, Grant, Refuse, Release
from gspc_trio.components.rts.messages import Explain, GetStatus
from gspc_trio.components.rts.shell.service import SeveralManagers, open_rts_service
from gspc_trio.components.rts.shell.system import RtsSettings
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.task import CORE, Requirement, Shape
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import RemoteError
from gspc_trio.protocol.listening import BadSetting
from tests.components.rts.shell.support import RTS, Cluster, FakeRifs, JobServer, one

# The clock of a test is found among its own arguments, so each names ``autojump_clock``.
# ruff: noqa: ARG001

FOUR = Shape((Requirement("core"),) * 4)


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    monkeypatch.setenv("GSPC_CHECK", "1")


class Managers:
    """Runs managers as tasks, which can be ended."""

    def __init__(self, network: Network) -> None:
        self.scopes: dict[str, trio.CancelScope] = {}
        self._network = network

    async def start(self, order: ManagerOrder) -> None:
        with trio.CancelScope() as self.scopes[order.name]:
            await serve_as_manager(self._network, order, 70 + len(self.scopes))


@asynccontextmanager
async def system(sharing: str = "pessimistic") -> AsyncIterator[tuple[Cluster, Managers]]:
    network = Network(wire_codec)
    rifs, managers = FakeRifs(network), Managers(network)
    opening = open_rts_service(
        network,
        listen=(RTS,),
        strategies={"fake": rifs},
        epoch=3,
        managers=SeveralManagers(2, managers.start, sharing=sharing),
    )
    async with opening as service:
        await service.bootstrap(("anna", "bert"), "fake")
        yield Cluster(network, rifs, service), managers


async def granted(job: JobServer) -> Grant:
    grant = await one(job, Grant)
    assert isinstance(grant, Grant)
    return grant


async def test_jobs_get_grants_from_the_manager_that_serves_them_and_hosts_move(autojump_clock):
    async with system() as (cluster, _), cluster.job() as job, cluster.client() as client:
        job.peer.post(Demand(job.job, CORE, 5, NO_GRANT))
        grants = [await granted(job) for _ in range(4)]
        assert len({name for grant in grants for name in grant.resources}) == 4
        status = await client.call(GetStatus())
        assert [(one.number, len(one.hosts), one.jobs) for one in status.managers] == [
            (1, 2, ("j1",)),
            (2, 0, ()),
        ]
        assert status.classes["core"].held == 4
        (waiting,) = (await client.call(Explain(job.job))).waiting
        assert waiting.reason.endswith(
            "; manager 1 serves the job: it had the most room when the job came: 2 free"
        )
        with pytest.raises(RemoteError, match="j9"):
            await client.call(Explain("j9"))
        job.peer.post(Release(job.job, grants[0].grant_id))
        assert (await granted(job)).grant_id > grants[-1].grant_id


async def test_what_no_host_of_any_manager_has_is_refused(autojump_clock):
    async with system() as (cluster, _), cluster.job() as job:
        job.peer.post(Demand(job.job, FOUR, 1, NO_GRANT))
        assert len((await granted(job)).resources) == 4, "of two hosts, which one manager gets"
        job.peer.post(Demand(job.job, Shape((Requirement("gpu"),)), 1, NO_GRANT))
        refusal = await one(job, Refuse)
        assert isinstance(refusal, Refuse)
        assert refusal.kind == "unknown class"


async def test_when_a_manager_is_lost_another_serves_its_jobs_and_all_that_they_hold(autojump_clock):
    async with system() as (cluster, managers), cluster.job() as job, cluster.client() as client:
        job.peer.post(Demand(job.job, CORE, 2, NO_GRANT))
        held = [await granted(job), await granted(job)]
        managers.scopes["m1"].cancel()
        await trio.sleep(0.05)
        job.peer.post(Demand(job.job, CORE, 3, held[-1].grant_id))
        more = [await granted(job), await granted(job)]
        names = [name for grant in (*held, *more) for name in grant.resources]
        assert len(set(names)) == len(names) == 4
        assert min(grant.grant_id for grant in more) > held[-1].grant_id
        await trio.sleep(1)
        status = await client.call(GetStatus())
        assert [(one.up, one.jobs, one.losses) for one in status.managers] == [
            (True, (), 1),
            (True, ("j1",), 0),
        ]
        job.peer.post(Release(job.job, held[0].grant_id))
        assert (await granted(job)).resources == held[0].resources


async def test_managers_that_all_see_all_hosts_give_nothing_twice(autojump_clock):
    async with system("optimistic") as (cluster, managers), cluster.client() as client:
        async with cluster.job() as one_job, cluster.job() as other:
            one_job.peer.post(Demand(one_job.job, CORE, 2, NO_GRANT))
            other.peer.post(Demand(other.job, CORE, 2, NO_GRANT))
            grants = [await granted(job) for job in (one_job, one_job, other, other)]
            assert len({name for grant in grants for name in grant.resources}) == 4
            status = await client.call(GetStatus())
            assert [(tuple(sorted(one.hosts)), one.jobs) for one in status.managers] == [
                (("r1", "r2"), ("j1",)),
                (("r1", "r2"), ("j2",)),
            ]
            assert (status.classes["core"].total, status.classes["core"].held) == (4, 4)
            managers.scopes["m1"].cancel()
            await trio.sleep(0.05)
            one_job.peer.post(Demand(one_job.job, CORE, 1, grants[1].grant_id))
            other.peer.post(Release(other.job, grants[2].grant_id))
            assert (await granted(one_job)).resources == grants[2].resources


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (RtsSettings(managers=0), "managers='0': there can be 1 to 64"),
        (
            RtsSettings(managers=2, sharing="fair"),
            "there is no such sharing; there are: pessimistic, optimistic",
        ),
        (RtsSettings(sharing="optimistic"), "for that there must be several managers: say how many"),
        (RtsSettings(managers=2, state="here"), "with state there can be only one resource manager"),
        (RtsSettings(managers=2, rm="rm.json"), "with rm there can be only one resource manager"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(settings, said):
    with pytest.raises(BadSetting) as caught:
        settings.checked()
    assert said in str(caught.value)
