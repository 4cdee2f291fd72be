"""Simulated clients: people who look, change resources and weights, and cancel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import trio

from gspc_trio.components.job.messages import CancelTask, GetJobStatus
from gspc_trio.components.rts.messages import GetHostToResource, GetStatus, ListJobs, SetWeight
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.components.rts.state import RifState
from gspc_trio.core.ids import RifId
from gspc_trio.nursery.connections.rpc import Peer, PeerGone, RemoteError
from gspc_trio.records.messages import Watch
from gspc_trio.testing.cluster import RTS_ADDRESS, Cluster
from gspc_trio.testing.simulated.process import SimulatedProcess

LOOKS = 5
"""Questions that somebody who looks asks."""

DAWDLER_CREDIT = 1000
"""Batches of records that a client who takes none of them has asked for."""

DAWDLE_S = 4.0
"""For how long it takes none; less than the lease."""

ABSENT_S = 2.0
"""How long resources that are removed stay away at most."""


class Clients:
    """Starts clients of a cluster, each a process of its own.

    Args:
        cluster: of which.
        random: to draw from.
    """

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    def look(self) -> None:
        """Somebody watches the records, fast or slowly, and asks for the state of this and that."""
        self._spawn("watcher", self._look)

    def dawdle(self) -> None:
        """Somebody watches all records, and takes nothing of them for a while."""
        self._spawn("dawdler", self._dawdle)

    def shrink(self, rif: SimulatedProcess) -> None:
        """Somebody removes a resource from a RIF, and adds it again."""
        self._spawn("administrator", lambda rts: self._shrink(rts, rif.host))

    def put_back(self, rif_id: RifId) -> None:
        """Somebody adds what others have removed from a RIF."""

        async def add(rts: RunTimeSystem) -> None:
            try:
                await rts.add(rif_id, self._cluster.missing(rif_id))
            except RemoteError:  # what it hangs below is held: have that given back
                await rts.remove(rif_id, [f"{rif_id}.node"], "wait")
                await rts.add(rif_id, self._cluster.missing(rif_id))

        self._spawn("administrator", add)

    def tear_down(self, rif: SimulatedProcess) -> None:
        """Somebody takes a RIF down; the hosts' keeper starts another one."""
        self._spawn("administrator", lambda rts: self._tear_down(rts, rif.host))

    def cancel(self, job: SimulatedProcess, stopped: set[SimulatedProcess]) -> None:
        """Somebody cancels some tasks of a job, and changes its weight; who is hit joins those stopped."""
        self._spawn("user", lambda rts: self._cancel(rts, job.host, stopped))

    def _spawn(self, name: str, act: Callable[[RunTimeSystem], Awaitable[object]]) -> None:
        async def main(process: SimulatedProcess) -> None:
            network = self._cluster.network(process)
            try:
                async with network.connect(RTS_ADDRESS, role="control", name=name, expect="rts") as peer:
                    await act(RunTimeSystem(network, RTS_ADDRESS, peer))
            except (PeerGone, RemoteError, OSError, LookupError, trio.TooSlowError):
                pass  # what people do may come at a bad moment

        self._cluster.spawn(name, "client", "desk", main)

    async def _look(self, rts: RunTimeSystem) -> None:
        rts.peer.post(Watch(self._random.randint(1, 3)))
        for entry in await rts.jobs():
            if entry.address:
                async with rts.connect_to_job(entry.job) as job:
                    job.post(Watch(100))
                    await job.call(GetJobStatus(), timeout_s=30.0)
                    await self._listen(job)
        for _ in range(LOOKS):
            question = self._random.choice((GetStatus(), GetHostToResource(), ListJobs()))
            await rts.peer.call(question, timeout_s=30.0)
            await self._listen(rts.peer)
            rts.peer.post(Watch(self._random.randint(0, 3)))

    async def _dawdle(self, rts: RunTimeSystem) -> None:
        rts.peer.post(Watch(DAWDLER_CREDIT))
        async with trio.open_nursery() as nursery:
            for entry in [entry for entry in await rts.jobs() if entry.address]:
                nursery.start_soon(self._dawdle_at, rts, entry.job)
            await trio.sleep(DAWDLE_S)
            await self._listen(rts.peer)

    async def _dawdle_at(self, rts: RunTimeSystem, job: str) -> None:
        with suppress(PeerGone, RemoteError, OSError, LookupError):
            async with rts.connect_to_job(job) as peer:
                peer.post(Watch(DAWDLER_CREDIT))
                await trio.sleep(DAWDLE_S)
                await self._listen(peer)

    async def _listen(self, peer: Peer) -> None:
        with trio.move_on_after(self._random.choice((0.01, 0.3, 1.0))):
            while True:
                await peer.receive()
                await trio.sleep(self._random.choice((0.0, 0.0, 0.2)))

    async def _shrink(self, rts: RunTimeSystem, host: str) -> None:
        rif_id = self._rif_id(host)
        mine = sorted((await rts.host_to_resource()).get(host, ()))
        if not rif_id or not mine:
            return
        chosen = self._random.choice(mine)
        policy = self._random.choice(("lose", "lose", "wait", "refuse"))
        await rts.remove(rif_id, [chosen], policy)
        await trio.sleep(self._random.uniform(0.0, ABSENT_S))
        await rts.add(rif_id, self._cluster.missing(rif_id))

    async def _tear_down(self, rts: RunTimeSystem, host: str) -> None:
        rif_id = self._rif_id(host)
        if rif_id:
            await rts.teardown([rif_id])

    def _rif_id(self, host: str) -> str:
        service = self._cluster.rts
        rifs = service.machine.rifs if service is not None else ()
        return next((rif.rif_id for rif in rifs if rif.host == host and rif.state is RifState.UP), "")

    async def _cancel(self, rts: RunTimeSystem, name: str, stopped: set[SimulatedProcess]) -> None:
        for entry in await rts.jobs():
            if entry.name == name:
                await rts.peer.call(SetWeight(entry.job, self._random.choice((0.5, 2.0))), 30.0)
                async with rts.connect_to_job(entry.job) as job:
                    # The job server may have been started anew since.
                    stopped.update(
                        one for one in self._cluster.processes if (one.role, one.host) == ("job", name)
                    )
                    tasks = tuple(self._random.randint(1, 30) for _ in range(3))
                    await job.call(CancelTask(tasks), timeout_s=30.0)
