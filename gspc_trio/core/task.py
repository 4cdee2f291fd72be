"""Tasks, what they ask for, how an attempt ends."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from attrs import field, frozen
from msgspec import Meta, Struct

from gspc_trio.core.ids import Attempt, Count, ResourceId, Seconds, TaskId


class TaskState(StrEnum):
    """Where a task is; exactly one state at a time, the last three are final."""

    READY = "ready"
    SUBMITTED = "submitted"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL_STATES = frozenset({TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED})


class Reason(StrEnum):
    """How an attempt ended at a worker (WRK-5).

    ``finished``, ``failed`` and ``cancelled`` are the document's; ``lost`` means that the process computing
    it died;
    ``returned`` that it did not run to its end through no doing of its own (taken back, refused, fate) and
    uses up nothing.
    """

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"
    RETURNED = "returned"


def _ids(preferences: Iterable[ResourceId]) -> tuple[ResourceId, ...]:
    """Refuse a single id where several are meant: it would be taken for its letters."""
    if isinstance(preferences, str):
        raise TypeError(f"preferences are a tuple of resource ids: ({preferences!r},) for this one")
    return tuple(preferences)


@frozen
class Requirement:
    """One resource that a task needs (GSPC19 2.4: ``(RClass, [Preference])``).

    Attributes:
        resource_class: the class.
        preferences: ids in order of preference; an id of an ancestor stands for any resource of the class
            below it.
        hard: only preferred resources will do.
        patience_s: how long a request leaves others free for the sake of those that it prefers here; 0: not
            at all, None: as the resource manager has it (0.05 s).

    Raises:
        TypeError: preferences are a single id.
        ValueError: the patience is no finite number of seconds, 0 or more.
    """

    resource_class: str = "core"
    preferences: tuple[ResourceId, ...] = field(default=(), converter=_ids)
    hard: bool = False
    patience_s: float | None = field(default=None)

    @patience_s.validator
    def _check_patience(self, _: object, patience_s: float | None) -> None:
        if patience_s is not None and not 0 <= patience_s < math.inf:
            raise ValueError(f"patience_s is a number of seconds, 0 or more, not {patience_s!r}")


class Shape(Struct, frozen=True, cache_hash=True):
    """What a grant is asked for: equal shapes share one queue in scheduler and RM.

    Attributes:
        requirements: one resource for each, all or nothing; the task runs on the worker of the first.
        memory_bytes: memory needed on the first resource's host.
        memories: sizes of several pieces of memory there, each given whole (RM-8), besides ``memory_bytes``.
        estimate_s: expected seconds of a task, rounded up to a power of two, or None.
        wait: wait for resources that may be added later instead of being refused.
        same_host: all resources from one host.
    """

    requirements: Annotated[tuple[Requirement, ...], Meta(min_length=1)] = (Requirement(),)
    memory_bytes: Count = 0
    estimate_s: Seconds | None = None
    wait: bool = False
    same_host: bool = False
    memories: tuple[Annotated[int, Meta(ge=1)], ...] = ()

    def __str__(self) -> str:
        parts = []
        for requirement in self.requirements:
            text = requirement.resource_class
            if requirement.preferences:
                wish = "only" if requirement.hard else "preferably"
                text += f" ({wish} {', '.join(requirement.preferences)})"
            parts.append(text)
        parts = [
            text if parts.count(text) == 1 else f"{parts.count(text)} {text}" for text in dict.fromkeys(parts)
        ]
        sizes_bytes = (self.memory_bytes, *self.memories)
        parts.extend(f"{size_bytes} bytes of memory" for size_bytes in sizes_bytes if size_bytes)
        return " + ".join(parts)


CORE = Shape()
"""One core: what a task asks for that says nothing."""


class TaskOptions(Struct, frozen=True):
    """What a task states about itself.

    Attributes:
        attempts: how often it may be tried when it fails by its own error.
        loss_attempts: how often it may be tried when the process or host that computes it is lost.
        timeout_s: seconds of compute after which it is stopped and has failed, or None.
        may_rerun: whether it may run again once it may have started; if not, it is never overlapped with
            others.
        memory_bytes: memory that its compute may take, 0 for no limit.
        estimate_s: expected seconds of compute, or None.
        stage_in: whether its worker has to fetch data before compute.
        stage_out: whether its worker has to store data after compute.
        priority: of the tasks of a job that wait, those with the highest get resources first.
    """

    attempts: Count = 1
    loss_attempts: Count = 3
    timeout_s: Seconds | None = None
    may_rerun: bool = True
    memory_bytes: Count = 0
    estimate_s: Seconds | None = None
    stage_in: bool = False
    stage_out: bool = False
    priority: int = 0


DEFAULT_OPTIONS = TaskOptions()


class Task(Struct, frozen=True):
    """One activity of a workflow, as the engine hands it out.

    Attributes:
        task_id: counted from 1 in its job.
        name: of the transition or function, for people.
        code_id: number of its code in the job's code table.
        arguments: encoded values (``protocol.values``), opaque here.
        shape: what it needs to run.
        options: what it states about itself.
        distance: how far it is from the end of its workflow, as far as that is known: of equal priority, the
            least gets resources first.
    """

    task_id: TaskId
    name: str
    code_id: int
    arguments: tuple[bytes, ...] = ()
    shape: Shape = CORE
    options: TaskOptions = DEFAULT_OPTIONS
    distance: int = 0


class TaskError(Struct, frozen=True):
    """Why an attempt did not finish.

    Attributes:
        kind: name of the exception's type, or ``lost``, ``timeout``, ``exit status``, ``refused``,
            ``awaited`` (what the task needs is being made), ``unknown``.
        message: one line for people.
        traceback: the user's frames, or "".
        pickled: the exception itself, opened only in the user's own processes, or b"".
    """

    kind: str
    message: str
    traceback: str = ""
    pickled: bytes = b""


class Outcome(Struct, frozen=True):
    """How one attempt ended, as a worker reports it.

    Attributes:
        task_id, attempt: whose.
        reason: finished, failed, cancelled, lost or returned.
        values: for each output of the task's code, the encoded values that it put there.
        error: why, when it did not finish.
        stdout, stderr: the last part of what it printed.
        started_s: wall-clock time (seconds since 1970) at which compute began, 0 if it did not.
        duration_s: seconds of compute.
        staged_s: wall-clock times at which stage-in began and ended, and stage-out did; 0 for what was not.
            Empty if nothing was staged.
        moved: (host, bytes, seconds) of data that stage-in fetched from another host.
    """

    task_id: TaskId
    attempt: Attempt
    reason: Reason
    values: tuple[tuple[bytes, ...], ...] = ()
    error: TaskError | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    started_s: float = 0.0
    duration_s: float = 0.0
    staged_s: tuple[float, ...] = ()
    moved: tuple[tuple[str, int, float], ...] = ()
