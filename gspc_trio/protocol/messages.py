"""Messages that are not already a machine's event or action: registration, control, watching.

``protocol.codec.WIRE_TYPES`` lists everything that may travel, in the order that gives each its number on the
wire: append, never reorder, and raise ``PROTOCOL_VERSION`` when a message changes its fields.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from gspc_trio.core import exchange, records
from gspc_trio.core.ids import Count, JobId, ResourceId, RifId, Seconds, TaskId
from gspc_trio.core.resources import Resource

PROTOCOL_VERSION = 1
"""Raised when a message changes; peers agree on the highest version that both speak."""

PROTOCOL_VERSION_MIN = 1
"""The oldest version still spoken."""

# Job server to RTS ------------------------------------------------------------------------------------------


class RegisterJob(Struct, frozen=True):
    """A job server joins (call, answered by JobRegistered).

    Attributes:
        name: for people, e.g. the workflow file's stem.
        pid, host: of the job server.
        address: where the job server listens, or "".
        weight: share relative to other jobs of its priority.
        grace_s: how long to keep what it holds when its job server is gone.
        adopts: the job whose work it takes over, or "".
        priority: jobs of a higher one get resources first.
    """

    name: str
    pid: Count
    host: str
    address: str = ""
    weight: float = 1.0
    grace_s: Seconds = 0.0
    adopts: JobId = ""
    priority: int = 0


class RifEndpoint(Struct, frozen=True):
    """A RIF that is up, its address for schedulers and its resources."""

    rif_id: RifId
    incarnation: Count
    host: str
    address: str
    resources: tuple[Resource, ...]


class JobRegistered(Struct, frozen=True):
    """The job's id, and whether there is anything to adopt; the RIFs follow as RifUp.

    Attributes:
        rifs: those that may have something of what was adopted; for each a RifUp follows, or a RifGone.
    """

    job: JobId
    adopted: bool = False
    rifs: tuple[RifId, ...] = ()


class LeaveJob(Struct, frozen=True):
    """The job, or the one it has adopted, is over (call, answered by Done): what it holds is given back.

    Attributes:
        adopted: the one that it has adopted, "" for itself.
        end: how it ended.
    """

    adopted: JobId = ""
    end: exchange.JobEnd = exchange.JobEnd()


# RTS to job server ------------------------------------------------------------------------------------------


class RifUp(Struct, frozen=True):
    """A RIF is there, or its resources have changed."""

    endpoint: RifEndpoint


class RifGone(Struct, frozen=True):
    """A RIF is gone, with everything that ran on it."""

    rif_id: RifId
    incarnation: Count
    reason: str


# Control of the RTS (calls) ---------------------------------------------------------------------------------


class Done(Struct, frozen=True):
    """The call was carried out."""


class GetStatus(Struct, frozen=True):
    """Answered by a Status."""


class Status(Struct, frozen=True):
    """State for people and scripts: plain data."""

    data: dict[str, Any]


class Bootstrap(Struct, frozen=True):
    """Start a RIF on each host (RTS-1, answered by a BootstrapReport).

    Attributes:
        hosts: names; a logical name for the strategy ``local``.
        strategy: name of a strategy.
        cores: number of cores each is to offer, 0 for what its hardware has.
        options: of the strategy.
    """

    hosts: tuple[str, ...]
    strategy: str = "local"
    cores: int = 0
    options: dict[str, str] = field(default_factory=dict)


class BootstrapReport(Struct, frozen=True):
    """host -> RIF id of those that came up, host -> reason of those that failed; none is missing (RTS-1)."""

    started: dict[str, RifId]
    failed: dict[str, str]


class Teardown(Struct, frozen=True):
    """Stop these RIFs (RTS-1, answered by a TeardownReport)."""

    rif_ids: tuple[RifId, ...]


class TeardownReport(Struct, frozen=True):
    """Ids of the RIFs that were taken down."""

    stopped: tuple[RifId, ...]


class AddDag(Struct, frozen=True):
    """Add resources to a RIF (RTS-2, answered by a DagReport)."""

    rif_id: RifId
    resources: tuple[Resource, ...]


class RemoveDag(Struct, frozen=True):
    """Remove resources from a RIF (RTS-2, answered by a DagReport).

    Attributes:
        policy: what happens to held ones (RM-11): ``lose`` (the scheduler finds out), ``wait`` or ``refuse``.
    """

    rif_id: RifId
    resource_ids: tuple[ResourceId, ...]
    policy: str = "lose"


class GetHostToResource(Struct, frozen=True):
    """Answered by a HostToResource (RTS-3)."""


class HostToResource(Struct, frozen=True):
    """host -> ids of its resources."""

    hosts: dict[str, tuple[ResourceId, ...]]


class ListJobs(Struct, frozen=True):
    """Answered by a JobList."""


class JobEntry(Struct, frozen=True):
    """One registered job."""

    job: JobId
    name: str
    pid: Count
    host: str
    address: str
    weight: float


class EndedJob(Struct, frozen=True):
    """One of the last jobs that are over.

    Attributes:
        state: finished, failed or stopped.
        detail: why, when it did not finish.
        tasks: state -> number of tasks, as far as known.
        elapsed_s: seconds that it took.
    """

    job: JobId
    name: str
    state: str
    detail: str = ""
    tasks: dict[str, int] = field(default_factory=dict)
    elapsed_s: float = 0.0


class JobList(Struct, frozen=True):
    """The jobs registered now, oldest first, and the last ones that are over."""

    jobs: tuple[JobEntry, ...]
    ended: tuple[EndedJob, ...] = ()


class StopRts(Struct, frozen=True):
    """Take the run-time system down (answered by Done before it goes)."""


# RIF and RTS ------------------------------------------------------------------------------------------------


class RifHello(Struct, frozen=True):
    """First message of a RIF to its RTS.

    Attributes:
        rif_id, incarnation: as its RTS named it; a RIF started again has the next incarnation.
        pid, host: of its process.
        address: where schedulers reach it.
        hardware: what was found on the host; nothing is added before the RTS says so.
    """

    rif_id: RifId
    incarnation: Count
    pid: Count
    host: str
    address: str
    hardware: tuple[Resource, ...]


class CloseJobEverywhere(Struct, frozen=True):
    """RTS to RIF: the job is gone; stop what it runs."""

    job: JobId


class StopRif(Struct, frozen=True):
    """RTS to RIF: stop all workers and go."""


# Job server's own listener (calls) --------------------------------------------------------------------------


class GetJobStatus(Struct, frozen=True):
    """Answered by a Status."""


class WaitJob(Struct, frozen=True):
    """Answered by a Status when the job is over."""


class StopJob(Struct, frozen=True):
    """Stop the job: start nothing more, and cancel what runs or (``drain``) let it end. Answered by Done."""

    drain: bool = False


class ApplicationCall(Struct, frozen=True):
    """Application-specific RPC (APP-2): an encoded value in, an ApplicationReply out."""

    name: str
    argument: bytes


class ApplicationReply(Struct, frozen=True):
    """What the application's function returned, encoded."""

    value: bytes


