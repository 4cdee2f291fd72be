"""The resource manager over a real websocket: it lives in a run-time system of its own process.

    python bench/rm_remote.py [--json] [--small]

A pair is a Grant that comes and its Release that goes; one Demand states credit for many.

``rm_remote.pairs_per_s``        one client that gives back at once what it gets
``rm_remote.server_us``          CPU time of the run-time system for such a pair
``rm_remote.client_us``          CPU time of the client's process for it
``rm_remote.share_error``        eight clients with weights 1 to 8 and task times 1:10: the largest
                                 relative difference between a client's share of resource-seconds and its
                                 weight's
``rm_remote.slow_client_loss``   what four clients lose of their rate when a fifth demands and stops reading
``rm_remote.memory_ratio``       memory of the run-time system with 1,000,000 tasks waiting over that with
                                 1,000
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import trio
from figures import Figures, cpu_s, options_parser, tree_pss_mib
from msgspec import Struct

from gspc_trio.components.rm.events import Added
from gspc_trio.components.rm.messages import Demand, Grant, Recall, Release
from gspc_trio.components.rm.shell.service import RmShell
from gspc_trio.components.rts.messages import RegisterJob
from gspc_trio.components.rts.shell.client import RunTimeSystem, join_rts
from gspc_trio.components.rts.shell.service import open_rts_service
from gspc_trio.components.wire.codec import wire_codec
from gspc_trio.core.ids import NO_GRANT
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import CORE
from gspc_trio.nursery.connections.connection_file import ConnectionInfo, write_connection_file
from gspc_trio.nursery.connections.network import Network
from gspc_trio.nursery.connections.rpc import Peer
from gspc_trio.nursery.scopes.collector import tuned_collector
from gspc_trio.version import VERSION

SERVE = "--serve"
CORES = 1024
CREDIT = 512
"""How many grants a client of the throughput figures has under way or in hand at most."""
SHARED_CORES = 72
UNIT_S = 0.02
"""Shortest task of the clients that share."""
SAMPLE_S = 0.02
AGES = 100
"""In how many steps a demand grows to what all its tasks can use."""


# The run-time system, in a process of its own


async def serve(path: Path, cores: int) -> None:
    """Run a run-time system with so many cores and no RIF until standard input ends."""
    token = secrets.token_bytes(32)
    async with open_rts_service(
        Network(wire_codec, token), listen=("ws://127.0.0.1:0",), strategies={}
    ) as service:
        assert isinstance(service.rm, RmShell)
        service.rm.inbox.put(Added(tuple(Resource(f"r1.core{index}", "core") for index in range(cores))))
        write_connection_file(path, ConnectionInfo.create(service.address, token, VERSION))
        print("up", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


class Server:
    """A run-time system in another process."""

    def __init__(self, path: Path, process: subprocess.Popen[str]) -> None:
        self.path = path
        self.process = process

    def mib(self) -> float:
        """Return its memory."""
        return tree_pss_mib(self.process.pid)

    def cpu_s(self) -> float:
        """Return the CPU time that it has used."""
        return cpu_s([self.process.pid], with_children=False)


@contextmanager
def running(cores: int) -> Iterator[Server]:
    """A server for as long as the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "connection.json"
        command = [sys.executable, __file__, SERVE, str(path), str(cores)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        try:
            yield Server(path, process)
        finally:
            process.stdin.close()
            process.wait()


# Clients


@asynccontextmanager
async def joined(rts: RunTimeSystem, name: str, weight: float = 1.0) -> AsyncIterator[tuple[Peer, str]]:
    """A job's connection and its id."""
    async with rts.join() as peer:
        answer = await peer.call(RegisterJob(name, 1, "bench", "", weight))
        yield peer, answer.job


class Greedy:
    """Gives back at once what it gets, and demands as much again.

    Attributes:
        pairs: how many grants it has given back.
    """

    def __init__(self, peer: Peer, job: str) -> None:
        self.peer = peer
        self.job = job
        self.pairs = 0

    async def run(self) -> None:
        """Go on until cancelled."""
        peer, job = self.peer, self.job
        peer.post(Demand(job, CORE, CREDIT, NO_GRANT))
        while True:
            seen = NO_GRANT
            for message in await peer.receive():
                if isinstance(message, Grant):
                    seen = message.grant_id
                    peer.post(Release(job, seen))
                    self.pairs += 1
            if seen != NO_GRANT:
                peer.post(Demand(job, CORE, CREDIT, seen))


async def rate(clients: list[Greedy], seconds: float) -> float:
    """Return pairs per second of all clients together, which run already."""
    await trio.sleep(seconds / 10)
    before, begun = sum(client.pairs for client in clients), trio.current_time()
    await trio.sleep(seconds)
    return (sum(client.pairs for client in clients) - before) / (trio.current_time() - begun)


class Throughput(Struct, frozen=True):
    """What one client gets.

    Attributes:
        pairs_per_s: pairs in a second.
        server_us, client_us: CPU time that the two processes use for a pair.
    """

    pairs_per_s: float
    server_us: float
    client_us: float


async def throughput(server: Server, seconds: float, rounds: int) -> Throughput:
    """Return the medians of one client."""
    found = []
    async with (
        join_rts(server.path) as rts,
        joined(rts, "greedy") as (peer, job),
        trio.open_nursery() as nursery,
    ):
        client = Greedy(peer, job)
        nursery.start_soon(client.run)
        for _ in range(rounds):
            server_s, client_s, pairs = server.cpu_s(), time.process_time(), client.pairs
            rate_per_s = await rate([client], seconds)
            pairs = client.pairs - pairs
            used_s = server.cpu_s() - server_s, time.process_time() - client_s
            found.append((rate_per_s, *(1e6 * each_s / pairs for each_s in used_s)))
        nursery.cancel_scope.cancel()
    return Throughput(*map(median, zip(*found, strict=True)))


async def slow_client_loss(server: Server, seconds: float, rounds: int) -> float:
    """Return the share of their rate that clients lose by one that demands and reads nothing."""
    losses = []
    async with join_rts(server.path) as rts, contextlib.AsyncExitStack() as stack:
        clients = [Greedy(*await stack.enter_async_context(joined(rts, f"greedy{i}"))) for i in range(4)]
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.run)
            for _ in range(rounds):
                alone = await rate(clients, seconds)
                async with joined(rts, "deaf") as (peer, job):
                    peer.post(Demand(job, CORE, CREDIT, NO_GRANT))
                    beside = await rate(clients, seconds)
                losses.append(1 - 2 * beside / (alone + await rate(clients, seconds)))
            nursery.cancel_scope.cancel()
    return median(losses)


