"""Messages to and from the run-time system: jobs that join and leave, news of RIFs, control by people."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field

from gspc_trio.components.rif.messages import DagReport, MemoryServer
from gspc_trio.components.rm.messages import ClassStatus, Grant, HostMemory, WaitingRequest
from gspc_trio.core.ids import Attempt, Count, JobId, ResourceId, RifId, Seconds, TaskId
from gspc_trio.core.messages import Done, OutputLine, Question
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import DataUse, TaskState
from gspc_trio.policies.placement import FIFO

NO_STRATEGY = "there is no strategy"
"""How the refusal of a bootstrap begins when its strategy is not known."""

LOCATIONS_MAX = 64
"""One job may run on so many run-time systems."""

CORES_MAX = 4096
"""Cores of one host: no hardware has more, and a machine cannot compute in so many processes."""


class EndState(StrEnum):
    """How a job has ended."""

    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


class FailedTask(Struct, frozen=True):
    """A task that failed for good.

    Attributes:
        task_id, name, attempt: of the task.
        resource_id, host: where it ran, or "".
        error: kind and message.
        traceback: where it was raised, or "".
        stdout, stderr: the last of what it has printed.
    """

    task_id: TaskId
    name: str
    attempt: Attempt
    resource_id: ResourceId
    host: str
    error: str
    traceback: str = ""
    stdout: str = ""
    stderr: str = ""


class PortOutputs(Struct, frozen=True):
    """What was at an output port: the first values as JSON, and how many there were."""

    values: tuple[str, ...]
    count: Count


class JobSummary(Struct, frozen=True):
    """What is kept of a job that is over; each part within limits.

    Attributes:
        transitions: name of a transition -> state -> number of its tasks.
        failures: of the first tasks that failed.
        lines: the last that its tasks have printed.
        left_out: lines before these.
        outputs: output port -> its values.
        report: what the report has printed, if it ran before the job left.
        report_error: why the report has failed, or the results could not be written; or "".
    """

    transitions: dict[str, dict[TaskState, Count]] = field(default_factory=dict)
    failures: tuple[FailedTask, ...] = ()
    lines: tuple[OutputLine, ...] = ()
    left_out: Count = 0
    outputs: dict[str, PortOutputs] = field(default_factory=dict)
    report: str | None = None
    report_error: str = ""


class JobEnd(Struct, frozen=True):
    """How a job ended, as its job server says when it leaves.

    Attributes:
        state: how.
        detail: why, when it did not finish.
        tasks: state -> number of tasks; empty if it had none.
        elapsed_s: seconds that it took.
        summary: what is to be kept of it.
    """

    state: EndState = EndState.FINISHED
    detail: str = ""
    tasks: dict[TaskState, Count] = field(default_factory=dict)
    elapsed_s: Seconds = 0.0
    summary: JobSummary = JobSummary()


class JobRegistered(Struct, frozen=True):
    """The job's id, and whether there is anything to adopt; the RIFs follow as RifUp.

    Attributes:
        rifs: those that may have something of what was adopted; for each a RifUp follows, or a RifGone.
    """

    job: JobId
    adopted: bool = False
    rifs: tuple[RifId, ...] = ()


class RegisterJob(Question[JobRegistered], frozen=True):
    """First message of a job server: it joins (a call), or has connected again (no call).

    It is answered by a JobRegistered; one that has connected again may send what follows at once.

    Attributes:
        name: for people, e.g. the workflow file's stem.
        pid, host: of the job server.
        address: where the job server listens, or "".
        weight: share relative to other jobs of its priority.
        grace_s: how long to keep what it holds when its job server is gone.
        adopts: the job whose work it takes over, or "".
        priority: jobs of a higher one get resources first.
        placement: from which host its resources come (``policies.placement``); "": as the run-time
            system does.
        job: which job it is, if it has connected again; "": a new one.
        grants: all that it holds then.
    """

    name: str
    pid: Count
    host: str
    address: str = ""
    weight: float = 1.0
    grace_s: Seconds = 0.0
    adopts: JobId = ""
    priority: int = 0
    job: JobId = ""
    grants: tuple[Grant, ...] = ()
    placement: str = ""


class LeaveJob(Question[Done], frozen=True):
    """The job, or the one it has adopted, is over (call, answered by Done): what it holds is given back.

    Attributes:
        adopted: the one that it has adopted, "" for itself.
        end: how it ended.
    """

    adopted: JobId = ""
    end: JobEnd = JobEnd()


class RifUp(Struct, frozen=True):
    """A RIF is there, or its resources have changed: its address for schedulers, and all that it has.

    Attributes:
        ends_in_s: when its host ends, with all that runs there; None: nobody knows of an end.
        outside: its address for schedulers of other processes, if ``address`` is in memory; or "".
    """

    rif_id: RifId
    incarnation: Count
    host: str
    address: str
    resources: tuple[Resource, ...]
    ends_in_s: Seconds | None = None
    outside: str = ""


class RifGone(Struct, frozen=True):
    """A RIF is gone, with everything that ran on it."""

    rif_id: RifId
    incarnation: Count
    reason: str


class BootstrapReport(Struct, frozen=True):
    """host -> RIF id of those that came up, host -> reason of those that failed; none is missing (RTS-1)."""

    started: dict[str, RifId]
    failed: dict[str, str]


class Bootstrap(Question[BootstrapReport], frozen=True):
    """Start a RIF on each host (RTS-1, answered by a BootstrapReport).

    Attributes:
        hosts: names; a logical name for the strategy ``local``.
        strategy: name of a strategy.
        cores: number of cores each is to offer, 0 for what its hardware has.
        options: of the strategy.
        nodes: each name is that of a block of so many nodes; 0: of a host.
    """

    hosts: tuple[str, ...]
    strategy: str = "local"
    cores: int = 0
    options: dict[str, str] = field(default_factory=dict)
    nodes: Count = 0


class TeardownReport(Struct, frozen=True):
    """Ids of the RIFs that were taken down."""

    stopped: tuple[RifId, ...]


class Teardown(Question[TeardownReport], frozen=True):
    """Stop these RIFs (RTS-1, answered by a TeardownReport)."""

    rif_ids: tuple[RifId, ...]


class StartIml(Question[MemoryServer], frozen=True):
    """Run a memory server on the host of a RIF (RIF-1): the first of a layer, or of the one that there is.

    Attributes:
        memory_bytes, spill_bytes: what it may use; without, what the options of the RIF say.
    """

    rif_id: RifId
    memory_bytes: Count = 0
    spill_bytes: Count = 0


class StopIml(Question[Done], frozen=True):
    """End the memory server that a RIF runs."""

    rif_id: RifId


class AddDag(Question[DagReport], frozen=True):
    """Add resources to a RIF (RTS-2, answered by a DagReport)."""

    rif_id: RifId
    resources: tuple[Resource, ...]


class RemoveDag(Question[DagReport], frozen=True):
    """Remove resources from a RIF (RTS-2, answered by a DagReport).

    Attributes:
        policy: what happens to held ones (RM-11): ``lose`` (the scheduler finds out), ``wait`` or ``refuse``.
    """

    rif_id: RifId
    resource_ids: tuple[ResourceId, ...]
    policy: str = "lose"


class HostToResource(Struct, frozen=True):
    """host -> ids of its resources."""

    hosts: dict[str, tuple[ResourceId, ...]]


class GetHostToResource(Question[HostToResource], frozen=True):
    """Answered by a HostToResource (RTS-3)."""


class JobEntry(Struct, frozen=True):
    """One registered job."""

    job: JobId
    name: str
    pid: Count
    host: str
    address: str
    weight: float


class EndedJob(Struct, frozen=True):
    """A job that is over.

    Attributes:
        job, name: of the job.
        state: finished, failed or stopped.
        detail: why, when it did not finish.
        tasks: state -> number of tasks; empty if nobody has told.
        elapsed_s: seconds that it took; if nobody has told, those since the run-time system knew of it.
        pid, host: of its job server.
        ended_s: when it ended, in seconds since 1970.
        summary: what is kept of it besides; a list of jobs has none.
    """

    job: JobId
    name: str
    state: str
    detail: str = ""
    tasks: dict[TaskState, Count] = field(default_factory=dict)
    elapsed_s: float = 0.0
    pid: Count = 0
    host: str = ""
    ended_s: float = 0.0
    summary: JobSummary = JobSummary()


class JobList(Struct, frozen=True):
    """The jobs registered now, oldest first, and those that are over in the order in which they ended."""

    jobs: tuple[JobEntry, ...]
    ended: tuple[EndedJob, ...] = ()


class ListJobs(Question[JobList], frozen=True):
    """Answered by a JobList; ``ended``: with those that are over."""

    ended: bool = False


class GetEndedJob(Question[EndedJob], frozen=True):
    """RTS: what is kept of a job that is over. With ``wait`` the answer comes when it is."""

    job: JobId
    wait: bool = False


class StopRts(Question[Done], frozen=True):
    """Take the run-time system down (answered by Done before it goes)."""


class RifStatus(Struct, frozen=True):
    """A RIF.

    Attributes:
        state: ``starting``, ``up``, ``quarantined``, ``away``, ``lost``, ``failed`` or ``stopping``.
        strategy, options: how it is started.
        workers: their number.
        detail: why it is not up.
        retry_in_s: when a lost one is tried again, or None.
        ends_in_s: when it is taken down because its host ends, or None.
        features: that its host has.
        memory_layer, memory_server_bytes: address of the layer to which the memory server belongs that it
            runs on request, and memory of that; "" and 0 if it runs none.
    """

    rif_id: RifId
    host: str
    state: str
    incarnation: Count
    strategy: str
    options: dict[str, str]
    address: str
    pid: Count
    workers: Count
    detail: str
    retry_in_s: float | None
    ends_in_s: float | None = None
    memory_layer: str = ""
    memory_server_bytes: Count = 0
    features: tuple[str, ...] = ()


class RegisteredJob(JobEntry, frozen=True):
    """One registered job, and what it has of the resources.

    Attributes:
        demand: number of grants that it waits for.
        held: number of resources that it holds.
        share: fraction of all that is held.
        waiting: shape -> number of grants that it waits for.
        holds: class -> number of resources that it holds.
        priority: jobs of a higher one get resources first.
        placement: from which host its resources come; "": as the run-time system does.
    """

    demand: Count
    held: Count
    share: float
    waiting: dict[str, Count]
    holds: dict[str, Count]
    priority: int = 0
    placement: str = ""


class ManagerEntry(Struct, frozen=True):
    """One of several resource managers of a run-time system.

    Attributes:
        number: from 1.
        pid: of its process, 0 before it is there.
        up: it is there.
        hosts: whose resources it gives out.
        jobs: that it serves.
        losses: how often its process has ended.
    """

    number: Count
    pid: Count
    up: bool
    hosts: tuple[str, ...]
    jobs: tuple[JobId, ...]
    losses: Count


class RtsStatus(Struct, frozen=True):
    """The state of a run-time system.

    Attributes:
        version, pid, addresses: of it.
        uptime_s: seconds since it began.
        rifs: its RIFs.
        hosts: host -> ids of its resources.
        classes: class -> its resources.
        memories: memory -> how much of it is free.
        jobs: those that are registered.
        managers: its resource managers, if there are several.
    """

    version: str
    pid: Count
    addresses: tuple[str, ...]
    uptime_s: float
    rifs: tuple[RifStatus, ...]
    hosts: dict[str, tuple[ResourceId, ...]]
    classes: dict[str, ClassStatus]
    memories: dict[str, HostMemory]
    jobs: tuple[RegisteredJob, ...]
    managers: tuple[ManagerEntry, ...] = ()


class GetStatus(Question[RtsStatus], frozen=True):
    """Ask a run-time system for its state."""


class AwaitedHost(Struct, frozen=True):
    """A host that is on its way; ``retry_in_s``: when it is tried again, None: it is being started."""

    rif_id: RifId
    host: str
    retry_in_s: float | None


class RequestExplanation(WaitingRequest, frozen=True):
    """Why a request of a job waits.

    Attributes:
        awaits: hosts on their way that it waits for.
        waited_s: how long it has waited.
        patience_left_s: how long it declines others than those that it prefers, or None.
        placement: from which host its resources come, a name in ``policies.placement``.
        lacks: some of the hosts without features that it needs -> which.
    """

    awaits: tuple[AwaitedHost, ...]
    waited_s: float
    patience_left_s: float | None
    placement: str = FIFO
    lacks: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Explanation(Struct, frozen=True):
    """Why each request of a job waits, the oldest first."""

    waiting: tuple[RequestExplanation, ...]


class Explain(Question[Explanation], frozen=True):
    """Ask the RTS why requests of a job wait."""

    job: JobId


class SetWeight(Question[Done], frozen=True):
    """RTS: change a job's share of the resources. Answered by Done."""

    job: JobId
    weight: float