class Watch(Struct, frozen=True):
    """Send a snapshot, then records: at most ``credit`` batches until Watch comes again."""

    credit: Count


class CannotStart(Struct, frozen=True):
    """RIF to RTS: its host could not start a process; ``detail`` says why."""

    detail: str


class RecordBatch(Struct, frozen=True):
    """Records in order.

    Attributes:
        records: what happened.
        snapshot: they, and those of the next batches while ``more`` is set, stand for the whole state.
        more: the snapshot goes on in the next batch.
    """

    records: tuple[records.Record, ...]
    snapshot: bool = False
    more: bool = False


class Explain(Struct, frozen=True):
    """Ask the RTS why requests of a job wait; answered by a Status: ``waiting`` has an entry for each."""

    job: JobId


class SetWeight(Struct, frozen=True):
    """RTS: change a job's share of the resources. Answered by Done."""

    job: JobId
    weight: float


class GetResources(Struct, frozen=True):
    """RTS: what a RIF has. Answered by a ResourceList."""

    rif_id: RifId


class ResourceList(Struct, frozen=True):
    """Resources, parents before children."""

    resources: tuple[Resource, ...]


class GetTask(Struct, frozen=True):
    """Job server: everything about one task. Answered by a Status."""

    task_id: TaskId


class FindTasks(Struct, frozen=True):
    """Job server: the tasks that it knows by name. Answered by a Status with a list ``tasks``, and ``more``.

    Attributes:
        text: what a task's id, name, resource or detail must contain.
        states: those wanted, none for all.
        limit: most tasks in the answer.
    """

    text: str = ""
    states: tuple[str, ...] = ()
    limit: Count = 200


class GetNet(Struct, frozen=True):
    """Job server: the workflow and how far it is. Answered by a Status."""


class GetMemory(Struct, frozen=True):
    """Job server: state of the memory layer that holds its data. Answered by a Status, empty if none."""


class CancelTask(Struct, frozen=True):
    """Job server: cancel these tasks, wherever they are. Answered by Done."""

    task_ids: tuple[TaskId, ...]


class RetryFailed(Struct, frozen=True):
    """Job server: give a failed task a new attempt. Answered by Done."""

    task_id: TaskId


MESSAGE_TYPES: tuple[type, ...] = (
    exchange.Demand, exchange.Release, exchange.Interrupt, exchange.Grant, exchange.Recall,
    exchange.Refuse, exchange.Lapsed, exchange.OpenJob, exchange.CloseJob, exchange.DefineCode,
    exchange.Submit, exchange.Cancel, exchange.TakeBack, exchange.Hold, exchange.Finished,
    exchange.AddResources, exchange.RemoveResources, exchange.Revoke, exchange.Revoked,
    exchange.DagReport, RegisterJob, JobRegistered, LeaveJob, RifUp, RifGone, Done, GetStatus, Status,
    Bootstrap, BootstrapReport, Teardown, TeardownReport, AddDag, RemoveDag, GetHostToResource,
    HostToResource, ListJobs, JobList, StopRts, RifHello, CloseJobEverywhere, StopRif, GetJobStatus,
    WaitJob, StopJob, ApplicationCall, ApplicationReply, Watch, RecordBatch, Explain,
    SetWeight, GetResources, ResourceList, GetTask, FindTasks, GetNet, CancelTask, RetryFailed,
    exchange.Orphans,
    GetMemory, exchange.GetAttempt, exchange.AttemptStatus, CannotStart, exchange.Begun,
)  # fmt: skip
