"""A cluster in one process: run-time system, RIFs and job servers on trio's clock; any can be killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from functools import partial
from random import Random
from typing import Any

import trio
from msgspec.structs import replace

from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.provision.blocks import EnrolmentFile
from gspc_trio.components.provision.messages import Enrol
from gspc_trio.components.provision.strategy import RifOrder, Strategy, ends_in_s
from gspc_trio.components.rif.messages import RifProcessOrder
from gspc_trio.components.rif.shell.load import LOAD_INTERVAL_S
from gspc_trio.components.rif.shell.rif_process import BadOrder, ask_for_order, read_order
from gspc_trio.components.rif.shell.service import RifService, open_rif
from gspc_trio.components.rts.shell.saved import RESUME_GRACE_S
from gspc_trio.components.rts.shell.service import RtsService, open_rts_service
from gspc_trio.components.rts.state import Limits as RtsLimits
from gspc_trio.components.rts.state import RifState
from gspc_trio.components.worker.messages import Submission
from gspc_trio.core.ids import JobId, RifId
from gspc_trio.core.resources import Resource
from gspc_trio.nursery.scopes.observe import MachineObserver, Queue
from gspc_trio.protocol.limits import DEFAULT_LIMITS, Limits
from gspc_trio.records.facts import HostLoad
from gspc_trio.testing.jobs import SimulatedJob, Wrap
from gspc_trio.testing.layer.world import LayerWorld
from gspc_trio.testing.simulated.anomalies import Anomalies, SimulatedMonitor
from gspc_trio.testing.simulated.backend import (
    Behave,
    Behaviour,
    SimulatedBackend,
    SimulatedStaging,
    open_simulated_backend,
)
from gspc_trio.testing.simulated.batch import STRATEGY, BlockSystem, SimulatedBlocks
from gspc_trio.testing.simulated.disk import SimulatedDisk
from gspc_trio.testing.simulated.process import RUNNING, SimulatedProcess, first_of
from gspc_trio.testing.simulated.rts_memory import RtsMemory
from gspc_trio.testing.simulated.wires import BUFFER_BYTES, SimulatedNetwork, Wires
from gspc_trio.testing.workload import features_of
from gspc_trio.workflow.net import Net

RTS_ADDRESS = "ws://head:7000"
RIF_PORT = 7001
HOSTS_INTERVAL_S = 2.0
"""Seconds between two looks for hosts that were given up."""

HOSTS_INTERVAL_MAX_S = 30.0
"""And when one does not come up again and again."""

TOKEN = b"the token of a simulated cluster"

Step = Callable[[SimulatedProcess], None]


class NoObserver:
    """An observer that checks nothing."""

    def saw(self, machine: object, event: object, now: float, actions: Sequence[object]) -> None:
        """Nothing."""

    def holds(self, queue: Queue) -> None:
        """Nothing."""


class Cluster:
    """Hosts ``h1``, ``h2``, ... with a RIF each, a run-time system, job servers; see :func:`open_cluster`.

    Attributes:
        rts: the run-time system, once one is up.
        processes: those that live; ``deserted`` is set when there are none any more.
        backends, rifs: process of a RIF -> its compute, itself.
        on_killed, on_end: told when a process is killed, and when it has ended, however that came about.
        on_backend, on_staging_failed: told when a RIF has its compute, when the data of an attempt cannot be
            staged.
        running_jobs, disks: process of a job server -> its job, and its disk if it has a journal.
        twins: how many RIFs are yet to be started twice.
        absent: host -> until when it starts no RIF, and whether it seems to: one that says nothing.
        staging_s: how long each stage-in and stage-out takes, or None: see :class:`SimulatedStaging`.
        wires: all connections.
        memory: what run-time systems leave behind, or None.
        anomalies: those of hosts, about which run-time systems do something, or None.
        layers: memory layers, or None.
        batch: a batch system, or None.
        nursery: for all that lasts as long as the cluster.
        outside: context of what runs in the name of no process.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        random: Random,
        *,
        hosts: int,
        cores: int,
        behave: Behave,
        observer: MachineObserver,
        on_step: Step,
        latency_s: float,
        buffer_bytes: int,
        limits: Limits,
        anomalies: Anomalies | None,
        memory: RtsMemory | None,
        layers: LayerWorld | None,
        host_memory_bytes: int,
        featured: bool,
    ) -> None:
        self.memory = memory
        self.anomalies = anomalies
        self._host_memory_bytes = host_memory_bytes
        self._featured = featured
        self.layers = layers
        if layers is not None:
            layers.attach(self)
        self.hosts: tuple[str, ...] = tuple(f"h{number + 1}" for number in range(hosts))
        self.cores = cores
        self.rts: RtsService | None = None
        self.processes: dict[SimulatedProcess, None] = {}
        self.deserted: trio.Event = trio.Event()
        self.backends: dict[SimulatedProcess, SimulatedBackend] = {}
        self.rifs: dict[SimulatedProcess, RifService] = {}
        self.on_backend: Callable[[SimulatedProcess, SimulatedBackend], None] = _no_matter
        self.on_staging_failed: Callable[[SimulatedProcess, JobId, Submission], None] = _no_matter
        self.on_end: Callable[[SimulatedProcess], None] = _no_matter
        self.on_killed: Callable[[SimulatedProcess], None] = _no_matter
        self.running_jobs: dict[SimulatedProcess, Job] = {}
        self.disks: dict[SimulatedProcess, SimulatedDisk] = {}
        self.twins: int = 0
        self.absent: dict[str, tuple[float, bool]] = {}
        self.staging_s: float | None = None
        self._requeued: set[SimulatedProcess] = set()
        self.limits: RtsLimits = RtsLimits()
        self.batch: BlockSystem | None = None
        self.wires: Wires = Wires(Random(random.getrandbits(64)), latency_s, buffer_bytes)
        self.outside: Context = copy_context()
        self._limits = limits
        self.nursery = nursery
        self._random = random
        self._behave = behave
        self._observer = observer
        self._on_step = on_step
        self._numbers: dict[str, int] = {}
        self._epoch = 0

    # Processes ----

    def spawn(
        self, name: str, role: str, host: str, main: Callable[[SimulatedProcess], Awaitable[object]]
    ) -> SimulatedProcess:
        """Start a process and return it; its name gets a number."""
        number = self._numbers[name] = self._numbers.get(name, 0) + 1
        process = SimulatedProcess(f"{name}.{number}", role, host, self._observer, self._on_step)
        self.wires.dark.discard(host)
        process.on_kill.append(lambda: self.on_killed(process))
        self.outside.run(self.nursery.start_soon, self._run, process, main)
        return process

    async def _run(
        self, process: SimulatedProcess, main: Callable[[SimulatedProcess], Awaitable[object]]
    ) -> None:
        self.processes[process] = None
        if self.layers is not None:
            self.layers.enter(process)
        try:
            await process.run(lambda: main(process))
        finally:
            del self.processes[process]
            self.disks.pop(process, None)
            self.on_end(process)
            if not self.processes:
                self.deserted.set()
                self.deserted = trio.Event()

    def network(self, process: SimulatedProcess, token: bytes = TOKEN) -> SimulatedNetwork:
        """Return the network of a process."""
        random = Random(self._random.getrandbits(64))
        return SimulatedNetwork(process, self.wires, token, random, self._limits)

    # The run-time system ----

    async def start_rts(self) -> SimulatedProcess:
        """Start a run-time system and bootstrap all hosts; return when it is up, or over."""
        up = trio.Event()

        async def main(process: SimulatedProcess) -> None:
            self._epoch += 1
            network = self.network(process)
            strategies: dict[str, Strategy] = {"simulated": _Strategy(self)}
            if self.batch is not None:
                strategies[STRATEGY] = SimulatedBlocks(self.batch, process)
            keeper = self.memory.keeper(process, self._epoch) if self.memory is not None else None
            limits = self.limits
            prepare: Callable[[RtsService], None] = _no_matter
            if keeper is not None:
                network.instance = keeper.before.instance
                limits, prepare = replace(limits, grace_s=RESUME_GRACE_S), keeper.restore
            opening = open_rts_service(
                network,
                listen=(RTS_ADDRESS,),
                strategies=strategies,
                limits=limits,
                epoch=self._epoch,
                prepare=prepare,
            )
            async with trio.open_nursery() as nursery, opening as service:
                self.rts = service
                if self.anomalies is not None:
                    monitor = SimulatedMonitor(self.anomalies, service)
                    service.monitor = monitor
                    nursery.start_soon(monitor.look)
                if keeper is not None:
                    nursery.start_soon(keeper.follow, service)
                await self._bootstrap_absent(service)
                if self.batch is not None:
                    assert not await service.sites.add(self.batch.sites(self.cores))
                if keeper is not None:
                    keeper.restored()
                up.set()
                nursery.start_soon(self._keep_hosts, service)
                await service.stopped.wait()
                nursery.cancel_scope.cancel()

        process = self.spawn("rts", "rts", "head", main)
        await first_of(up, process.ended)
        return process

    async def _keep_hosts(self, service: RtsService) -> None:
        """Bootstrap hosts that were taken down, or did not come up at first, as their administrator would."""
        pause_s = HOSTS_INTERVAL_S
        while True:
            await trio.sleep(pause_s)
            was_absent = await self._bootstrap_absent(service)
            pause_s = min(2 * pause_s, HOSTS_INTERVAL_MAX_S) if was_absent else HOSTS_INTERVAL_S

    async def _bootstrap_absent(self, service: RtsService) -> bool:
        """Bootstrap the hosts that are not there; return whether there were any."""
        there = {rif.host for rif in service.machine.rifs if rif.state is not RifState.FAILED}
        absent = [host for host in self.hosts if host not in there]
        if absent:
            await service.bootstrap(absent, "simulated", self.cores, {})
        return bool(absent)

    def missing(self, rif_id: RifId) -> tuple[Resource, ...]:
        """Return what somebody has removed from a RIF."""
        rifs = self.rts.machine.rifs if self.rts is not None else ()
        there = {name for rif in rifs if rif.rif_id == rif_id for name in rif.resources}
        host = next((rif.host for rif in rifs if rif.rif_id == rif_id), "")
        return tuple(one for one in self._hardware(rif_id, host) if one.resource_id not in there)

    def _hardware(self, rif_id: RifId, host: str) -> tuple[Resource, ...]:
        """Return what a host has: a node with cores, and maybe memory and features."""
        memory_bytes = self._host_memory_bytes
        if self.layers is not None:
            memory_bytes = self.layers.host_memory_bytes
        features = features_of(host) if self._featured else ()
        node = Resource(f"{rif_id}.node", "node", memory_bytes=memory_bytes, features=features)
        cores = [Resource(f"{rif_id}.core{n}", "core", (node.resource_id,)) for n in range(self.cores)]
        return (node, *cores)

    async def run_rif(self, order: RifOrder) -> SimulatedProcess:
        """Start a RIF on a host, for the strategy; return its process when it is over."""
        until_s, is_mute = self.absent.get(order.host, (0.0, False))
        if trio.current_time() < until_s:
            if not is_mute:
                raise OSError(f"{order.host} cannot be reached")
            return await self._mute(order.host, until_s)
        if self.twins:
            self.twins -= 1
            self.spawn(order.host, "rif", order.host, lambda process: self._rif(process, order, RIF_PORT + 1))
        port = self._rif_port(order.host)
        process = self.spawn(order.host, "rif", order.host, lambda process: self._rif(process, order, port))
        rts, first = RUNNING.get(), process
        try:
            await process.noticed.wait()
            if process in self._requeued:
                again = partial(self._rif, order=order, port=self._rif_port(order.host))
                process = self.spawn(order.host, "rif", order.host, again)
                await process.noticed.wait()
        except trio.Cancelled:
            if self.memory is None or rts is None or rts.alive:  # else it waits for the next one
                first.kill()
                process.kill()
            raise
        return process

    async def _mute(self, host: str, until_s: float) -> SimulatedProcess:
        """Start what says nothing in place of a RIF; return its process when it is over."""
        process = self.spawn(host, "rif", host, lambda _: trio.sleep_until(until_s))
        try:
            await process.noticed.wait()
        except trio.Cancelled:
            process.kill()
            raise
        return process

    def _rif_port(self, host: str) -> int:
        """Return where the next RIF of a host is to listen: not where one does that nobody watches."""
        taken = {port for where, port in self.wires.listeners if where == host} if self._requeued else set()
        port = RIF_PORT
        while port in taken:
            port += 2  # one more is that of a twin
        return port

    def requeue(self, rif: SimulatedProcess) -> None:
        """Start a RIF again though it runs, as a batch system may; only the second is watched from now on."""
        self._requeued.add(rif)
        rif.noticed.set()

    async def _rif(self, process: SimulatedProcess, order: RifOrder, port: int) -> None:
        rts = order.rts_address("ws:")
        who = order.rif_id, order.incarnation, order.host
        known = RifProcessOrder(rts, b"", *who, order.cores, {}, grace_s=order.grace_s)
        await self._serve_rif(process, self.network(process), known, port)

    async def run_block_rif(
        self, process: SimulatedProcess, told: EnrolmentFile, place: Enrol, ordered: Callable[[str], None]
    ) -> None:
        """Enrol as a process of a block, say with what order, and be the RIF until it ends."""
        try:
            line = await ask_for_order(self.network(process, told.ticket), told, place)
        except BadOrder as error:
            process.reason = str(error)
            return
        ordered(line)
        order = read_order(line.encode())
        await self._serve_rif(process, self.network(process, order.token), order, 0)

    async def _serve_rif(
        self, process: SimulatedProcess, network: SimulatedNetwork, order: RifProcessOrder, port: int
    ) -> None:
        work = self.layers.work if self.layers is not None else None
        async with open_simulated_backend(self._behave, open_s=0.002, work=work) as backend:
            self.backends[process] = backend
            process.on_kill.append(backend.vanish)
            self.on_backend(process, backend)
            try:
                async with open_rif(
                    network,
                    rif_id=order.rif_id,
                    incarnation=order.incarnation,
                    host=order.host,
                    hardware=self._hardware(order.rif_id, order.host),
                    backend=backend,
                    listen=f"ws://{process.host}:{port}",
                    rts=order.rts,
                    load=_report_load,
                    staging=SimulatedStaging(partial(self.on_staging_failed, process), self.staging_s),
                    grace_s=order.grace_s,
                    ends_in_s=ends_in_s(order.options),
                    clock=trio.current_time,
                ) as rif:
                    self.rifs[process] = rif
                    process.reason = await rif.wait_ended()
            finally:
                del self.backends[process]
                self.rifs.pop(process, None)

    # Jobs ----

    def start_job(
        self,
        name: str,
        net: Net | Callable[[], Any],
        *,
        wrap: Wrap | None = None,
        disk: SimulatedDisk | None = None,
        **settings: Any,
    ) -> SimulatedJob:
        """Start a job server that runs a net.

        Args:
            name: of the job, and of its host.
            net: the workflow, or what makes an engine.
            wrap: given the process and its engine, returns what takes the engine's place.
            disk: where the job has a journal, and goes on with what is there; None for a job without one.
            settings: of the job.
        """
        job = SimulatedJob(self, name, net, RTS_ADDRESS, wrap, disk, settings)
        job.process = self.spawn(name, "job", name, job.run)
        if disk is not None:
            self.disks[job.process] = disk
        return job

    def start_outside(self, task: Callable[..., Awaitable[object]], *args: object) -> None:
        """Run a task in the name of no process."""
        self.outside.run(partial(self.nursery.start_soon, task, *args))

    def is_rts_up(self) -> bool:
        """Whether there is a run-time system that can be reached."""
        return any(host == "head" for host, _ in self.wires.listeners)


