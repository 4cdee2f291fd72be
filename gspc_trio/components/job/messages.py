"""Messages to a job server, from those who watch and steer its job."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.core.ids import Count, TaskId


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
