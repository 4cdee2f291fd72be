"""A compute backend on trio's clock: tasks take the time, and end, as a table says. No processes."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TypeAlias
from zlib import crc32

import trio
from attrs import define
from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.components.monitor.io_frames import IoTold
from gspc_trio.components.worker.messages import OpenJob, Submission
from gspc_trio.components.worker.shell.compute import ComputeError, ComputeEvents
from gspc_trio.components.worker.shell.compute_channel import Printed
from gspc_trio.components.worker.shell.staging import StagingError
from gspc_trio.compute.channel import UNDEFINED, UNMADE
from gspc_trio.core.ids import Attempt, JobId, ResourceId, TaskId
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import TO_COME, Outcome, Reason, TaskError
from gspc_trio.iml.errors import ImlError
from gspc_trio.testing.layer.work import DataWork


class Behaviour(Struct, frozen=True):
    """What a simulated task does.

    Attributes:
        duration_s: how long it computes.
        values: what it returns, for each output of its code the encoded values.
        error: why it fails, or None.
        dies: the compute process ends after ``duration_s`` instead, and this says how; or "".
        stdout: what it prints at its begin.
    """

    duration_s: float = 0.0
    values: tuple[tuple[bytes, ...], ...] = ()
    error: TaskError | None = None
    dies: str = ""
    stdout: bytes = b""


Behave: TypeAlias = Callable[[Submission, bytes], Behaviour]
"""Says what a submission does, given its code."""


FRAIL = 0.2
"""So often a compute that is frail dies when its queue is taken back."""

_USUAL = Behaviour()


def by_task(table: Mapping[TaskId, Behaviour | Sequence[Behaviour]], default: Behaviour = _USUAL) -> Behave:
    """Return what to do by a table: task id -> behaviour, or one for each attempt (the last also later)."""

    def behave(submission: Submission, code: bytes) -> Behaviour:
        del code
        found = table.get(submission.task_id, default)
        if isinstance(found, Behaviour):
            return found
        return found[min(submission.attempt, len(found)) - 1]

    return behave


@define
class Run:
    """One task in compute: where, which, when; ``end_s`` is None until it ends, ``how`` says how it did."""

    resource_id: ResourceId
    job: JobId
    task_id: TaskId
    attempt: Attempt
    begin_s: float
    end_s: float | None = None
    how: str = ""


class SimulatedCompute:
    """The compute of one worker for one job; made by :class:`SimulatedBackend`."""

    def __init__(
        self, backend: SimulatedBackend, resource: Resource, job: OpenJob, events: ComputeEvents, pid: int
    ) -> None:
        self.resource = resource
        self.job = job
        self.pid = pid
        self.gone: trio.Event = trio.Event()
        self._backend = backend
        self._events = events
        self._codes: dict[int, bytes] = {}
        self._read: set[int] = set()
        self._unread: set[tuple[TaskId, Attempt]] = set()
        self._queue: deque[Submission] = deque()
        self._more = trio.Event()
        self._scope = trio.CancelScope()
        self._dying = ""
        self._killed = False
        self._stdout = b""
        self._last: tuple[tuple[TaskId, Attempt], bytes] | None = None  # finished just now, its result
        self._work = backend.work(job)

    @property
    def is_busy(self) -> bool:
        """Whether it has tasks."""
        return bool(self._queue)

    def define(self, code_id: int, data: bytes) -> None:
        """Make an entry of the code table known."""
        self._codes[code_id] = data

    def hand(self, submissions: Sequence[Submission]) -> None:
        """Run these after what was handed before."""
        for submission in submissions:
            assert submission.code_id in self._codes, f"code {submission.code_id} was not defined"
        self._queue.extend(submissions)
        self._more.set()

    def retract(self) -> tuple[tuple[TaskId, Attempt], ...]:
        """Take back all but what has begun and the ``read_ahead`` that follow; maybe all but one."""
        kept = [self._queue.popleft() for _ in range(min(self._backend.read_ahead + 1, len(self._queue)))]
        self._read.update([submission.code_id for submission in kept])
        frail = self._backend.frail
        if frail is not None and frail.random() < FRAIL:
            self.die("killed by signal 9")
            self._events.compute_lost(self._dying, printed=(self._stdout, b""))
        races, rest = self._backend.races, list(self._queue)
        if rest and races is not None and races.random() < 0.5:
            # What was handed over is taken back packet by packet, and this one was being read meanwhile.
            stray = rest.pop(races.randrange(len(rest)))
            kept.append(stray)
            if stray.code_id not in self._read:
                self._unread.add((stray.task_id, stray.attempt))
        self._queue = deque(kept)
        return tuple((submission.task_id, submission.attempt) for submission in rest)

    async def printed(self, seen: tuple[int, int] = (0, 0)) -> Printed:
        """Return what the task in compute has printed, without what is ``seen``."""
        await trio.lowlevel.checkpoint()
        return Printed(self._stdout[seen[0] :], b"", len(self._stdout), 0)

    async def kill(self) -> tuple[bytes, bytes]:
        """End it; what it had computed has been reported."""
        self._killed = True
        self._stop()
        if self._backend.kill_s:
            await trio.sleep(self._backend.kill_s)
        await self.gone.wait()
        return self._stdout, b""

    def _stop(self) -> None:
        if self._work is not None:
            self._work.kill()
        self._scope.cancel()

    def die(self, detail: str) -> None:
        """End it as if its process had died."""
        self._dying = detail
        self._stop()

    def vanish(self) -> None:
        """End it; nobody is told."""
        self._killed = True
        self._stop()

    async def run(self) -> None:
        """Compute until it is killed or dies."""
        try:
            with self._scope:
                while True:
                    while not self._queue:
                        self._more = trio.Event()
                        await self._more.wait()
                    await self._compute_head()
        finally:
            self._backend.computes.remove(self)
            self.gone.set()
        if self._dying and not self._killed:
            self._events.compute_lost(self._dying, printed=(self._stdout, b""))

    async def _behave(self, head: Submission, run: Run) -> Behaviour:
        """Take the time, and end, as the task does; its large values may come from a memory layer."""
        code, work = self._codes[head.code_id], self._work
        try:
            if work is not None:
                head = replace(head, arguments=await work.open(head.arguments))
            self._backend.on_open(run)
            behaviour = self._backend.behave(head, code)
            self._stdout = behaviour.stdout
            await trio.sleep(behaviour.duration_s)
            if behaviour.dies:
                self.die(behaviour.dies)
                await trio.lowlevel.checkpoint()
            if work is not None and behaviour.error is None:
                behaviour = replace(behaviour, values=await work.make(behaviour.values))
        except ImlError as error:
            return Behaviour(error=TaskError(type(error).__name__, str(error)))
        finally:
            if work is not None and not self._scope.cancel_called:
                await work.end()
        return behaviour

    async def _compute_head(self) -> None:
        head, now = self._queue[0], trio.current_time()
        if (head.task_id, head.attempt) in self._unread:
            await trio.lowlevel.checkpoint()
            self._give_back(self._queue.popleft(), UNDEFINED)
            return
        last, self._last = self._last, None
        if head.after is not None:
            if last is None or last[0] != head.after:
                await trio.lowlevel.checkpoint()
                self._give_back(self._queue.popleft(), UNMADE)
                return
            made = last[1]
            head = replace(head, arguments=tuple([made if it == TO_COME else it for it in head.arguments]))
        self._read.add(head.code_id)
        run = Run(self.resource.resource_id, self.job.job, head.task_id, head.attempt, now)
        self._backend.runs.append(run)
        self._backend.on_begin(run, self)
        try:
            behaviour = await self._behave(head, run)
            run.how = "failed" if behaviour.error else "finished"
        finally:
            run.end_s = trio.current_time()
            run.how = run.how or ("died" if self._dying else "killed")
            self._backend.on_end(run)
        self._queue.popleft()
        stdout, self._stdout = self._stdout, b""
        reason = Reason.FAILED if behaviour.error else Reason.FINISHED
        if reason is Reason.FINISHED and behaviour.values and behaviour.values[0]:
            self._last = (head.task_id, head.attempt), behaviour.values[0][0]
        self._events.computed(
            (
                Outcome(
                    head.task_id, head.attempt, reason, behaviour.values, behaviour.error,
                    stdout, started_s=now, duration_s=behaviour.duration_s,
                ),
            )
        )  # fmt: skip

    def _give_back(self, submission: Submission, kind: str) -> None:
        """The process has this one, and not its code or its argument."""
        key = (submission.task_id, submission.attempt)
        self._unread.discard(key)
        why = TaskError(kind, "what it needs was taken back before it")
        self._events.computed((Outcome(*key, Reason.RETURNED, error=why),))


class SimulatedBackend:
    """A ComputeBackend without processes; made by :func:`open_simulated_backend`.

    Attributes:
        behave: says what each submission does; may be replaced at any time.
        read_ahead: how many submissions a compute has read beyond the one that it computes.
        open_s: how long it takes to open a compute.
        open_error: why none can be opened, or "".
        short_until_s: until when none can be opened for a shortage.
        races: draws whether a compute reads one submission just as its queue is taken back, and which; None:
            it never does.
        frail: draws whether a compute dies just as its queue is taken back; None: it never does.
        kill_s: how long it takes until a compute that is killed is gone.
        work: returns what opens a job's large values, None for a job without a memory layer.
        runs: every task that was in compute, in the order of their begin.
        on_begin, on_open, on_end: told of each of them: also when its arguments are there.
        computes: those that live now.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        behave: Behave,
        *,
        read_ahead: int,
        open_s: float,
        work: Callable[[OpenJob], DataWork | None],
    ) -> None:
        self.behave = behave
        self.work = work
        self.read_ahead = read_ahead
        self.open_s = open_s
        self.open_error = ""
        self.short_until_s: float = 0.0
        self.races: Random | None = None
        self.frail: Random | None = None
        self.kill_s: float = 0.0
        self.runs: list[Run] = []
        self.on_begin: Callable[[Run, SimulatedCompute], object] = lambda _run, _compute: None
        self.on_open: Callable[[Run], object] = lambda _run: None
        self.on_end: Callable[[Run], object] = lambda _run: None
        self.computes: list[SimulatedCompute] = []
        self._nursery = nursery
        self._pids = 0

    async def tell_io(self, post: Callable[[IoTold], None]) -> None:
        """Tell nothing: its tasks read and write nothing."""

    async def open(self, resource: Resource, job: OpenJob, events: ComputeEvents) -> SimulatedCompute:
        """Open a compute.

        Raises:
            ComputeError: ``open_error`` says so, or there is a shortage.
        """
        await trio.sleep(self.open_s)
        if self.open_error:
            raise ComputeError(self.open_error)
        if trio.current_time() < self.short_until_s:
            raise ComputeError("cannot start a compute process: too many open files")
        self._pids += 1
        compute = SimulatedCompute(self, resource, job, events, self._pids)
        self.computes.append(compute)
        self._nursery.start_soon(compute.run)
        return compute

    def die(self, resource_id: ResourceId, detail: str = "killed by signal 9") -> None:
        """Let the compute processes of a worker die."""
        for compute in list(self.computes):
            if compute.resource.resource_id == resource_id:
                compute.die(detail)

    def vanish(self) -> None:
        """All compute processes are gone at once, and nobody is told."""
        for compute in list(self.computes):
            compute.vanish()

    async def aclose(self) -> None:
        """End all computes."""
        for compute in list(self.computes):
            await compute.kill()


