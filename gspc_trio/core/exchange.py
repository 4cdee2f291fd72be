"""What machines say to each other: one machine's action, the other's event, and the message on the wire
between them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from attrs import field, frozen
from msgspec import Struct

from gspc_trio.core.ids import Attempt, Count, GrantId, JobId, ResourceId, RifId, Seconds, TaskId
from gspc_trio.core.resources import Resource
from gspc_trio.core.staging import DEFAULT_LIMITS, StageLimits
from gspc_trio.core.task import DEFAULT_OPTIONS, Outcome, Shape, TaskOptions, TaskState

# Scheduler to resource manager ------------------------------------------------------------------------------


class Demand(Struct, frozen=True):
    """Job ``job`` can use ``credit`` more grants of ``shape`` than it had when it last received grant
    ``seen``; of its shapes, those of higher ``priority`` come first.
    """

    job: JobId
    shape: Shape
    credit: Count
    seen: GrantId
    priority: int = 0


class Release(Struct, frozen=True):
    """Give back a grant, or the named part of it (empty: all)."""

    job: JobId
    grant_id: GrantId
    resources: tuple[ResourceId, ...] = ()


class Interrupt(Struct, frozen=True):
    """Withdraw every demand of the job; whoever waits is told so (RM-9)."""

    job: JobId


# Resource manager to scheduler ------------------------------------------------------------------------------


class Grant(Struct, frozen=True):
    """The job holds these resources, one for each requirement of the shape, until it releases the grant.

    ``memories`` are (memory id, offset) for each piece of memory that the shape asked for (RM-8).
    """

    job: JobId
    shape: Shape
    grant_id: GrantId
    resources: tuple[ResourceId, ...]
    memories: tuple[tuple[str, int], ...] = ()


class Recall(Struct, frozen=True):
    """Others wait: give these grants back when the task in compute ends."""

    job: JobId
    grant_ids: tuple[GrantId, ...]


class Refuse(Struct, frozen=True):
    """No grant of this shape will come: the reason says what was asked and what there is.

    ``kind`` is ``impossible``, ``unknown class``, ``unknown resource`` or ``interrupted``.
    """

    job: JobId
    shape: Shape
    reason: str
    kind: str = "impossible"


class Lapsed(Struct, frozen=True):
    """These grants are no longer the job's: resources removed, or revoked. What ran there is lost."""

    job: JobId
    grant_ids: tuple[GrantId, ...]
    reason: str


# Scheduler to RIF -------------------------------------------------------------------------------------------


@frozen
class DataLayer:
    """The memory layer that a job keeps large values in.

    Attributes:
        address: of its coordinator.
        token: its secret.
        credentials: for TLS, or "".
        job: to which the data there belongs.
        bytes_min: values of so many bytes or more go there.
        copies: on how many hosts each of them is to lie.
        local_address, host: of the memory server of this host; set by the RIF.
    """

    address: str
    token: bytes = field(default=b"", repr=False)
    job: str = ""
    bytes_min: Count = 1 << 16
    copies: Count = 1
    local_address: str = ""
    host: str = ""
    credentials: str = field(default="", repr=False)


@frozen
class ProcessKey:
    """The key by which ``multiprocessing`` knows the processes of one program; it is shown nowhere."""

    value: bytes = field(repr=False)


class OpenJob(Struct, frozen=True):
    """A job will submit to this RIF.

    Attributes:
        job: the job.
        sys_path: Python's module search path in the job server; entries missing here are skipped.
        cwd: working directory of the job server; used where it exists here.
        modules: sources shipped with the job, module name -> (file name, text); they come before sys_path.
        fate: whether tasks in a worker's phases share their fate (WRK-3).
        threads: compute in threads of one process instead of a process per worker.
        data: where large values go, None: everywhere they travel with the tasks.
        grace_s: how long its work goes on when its job server is gone, for another that goes on for it.
        adopts: the job whose work it takes over, or "".
        stage: how much its tasks may stage.
        process_key: of the job server, so that tasks may speak to managers that it has started.
    """

    job: JobId
    sys_path: tuple[str, ...] = ()
    cwd: str = ""
    modules: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    fate: bool = True
    threads: bool = False
    data: DataLayer | None = None
    grace_s: Seconds = 0.0
    adopts: JobId = ""
    stage: StageLimits = DEFAULT_LIMITS
    process_key: ProcessKey | None = None


class CloseJob(Struct, frozen=True):
    """The job is over: what it still runs is stopped, its compute processes go."""

    job: JobId


class DefineCode(Struct, frozen=True):
    """Entry ``code_id`` of a job's code table (``protocol.code``), opaque to all but the compute process."""

    job: JobId
    code_id: Count
    data: bytes


class Submission(Struct, frozen=True):
    """One attempt of a task, on its way to a worker.

    ``held`` describes the resources of a co-allocated grant to the task (``core.held``). At its
    RIF it gets a ``directory`` to run in, if it has files, and the ``input_bytes`` that its stage-in fetches.
    """

    task_id: TaskId
    attempt: Attempt
    code_id: Count
    arguments: tuple[bytes, ...] = ()
    options: TaskOptions = DEFAULT_OPTIONS
    held: tuple[str, ...] = ()
    directory: str = ""
    input_bytes: Count = 0


