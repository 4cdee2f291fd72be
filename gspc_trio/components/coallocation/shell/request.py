"""A co-allocation request that runs: ``async with open_coallocation(text, jobs=..., rts=[...])``.

The parts of a job get their resources by one grant. A process is made ready on each of them; when all are
ready, the programs start (COA-2). What a job waits for, the machine of the order knows (``flow``).
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

import trio
from attrs import frozen

from gspc_trio.components.coallocation.flow import (
    BeginFlow,
    CancelFlow,
    CoJobEnded,
    CoJobState,
    EndCoJobs,
    FlowEnded,
    FlowEvent,
    NotRun,
    RequestFlow,
    StartCoJobs,
)
from gspc_trio.components.coallocation.jobs import (
    CoJob,
    CoPart,
    LadderStep,
    NamedJobs,
    jobs_with_options,
    steps,
)
from gspc_trio.components.coallocation.language import order_of, parse_coallocation
from gspc_trio.components.coallocation.tree import Request, RslError
from gspc_trio.components.rts.shell.acquire import AcquireRefused, HeldGrant, Resources, open_resources
from gspc_trio.components.rts.shell.client import RunTimeSystem, join_rts
from gspc_trio.components.rts.shell.direct import CallFailed, DirectWorker, open_worker
from gspc_trio.core.code import Program
from gspc_trio.core.held import RESOURCES_VARIABLE
from gspc_trio.core.ids import ResourceId
from gspc_trio.core.task import Requirement
from gspc_trio.nursery.connections.errors import ConnectionProblem
from gspc_trio.nursery.connections.rpc import PeerGone, RemoteError
from gspc_trio.nursery.scopes.loop import require_trio
from gspc_trio.nursery.scopes.scope import open_scope

RETRY_S = 1.0
RETRY_MAX_S = 60.0
"""Resources that could not be had are asked for again after so long; each time twice as long."""

REFUSED_S = 0.02
"""A worker that still stops what it ran before is asked again after so long, until the barrier times out."""

PART_VARIABLE, RANK_VARIABLE = "GSPC_PART", "GSPC_RANK"
"""Environment variables of programs: of the part in its job, and of the program in its part; from 0."""


class NoCoallocation(Exception):
    """The resources of a job could not be had together; the message says why."""


class _ProgramFailed(Exception):
    """A program of a job has failed, or was lost.

    Args:
        reason: what happened.
        output: what it has printed.
    """

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.output = output


@frozen
class CoJobEnd:
    """How a job of a request has ended.

    Attributes:
        number: of the job.
        name: for people.
        state: finished, failed, not run or cancelled.
        reason: why it failed, or why it was not run; "" if it has finished.
        output: what its programs have printed, part after part, the last 64 KiB of each.
    """

    number: int
    name: str
    state: CoJobState
    reason: str = ""
    output: str = ""


class RunningCoallocation:
    """A request that runs; :func:`open_coallocation` opens it.

    Args:
        jobs: its jobs.
        flow: their order.
        resources: by which resources are acquired.
        rts: whose they are.
        nursery: in which jobs run.
        on_change: called with a job, its state and, when it has ended, how.

    Attributes:
        jobs: its jobs, in the order of the text.
    """

    def __init__(
        self,
        jobs: Sequence[CoJob],
        flow: RequestFlow,
        resources: Resources,
        rts: RunTimeSystem,
        nursery: trio.Nursery,
        on_change: Callable[[CoJob, CoJobEnd], object] | None,
    ) -> None:
        self.jobs: Sequence[CoJob] = jobs
        self._flow = flow
        self._resources = resources
        self._rts = rts
        self._nursery = nursery
        self._on_change = on_change
        self._scopes: dict[int, trio.CancelScope] = {}
        self._ends: dict[int, CoJobEnd] = {}
        self._over = trio.Event()
        self._hosts: dict[ResourceId, str] = {}

    def states(self) -> tuple[CoJobState, ...]:
        """Return the state of each job, in the order of the text."""
        return tuple(self._flow.states)

    async def wait(self) -> tuple[CoJobEnd, ...]:
        """Wait until nothing runs any more, and nothing will; return how each job has ended.

        Raises:
            PeerGone: the run-time system is gone.
        """
        await self._over.wait()
        return tuple(
            self._ends.get(job.number) or CoJobEnd(job.number, job.name, self._flow.states[job.number - 1])
            for job in self.jobs
        )

    async def cancel(self) -> tuple[CoJobEnd, ...]:
        """Start nothing more and stop what runs; return when nothing runs any more."""
        self._handle(CancelFlow())
        return await self.wait()

    def begin(self) -> None:
        """Start the jobs that wait for none."""
        self._handle(BeginFlow())

    def _handle(self, event: FlowEvent) -> None:
        for action in self._flow.handle(event, trio.current_time()):
            if isinstance(action, StartCoJobs):
                for number in action.numbers:
                    self._scopes[number] = trio.CancelScope()
                    self._nursery.start_soon(self._run, self.jobs[number - 1])
            elif isinstance(action, EndCoJobs):
                for number in action.numbers:
                    self._scopes[number].cancel()
            elif isinstance(action, NotRun):
                cause = self.jobs[action.cause - 1]
                reason = f"it waits for job {cause.number} ({cause.name}), which has failed"
                self._end(action.number, CoJobState.NOT_RUN, reason)
            elif isinstance(action, FlowEnded):
                self._over.set()

    def _end(self, number: int, state: CoJobState, reason: str = "", output: str = "") -> None:
        job = self.jobs[number - 1]
        self._ends[number] = end = CoJobEnd(number, job.name, state, reason, output)
        if self._on_change is not None:
            self._on_change(job, end)

    async def _run(self, job: CoJob) -> None:
        """Run a job that need not wait any more, and tell how it has ended."""
        reason, output = "cancelled", ""
        with self._scopes[job.number]:
            reason, output = await self._attempts(job)
        is_cancelled = self._scopes.pop(job.number).cancelled_caught
        state = CoJobState.FAILED if reason else CoJobState.FINISHED
        self._end(job.number, CoJobState.CANCELLED if is_cancelled else state, reason, output)
        self._handle(CoJobEnded(job.number, reason))

    async def _attempts(self, job: CoJob) -> tuple[str, str]:
        """Run a job until it has finished, or may not be run again; return why not, and what it printed."""
        for attempt in range(1, job.attempts + 1):
            outputs: list[str] = []
            try:
                await self._tries(job, outputs)
            except NoCoallocation as error:
                return str(error), "".join(outputs)
            except _ProgramFailed as error:
                if attempt == job.attempts:
                    return str(error), "".join(outputs)
            else:
                return "", "".join(outputs)
        raise AssertionError("a job has an attempt at least")

    async def _tries(self, job: CoJob, outputs: list[str]) -> None:
        """Get the resources of a job, best first, and run it on them.

        Raises:
            NoCoallocation: they could not be had.
            _ProgramFailed: they could, and a program failed.
        """
        delay_s, tries = RETRY_S, 0
        while True:
            for step in steps(job):
                try:
                    await self._try(job, step, outputs)
                    return
                except NoCoallocation as error:
                    reason = error
            tries += 1
            if tries > job.on_error:
                raise reason
            await trio.sleep(delay_s)
            delay_s = min(2 * delay_s, RETRY_MAX_S)

    async def _try(self, job: CoJob, step: Sequence[LadderStep], outputs: list[str]) -> None:
        needs, memories = await self._needs(job, step)
        try:
            held = await self._resources.acquire(*needs, memories=memories)
        except AcquireRefused as refused:
            raise NoCoallocation(str(refused)) from None
        try:
            await self._run_on(job, step, held, outputs)
        finally:
            if not held.lapsed.is_set():
                self._resources.release(held)

    async def _needs(self, job: CoJob, step: Sequence[LadderStep]) -> tuple[list[Requirement], list[int]]:
        """Return the resources of all parts, one after the other, and the memory.

        Raises:
            NoCoallocation: there is no such host.
        """
        needs: list[Requirement] = []
        for part, one in zip(job.parts, step, strict=True):
            preferred: tuple[ResourceId, ...] = ()
            if part.contact:
                hosts = await self._rts.host_to_resource()
                if part.contact not in hosts:
                    there = ", ".join(sorted(hosts)) or "none"
                    raise NoCoallocation(f"there is no host {part.contact!r}; there are {there:.200}")
                preferred = tuple(sorted(hosts[part.contact]))
            need = Requirement(one.resource_class, preferred, bool(preferred), features=one.features)
            needs.extend([need] * one.count)
        return needs, [one.memory_bytes for one in step if one.memory_bytes]

    async def _run_on(
        self, job: CoJob, step: Sequence[LadderStep], held: HeldGrant, outputs: list[str]
    ) -> None:
        """Make a process ready on each resource; when all are, start the programs, and wait for them."""
        barrier = _Barrier(len(held.resources))
        told = await self._told(held.resources)
        printed = [""] * len(held.resources)
        failures: list[Exception] = []
        timed_out = False
        async with open_scope() as nursery:

            async def run_one(number: int, part: CoPart, environment: Mapping[str, str]) -> None:
                try:
                    printed[number] = await self._run_program(held, number, part, environment, barrier)
                except _ProgramFailed as error:
                    failures.append(error)
                    printed[number] = error.output
                    nursery.cancel_scope.cancel()
                except NoCoallocation as error:
                    failures.append(error)
                    nursery.cancel_scope.cancel()

            number = 0
            for index, (part, one) in enumerate(zip(job.parts, step, strict=True)):
                for rank in range(one.count):
                    more = {RESOURCES_VARIABLE: told, PART_VARIABLE: str(index), RANK_VARIABLE: str(rank)}
                    nursery.start_soon(run_one, number, part, {**more, **part.environment})
                    number += 1
            with trio.move_on_after(job.barrier_timeout_s) as limit:
                await barrier.opened.wait()
            if limit.cancelled_caught and not barrier.opened.is_set():
                timed_out = True
                nursery.cancel_scope.cancel()
        outputs[:] = printed
        if timed_out:
            raise NoCoallocation(
                f"{barrier.ready} of {barrier.parties} processes were ready within "
                f"{job.barrier_timeout_s:g} s: all was given back"
            )
        if failures:
            raise failures[0]

    async def _told(self, resources: Sequence[ResourceId]) -> str:
        """Return resources with their hosts, as programs are told of them."""
        if not set(resources) <= set(self._hosts):
            hosts = await self._rts.host_to_resource()
            self._hosts = {name: host for host, names in hosts.items() for name in names}
        return ",".join(f"{name}@{self._hosts.get(name, '')}" for name in resources)

    async def _run_program(
        self, held: HeldGrant, number: int, part: CoPart, environment: Mapping[str, str], barrier: _Barrier
    ) -> str:
        """Report to the barrier, then run a program; return what it has printed.

        Raises:
            NoCoallocation: the process could not be made ready.
            _ProgramFailed: the program failed.
        """
        directory = part.directory or os.getcwd()
        program = Program(part.program, dict(environment), directory)
        name = part.program[0]
        try:
            async with open_worker(self._rts, self._resources, held, held.resources[number]) as worker:
                await _made_ready(worker)
                await barrier.report()
                return await _run_in_time(worker, program, part.max_time_s)
        except CallFailed as error:
            if not barrier.opened.is_set():
                raise NoCoallocation(f"a process was not ready: {error}") from None
            printed = error.outcome.stdout.decode(errors="replace")
            raise _ProgramFailed(f"{name}: {error}", printed) from None
        except (RemoteError, PeerGone, ConnectionProblem, ValueError) as error:
            if not barrier.opened.is_set():
                raise NoCoallocation(f"a process was not ready: {error}") from None
            raise _ProgramFailed(f"{name} was lost: {error}") from None


async def _made_ready(worker: DirectWorker) -> None:
    """Make a process ready; what was stopped there a moment ago may take a little to end."""
    while True:
        try:
            await worker.run(os.getpid)
        except CallFailed as error:
            if error.kind != "refused":
                raise
            await trio.sleep(REFUSED_S)
        else:
            return


async def _run_in_time(worker: DirectWorker, program: Program, max_time_s: float | None) -> str:
    """Run a program, at most for so long; return what it has printed."""
    with trio.move_on_after(math.inf if max_time_s is None else max_time_s):
        told = await worker.run(program)
        return str(told["stdout"])
    raise _ProgramFailed(f"{program.arguments[0]} ran longer than max_time, {max_time_s:g} s")


class _Barrier:
    """Opens when all have reported.

    Attributes:
        parties: how many there are.
        ready: how many have reported.
        opened: set when all have.
    """

    def __init__(self, parties: int) -> None:
        self.parties = parties
        self.ready = 0
        self.opened = trio.Event()

    async def report(self) -> None:
        """Wait for the others."""
        self.ready += 1
        if self.ready == self.parties:
            self.opened.set()
        await self.opened.wait()


def read_jobs(path: Path | str) -> NamedJobs:
    """Return the jobs that a file in TOML describes: a table of options each, or a text.

    Raises:
        RslError: it cannot be read.
    """
    try:
        jobs: NamedJobs = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RslError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RslError(f"{path}: {error}") from error
    return jobs


@asynccontextmanager
async def open_coallocation(
    request: str | bytes | Request,
    *,
    jobs: NamedJobs | Path | str | None = None,
    rts: Sequence[RunTimeSystem | Path | str],
    on_change: Callable[[CoJob, CoJobEnd], object] | None = None,
) -> AsyncIterator[RunningCoallocation]:
    """Run a co-allocation request; its jobs start at once, in their order.

    Leaving the block stops what still runs.

    Args:
        request: its text, its XML, or its tree.
        jobs: jobs that it names: name -> options, or text; or a file in TOML that describes them.
        rts: the run-time system that its jobs run on: one, that ``open_rts`` has opened, or its connection
            file.
        on_change: called when a job has ended, with the job and how it has ended.

    Raises:
        ConnectionFileError, ConnectFailed: there is no such running run-time system.
        NotInTrio: this is no task of trio.
        RslError: the request cannot be read, or a job is unknown or lacks what it needs.
        ValueError: there is not exactly one run-time system.
    """
    require_trio("open_coallocation")
    tree = parse_coallocation(request) if isinstance(request, str | bytes) else request
    named = await trio.to_thread.run_sync(read_jobs, jobs) if isinstance(jobs, str | Path) else jobs
    found = jobs_with_options(tree, named or {})
    for job in found:
        if job.start == "inside":
            raise RslError("start=inside needs a barrier that programs call, and there is none", job.place)
    if len(rts) != 1:
        raise ValueError(f"a request runs on one run-time system, not on {len(rts)}")
    async with (
        _opened(rts[0]) as system,
        open_resources(system, "co-allocation") as resources,
        open_scope() as nursery,
    ):
        running = RunningCoallocation(
            found, RequestFlow(order_of(tree)), resources, system, nursery, on_change
        )
        running.begin()
        yield running
        nursery.cancel_scope.cancel()


def _opened(rts: RunTimeSystem | Path | str) -> AbstractAsyncContextManager[RunTimeSystem]:
    return join_rts(Path(rts)) if isinstance(rts, str | Path) else nullcontext(rts)