class Sharing:
    """Has tasks of one length for as many cores as it gets."""

    def __init__(self, peer: Peer, job: str, task_s: float) -> None:
        self.peer = peer
        self.job = job
        self.task_s = task_s
        self.running: deque[tuple[float, Grant]] = deque()
        self.news = trio.Event()

    async def run(self) -> None:
        """Go on until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_tasks)
            self.peer.post(Demand(self.job, CORE, SHARED_CORES, NO_GRANT))
            while True:
                for message in await self.peer.receive():
                    if isinstance(message, Grant):
                        self.running.append((trio.current_time() + self.task_s, message))
                        self.peer.post(Demand(self.job, CORE, SHARED_CORES, message.grant_id))
                        self.news.set()
                    else:
                        assert isinstance(message, Recall), "its tasks are short: nothing is given back early"

    async def _end_tasks(self) -> None:
        while True:
            if not self.running:
                self.news = trio.Event()
                await self.news.wait()
            ends_at, grant = self.running[0]
            await trio.sleep_until(ends_at)
            self.running.popleft()
            self.peer.post(Release(self.job, grant.grant_id))


async def held_s(rts: RunTimeSystem, seconds: float) -> dict[str, float]:
    """Return the resource-seconds that the resource manager counts for each job, by its name."""
    found: dict[str, float] = {}
    before = trio.current_time()
    until = before + seconds
    while before < until:
        await trio.sleep(SAMPLE_S)
        status, now = await rts.status(), trio.current_time()
        for job in status.jobs:
            found[job.name] = found.get(job.name, 0.0) + job.held * (now - before)
        before = now
    return found


async def share_error(server: Server, seconds: float) -> float:
    """Return the largest relative difference between a client's share and what its weight entitles it to."""
    weights = range(1, 9)
    async with join_rts(server.path) as rts, contextlib.AsyncExitStack() as stack:
        clients = []
        for weight in weights:
            joining = joined(rts, f"weight{weight}", float(weight))
            task_s = UNIT_S * (10 if weight % 2 else 1)
            clients.append(Sharing(*await stack.enter_async_context(joining), task_s))
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.run)
            await trio.sleep(seconds / 4)
            held = await held_s(rts, seconds)
            nursery.cancel_scope.cancel()
    total = sum(held.values())
    return max(abs(held[f"weight{w}"] / total * sum(weights) / w - 1) for w in weights)


async def waiting_mib(server: Server, tasks: int) -> float:
    """Return the server's memory with so many tasks waiting behind the demand."""
    async with join_rts(server.path) as rts, joined(rts, "many") as (peer, job):
        for step in range(1, AGES + 1):
            peer.post(Demand(job, CORE, tasks * step // AGES, NO_GRANT))
            await trio.sleep(0.01)
        status = await rts.status()
        assert status.jobs[0].demand >= tasks - CORES
        return server.mib()


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument(SERVE, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        with tuned_collector():  # as in gspc-rts
            trio.run(serve, Path(options.serve[0]), int(options.serve[1]))
        return
    figures = Figures(options.json)
    seconds, rounds = (0.3, 1) if options.small else (2.0, 5)
    with running(CORES) as server, tuned_collector():
        found = trio.run(throughput, server, seconds, rounds)
    figures.add("rm_remote.pairs_per_s", found.pairs_per_s, "pairs/s")
    figures.add("rm_remote.server_us", found.server_us, "us")
    figures.add("rm_remote.client_us", found.client_us, "us")
    with running(SHARED_CORES) as server:
        error = trio.run(share_error, server, 10 * seconds)
        figures.add("rm_remote.share_error", error, "ratio")
    with running(CORES) as server:
        loss = trio.run(partial(slow_client_loss, server, seconds, rounds))
        figures.add("rm_remote.slow_client_loss", loss, "ratio")
    used = []
    for tasks in (1_000, 1_000_000):
        with running(CORES // 2) as server:
            used.append(trio.run(waiting_mib, server, tasks))
    figures.add("rm_remote.memory_ratio", used[1] / used[0], "ratio")


if __name__ == "__main__":
    main()
