"""Fault injection: faults that happen to the processes of a simulated cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import cast

import trio
from trio.testing import MockClock
from trio_websocket import ConnectionClosed, HandshakeError, wrap_client_stream

from gspc_trio.components.rts.messages import RegisterJob
from gspc_trio.components.worker.messages import Submit
from gspc_trio.nursery.connections.network import ConnectionProblem
from gspc_trio.protocol import handshake
from gspc_trio.protocol.handshake import PROTOCOL_VERSION as VERSION
from gspc_trio.testing.checkers.base import Broken
from gspc_trio.testing.clients import Clients
from gspc_trio.testing.cluster import Cluster
from gspc_trio.testing.determinism import Gate
from gspc_trio.testing.faults import LAYER_ROLES, Fault
from gspc_trio.testing.layer.spill import SpillDisk
from gspc_trio.testing.simulated.disk import SimulatedDisk
from gspc_trio.testing.simulated.process import SimulatedProcess
from gspc_trio.testing.simulated.wires import SimulatedNetwork, WireEnd

WRONG_TOKEN = b"another token of the same length"
PATIENCE_S = 20.0
"""How long a peer without the token waits."""


REGRET_AFTER_S = (0.0, 0.05, 0.5)
"""How long after hosts fall silent a user cancels tasks."""

TASKS_SEEN = 100
"""The ids of the first tasks of a job, of which half are cancelled."""

WRITES_MAX = 8
"""An outage comes with one of so many writes."""


class FaultInjector:
    """Carries out faults.

    Args:
        cluster: to which they happen.
        clock: of the simulation.
        gate: before trio's queue of tasks.
        nursery: for what takes time.
        random: to draw from.
        overtaken: returns what a RIF must refuse if it came again.
        fail: told of what does not hold.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: MockClock,
        gate: Gate,
        nursery: trio.Nursery,
        random: Random,
        overtaken: Callable[[SimulatedProcess], list[Submit]],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._gate = gate
        self._nursery = nursery
        self._random = random
        self._overtaken = overtaken
        self._fail = fail
        self.stopped: set[SimulatedProcess] = set()
        self.clients: Clients = Clients(cluster, random)
        clients = self.clients
        self._strangers = Strangers(cluster, random)
        self._kinds: dict[str, Callable[[Fault, SimulatedProcess], None]] = {
            "kill": lambda _, process: process.kill(),
            "crash": self._crash,
            "cut": self._cut,
            "partition": self._partition,
            "pause": self._pause,
            "jump": lambda fault, _: clock.jump(fault.lasts_s),
            "twin": self._twin,
            "stop": self._stop,
            "stranger": self._stranger,
            "echo": self._echo,
            "look": lambda _, _process: clients.look(),
            "shrink": lambda _, process: clients.shrink(process),
            "teardown": lambda _, process: clients.tear_down(process),
            "cancel": self._cancel,
            "full": self._full,
            "shortage": self._shortage,
            "outage": self._outage,
            "regret": lambda fault, process: cluster.outside.run(
                nursery.start_soon, self._regret, fault, process
            ),
            "dawdle": lambda _, _process: clients.dawdle(),
            "crowd": self._crowd,
            "absence": self._absence,
            "clash": lambda fault, process: cluster.outside.run(
                nursery.start_soon, self._clash, fault, process
            ),
            "anomaly": self._anomaly,
            "requeue": lambda _, process: cluster.outside.run(nursery.start_soon, self._requeue, process),
        }

    def happen(self, fault: Fault, process: SimulatedProcess) -> None:
        """Let a fault happen to a process."""
        if process.killed and fault.kind != "jump":
            return
        self._kinds[fault.kind](fault, process)

    def _crash(self, _fault: Fault, process: SimulatedProcess) -> None:
        for other in [other for other in self._cluster.processes if other.host == process.host]:
            other.kill(silently=True)

    def _cut(self, _fault: Fault, process: SimulatedProcess) -> None:
        ends = list(process.ends)
        if ends:
            self._random.choice(ends).wire.cut()

    def _partition(self, fault: Fault, process: SimulatedProcess) -> None:
        ends = list(process.ends)
        if ends:
            end = self._random.choice(ends)
            lane = self._random.choice((end.sends, end.receives))
            lane.hold(trio.current_time() + fault.lasts_s)

    def _pause(self, fault: Fault, process: SimulatedProcess) -> None:
        if self._gate.close(process):
            process.on_kill.append(lambda: self._gate.open(process))
            self._cluster.outside.run(self._nursery.start_soon, self._continue, process, fault.lasts_s)

    async def _continue(self, process: SimulatedProcess, lasts_s: float) -> None:
        await trio.sleep(lasts_s)
        self._gate.open(process)

    def _twin(self, _fault: Fault, _process: SimulatedProcess) -> None:
        self._cluster.twins += 1

    def _stop(self, _fault: Fault, process: SimulatedProcess) -> None:
        job = self._cluster.running_jobs.get(process)
        if job is not None:
            self.stopped.add(process)
            job.stop("its user stops it")

    def _cancel(self, _fault: Fault, process: SimulatedProcess) -> None:
        self.stopped.add(process)
        self.clients.cancel(process, self.stopped)

    async def _regret(self, fault: Fault, process: SimulatedProcess) -> None:
        """Let a job and some of its hosts hear nothing of each other; its user cancels tasks meanwhile."""
        job = self._cluster.running_jobs.get(process)
        hosts = [end for end in process.ends if end.other.process.role == "rif"]
        if job is None or not hosts:
            return
        for end in self._random.sample(hosts, self._random.randint(1, len(hosts))):
            for lane in (end.sends, end.receives):
                lane.hold(trio.current_time() + fault.lasts_s)
        await trio.sleep(self._random.choice(REGRET_AFTER_S))
        if self._cluster.running_jobs.get(process) is job:
            self.stopped.add(process)
            if self._random.random() < 0.3:
                process.context.run(job.stop, "its user stops it")
            else:
                chosen = [number for number in range(1, TASKS_SEEN) if self._random.random() < 0.5]
                process.context.run(job.cancel, chosen)

    def _full(self, fault: Fault, process: SimulatedProcess) -> None:
        disk: SimulatedDisk | SpillDisk | None = self._cluster.disks.get(process)
        if self._cluster.layers is not None and process.role in LAYER_ROLES:
            disk = self._cluster.layers.disk(process.host)
        if disk is not None:
            disk.full_until_s = trio.current_time() + fault.lasts_s

    def _outage(self, fault: Fault, process: SimulatedProcess) -> None:
        """Let the power go as one of the next few writes is under way, and again at the first one after."""
        disk, left = self._cluster.disks.get(process), [1, self._random.randint(1, WRITES_MAX)]

        def write(writer: SimulatedProcess) -> None:
            if left:
                left[-1] -= 1
                if not left[-1]:
                    left.pop()
                    self._crash(fault, writer)

        if disk is not None:
            disk.on_write = write

    def _shortage(self, fault: Fault, process: SimulatedProcess) -> None:
        backend = self._cluster.backends.get(process)
        if backend is not None:
            backend.short_until_s = trio.current_time() + fault.lasts_s

    def _anomaly(self, fault: Fault, process: SimulatedProcess) -> None:
        if self._cluster.anomalies is not None:
            self._cluster.anomalies.begin(process.host, fault.lasts_s)

    def _echo(self, _fault: Fault, process: SimulatedProcess) -> None:
        self._cluster.outside.run(self._nursery.start_soon, self._repeat, process)

    async def _repeat(self, process: SimulatedProcess) -> None:
        """Wait for a submit that is out of date, and let it arrive again."""
        with trio.move_on_after(PATIENCE_S):
            while process.alive:
                rif, submits = self._cluster.rifs.get(process), self._overtaken(process)
                if rif is not None and submits:
                    process.context.run(rif._inbox.put, self._random.choice(submits))
                    return
                await trio.sleep(0.05)

    async def _requeue(self, process: SimulatedProcess) -> None:
        """Wait until a RIF is at work, and start it again beside itself."""
        with trio.move_on_after(PATIENCE_S):
            while process.alive:
                backend = self._cluster.backends.get(process)
                if backend is not None and any(compute.is_busy for compute in backend.computes):
                    self._cluster.requeue(process)
                    return
                await trio.sleep(0.05)

    def _absence(self, fault: Fault, process: SimulatedProcess) -> None:
        """A RIF ends, and its host starts none for a while, or one that says nothing."""
        is_mute = self._random.random() < 0.5
        self._cluster.absent[process.host] = (trio.current_time() + fault.lasts_s, is_mute)
        process.kill()

    async def _clash(self, fault: Fault, process: SimulatedProcess) -> None:
        """A connection to the run-time system carries nothing just as that changes what is at its end."""
        is_late = self._random.random() < 0.5
        if not is_late:
            self._change(process)
            await trio.sleep(self._random.choice((0.0, 0.01, 0.1)) * self._random.random())
        is_cut = self._random.random() < 0.5
        until_s = trio.current_time() + fault.lasts_s
        for end in [end for end in process.ends if end.other.process.role == "rts"]:
            if is_cut:
                end.wire.cut()
            else:
                end.sends.hold(until_s)
                end.receives.hold(until_s)
        if is_late:
            await trio.sleep(fault.lasts_s * self._random.random())
            self._change(process)

    def _change(self, process: SimulatedProcess) -> None:
        jobs = list(self._cluster.running_jobs)
        if process.role == "job":
            self.stopped.add(process)
            self.clients.cancel(process, self.stopped)
        elif jobs and self._random.random() < 0.5:
            self._random.choice(jobs).kill()
        elif self._random.random() < 0.7:
            self.clients.shrink(process)
        else:
            self.clients.tear_down(process)

    def _crowd(self, _fault: Fault, process: SimulatedProcess) -> None:
        for listener in list(process.listeners)[:1]:
            self._strangers.come(listener.where)

    def _stranger(self, _fault: Fault, process: SimulatedProcess) -> None:
        for listener in list(process.listeners)[:1]:
            host, port = listener.where
            self._cluster.outside.run(self._nursery.start_soon, self._knock, f"ws://{host}:{port}")
            self._cluster.outside.run(self._nursery.start_soon, self._babble, listener.where)

    async def _knock(self, address: str) -> None:
        """Try to get in with another token; being let in is a fault of the other side."""

        async def main(process: SimulatedProcess) -> None:
            random = Random(f"stranger {self._random.getrandbits(64)}")  # others may have the same bits
            network = SimulatedNetwork(process, self._cluster.wires, WRONG_TOKEN, random)
            try:
                async with network.connect(address, role="job", name="thief", expect="") as peer:
                    peer.post(RegisterJob("thief", 1, "nowhere"))
                    self._fail(Broken(f"a stranger was let in at {address}"))
            except ConnectionProblem:
                pass

        await self._cluster.spawn("stranger", "stranger", "nowhere", main).ended.wait()

    async def _babble(self, where: tuple[str, int]) -> None:
        """Say something without sense, and stay."""

        async def main(process: SimulatedProcess) -> None:
            listener = self._cluster.wires.listeners.get(where)
            if listener is None:
                return
            end = self._cluster.wires.connect(process, listener)
            try:
                await end.send_all(self._random.randbytes(self._random.randint(0, 5000)))
                with trio.move_on_after(PATIENCE_S):
                    while await end.receive_some():
                        pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        await self._cluster.spawn("babbler", "stranger", "nowhere", main).ended.wait()