class Submit(Struct, frozen=True):
    """Run these, in order, on the worker of ``resources[0]`` under the grant; the other resources are held by
    it.

    ``resource_class`` is that of the tasks' first requirement; a worker of another class refuses them
    (WRK-1). Empty means that the grant alone says it.
    """

    job: JobId
    grant_id: GrantId
    resources: Annotated[tuple[ResourceId, ...], msgspec.Meta(min_length=1)]
    submissions: tuple[Submission, ...]
    resource_class: str = ""


class Cancel(Struct, frozen=True):
    """Stop these attempts, wherever they are on the worker; each is reported ``cancelled`` unless it had
    ended.
    """

    job: JobId
    resource_id: ResourceId
    attempts: tuple[tuple[TaskId, Attempt], ...]


class TakeBack(Struct, frozen=True):
    """Return those of these attempts that have not begun; each of those is reported ``returned``."""

    job: JobId
    resource_id: ResourceId
    attempts: tuple[tuple[TaskId, Attempt], ...]


class Hold(Struct, frozen=True):
    """These resources of the RIF belong to a co-allocated grant that runs elsewhere: refuse other submits."""

    job: JobId
    grant_id: GrantId
    resources: tuple[ResourceId, ...]


class GetAttempt(Struct, frozen=True):
    """A call: how is this attempt, and what has it printed so far? Answered by an AttemptStatus."""

    job: JobId
    resource_id: ResourceId
    task_id: TaskId
    attempt: Attempt


# RIF to scheduler -------------------------------------------------------------------------------------------


class Finished(Struct, frozen=True):
    """Attempts that ended (WRK-5: finished(task_id, reason)), in the order in which they ended on each
    worker.
    """

    job: JobId
    resource_id: ResourceId
    outcomes: tuple[Outcome, ...]


class Begun(Struct, frozen=True):
    """A worker has begun with an attempt that stages data: it cannot be taken back any more.

    This may be lost with a connection; whoever has not heard it asks such an attempt back in vain.
    """

    job: JobId
    resource_id: ResourceId
    task_id: TaskId
    attempt: Attempt


class AttemptStatus(Struct, frozen=True):
    """Where an attempt is at its worker.

    Attributes:
        phase: ``waiting``, ``stage_in``, ``compute`` or ``stage_out``; "" if it is not there (any more).
        pid: the process that computes for its job there, or 0.
        stdout, stderr: the last of what it has printed, while it computes.
    """

    phase: str
    pid: Count = 0
    stdout: bytes = b""
    stderr: bytes = b""


class Orphans(Struct, frozen=True):
    """What becomes of the tasks of a job that ``job`` has adopted.

    Attributes:
        job: who has adopted them.
        outstanding: of the first report: tasks that are at work here, or whose outcomes follow.
        outcomes: of tasks that have ended.
        over: nothing more comes from this RIF; what it said was at work and did not end is lost.
    """

    job: JobId
    outstanding: tuple[TaskId, ...]
    outcomes: tuple[Outcome, ...]
    over: bool


# RTS to RIF and back ----------------------------------------------------------------------------------------


class AddResources(Struct, frozen=True):
    """Start a worker for each of these resources (RIF-1)."""

    resources: tuple[Resource, ...]


class RemoveResources(Struct, frozen=True):
    """Stop the workers of these resources; what they run is lost."""

    resource_ids: tuple[ResourceId, ...]


class Revoke(Struct, frozen=True):
    """Kill what runs under the grant on these resources, raise their fence to it, and answer Revoked."""

    grant_id: GrantId
    resources: tuple[ResourceId, ...]


class Revoked(Struct, frozen=True):
    """Nothing runs any more under the grant on these resources, nor will."""

    grant_id: GrantId
    resources: tuple[ResourceId, ...]


class EndState(StrEnum):
    """How a job has ended."""

    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


class JobEnd(Struct, frozen=True):
    """How a job ended, as its job server says when it leaves.

    Attributes:
        state: how.
        detail: why, when it did not finish.
        tasks: state -> number of tasks; empty if it had none.
        elapsed_s: seconds that it took.
    """

    state: EndState = EndState.FINISHED
    detail: str = ""
    tasks: dict[TaskState, Count] = msgspec.field(default_factory=dict)
    elapsed_s: Seconds = 0.0


class GrantsAhead(Struct, frozen=True):
    """RTS to RIF: a grant of this epoch that is newer was never given, until this is said again."""

    newest: GrantId


class Claim(Struct, frozen=True):
    """A RIF says what is in use under a grant, for a run-time system that was started again."""

    job: JobId
    grant_id: GrantId
    resources: tuple[ResourceId, ...]


class WorkerEndpoint(Struct, frozen=True):
    """How to reach the worker of a resource: through the RIF at ``address`` (RIF-4, proxy)."""

    resource_id: ResourceId
    resource_class: str
    rif_id: RifId
    host: str
    address: str


class DagReport(Struct, frozen=True):
    """What ``add`` started or ``remove`` removed (RTS-2)."""

    workers: tuple[WorkerEndpoint, ...]
