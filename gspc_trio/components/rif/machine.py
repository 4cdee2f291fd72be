"""The RIF of a host (GSPC19 2.2): which workers there are, and which submits reach them.

It is the proxy for all workers of its host (RIF-4) and fences for them: what comes under a lapsed grant is
refused, what runs under one is ended, and the RTS learns that a grant is revoked when nothing of it is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from gspc_trio.components.rif.at_work import AtWork, Use, Work
from gspc_trio.components.rif.events import (
    Called,
    CheckGrant,
    DropJob,
    EndJob,
    ForgetJob,
    ForwardToWorker,
    GrantChecked,
    ReplyError,
    ReplyToCall,
    RifAction,
    RifEvent,
    StartWorker,
    Stop,
    Stopped,
    StopWorker,
)
from gspc_trio.components.rif.fence import Fence
from gspc_trio.components.rif.messages import (
    AddResources,
    Claim,
    DagReport,
    Hold,
    RemoveResources,
    WorkerEndpoint,
)
from gspc_trio.components.rm.messages import GrantsAhead, Revoke, Revoked
from gspc_trio.components.worker.events import Assign, EndWork, WorkerIdle, WorkerStopped
from gspc_trio.components.worker.messages import Cancel, DefineCode, OpenJob, Submit, TakeBack
from gspc_trio.components.worker.verdict import refusal
from gspc_trio.core.ids import GrantId, JobId, ResourceId, RifId
from gspc_trio.core.machine import IllegalEvent, MachineBase, handles
from gspc_trio.core.resources import BadResources, Resource, ResourceDag
from gspc_trio.core.staging import StageLimits
from gspc_trio.core.task import Reason


class _Job(Struct, eq=False):
    """A job that submits to this RIF; ``number`` is that of its connection."""

    number: int
    fate: bool
    stage: StageLimits
    codes: set[int] = field(default_factory=set)


class _Hold(Struct, frozen=True):
    """A resource that is part of a grant whose task runs at another worker, here or elsewhere."""

    job: JobId
    grant_id: GrantId


class _Pending(Struct, eq=False):
    """An answer that waits for workers to have nothing left."""

    answer: ReplyToCall | Revoked
    waiting: set[ResourceId]


class Rif(MachineBase[RifEvent, RifAction]):
    """Machine of one RIF; the workers' own machines are beside it, in :mod:`gspc_trio.components.rif.host`.

    Args:
        rif_id: its name.
        host: name of its host.
        address: where schedulers reach it.
    """

    noun = "a RIF"

    def __init__(self, rif_id: RifId, host: str, address: str) -> None:
        super().__init__()
        self.rif_id = rif_id
        self.host = host
        self.address = address
        self.fence: Fence = Fence()
        self._resources: dict[ResourceId, Resource] = {}
        self._removing: set[ResourceId] = set()
        self._parts_stopped: set[ResourceId] = set()
        self._jobs: dict[JobId, _Job] = {}
        self._jobs_opened = 0
        self.at_work: AtWork = AtWork(self.fence)
        self._held: dict[ResourceId, _Hold] = {}
        self._pending: list[_Pending] = []
        self._stopping: str | None = None

    # The machine's contract

    def deadline(self) -> float | None:
        """Return None: a RIF waits for nothing but its workers."""
        return None

    def use_of(self, name: ResourceId) -> Use:
        """Return what a resource is used for."""
        if name not in self._resources:
            return Use.GONE
        if name in self._removing:
            return Use.REMOVING
        work = self.at_work.on(name)
        if work is not None:
            return Use.ENDING if work.ending else Use.AT_WORK
        return Use.HELD if name in self._held else Use.IDLE

    @property
    def resources(self) -> tuple[Resource, ...]:
        """What it has and keeps, parents before children."""
        return tuple(one for name, one in self._resources.items() if name not in self._removing)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What is in use, for a run-time system that has to learn it."""
        at_work = [Claim(it.job, it.grant_id, it.resources) for it in self.at_work if not it.ending]
        held = [Claim(hold.job, hold.grant_id, (name,)) for name, hold in self._held.items()]
        return (*at_work, *held)

    def check(self) -> None:
        """Assert every invariant."""
        self.at_work.check()
        assert set(self._held) <= set(self._resources), "a resource is held that is not there"
        assert self._removing <= set(self._resources), "a resource is removed that is not there"
        assert self._parts_stopped <= self._removing, "a worker has stopped that was not asked to"
        assert all(self.at_work.on(name) for name in self._parts_stopped), "a removal waits for nothing"
        assert all(pending.waiting for pending in self._pending), "an answer was not given"
        assert self._stopping is None or self._removing == set(self._resources), (
            "a worker is not being stopped"
        )
        assert not self.actions, "an action was not returned"

    # Resources

    @handles(Called)
    def _called(self, event: Called) -> None:
        try:
            if isinstance(event.body, AddResources):
                self._add(event.call, event.body.resources)
            else:
                self._remove(event.call, event.body)
        except BadResources as error:
            self.actions.append(ReplyError(event.call, str(error)))

    def _add(self, call: int, resources: tuple[Resource, ...]) -> None:
        for resource in resources:
            if resource.resource_id in self._removing:
                raise BadResources(f"{resource.resource_id} is still being removed")
            if resource.resource_id in self._resources:
                raise BadResources(f"{resource.resource_id} is there already")
        if self._stopping is not None:
            raise BadResources(f"{self.rif_id} is stopping: {self._stopping}")
        # What is there was in order when it was added, also where a parent has been removed since.
        there = [replace(resource, parents=()) for resource in self._resources.values()]
        for resource in ResourceDag((*there, *resources)):
            if resource.resource_id not in self._resources:
                self._resources[resource.resource_id] = resource
                self.fence.add(resource)
                self.at_work.add(resource.resource_id)
                self.actions.append(StartWorker(resource))
        self.actions.append(ReplyToCall(call, DagReport(tuple(map(self._endpoint, resources)))))

    def _remove(self, call: int, event: RemoveResources) -> None:
        for name in event.resource_ids:
            if name not in self._resources:
                raise BadResources(f"{self.rif_id} has no resource {name}")
        report = DagReport(tuple(self._endpoint(self._resources[name]) for name in event.resource_ids))
        self._answer_when_idle(ReplyToCall(call, report), event.resource_ids)
        self._close_workers(event.resource_ids, "its resource was removed")

    def _close_workers(self, names: Iterable[ResourceId], detail: str) -> None:
        for name in names:
            if name not in self._removing:
                self._removing.add(name)
                work = self.at_work.on(name)
                if work is not None:
                    self._end(work, Reason.LOST, detail)
                self.actions.append(ForwardToWorker(name, EndWork(Reason.LOST, detail, close=True)))

    def _endpoint(self, resource: Resource) -> WorkerEndpoint:
        name, its_class = resource.resource_id, resource.resource_class
        return WorkerEndpoint(name, its_class, self.rif_id, self.host, self.address)

    @handles(WorkerStopped)
    def _worker_stopped(self, event: WorkerStopped) -> None:
        name = event.resource_id
        if self.at_work.on(name) is not None:
            # It is part of a grant whose task, at another worker, has not ended yet.
            self._parts_stopped.add(name)
        else:
            self._remove_resource(name)

    def _remove_resource(self, name: ResourceId) -> None:
        self._removing.discard(name)
        self._parts_stopped.discard(name)
        del self._resources[name]
        self._held.pop(name, None)
        self.at_work.remove(name)
        self.fence.remove(name)
        self.actions.append(StopWorker(name))
        self._answer_pending(name)
        if self._stopping is not None and not self._resources:
            self.actions.append(Stopped(self._stopping))

    # Jobs

    @handles(OpenJob)
    def _open_job(self, event: OpenJob) -> None:
        if event.job in self._jobs:
            self._end_job(EndJob(event.job, "its job server has connected again"))
        self._jobs_opened += 1
        self._jobs[event.job] = _Job(self._jobs_opened, event.fate, event.stage)
        self.actions.append(event)

    @handles(DefineCode)
    def _define_code(self, event: DefineCode) -> None:
        job = self._jobs.get(event.job)
        if job is not None:
            job.codes.add(event.code_id)
            self.actions.append(event)

    @handles(EndJob)
    def _end_job(self, event: EndJob) -> None:
        if self._jobs.pop(event.job, None) is None:
            return
        for work in self.at_work:
            if work.job == event.job:
                self._end(work, Reason.CANCELLED, event.reason)
        for name in [name for name, hold in self._held.items() if hold.job == event.job]:
            del self._held[name]
        self.actions.append(ForgetJob(event.job))

    # Work

    @handles(Submit)
    def _submit(self, event: Submit) -> None:
        job = self._jobs.get(event.job)
        if job is not None and not job.codes.issuperset([s.code_id for s in event.submissions]):
            unknown = sorted({s.code_id for s in event.submissions} - job.codes)
            raise IllegalEvent(f"job {event.job} submits code that it has not defined: {unknown}")
        here = tuple([name for name in event.resources if name in self._resources])
        at_work = self.at_work.on(event.resources[0])
        # Of work that goes on nothing has changed that would be in its way: it would be ending.
        goes_on = (
            at_work is not None
            and at_work.grant_id == event.grant_id
            and at_work.job == event.job
            and at_work.resources == here
            and not at_work.ending
        )
        why = "" if goes_on else self._why_not(event, job, here) or self._conflict(event, here)
        if why:
            self.actions.append(refusal(event, why))
            return
        assert job is not None
        if at_work is None:
            self.at_work.begin(event.job, event.grant_id, here)
            for name in here:
                self.fence.use(name, event.grant_id, job.number)
                self._held.pop(name, None)
        stage = job.stage
        assign = Assign(event, job.fate, stage.inputs_bytes_max, max(1, stage.attempts_max))
        self.actions.append(ForwardToWorker(here[0], assign))

    def _why_not(self, event: Submit, job: _Job | None, here: Sequence[ResourceId]) -> str:
        """Return why the submit is refused, or ""."""
        if self._stopping is not None:
            return f"{self.rif_id} is stopping: {self._stopping}"
        if job is None:
            return f"job {event.job} is not open at {self.rif_id}"
        for name in event.resources:
            if name not in self._resources and (
                name == event.resources[0] or name.startswith(f"{self.rif_id}.")
            ):
                return f"{self.rif_id} has no resource {name}"
        for name in here:
            if name in self._removing:
                return f"{name} is being removed"
            objection = self.fence.objection(name, event.grant_id)
            if objection:
                self._doubt(name, event.grant_id)
                return objection
            hold = self._held.get(name)
            # The other parts of a grant may be held for a task that runs here.
            other_part = name != here[0] and hold is not None and hold.job == event.job
            if hold is not None and hold.grant_id == event.grant_id and not other_part:
                return f"{name} is held for a task of job {hold.job} that runs elsewhere"
        return ""

    def _conflict(self, event: Submit | Hold, here: Sequence[ResourceId]) -> str:
        """Return what still works on these or their relatives, or ""."""
        conflict = ""
        for work in self.at_work.near(here):
            same = work.job == event.job and work.grant_id == event.grant_id
            if same and not work.ending and work.resources == tuple(here):
                continue
            conflict = f"{work.resources[0]} still works for job {work.job} under grant {work.grant_id}"
        if conflict:
            self._overtakes(event, here)
        return conflict

    def _overtakes(self, event: Submit | Hold, here: Sequence[ResourceId]) -> bool:
        """Return whether something works near these under older grants, and ask if these have lapsed."""
        user = self._jobs[event.job].number
        doubts = [
            CheckGrant(name, event.grant_id, user)
            for name in here
            if any(work.grant_id < event.grant_id and not work.ending for work in self.at_work.near((name,)))
        ]
        self.actions.extend(doubts)
        return bool(doubts)

    def _doubt(self, name: ResourceId, grant_id: GrantId) -> None:
        """Ask whether what stands against a grant was ever given."""
        self.actions.extend([CheckGrant(*doubt) for doubt in self.fence.doubts(name, grant_id)])

    @handles(GrantChecked)
    def _grant_checked(self, event: GrantChecked) -> None:
        """End what runs under older grants than one that was given, or what runs under one that was not.

        Who was refused meanwhile has kept its grant, and submits again.
        """
        asked, name = event.asked, event.asked.resource_id
        if name not in self._resources:
            return
        self.fence.correct(name, asked.grant_id, asked.user, event.newest)
        if event.newest < asked.grant_id:
            why = f"{name}: grant {asked.grant_id} was never given"
            for job in [job for job, one in self._jobs.items() if one.number == asked.user]:
                self.actions.append(DropJob(job, why))
                self._end_job(EndJob(job, why))
            work = self.at_work.on(name)
            if work is not None and work.grant_id > self.fence.newest(name):
                self._end(work, Reason.LOST, why)
            return
        for work in self.at_work.near((name,)):
            if work.grant_id < asked.grant_id:
                why = f"grant {work.grant_id} was overtaken by grant {asked.grant_id}"
                self._end(work, Reason.LOST, why)
        if asked.user:
            self.fence.use(name, asked.grant_id, asked.user)

    @handles(Cancel, TakeBack)
    def _pass_on(self, event: Cancel | TakeBack) -> None:
        work = self.at_work.of_worker(event.resource_id)
        if work is not None and work.job == event.job:
            self.actions.append(ForwardToWorker(event.resource_id, event))

    @handles(Hold)
    def _hold(self, event: Hold) -> None:
        if event.job not in self._jobs:
            return
        here = [name for name in event.resources if name in self._resources and name not in self._removing]
        for name in here:
            if self.fence.objection(name, event.grant_id):
                self._doubt(name, event.grant_id)
            elif not self._overtakes(event, (name,)):
                self.fence.use(name, event.grant_id, self._jobs[event.job].number)
                self._held[name] = _Hold(event.job, event.grant_id)

    @handles(Revoke)
    def _revoke(self, event: Revoke) -> None:
        here = [name for name in event.resources if name in self._resources]
        waiting = set()
        self.fence.note(event.grant_id)
        for name in here:
            self.fence.revoke(name, event.grant_id)
            hold = self._held.get(name)
            if hold is not None and hold.grant_id <= event.grant_id:
                del self._held[name]
            work = self.at_work.on(name)
            if work is not None and work.grant_id <= event.grant_id:
                self._end(work, Reason.LOST, f"grant {event.grant_id} was revoked")
                waiting.add(work.resources[0])
        self._answer_when_idle(Revoked(event.grant_id, event.resources), waiting)

    @handles(GrantsAhead)
    def _grants_ahead(self, event: GrantsAhead) -> None:
        self.fence.allow(event.newest)

    def _end(self, work: Work, reason: Reason, detail: str) -> None:
        if not work.ending or reason is Reason.CANCELLED:
            work.ending = True
            self.actions.append(ForwardToWorker(work.resources[0], EndWork(reason, detail)))

    # Workers have nothing left

    @handles(WorkerIdle)
    def _worker_idle(self, event: WorkerIdle) -> None:
        work = self.at_work.of_worker(event.resource_id)
        if work is not None:
            self.at_work.end(work)
            for name in work.resources:
                if name in self._parts_stopped:
                    self._remove_resource(name)
        if event.resource_id not in self._removing:
            self._answer_pending(event.resource_id)

    def _answer_when_idle(self, answer: ReplyToCall | Revoked, names: Iterable[ResourceId]) -> None:
        pending = _Pending(answer, set(names))
        if pending.waiting:
            self._pending.append(pending)
        else:
            self.actions.append(answer)

    def _answer_pending(self, name: ResourceId) -> None:
        if not self._pending:
            return
        for pending in self._pending:
            pending.waiting.discard(name)
        self.actions.extend([pending.answer for pending in self._pending if not pending.waiting])
        self._pending = [pending for pending in self._pending if pending.waiting]

    @handles(Stop)
    def _stop(self, event: Stop) -> None:
        if self._stopping is None:
            self._stopping = event.reason
            self._close_workers(list(self._resources), event.reason)
            if not self._resources:
                self.actions.append(Stopped(event.reason))