STAY_S = 6.0
"""How long they stay: longer than a handshake may take."""

CROWD = 12
"""How many say nothing."""

FLOOD_BYTES = 1 << 17
"""What somebody says who has not proved anything."""


class Strangers:
    """Starts strangers, each a process of its own.

    Args:
        cluster: that they come to.
        random: to draw from.
    """

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    def come(self, where: tuple[str, int]) -> None:
        """Many come to a listener: most say nothing, one a lot, and one tries a proof of his own."""
        acts = [self._stay] * CROWD + [self._flood, self._send_wrong_proof]
        self._random.shuffle(acts)
        for act in acts:
            self._spawn(where, act)

    def _spawn(self, where: tuple[str, int], act: Callable[[WireEnd], Awaitable[None]]) -> None:
        async def main(process: SimulatedProcess) -> None:
            await trio.sleep(self._random.uniform(0.0, 0.5))
            listener = self._cluster.wires.listeners.get(where)
            if listener is None:
                return
            end = self._cluster.wires.connect(process, listener)
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, ConnectionClosed):
                with trio.move_on_after(STAY_S), suppress(HandshakeError):
                    await act(end)
                await end.aclose()

        self._cluster.spawn("crowd", "stranger", "nowhere", main)

    async def _stay(self, end: WireEnd) -> None:
        while await end.receive_some():
            pass

    async def _flood(self, end: WireEnd) -> None:
        """Become a websocket, and send one message that does not end."""
        async with trio.open_nursery() as nursery:
            await wrap_client_stream(nursery, cast(trio.SocketStream, end), "nowhere", "/")
            nursery.cancel_scope.cancel()
        header = bytes((0x82, 0xFF)) + FLOOD_BYTES.to_bytes(8, "big") + bytes(4)
        await end.send_all(header)
        for _ in range(FLOOD_BYTES // 1024):
            await end.send_all(bytes(1024))
        await self._stay(end)

    async def _send_wrong_proof(self, end: WireEnd) -> None:
        """Take whoever listens for whom he says he is, and prove nothing."""
        nonce, proof = self._random.randbytes(handshake.NONCE_BYTES), self._random.randbytes(32)
        hello = handshake.Hello(VERSION, VERSION, "job", "fake", nonce, "fake", "", 1000)
        async with trio.open_nursery() as nursery:
            connection = await wrap_client_stream(nursery, cast(trio.SocketStream, end), "nowhere", "/")
            with suppress(ConnectionClosed):  # here: a nursery would make a group of it
                await connection.send_message(handshake.encode_hello(hello))
                await connection.get_message()
                await connection.send_message(handshake.encode_proof(proof))
                while True:
                    await connection.get_message()
            nursery.cancel_scope.cancel()
