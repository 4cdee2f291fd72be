"""The shell of a worker: opens, feeds and kills its compute, and has data staged. It decides nothing.

What happens comes back as events for the worker's machine (``events``), put where the RIF's driver takes
them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio
from msgspec import Struct, field

from gspc_trio.components.rif.events import AtWorker, StartFailed
from gspc_trio.components.worker import events as work
from gspc_trio.components.worker.events import AttemptKey, ComputeAction, WorkerEvent
from gspc_trio.components.worker.messages import Finished, OpenJob, Submission
from gspc_trio.components.worker.shell.compute import Compute, ComputeBackend, ComputeError
from gspc_trio.components.worker.shell.compute_channel import Printed
from gspc_trio.components.worker.shell.staging import NoStaging, Settle, Staging, Stagings
from gspc_trio.components.worker.shell.task_listener import TaskConnection
from gspc_trio.components.worker.verdict import NOTHING_PRINTED
from gspc_trio.core.ids import JobId, ResourceId
from gspc_trio.core.machine import Performer, performs
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome
from gspc_trio.iml.errors import ImlError


class JobCode(Struct, eq=False):
    """What a job has told this RIF: how its compute processes are to be, and its code table.

    ``settled`` returns what waits until others can read the data in what is reported of a worker; None if
    there is no such data.
    """

    opening: OpenJob
    codes: dict[int, bytes] = field(default_factory=dict)
    settle: Callable[[], Awaitable[OpenJob]] | None = None
    staging: Staging = field(default_factory=NoStaging)
    settled: Callable[[Finished], Settle | None] = lambda _: None


class JobCompute:
    """The compute of one worker for one job, from before it is open until it is gone.

    It is handed submissions at any time; when it is lost with some of them, the machine is told, and what
    comes after that is lost too until the machine has seen to it.

    Attributes:
        job: whose.
        over: whether its process is gone.
        lost_work: whether it went with submissions.
        left: once it was killed, the last that the attempt in compute has printed to both streams.
        speaks: takes the connection of a task (called by the compute).
    """

    def __init__(
        self,
        resource: Resource,
        job: JobCode,
        backend: ComputeBackend,
        put: Callable[[WorkerEvent], None],
        start_failed: Callable[[StartFailed], None],
        speaks: Callable[[TaskConnection], None],
    ) -> None:
        self.speaks = speaks
        self._start_failed = start_failed
        self.job = job
        self.over: bool = False
        self.lost_work: bool = False
        self._worked = False
        self._resource = resource
        self._backend = backend
        self._put = put
        self._compute: Compute | None = None
        self._unsent: list[Submission] = []
        self._defined: set[int] = set()
        self._outstanding = 0
        self._opening = trio.CancelScope()
        self._opened = trio.Event()
        self._gone: trio.Event | None = None
        self.left: tuple[bytes, bytes] = NOTHING_PRINTED

    @property
    def pid(self) -> int:
        """The process that computes, or 0."""
        return self._compute.pid if self._compute is not None and not self.over else 0

    async def open(self) -> None:
        """Open the compute and hand over what has gathered."""
        problem: Exception | None = None
        try:
            with self._opening:
                settle = self.job.settle
                opening = self.job.opening if settle is None else await settle()
                self._compute = await self._backend.open(self._resource, opening, self)
        except (ComputeError, ImlError, OSError) as error:
            problem = error
        finally:
            self._opened.set()
        if isinstance(problem, ComputeError):
            self._lost(str(problem), begun=False)
            self._start_failed(StartFailed(str(problem)))
        elif problem is not None:  # the memory of the job is not to be had here: that counts
            self._lost(str(problem) or type(problem).__name__, begun=True)
        elif self._compute is not None and not self.over and self._gone is None:
            unsent, self._unsent = self._unsent, []
            self._outstanding = 0
            self.hand(unsent)
            self._put(work.ComputeReady())

    def hand(self, submissions: Sequence[Submission]) -> None:
        """Give these to the compute, after their code."""
        self._outstanding += len(submissions)
        if self._compute is None:
            self._unsent.extend(submissions)
        elif not self.over:
            for submission in submissions:
                code_id = submission.code_id
                if code_id not in self._defined:
                    self._defined.add(code_id)
                    self._compute.define(code_id, self.job.codes[code_id])
            self._compute.hand(submissions)

    def retract(self) -> tuple[AttemptKey, ...]:
        """Take back what has not been read."""
        if self.over:
            return ()
        if self._compute is None:
            keys = tuple((submission.task_id, submission.attempt) for submission in self._unsent)
            self._unsent.clear()
        else:
            keys = self._compute.retract()
        self._outstanding -= len(keys)
        return keys

    def computed(self, outcomes: tuple[Outcome, ...]) -> None:
        """Attempts have ended (called by the compute)."""
        if not self.over:
            self._worked = True
            self._outstanding -= len(outcomes)
            self._put(work.Computed(outcomes))

    def compute_lost(
        self, detail: str, begun: bool = True, printed: tuple[bytes, bytes] = NOTHING_PRINTED
    ) -> None:
        """The process is gone without having been asked (called by the compute)."""
        if self._lost(detail, begun, printed) and not (begun or self._worked):
            self._start_failed(StartFailed(detail, died=True))

    def _lost(self, detail: str, begun: bool, printed: tuple[bytes, bytes] = NOTHING_PRINTED) -> bool:
        """There is no process, any more or at all; return whether that was news and cost work."""
        if not self.over:
            self.over = True
            self.lost_work = self._outstanding > 0
            if self.lost_work:
                self._put(work.ComputeLost(detail, begun, printed))
                return True
        return False

    async def printed(self, seen: tuple[int, int]) -> Printed:
        """Return the last of what the task in compute has printed so far, without what is ``seen``."""
        if self._compute is None or self.over:
            return Printed()
        return await self._compute.printed(seen)

    async def kill(self) -> None:
        """Return when nothing of it is left, whoever asked for that first."""
        if self._gone is not None:
            await self._gone.wait()
            return
        gone = self._gone = trio.Event()
        try:
            self._opening.cancel()
            await self._opened.wait()
            if self._compute is not None:
                self.left = await self._compute.kill()
            self.over = True
        except BaseException:
            self._gone = None  # whoever clears up has to try again
            raise
        finally:
            gone.set()


class WorkerShell(Performer[ComputeAction]):
    """Carries out the actions of one worker's machine.

    Args:
        resource: what the worker stands for.
        jobs: the jobs that are open at the RIF.
        backend: opens compute.
        put: takes an event for the machine, with the worker's name on it.
        nursery: in which it starts what takes time.
        clock: seconds since 1970, as compute processes of this host count them.
        start_failed: told whenever a process does not start, or dies before it has taken anything.
        speaks: takes the connection of a task, and where that runs.
    """

    def __init__(
        self,
        resource: Resource,
        jobs: dict[JobId, JobCode],
        backend: ComputeBackend,
        put: Callable[[AtWorker], None],
        nursery: trio.Nursery,
        clock: Callable[[], float] = time.time,
        start_failed: Callable[[StartFailed], None] = lambda _: None,
        speaks: Callable[[ResourceId, TaskConnection], None] = lambda _, line: line.close(),
    ) -> None:
        self._speaks = partial(speaks, resource.resource_id)
        self.resource = resource
        self._start_failed = start_failed
        self._jobs = jobs
        self._backend = backend
        self._put_at_worker = put
        self._nursery = nursery
        self._computes: dict[JobId, JobCompute] = {}
        self._living: dict[JobCompute, None] = {}  # in order, for simulations
        self._stagings = Stagings(self._put, nursery, clock)

    def pid_for(self, job: JobId) -> int:
        """Return the process that computes for the job here, or 0."""
        compute = self._computes.get(job)
        return compute.pid if compute is not None else 0

    async def printed(self, job: JobId, seen: tuple[int, int]) -> Printed:
        """Return the last of what the job's task in compute has printed so far here, without ``seen``."""
        compute = self._computes.get(job)
        return await compute.printed(seen) if compute is not None else Printed()

    def forget_job(self, job: JobId) -> None:
        """The job is over: its compute process goes."""
        compute = self._computes.pop(job, None)
        if compute is not None:
            self._nursery.start_soon(self._end_compute, compute)

    async def aclose(self) -> None:
        """Kill its compute processes; return when none is left."""
        async with trio.open_nursery() as nursery:
            for compute in list(self._living):
                nursery.start_soon(self._end_compute, compute)

    # Actions

    def _put(self, event: WorkerEvent) -> None:
        self._put_at_worker(AtWorker(self.resource.resource_id, event))

    @performs(work.Compute)
    def _compute(self, action: work.Compute) -> None:
        compute = self._computes.get(action.job)
        if compute is None or (compute.over and not compute.lost_work):
            if compute is not None:  # it died while it had nothing to do
                self._living.pop(compute, None)
            job = self._jobs[action.job]
            compute = JobCompute(
                self.resource, job, self._backend, self._put, self._start_failed, self._speaks
            )
            self._computes[action.job] = compute
            self._living[compute] = None
            self._nursery.start_soon(compute.open)
            self._put(work.ComputeOpening())
        compute.hand(action.submissions)

    @performs(work.Retract)
    def _retract(self, action: work.Retract) -> None:
        compute = self._computes.get(action.job)
        self._put(work.Retracted(compute.retract() if compute is not None else ()))

    @performs(work.Kill)
    def _kill(self, action: work.Kill) -> None:
        compute = self._computes.get(action.job)
        if compute is None:
            self._put(work.ComputeKilled())
        else:
            self._nursery.start_soon(self._kill_and_tell, compute)

    async def _kill_and_tell(self, compute: JobCompute) -> None:
        await self._end_compute(compute)
        self._computes.pop(compute.job.opening.job, None)
        self._put(work.ComputeKilled(compute.left))

    async def _end_compute(self, compute: JobCompute) -> None:
        await compute.kill()
        self._living.pop(compute, None)

    @performs(work.ForgetCompute)
    def _forget_compute(self, action: work.ForgetCompute) -> None:
        compute = self._computes.pop(action.job, None)
        if compute is not None:
            self._living.pop(compute, None)

    @performs(work.StageIn)
    def _stage_in(self, action: work.StageIn) -> None:
        staging = self._jobs[action.job].staging
        run = partial(staging.stage_in, self.resource, action.job, action.submission)
        self._stagings.begin_in(_key(action), run)

    @performs(work.StageOut)
    def _stage_out(self, action: work.StageOut) -> None:
        staging = self._jobs[action.job].staging
        run = partial(staging.stage_out, self.resource, action.job, action.submission, action.outcome)
        self._stagings.begin_out(_key(action), run)

    @performs(work.Abort)
    def _abort(self, action: work.Abort) -> None:
        self._stagings.abort(action.key)

    def reported(self, finished: Finished) -> Finished:
        """Return what is reported of attempts that have ended, with when they were staged."""
        return self._stagings.reported(finished)


def _key(action: work.StageIn | work.StageOut) -> AttemptKey:
    return (action.submission.task_id, action.submission.attempt)
