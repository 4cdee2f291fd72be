"""A RIF between a made-up RTS and made-up schedulers, all in memory, on a simulated compute backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from gspc_trio.components.rif.messages import AddResources, DagReport, RifHello
from gspc_trio.components.rif.shell.service import RifService, open_rif
from gspc_trio.components.rm.messages import GetNewestGrant, NewestGrant
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.components.worker.messages import Begun, DefineCode, Finished, OpenJob, Submission, Submit
from gspc_trio.components.worker.shell.compute import ComputeBackend
from gspc_trio.components.worker.shell.staging import Staging
from gspc_trio.core.ids import GrantId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome, TaskOptions
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone
from gspc_trio.records.facts import WorkerChanged
from gspc_trio.records.messages import RecordBatch

CORES = (Resource("r1.core0", "core"), Resource("r1.core1", "core"))


class FakeRts:
    """What the RIF has said to its RTS: ``hello``, ``said`` (but for records), ``records``.

    It answers which is the newest grant of what is in ``newest``, and of nothing else.
    """

    def __init__(self) -> None:
        self.peer: Peer
        self.hello: RifHello | None = None
        self.said: list[Any] = []
        self.newest: dict[str, GrantId] = {}
        self.records: list[WorkerChanged] = []
        self.up = trio.Event()
        self.gone = trio.Event()

    async def serve(self, peer: Peer) -> None:
        self.peer = peer
        try:
            while True:
                for message in await peer.receive():
                    if isinstance(message, RifHello):
                        self.hello = message
                        self.up.set()
                    elif isinstance(message, RecordBatch):
                        self.records += [r for r in message.records if isinstance(r, WorkerChanged)]
                    elif isinstance(message, IncomingCall):
                        assert isinstance(message.body, GetNewestGrant)
                        newest = self.newest.get(message.body.resource_id)
                        if newest is not None:
                            message.reply(NewestGrant(newest))
                    else:
                        self.said.append(message)
        except PeerGone:
            self.gone.set()

    async def add(self, resources: Sequence[Resource] = CORES) -> DagReport:
        report: DagReport = await self.peer.call(AddResources(tuple(resources)))
        return report

    def states(self) -> list[tuple[str, str]]:
        return [(record.resource_id, record.state) for record in self.records]


class FakeScheduler:
    """One job's connection to the RIF; ``outcomes`` are those reported so far, ``begun`` what stages data."""

    def __init__(self, peer: Peer, job: str) -> None:
        self.peer = peer
        self.job = job
        self.outcomes: list[Outcome] = []
        self.begun: list[int] = []
        self.grant = 0
        self._arrived = trio.Event()

    async def listen(self) -> None:
        try:
            while True:
                for message in await self.peer.receive():
                    if isinstance(message, Begun):
                        self.begun.append(message.task_id)
                        continue
                    assert isinstance(message, Finished)
                    self.outcomes += message.outcomes
                    self._arrived.set()
        except PeerGone:
            self._arrived.set()

    def submit(self, resource_id: str, *tasks: int | Submission, grant: int = 0, **options: Any) -> None:
        """Submit tasks, under a new grant unless one is named."""
        self.grant = max(self.grant, grant) if grant else self.grant + 1
        submissions = tuple(
            Submission(task, 1, 7, (), TaskOptions(**options)) if isinstance(task, int) else task
            for task in tasks
        )
        self.peer.post(Submit(self.job, (1, grant or self.grant), (resource_id,), submissions))

    async def wait(self, count: int) -> list[tuple[int, str]]:
        """Wait until so many outcomes have come, and return (task, reason) of all of them."""
        with trio.fail_after(60):
            while len(self.outcomes) < count:
                assert not self.peer.lost.is_set(), self.peer.reason
                self._arrived = trio.Event()
                await self._arrived.wait()
        return [(outcome.task_id, outcome.reason.value) for outcome in self.outcomes]


class Stage:
    """A RIF under test with its surroundings."""

    def __init__(self, network: Network, rts: FakeRts, rif: RifService) -> None:
        self.network = network
        self.rts = rts
        self.rif = rif

    @asynccontextmanager
    async def job(self, job: str = "j1", opening: OpenJob | None = None) -> AsyncIterator[FakeScheduler]:
        """A job that has opened and has defined its code 7."""
        connection = self.network.connect(self.rif.address, role="job", name=job, expect="rif")
        async with trio.open_nursery() as nursery, connection as peer:
            scheduler = FakeScheduler(peer, job)
            nursery.start_soon(scheduler.listen)
            peer.post(opening or OpenJob(job))
            peer.post(DefineCode(job, 7, b"code"))
            yield scheduler
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_stage(
    backend: ComputeBackend,
    *,
    resources: Sequence[Resource] = CORES,
    staging: Staging | None = None,
    addresses: tuple[str, str] = ("memory:rts", "memory:rif-r1"),
    network: Network | None = None,
) -> AsyncIterator[Stage]:
    """A RIF with these resources, connected to its RTS."""
    network = network or Network(wire_codec)
    rts = FakeRts()
    async with trio.open_nursery() as nursery:

        async def listen(task_status: trio.TaskStatus[str]) -> None:
            await network.listen(addresses[0], rts.serve, role="rts", name="rts", task_status=task_status)

        address = await nursery.start(listen)
        async with open_rif(
            network,
            rif_id="r1",
            incarnation=1,
            host="here",
            hardware=tuple(resources),
            backend=backend,
            listen=addresses[1],
            rts=address,
            staging=staging,
        ) as rif:
            await rts.up.wait()
            if resources:
                await rts.add(resources)
            yield Stage(network, rts, rif)
        nursery.cancel_scope.cancel()
