"""Messages between job servers and workers, passed on by the RIF of the host."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Struct

from gspc_trio.core.ids import Attempt, Count, GrantId, JobId, ResourceId, Seconds, TaskId
from gspc_trio.core.staging import DEFAULT_LIMITS, StageLimits
from gspc_trio.core.task import DEFAULT_OPTIONS, Outcome, TaskOptions
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.protocol.hidden import HidesFields


class ProcessKey(HidesFields, frozen=True):
    """The key by which ``multiprocessing`` knows the processes of one program; it is shown nowhere."""

    hidden: ClassVar[frozenset[str]] = frozenset({"value"})

    value: bytes


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
        initializer: encoded code that each compute process runs before its first task; b"" for none.
        process_tasks_max: after so many tasks a compute process is replaced; 0: never.
        directory: of the files that its tasks fetch and store, on its own host.
        traceparent: trace context of its span, from which those of its tasks follow; "": it has none.
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
    initializer: bytes = b""
    process_tasks_max: Count = 0
    directory: str = ""
    traceparent: str = ""


class DefineCode(Struct, frozen=True):
    """Entry ``code_id`` of a job's code table (``compute.code``), opaque to all but the compute process."""

    job: JobId
    code_id: Count
    data: bytes


class Submission(Struct, frozen=True):
    """One attempt of a task, on its way to a worker.

    ``held`` describes the resources of a co-allocated grant to the task (``core.held``). At its
    RIF it gets a ``directory`` to run in, if it has files, and the ``input_bytes`` that its stage-in fetches.
    ``after`` names the attempt whose result takes the place of each argument ``TO_COME``. Such an attempt
    runs directly behind that one, in the same process. If that does not finish, it goes back and has not
    begun. Of several whose data is there, that of the lowest ``rank`` computes first.
    """

    task_id: TaskId
    attempt: Attempt
    code_id: Count
    arguments: tuple[bytes, ...] = ()
    options: TaskOptions = DEFAULT_OPTIONS
    held: tuple[str, ...] = ()
    directory: str = ""
    input_bytes: Count = 0
    after: tuple[TaskId, Attempt] | None = None
    rank: int = 0


class Submit(Struct, frozen=True):
    """Run these, in order, on the worker of ``resources[0]`` under the grant; the other resources are held by
    it.

    ``resource_class`` is that of the tasks' first requirement; a worker of another class refuses them
    (WRK-1). Empty means that the grant alone says it.

    The first one may take the result of an attempt that was submitted before; each of the others takes that
    of one before it here, or none.
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


class GetAttempt(Struct, frozen=True):
    """A call: how is this attempt, and what has it printed so far? Answered by an AttemptStatus.

    ``seen``: so many bytes of its standard output and error are known.
    """

    job: JobId
    resource_id: ResourceId
    task_id: TaskId
    attempt: Attempt
    seen: tuple[Count, Count] = (0, 0)


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
    ``computes``: it is the one in compute now, and may have overtaken others.
    """

    job: JobId
    resource_id: ResourceId
    task_id: TaskId
    attempt: Attempt
    computes: bool = False


class AttemptStatus(Struct, frozen=True):
    """Where an attempt is at its worker.

    Attributes:
        phase: ``waiting``, ``stage_in``, ``compute`` or ``stage_out``; "" if it is not there (any more).
        pid: the process that computes for its job there, or 0.
        stdout, stderr: the last of what it has printed while it computes, without what is ``seen``.
        stdout_bytes, stderr_bytes: how much it has printed while it computes.
    """

    phase: str
    pid: Count = 0
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_bytes: Count = 0
    stderr_bytes: Count = 0


class FromTask(Struct, frozen=True):
    """RIF to job: a task of the job says this to its job server, to start others (``core.nested``).

    Attributes:
        job: of the task.
        session: number of the connection of its process.
        resource_id: where it runs.
        task_id: which it is.
        data: what it says; b"": the connection is over.
    """

    job: JobId
    session: Count
    resource_id: ResourceId
    task_id: TaskId
    data: bytes


class ToTask(Struct, frozen=True):
    """Job to RIF: say this to the process of a task; the connection may be over."""

    job: JobId
    session: Count
    data: bytes
