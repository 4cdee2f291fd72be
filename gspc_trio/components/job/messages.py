"""Messages to a job server, from those who watch and steer its job."""

from __future__ import annotations

from msgspec import Struct, field

from gspc_trio.core.ids import Count, TaskId
from gspc_trio.core.messages import Done, Question, Status
from gspc_trio.iml.messages import LayerStatus


class GetJobStatus(Struct, frozen=True):
    """Answered by a Status."""


class WaitJob(Struct, frozen=True):
    """Answered by a Status when the job is over."""


class StopJob(Question[Done], frozen=True):
    """Stop the job: start nothing more, and cancel what runs or (``drain``) let it end."""

    drain: bool = False


class ApplicationCall(Struct, frozen=True):
    """Application-specific RPC (APP-2): an encoded value in, an ApplicationReply out."""

    name: str
    argument: bytes


class ApplicationReply(Struct, frozen=True):
    """What the application's function returned, encoded."""

    value: bytes


class GetTask(Question[Status], frozen=True):
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


class GetNet(Question[Status], frozen=True):
    """Job server: the workflow and how far it is. Answered by a Status."""


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