@asynccontextmanager
async def open_simulated_backend(
    behave: Behave | None = None,
    *,
    read_ahead: int = 0,
    open_s: float = 0.0,
    work: Callable[[OpenJob], DataWork | None] | None = None,
) -> AsyncIterator[SimulatedBackend]:
    """A simulated backend for as long as the block lasts.

    Args:
        behave: says what each submission does; None: every task finishes at once and returns nothing.
        read_ahead: see :class:`SimulatedBackend`.
        open_s: see :class:`SimulatedBackend`.
        work: see :class:`SimulatedBackend`; None: no job has a memory layer.
    """
    async with trio.open_nursery() as nursery:
        yield SimulatedBackend(
            nursery,
            behave or by_task({}),
            read_ahead=read_ahead,
            open_s=open_s,
            work=work or (lambda _opening: None),
        )
        nursery.cancel_scope.cancel()


Failed = Callable[[JobId, Submission], None]


class SimulatedStaging:
    """Stages for one simulated RIF; how long it takes follows from a task's arguments.

    Args:
        failed: told of each attempt that cannot be staged; about one in twenty first attempts cannot.
        staging_s: how long each stage-in and stage-out takes, none of which fails then; None: it varies.
    """

    def __init__(self, failed: Failed, staging_s: float | None = None) -> None:
        self._failed = failed
        self._staging_s = staging_s

    async def stage_in(self, resource: Resource, job: JobId, submission: Submission) -> None:
        """Fetch nothing, for a while."""
        del resource
        await self._stage(job, submission, 1)

    async def stage_out(
        self, resource: Resource, job: JobId, submission: Submission, outcome: Outcome
    ) -> None:
        """Store nothing, for a while."""
        del resource, outcome
        await self._stage(job, submission, 2)

    async def _stage(self, job: JobId, submission: Submission, way: int) -> None:
        if self._staging_s is not None:
            await trio.sleep(self._staging_s)
            return
        draw = crc32(b"".join(submission.arguments), way)
        await trio.sleep((0.0, 0.001, 0.02, 0.1)[draw % 4])
        if submission.attempt == 1 and draw % 20 == 0:
            self._failed(job, submission)
            raise StagingError("the data cannot be reached")