class Lend(Struct, frozen=True):
    """Job to RTS: so many of the job's tasks on this resource, and on what was lent of it, wait for others.

    While they wait, the resource is there so many times more. Whoever asks the resource manager may get it.
    """

    job: JobId
    resource_id: ResourceId
    count: Count


class ResourceList(Struct, frozen=True):
    """Resources, parents before children."""

    resources: tuple[Resource, ...]


class GetResources(Question[ResourceList], frozen=True):
    """RTS: what a RIF has. Answered by a ResourceList."""

    rif_id: RifId


class Await(Struct, frozen=True):
    """RTS to job: should this connection end, wait for the RTS so long, it may be back; 0: it will not."""

    grace_s: Seconds


class NewWeight(Struct, frozen=True):
    """RTS to job: its weight was changed to this, which it says of itself from now on when it comes back."""

    weight: float


class Restrict(Struct, frozen=True):
    """RTS to jobs: a host is to get no new tasks that use data in some ways, if others can run them.

    Attributes:
        rif_id: of which RIF.
        uses: the ways; empty: it may get any again.
        reason: why.
    """

    rif_id: RifId
    uses: tuple[DataUse, ...] = ()
    reason: str = ""


class Rest(Struct, frozen=True):
    """RTS to jobs: nothing new is given out of a host for now, so nothing is to be planned there.

    Attributes:
        rif_id: of which RIF.
        reason: why; "": it is again.
    """

    rif_id: RifId
    reason: str = ""


class Evacuate(Struct, frozen=True):
    """RTS to jobs: a host may fail soon, so bring away what is there: tasks that may rerun, and data.

    Attributes:
        rif_id: of which RIF.
        reason: why; "": the host may be used again.
    """

    rif_id: RifId
    reason: str = ""
