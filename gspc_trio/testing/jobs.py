"""Job servers of a simulated cluster: with a journal, or without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gspc_trio.components.job.engine_wrapper import Engine
from gspc_trio.components.job.result import JobResult
from gspc_trio.components.job.shell.data import JobData
from gspc_trio.components.job.shell.handle import Job
from gspc_trio.components.job.shell.journal import Journal
from gspc_trio.components.job.shell.outliving import outlive_rts
from gspc_trio.components.job.shell.server import run_job
from gspc_trio.components.job.shell.settings import JobSettings
from gspc_trio.components.rts.shell.client import RunTimeSystem
from gspc_trio.compute.code import encode_entry
from gspc_trio.protocol.values import dumps, join, loads
from gspc_trio.testing.simulated.disk import SimulatedDisk
from gspc_trio.testing.simulated.process import SimulatedProcess
from gspc_trio.testing.simulated.wires import SimulatedNetwork
from gspc_trio.workflow.engine import WorkflowEngine
from gspc_trio.workflow.net import Net

Wrap = Callable[[SimulatedProcess, Engine], Any]
"""Returns what takes the place of an engine."""


class JobHost(Protocol):
    """What a job needs of the cluster on which it runs."""

    running_jobs: dict[SimulatedProcess, Job]

    def network(self, process: SimulatedProcess) -> SimulatedNetwork:
        """Return the network of a process."""
        ...

    def is_rts_up(self) -> bool:
        """Whether a run-time system listens."""
        ...


class SimulatedJob:
    """A job server and how its job ended.

    Args:
        cluster: on which it runs.
        name: of the job, and of its host.
        net: its workflow, or what makes an engine.
        rts: address of the run-time system.
        wrap: see :data:`Wrap`; or None.
        disk: where it has a journal; or None.
        settings: of the job.

    Attributes:
        process: the job server.
        result: None if it was killed or could not begin.
        parted: whether the job had lost its memory layer when it ended.
        forgotten: why some of its data could not be made again.
    """

    process: SimulatedProcess

    def __init__(
        self,
        cluster: JobHost,
        name: str,
        net: Net | Callable[[], Any],
        rts: str,
        wrap: Wrap | None,
        disk: SimulatedDisk | None,
        settings: dict[str, Any],
    ) -> None:
        self.result: JobResult | None = None
        self.parted: bool = False
        self.forgotten: tuple[str, ...] = ()
        self.disk = disk
        self._cluster = cluster
        self._net = net
        self._rts = rts
        self._wrap = wrap
        self._settings = JobSettings(name=name, listen=f"ws://{name}:0", **settings)

    async def run(self, process: SimulatedProcess) -> None:
        """Be the job server."""
        network = self._cluster.network(process)
        journal = self.disk.open_journal(process) if self.disk is not None else None

        async def attempt() -> JobResult:
            return await self._attempt(process, network, journal)

        async def is_back() -> bool:
            return self._cluster.is_rts_up()

        await outlive_rts(attempt, journal, is_back)

    async def _attempt(
        self, process: SimulatedProcess, network: SimulatedNetwork, journal: Journal | None
    ) -> JobResult:
        name, self.result = self._settings.name, None
        async with network.connect(self._rts, role="control", name=name, expect="rts") as peer:
            rts = RunTimeSystem(network, self._rts, peer)
            if journal is None:
                given: Any = self._engine()
                engine = given
            else:
                assert isinstance(self._net, Net), "only a net has a journal"
                given = await journal.recover(self._net, {})
                engine = given.engine
            codes = [encode_entry(entry) for entry in engine.code_table]
            code = codes.__getitem__
            if self._wrap is not None:
                given = self._wrap(process, given)
            async with run_job(given, code, engine.outputs, rts, self._settings, journal=journal) as running:
                return await self._see_through(process, running)

    def _engine(self) -> Any:
        net = self._net
        return WorkflowEngine(net, {}, dumps=dumps, loads=loads, join=join) if isinstance(net, Net) else net()

    async def _see_through(self, process: SimulatedProcess, running: Job) -> JobResult:
        self._cluster.running_jobs[process] = running
        try:
            result = await running.wait_ended()
        finally:
            del self._cluster.running_jobs[process]
        if process.alive:
            self.result = result
            data = getattr(running.ask_memory, "__self__", None)
            if isinstance(data, JobData):
                self.parted = data.iml.is_over
                self.forgotten = tuple(data.recovery.forgotten.values())
        return result
