"""Messages that are not already a machine's event or action: registration, control, watching.

``protocol.codec.WIRE_TYPES`` lists everything that may travel, in the order that gives each its number on the
wire: append, never reorder, and raise ``PROTOCOL_VERSION`` when a message changes its fields.
"""

from __future__ import annotations

from typing import Any

from attrs import field

from gspc_trio.core import exchange, records
from gspc_trio.core.ids import JobId, ResourceId, RifId, TaskId
from gspc_trio.core.resources import Resource
from gspc_trio.core.value import frozen

PROTOCOL_VERSION = 1
"""Raised when a message changes; peers agree on the highest version that both speak."""

PROTOCOL_VERSION_MIN = 1
"""The oldest version still spoken."""

# Job server to RTS ------------------------------------------------------------------------------------------


@frozen
class RegisterJob:
    """A job server joins (call, answered by JobRegistered).

    Attributes:
        name: for people, e.g. the workflow file's stem.
        pid, host: of the job server.
        address: where the job server listens, or "".
        weight: share relative to other jobs.
        grace_s: how long to keep what it holds when its job server is gone.
        adopts: the job whose work it takes over, or "".
    """

    name: str
    pid: int
    host: str
    address: str = ""
    weight: float = 1.0
    grace_s: float = 0.0
    adopts: JobId = ""


@frozen
class RifEndpoint:
    """A RIF that is up, its address for schedulers and its resources."""

    rif_id: RifId
    incarnation: int
    host: str
    address: str
    resources: tuple[Resource, ...]


@frozen
class JobRegistered:
    """The job's id, and whether there is anything to adopt; the RIFs follow as RifUp."""

    job: JobId
    adopted: bool = False


@frozen
class LeaveJob:
    """The job, or the one it has adopted, is over (call, answered by Done): what it holds is given back."""

    adopted: JobId = ""


# RTS to job server ------------------------------------------------------------------------------------------


@frozen
class RifUp:
    """A RIF is there, or its resources have changed."""

    endpoint: RifEndpoint


@frozen
class RifGone:
    """A RIF is gone, with everything that ran on it."""

    rif_id: RifId
    incarnation: int
    reason: str


# Control of the RTS (calls) ---------------------------------------------------------------------------------


@frozen
class Done:
    """The call was carried out."""


@frozen
class GetStatus:
    """Answered by a Status."""


@frozen
class Status:
    """State for people and scripts: plain data."""

    data: dict[str, Any]


@frozen
class Bootstrap:
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
    options: dict[str, str] = field(factory=dict)


@frozen
class BootstrapReport:
    """host -> RIF id of those that came up, host -> reason of those that failed; none is missing (RTS-1)."""

    started: dict[str, RifId]
    failed: dict[str, str]


@frozen
class Teardown:
    """Stop these RIFs (RTS-1, answered by a TeardownReport)."""

    rif_ids: tuple[RifId, ...]


@frozen
class TeardownReport:
    """Ids of the RIFs that were taken down."""

    stopped: tuple[RifId, ...]


@frozen
class AddDag:
    """Add resources to a RIF (RTS-2, answered by a DagReport)."""

    rif_id: RifId
    resources: tuple[Resource, ...]


@frozen
class RemoveDag:
    """Remove resources from a RIF (RTS-2, answered by a DagReport).

    Attributes:
        policy: what happens to held ones (RM-11): ``lose`` (the scheduler finds out), ``wait`` or ``refuse``.
    """

    rif_id: RifId
    resource_ids: tuple[ResourceId, ...]
    policy: str = "lose"


@frozen
class GetHostToResource:
    """Answered by a HostToResource (RTS-3)."""


@frozen
class HostToResource:
    """host -> ids of its resources."""

    hosts: dict[str, tuple[ResourceId, ...]]


@frozen
class ListJobs:
    """Answered by a JobList."""


@frozen
class JobEntry:
    """One registered job."""

    job: JobId
    name: str
    pid: int
    host: str
    address: str
    weight: float


@frozen
class JobList:
    """The jobs registered now, oldest first."""

    jobs: tuple[JobEntry, ...]


@frozen
class StopRts:
    """Take the run-time system down (answered by Done before it goes)."""


# RIF and RTS ------------------------------------------------------------------------------------------------


@frozen
class RifHello:
    """First message of a RIF to its RTS.

    Attributes:
        rif_id, incarnation: as its RTS named it; a RIF started again has the next incarnation.
        pid, host: of its process.
        address: where schedulers reach it.
        hardware: what was found on the host; nothing is added before the RTS says so.
    """

    rif_id: RifId
    incarnation: int
    pid: int
    host: str
    address: str
    hardware: tuple[Resource, ...]


@frozen
class CloseJobEverywhere:
    """RTS to RIF: the job is gone; stop what it runs."""

    job: JobId


@frozen
class StopRif:
    """RTS to RIF: stop all workers and go."""


# Job server's own listener (calls) --------------------------------------------------------------------------


@frozen
class GetJobStatus:
    """Answered by a Status."""


@frozen
class WaitJob:
    """Answered by a Status when the job is over."""


@frozen
class StopJob:
    """Stop the job: start nothing more, and cancel what runs or (``drain``) let it end. Answered by Done."""

    drain: bool = False


@frozen
class ApplicationCall:
    """Application-specific RPC (APP-2): an encoded value in, an ApplicationReply out."""

    name: str
    argument: bytes


@frozen
class ApplicationReply:
    """What the application's function returned, encoded."""

    value: bytes


@frozen
class Watch:
    """Send a snapshot, then records: at most ``credit`` batches until Watch comes again."""

    credit: int


@frozen
class CannotStart:
    """RIF to RTS: its host could not start a process; ``detail`` says why."""

    detail: str


@frozen
class RecordBatch:
    """Records in order.

    Attributes:
        records: what happened.
        snapshot: they, and those of the next batches while ``more`` is set, stand for the whole state.
        more: the snapshot goes on in the next batch.
    """

    records: tuple[records.Record, ...]
    snapshot: bool = False
    more: bool = False


@frozen
class Explain:
    """Ask the RTS why requests of a job wait; answered by a Status: ``waiting`` has an entry for each."""

    job: JobId


@frozen
class SetWeight:
    """RTS: change a job's share of the resources. Answered by Done."""

    job: JobId
    weight: float


@frozen
class GetResources:
    """RTS: what a RIF has. Answered by a ResourceList."""

    rif_id: RifId


@frozen
class ResourceList:
    """Resources, parents before children."""

    resources: tuple[Resource, ...]


@frozen
class GetTask:
    """Job server: everything about one task. Answered by a Status."""

    task_id: TaskId


@frozen
class FindTasks:
    """Job server: the tasks that it knows by name. Answered by a Status with a list ``tasks``, and ``more``.

    Attributes:
        text: what a task's id, name, resource or detail must contain.
        states: those wanted, none for all.
        limit: most tasks in the answer.
    """

    text: str = ""
    states: tuple[str, ...] = ()
    limit: int = 200


@frozen
class GetNet:
    """Job server: the workflow and how far it is. Answered by a Status."""


@frozen
class GetMemory:
    """Job server: state of the memory layer that holds its data. Answered by a Status, empty if none."""


@frozen
class CancelTask:
    """Job server: cancel these tasks, wherever they are. Answered by Done."""

    task_ids: tuple[TaskId, ...]


@frozen
class RetryFailed:
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
    GetMemory, exchange.GetAttempt, exchange.AttemptStatus, CannotStart,
)  # fmt: skip