class _Strategy:
    """Starts RIFs as processes of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def run(self, order: RifOrder) -> str:
        process = await self._cluster.run_rif(order)
        problem = process.problem()
        if problem:
            raise OSError(problem)
        return "its process was ended by SIGKILL" if process.killed else process.reason


@asynccontextmanager
async def open_cluster(
    seed: int,
    *,
    hosts: int = 3,
    cores: int = 2,
    behave: Behave | None = None,
    observer: MachineObserver | None = None,
    on_step: Step | None = None,
    latency_s: float = 0.0005,
    buffer_bytes: int = BUFFER_BYTES,
    limits: Limits = DEFAULT_LIMITS,
    anomalies: Anomalies | None = None,
    memory: RtsMemory | None = None,
    layers: LayerWorld | None = None,
    host_memory_bytes: int = 0,
    featured: bool = False,
) -> AsyncIterator[Cluster]:
    """A cluster for as long as the block lasts; whatever runs at its end is killed.

    Args:
        seed: of all its randomness, trio's order of tasks aside.
        hosts: number of hosts with a RIF.
        cores: of each host.
        behave: says what tasks do; see :mod:`gspc_trio.testing.simulated.backend`.
        observer: sees all events of all machines.
        on_step: told of every step of a process, which it may kill.
        latency_s: mean latency of connections, seconds.
        buffer_bytes: what each direction of a connection holds.
        limits: of every connection.
        anomalies: those that hosts may have, and run-time systems do something about; None: nobody looks.
        memory: what run-time systems leave for the next one, as with ``--state``; None: nothing.
        layers: memory layers that jobs may keep large values in; None: there are none.
        host_memory_bytes: memory that each host says it has; with memory layers these say it.
        featured: whether hosts have features: see ``workload.features_of``.
    """
    async with trio.open_nursery() as nursery:
        cluster = Cluster(
            nursery,
            Random(seed),
            hosts=hosts,
            cores=cores,
            behave=behave or _nothing,
            observer=observer or NoObserver(),
            on_step=on_step or _go_on,
            latency_s=latency_s,
            buffer_bytes=buffer_bytes,
            limits=limits,
            anomalies=anomalies,
            memory=memory,
            layers=layers,
            host_memory_bytes=host_memory_bytes,
            featured=featured,
        )
        try:
            yield cluster
        finally:
            for process in list(cluster.processes):
                process.kill()


async def _report_load(rif_id: RifId, host: str, post: Callable[[HostLoad], None]) -> None:
    """A load that is always the same."""
    while True:
        await trio.sleep(LOAD_INTERVAL_S)
        post(HostLoad(trio.current_time(), rif_id, host, 0.5, 2, 0.5, 1 << 30, 1 << 32))


def _nothing(_submission: Submission, _code: bytes) -> Behaviour:
    return Behaviour()


def _no_matter(*_what: object) -> None:
    """Nobody wants to know."""


def _go_on(_process: SimulatedProcess) -> None:
    """No fault."""
