"""Messages to a job server, from those who watch and steer its job."""

from __future__ import annotations

from msgspec import Struct, field

from gspc_trio.core.ids import Count, JobId, TaskId
from gspc_trio.core.messages import Done, OutputLine, Question
from gspc_trio.core.net import NetStatus
from gspc_trio.core.task import TaskState
from gspc_trio.iml.messages import LayerStatus
from gspc_trio.records.facts import TaskChanged


class LocationStatus(Struct, frozen=True):
    """One of the run-time systems of a job that has several (SCH-6).

    Attributes:
        name: what the job calls it.
        job: what the job is called there.
        state: ``up``, ``away`` as long as it may come back, or ``gone``.
        detail: why it has gone, or what it cannot run.
        there: resource class -> number of its resources that are up.
        held: resource class -> number of grants that the job holds there.
        asked: further grants that it was asked for.
        waited_s: for how long none of these has come.
        transfer_s: seconds that data of a task takes there and back; ``run_s``: that it runs. Of the kind
            of which most tasks have run there, 0 if none has.
    """

    name: str
    job: JobId
    state: str
    detail: str = ""
    there: dict[str, Count] = field(default_factory=dict)
    held: dict[str, Count] = field(default_factory=dict)
    asked: Count = 0
    waited_s: float = 0.0
    transfer_s: float = 0.0
    run_s: float = 0.0


class JobStatus(Struct, frozen=True):
    """How far a job is.

    Attributes:
        job: its id.
        name: for people.
        pid: process of its job server.
        state: ``running``, ``finished``, ``failed`` or ``stopped``.
        detail: why, when it did not finish.
        tasks: state -> number of tasks.
        elapsed_s: seconds since it began, or that it took.
        locations: its run-time systems, if it has several.
    """

    job: JobId
    name: str
    pid: Count
    state: str
    detail: str
    tasks: dict[TaskState, Count]
    elapsed_s: float
    locations: tuple[LocationStatus, ...] = ()


class GetJobStatus(Question[JobStatus], frozen=True):
    """Ask a job server how far its job is."""


class WaitJob(Question[JobStatus], frozen=True):
    """Ask a job server how its job has ended, when it has."""


class StopJob(Question[Done], frozen=True):
    """Stop the job: start nothing more, and cancel what runs or (``drain``) let it end."""

    drain: bool = False


class ApplicationCall(Struct, frozen=True):
    """Application-specific RPC (APP-2): call a function that the job serves; an ApplicationReply comes back.

    Attributes:
        name: of the function.
        arguments: encoded: a list of those by position, a map of those by name.
    """

    name: str
    arguments: bytes


class ApplicationReply(Struct, frozen=True):
    """What the application's function returned, encoded."""

    value: bytes


class OfferedFunction(Struct, frozen=True):
    """A function that a job serves.

    Attributes:
        name: by which it is called.
        parameters: as it is written, e.g. ``(number: int = 1)``.
        summary: the first line of its docstring, or "".
    """

    name: str
    parameters: str
    summary: str = ""


class OfferedFunctions(Struct, frozen=True):
    """The functions that a job serves, by name."""

    functions: tuple[OfferedFunction, ...]


class GetFunctions(Question[OfferedFunctions], frozen=True):
    """Job server: which functions it serves."""


class DumpPart(Struct, frozen=True):
    """Bytes of a dump as JSON, and whether they are the last."""

    data: bytes
    over: bool


class PutToken(Question[Done], frozen=True):
    """Job server: add a token to an input port of its workflow, in the notation of that."""

    port: str
    text: str


class AskWorkflow(Question[ApplicationReply], frozen=True):
    """Job server: add a token as with PutToken; the answer of the workflow comes back as a text, encoded."""

    port: str
    text: str


class ClosePort(Question[Done], frozen=True):
    """Job server: no more tokens come to an open input port; "" for all of them."""

    port: str = ""


class GetDump(Question[DumpPart], frozen=True):
    """Job server: the state of its workflow as JSON, from byte ``seen``; 0 takes a new dump."""

    seen: Count = 0


class TaskDetails(Struct, frozen=True):
    """Everything that is still known of a task; of tasks that finished long ago little is kept.

    Attributes:
        why: what it waits for, or where it runs.
        record: the last word on it.
        host: where that says that it is.
        name, shape: what is run, and what that requires.
        inputs: its arguments, as texts.
        stdout, stderr: the last of what it has printed.
        error, traceback: why it has failed.
        phase: of a task at a worker, ``waiting``, ``stage_in``, ``compute`` or ``stage_out``.
        pid: the process that computes it, or 0.
    """

    task_id: TaskId
    why: str
    record: TaskChanged | None = None
    host: str = ""
    name: str = ""
    shape: str = ""
    inputs: tuple[str, ...] = ()
    stdout: str = ""
    stderr: str = ""
    error: str = ""
    traceback: str = ""
    phase: str = ""
    pid: Count = 0


class GetTask(Question[TaskDetails], frozen=True):
    """Job server: everything about one task."""

    task_id: TaskId


class GetNet(Question[NetStatus], frozen=True):
    """Job server: the workflow and how far it is."""


class MemoryStatus(Struct, frozen=True):
    """Where a job's data is.

    Attributes:
        layer: state of the memory layer that holds it; None: there is none, or it does not answer.
        bandwidths: ``source -> target`` of hosts -> bytes per second that the job has measured.
    """

    layer: LayerStatus | None = None
    bandwidths: dict[str, float] = field(default_factory=dict)


class GetMemory(Question[MemoryStatus], frozen=True):
    """Job server: state of the memory layer that holds its data."""


class CancelTask(Question[Done], frozen=True):
    """Job server: cancel these tasks, wherever they are."""

    task_ids: tuple[TaskId, ...]


class RetryFailed(Question[Done], frozen=True):
    """Job server: give a failed task a new attempt."""

    task_id: TaskId


class OutputLines(Struct, frozen=True):
    """Lines that tasks have printed, in the order in which they came.

    Attributes:
        lines: the lines, not always all that there are.
        seen: what to ask with for those that follow.
        left_out: lines before these that are no longer kept.
        over: the job has ended, and these are the last.
    """

    lines: tuple[OutputLine, ...]
    seen: Count
    left_out: Count
    over: bool


class GetOutput(Question[OutputLines], frozen=True):
    """Job server: the lines that tasks have printed, from number ``seen``.

    With ``wait`` the answer comes when there is a line; whoever asks again and again gets what running tasks
    print as it comes.
    """

    seen: Count = 0
    wait: bool = False


class TaskOutput(Struct, frozen=True):
    """What a task has printed.

    Attributes:
        stdout, stderr: the last of it, without what is seen.
        seen: what to ask with for what follows.
        known: whether anything is known of it.
        over: the task has ended.
    """

    stdout: bytes
    stderr: bytes
    seen: tuple[Count, Count]
    known: bool
    over: bool


class GetTaskOutput(Question[TaskOutput], frozen=True):
    """Job server: what a task has printed so far, as far as it is kept.

    ``seen``: without so many bytes of its standard output and error. With ``wait`` the answer comes when
    there is something new, or the task has ended.
    """

    task_id: TaskId
    seen: tuple[Count, Count] = (0, 0)
    wait: bool = False
