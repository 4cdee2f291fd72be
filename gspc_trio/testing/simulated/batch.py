"""A simulated batch system: a queue, nodes that run RIFs, and commands that may go wrong."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from random import Random
from typing import Protocol, TypeVar

import trio
from attrs import define, field

from gspc_trio.components.provision.batch import (
    BadRequest,
    BatchJob,
    BatchRequest,
    BatchState,
    Command,
    CommandResult,
    Provider,
    QueryFailed,
)
from gspc_trio.components.provision.blocks import EnrolmentFile
from gspc_trio.components.provision.messages import Enrol
from gspc_trio.components.provision.shell.batch import BatchStrategy
from gspc_trio.components.provision.shell.batch_host import BatchHost, Folder
from gspc_trio.components.provision.shell.commands import COMMAND_TIMEOUT_S
from gspc_trio.components.provision.site_settings import SitesFile, site_settings
from gspc_trio.protocol.plain import from_json
from gspc_trio.testing.checkers.blocks import BatchJobs
from gspc_trio.testing.faults import Fault
from gspc_trio.testing.simulated.process import SimulatedProcess, first_of

T = TypeVar("T")

STRATEGY = "simulated batch"
"""Name of the strategy that starts blocks."""

NODES, NODES_MAX, SLOTS = 3, 2, 3
"""Nodes of the batch system; a block has one of them, or two; and how many blocks there are at a time."""

WAIT_S = (0.0, 0.5, 2.0, 5.0, 20.0)
"""How long a job waits in the queue, at least."""

COMMAND_S = 0.05
"""How long a command takes, about."""

FAILURE_S = (0.0, 10.0, 2 * COMMAND_TIMEOUT_S)
"""After how long a command fails; the last is killed before."""

LATE_S = (0.0, 0.01, 3.0, 30.0)
"""How much later the second process of a node enrols."""

REFUSED, FAILED = 2, 1
"""Exit status of a command that was refused, and of one that says nothing."""


class SimulatedProvider(Provider):
    """Knows the commands of the simulated batch system."""

    name = "simulated"
    is_here = True

    def submit(self, request: BatchRequest) -> Command:
        """See Provider."""
        return ("submit", request.name, str(request.nodes), str(request.time_s), request.folder)

    def submitted(self, result: CommandResult) -> str | None:
        """See Provider."""
        if result.status == REFUSED:
            raise BadRequest(result.words)
        return result.output if result.status == 0 else None

    def launch(self, request: BatchRequest, command: str) -> str:
        """See Provider."""
        del request
        return command

    def query(self, job_id: str = "") -> Command:
        """See Provider."""
        return ("query", job_id)

    def told(self, result: CommandResult) -> tuple[BatchJob, ...]:
        """See Provider."""
        if result.status:
            raise QueryFailed(result.words)
        lines = (line.split("|") for line in result.output.splitlines())
        return tuple(
            BatchJob(job_id, name, BatchState(state), reason, reason == "Hopeless")
            for job_id, name, state, reason in lines
        )

    def cancel(self, job_id: str, name: str) -> Command:
        """See Provider."""
        return ("cancel", job_id, name)


@define(eq=False)
class QueuedJob:
    """A job of the batch system.

    Attributes:
        job_id, name, nodes, time_s, folder: as it was submitted.
        state, reason: what is told of it.
        restarts: how often it was started before.
        processes: those that run for it.
        stop: set when it is to end; ``why``: the reason.
        changed: set when it is to be looked at again.
        blocked: it does not begin, and why, "" if it may.
        is_again: it is to be started again, while its processes run on.
    """

    job_id: str
    name: str
    nodes: int
    time_s: int
    folder: str
    state: BatchState = BatchState.QUEUED
    reason: str = "Priority"
    restarts: int = 0
    processes: list[SimulatedProcess] = field(factory=list)
    stop: trio.Event = field(factory=trio.Event)
    changed: trio.Event = field(factory=trio.Event)
    why: str = ""
    blocked: str = ""
    is_again: bool = False

    @property
    def line(self) -> str:
        """What a query tells of it."""
        return f"{self.job_id}|{self.name}|{self.state}|{self.reason}"

    def end(self, why: str) -> None:
        """End it, wherever it is."""
        self.why = self.why or why
        self.stop.set()
        self.changed.set()


class JobChecks(Protocol):
    """Checks what is at the batch system."""

    def submitted(self, owner: SimulatedProcess, job_id: str, name: str) -> None:
        """A job is in the queue."""
        ...

    def excuse(self, job_id: str) -> None:
        """Who has submitted it was not told of it, or has tried to cancel it."""
        ...

    def ended(self, job_id: str) -> None:
        """It is over with a job."""
        ...


class BatchSystem(ABC):
    """A batch system; it outlives those who submit to it. What its jobs run is said by a subclass.

    Args:
        random: to draw from.
        nodes: how many it has.
        start: starts a task in the name of no process.
        checks: told of each job.
        on_step: told of each command.

    Attributes:
        jobs: by their ids, those that are over, too.
    """

    def __init__(
        self,
        random: Random,
        nodes: int,
        start: Callable[..., object],
        checks: JobChecks,
        on_step: Callable[[], None],
    ) -> None:
        self.jobs: dict[str, QueuedJob] = {}
        self.random = random
        self.on_step = on_step
        self._checks = checks
        self._start = start
        self._free = [f"n{number + 1}" for number in range(nodes)]
        self._changed = trio.Event()
        self._unclear_until_s = self._refused_until_s = self._stale_until_s = 0.0
        self._stale = ""
        self._doubled = False

    @abstractmethod
    def launch(self, job: QueuedJob, node: int, host: str, *, is_late: bool = False) -> SimulatedProcess:
        """Start the process of a job on one of its nodes; ``is_late``: it was started before."""

    def there(self) -> list[QueuedJob]:
        """Return the jobs that are not over."""
        return [job for job in self.jobs.values() if job.state is not BatchState.ENDED]

    def change(self) -> None:
        """Let those that wait look again."""
        self._changed.set()
        self._changed = trio.Event()

    async def changed(self) -> None:
        """Return when something has changed."""
        await self._changed.wait()

    # Commands ----

    async def command(self, process: SimulatedProcess, command: Command) -> CommandResult | None:
        """Carry out a command of a process, or fail to."""
        if not process.alive:
            raise ProcessLookupError("who wants this is over")
        if command[0] == "cancel":
            for job in self._named(*command[1:]):
                self._checks.excuse(job.job_id)
        self.on_step()
        await trio.sleep(self.random.uniform(0.0, 2 * COMMAND_S))
        if trio.current_time() < self._unclear_until_s:
            return await self._fail_to(process, command)
        result = self._carry_out(process, command)
        await trio.sleep(self.random.uniform(0.0, 2 * COMMAND_S))
        return result

    async def _fail_to(self, process: SimulatedProcess, command: Command) -> CommandResult:
        """Say nothing useful, at once, after a while or never, whether or not it was done."""
        if self.random.random() < 0.5 and (command[0] != "submit" or not self._is_refusing()):
            result = self._carry_out(process, command)
            if command[0] == "submit" and result.status == 0:
                self._checks.excuse(result.output)
        await trio.sleep(self.random.choice(FAILURE_S))
        return CommandResult(FAILED, "", "the batch system does not answer")

    def _is_refusing(self) -> bool:
        return trio.current_time() < self._refused_until_s

    def _carry_out(self, process: SimulatedProcess, command: Command) -> CommandResult:
        if not process.alive:
            return CommandResult(FAILED, "", "")
        if command[0] == "submit" and self._is_refusing():
            return CommandResult(REFUSED, "", "more jobs than a user may have")
        if command[0] == "submit":
            _, name, nodes, time_s, folder = command
            job = self._submit(process, name, int(nodes), int(time_s), folder)
            return CommandResult(0, job.job_id, "")
        if command[0] == "query":
            return self._query(command[1])
        self._cancel(*command[1:])
        return CommandResult(0, "", "")

    def _submit(
        self, process: SimulatedProcess, name: str, nodes: int, time_s: int, folder: str
    ) -> QueuedJob:
        job = QueuedJob(str(len(self.jobs) + 1), name, nodes, time_s, folder)
        self.jobs[job.job_id] = job
        self._checks.submitted(process, job.job_id, name)
        self._start(self._live, job)
        return job

    def _query(self, job_id: str) -> CommandResult:
        if not job_id:
            is_stale = trio.current_time() < self._stale_until_s
            return CommandResult(0, self._stale if is_stale else self._list(), "")
        job = self.jobs.get(job_id)
        return CommandResult(0, job.line if job is not None else "", "")

    def _list(self) -> str:
        return "\n".join(job.line for job in self.there())

    def _cancel(self, job_id: str, name: str) -> None:
        for job in self._named(job_id, name):
            job.end("cancelled")

    def _named(self, job_id: str, name: str) -> list[QueuedJob]:
        return [job for job in self.there() if job_id == job.job_id or name == job.name]

    # Jobs ----

    async def _live(self, job: QueuedJob) -> None:
        with trio.move_on_after(self.random.choice(WAIT_S)):
            await job.stop.wait()
        while not job.stop.is_set():
            if job.blocked or len(self._free) < job.nodes:
                await self._wait(job)
                continue
            await self._run(job)
            if not job.is_again:
                break
            job.is_again, job.restarts = False, job.restarts + 1
        job.state, job.reason = BatchState.ENDED, job.why or "COMPLETED"
        self._checks.ended(job.job_id)
        self.change()

    async def _wait(self, job: QueuedJob) -> None:
        """Wait until something changes, or the job is to end."""
        await first_of(job.stop, self._changed)

    async def _run(self, job: QueuedJob) -> None:
        hosts = [self._free.pop(0) for _ in range(job.nodes)]
        job.state, job.reason, job.changed = BatchState.RUNNING, "", trio.Event()
        if job.stop.is_set():
            job.changed.set()
        job.processes = [self.launch(job, node, host) for node, host in enumerate(hosts)]
        if self._doubled:
            self._doubled = False
            job.processes += [self.launch(job, node, host, is_late=True) for node, host in enumerate(hosts)]
        with trio.move_on_after(job.time_s):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._until_changed, job, nursery.cancel_scope)
                for process in job.processes:
                    await process.ended.wait()
                nursery.cancel_scope.cancel()
        if job.is_again:
            job.state, job.reason = BatchState.QUEUED, "BeginTime"
        else:
            for process in job.processes:
                process.kill()
        self._free += hosts

    async def _until_changed(self, job: QueuedJob, scope: trio.CancelScope) -> None:
        await job.changed.wait()
        scope.cancel()

    # Faults ----

    def happen(self, fault: Fault) -> None:
        """Let a fault happen, now or to the next command or job that it concerns."""
        until_s = trio.current_time() + fault.lasts_s
        queued = [job for job in self.there() if job.state is BatchState.QUEUED]
        running = [job for job in self.there() if job.state is BatchState.RUNNING]
        if fault.kind == "unclear":
            self._unclear_until_s = until_s
        elif fault.kind == "refusal":
            self._refused_until_s = until_s
        elif fault.kind == "stale":
            self._stale_until_s, self._stale = until_s, self._list()
        elif fault.kind == "doubled":
            self._doubled = True
        elif fault.kind in ("hold", "hopeless"):
            for job in queued[:1]:
                self._start(self._block, job, fault)
        elif running:
            job = self.random.choice(running)
            if fault.kind == "again":
                job.is_again = True
                job.changed.set()
            elif fault.kind == "expiry":
                job.end("TIMEOUT")
            else:
                self.random.choice(job.processes).kill(silently=True)

    async def _block(self, job: QueuedJob, fault: Fault) -> None:
        """Keep a job from beginning for a while."""
        if job.state is BatchState.QUEUED:
            is_held = fault.kind == "hold"
            job.blocked = "JobHeldUser" if is_held else "Hopeless"
            job.state, job.reason = BatchState.HELD if is_held else BatchState.QUEUED, job.blocked
            with trio.move_on_after(fault.lasts_s):
                await job.stop.wait()
            if not job.stop.is_set():
                job.blocked, job.state, job.reason = "", BatchState.QUEUED, "Priority"
            self.change()


RunRif = Callable[[SimulatedProcess, EnrolmentFile, Enrol, Callable[[str], None]], Awaitable[object]]
"""Enrols as a process of a block, says with what order, and is the RIF until it ends."""

Spawn = Callable[
    [str, str, str, Callable[[SimulatedProcess], Awaitable[object]]],
    SimulatedProcess,
]


class BlockSystem(BatchSystem):
    """A batch system whose jobs are blocks; it outlives run-time systems.

    Args:
        random: to draw from.
        start: starts a task in the name of no process.
        spawn: starts a process: name, role, host, what it does.
        run_rif: see :data:`RunRif`.
        fail: told of what does not hold.
        on_step: told of each command.

    Attributes:
        folders: directories that hosts and nodes see: path -> name -> content.
    """

    def __init__(
        self,
        random: Random,
        start: Callable[..., object],
        spawn: Spawn,
        run_rif: RunRif,
        fail: Callable[[BaseException], None],
        on_step: Callable[[], None],
    ) -> None:
        self.checks: BatchJobs = BatchJobs(SLOTS, fail)
        super().__init__(random, NODES, start, self.checks, on_step)
        self.folders: dict[str, dict[str, bytes]] = {}
        self._spawn = spawn
        self._run_rif = run_rif

    def sites(self, cores: int) -> SitesFile:
        """Return the site of this batch system, whose nodes have so many cores."""
        known = {"max_time": "1h", "max_nodes": NODES_MAX, "cores_per_node": cores, "slots": SLOTS}
        return SitesFile({"hpc": site_settings("hpc", {"provider": STRATEGY, **known})})

    def launch(self, job: QueuedJob, node: int, host: str, *, is_late: bool = False) -> SimulatedProcess:
        """See BatchSystem."""
        place = Enrol(node, job.job_id, job.restarts)

        async def main(process: SimulatedProcess) -> None:
            if is_late:
                await trio.sleep(self.random.choice(LATE_S))
            content = self.folders.get(job.folder, {}).get("enrol")
            if content is None:
                return  # the block is not wanted any more
            told = from_json(content, EnrolmentFile)

            def ordered(order: str) -> None:
                self.checks.ordered(told.ticket, order)

            await self._run_rif(process, told, place, ordered)

        return self._spawn(host, "rif", host, main)


class SimulatedFolder:
    """A directory that hosts and nodes see.

    Args:
        system: whose nodes see it.
        process: who keeps it.
        path: its name.
    """

    def __init__(self, system: BlockSystem, process: SimulatedProcess, path: str) -> None:
        self.path = path
        self._system = system
        self._process = process

    def write(self, name: str, content: bytes) -> str:
        """See Folder."""
        if self._process.alive and self.path in self._system.folders:
            self._system.folders[self.path][name] = content
        return f"{self.path}/{name}"

    def last_lines(self, name: str) -> list[str]:
        """See Folder."""
        del name
        return []

    def remove(self) -> None:
        """See Folder."""
        if self._process.alive:
            self._system.folders.pop(self.path, None)


class SimulatedBlocks(BatchStrategy):
    """Starts blocks at a simulated batch system."""

    come_up_s: float = math.inf

    def __init__(self, system: BlockSystem, process: SimulatedProcess) -> None:
        super().__init__(SimulatedProvider(), host=SimulatedBatchHost(system, process))


class SimulatedBatchHost(BatchHost):
    """The host of a run-time system, with the commands of the simulated batch system."""

    def __init__(self, system: BlockSystem, process: SimulatedProcess) -> None:
        self._system = system
        self._process = process

    async def command(self, command: Command, stdin: str = "") -> CommandResult | None:
        """See BatchHost."""
        del stdin
        with trio.move_on_after(COMMAND_TIMEOUT_S):
            return await self._system.command(self._process, command)
        return None

    async def in_thread(self, function: Callable[..., T], *args: object) -> T:
        """See BatchHost."""
        await trio.lowlevel.checkpoint()
        return function(*args)

    def make_folder(self, shared: str, keep: bool) -> Folder:
        """See BatchHost."""
        del shared, keep
        path = f"/shared/{self.random_bytes(4).hex()}"
        self._system.folders[path] = {}
        return SimulatedFolder(self._system, self._process, path)

    def open_folder(self, path: str) -> Folder:
        """See BatchHost."""
        if path not in self._system.folders:
            raise FileNotFoundError(path)
        return SimulatedFolder(self._system, self._process, path)

    def random_bytes(self, count: int) -> bytes:
        """See BatchHost."""
        return self._system.random.randbytes(count)
