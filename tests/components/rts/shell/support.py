"""RIFs, jobs and clients for a run-time system under test: they speak messages in memory and do as told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from msgspec.structs import replace

from gspc_trio.components.provision.strategy import RifOrder, StrategyError
from gspc_trio.components.rif.messages import (
    AddResources,
    CloseJobEverywhere,
    DagReport,
    RemoveResources,
    RifHello,
    StopRif,
    WorkerEndpoint,
)
from gspc_trio.components.rm.messages import Revoke, Revoked
from gspc_trio.components.rts.messages import RegisterJob
from gspc_trio.components.rts.shell.service import RtsService
from gspc_trio.core.resources import Resource
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import IncomingCall, Peer, PeerGone

RTS = "memory:rts"


class FakeRifs:
    """A strategy whose RIFs have a node with two cores, and do and say what a test wants."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.peers: dict[str, Peer] = {}
        self.orders: list[RifOrder] = []
        self.scopes: dict[str, trio.CancelScope] = {}
        self.closed_jobs: list[str] = []
        self.revoked: list[Revoke] = []
        self.broken: dict[str, str] = {}
        self.memory_bytes = 0
        self.mute = False
        self.lingers = False
        self.ended: list[str] = []

    async def run(self, order: RifOrder) -> str:
        self.orders.append(order)
        if order.host in self.broken:
            order.said.append("Traceback")
            raise StrategyError(self.broken[order.host])
        try:
            with trio.CancelScope() as scope:
                self.scopes[order.rif_id] = scope
                return await self._live(order)
            return "killed"
        finally:
            self.ended.append(order.rif_id)

    async def come_back(self, order: RifOrder) -> None:
        """Be the RIF of that order, which has connected again."""
        await self._live(order, back=True)

    async def _live(self, order: RifOrder, *, back: bool = False) -> str:
        cores = order.cores or 2
        rif = order.rif_id
        below = [Resource(f"{rif}.core{number}", "core", (f"{rif}.node",)) for number in range(cores)]
        hardware = (Resource(f"{rif}.node", "node", memory_bytes=self.memory_bytes), *below)
        async with self.network.connect(
            order.rts_address("memory:"), role="rif", name=rif, expect="rts"
        ) as peer:
            self.peers[rif] = peer
            hello = RifHello(rif, order.incarnation, 7, order.host, f"memory:{rif}", hardware)
            peer.post(replace(hello, claims=()) if back else hello)
            try:
                while True:
                    for message in await peer.receive():
                        if isinstance(message, StopRif):
                            if not self.mute:
                                return "stopped"
                        else:
                            self._hear(peer, order, message)
            except PeerGone as gone:
                if self.lingers:
                    await trio.sleep_forever()
                return gone.reason

    def _hear(self, peer: Peer, order: RifOrder, message: object) -> None:
        if isinstance(message, IncomingCall):
            body = message.body
            if isinstance(body, AddResources):
                ids = tuple(resource.resource_id for resource in body.resources)
            else:
                assert isinstance(body, RemoveResources)
                ids = body.resource_ids
            address = f"memory:{order.rif_id}"
            message.reply(
                DagReport(
                    tuple(WorkerEndpoint(name, "core", order.rif_id, order.host, address) for name in ids)
                )
            )
        elif isinstance(message, CloseJobEverywhere):
            self.closed_jobs.append(message.job)
        elif isinstance(message, Revoke):
            self.revoked.append(message)
            if not self.mute:
                peer.post(Revoked(message.grant_id, message.resources))


class Cluster:
    def __init__(self, network: Network, rifs: FakeRifs, service: RtsService) -> None:
        self.network = network
        self.rifs = rifs
        self.service = service

    @asynccontextmanager
    async def job(self, name: str = "count") -> AsyncIterator[JobServer]:
        async with self.network.connect(RTS, role="job", name=name, expect="rts") as peer:
            answer = await peer.call(RegisterJob(name, 5, "anna", priority=3))
            yield JobServer(peer, answer.job)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Peer]:
        async with self.network.connect(RTS, role="control", name="client", expect="rts") as peer:
            yield peer


class JobServer:
    def __init__(self, peer: Peer, job: str) -> None:
        self.peer = peer
        self.job = job
        self.heard: list[object] = []

    async def hear(self, kind: type, number: int = 1) -> list[object]:
        """Wait until so many messages of this kind have come; return them and forget all."""
        with trio.fail_after(100):
            while sum(isinstance(message, kind) for message in self.heard) < number:
                self.heard += await self.peer.receive()
        found = [message for message in self.heard if isinstance(message, kind)]
        self.heard.clear()
        return found


async def one(job: JobServer, kind: type) -> object:
    """Return the next message of this kind, forgetting those before it."""
    with trio.fail_after(100):
        while True:
            while job.heard:
                message = job.heard.pop(0)
                if isinstance(message, kind):
                    return message
            job.heard += await job.peer.receive()


async def lost(peer: Peer) -> None:
    """Wait until the connection is over."""
    with trio.fail_after(100):
        await peer.lost.wait()
