"""Tasks, what they ask for, how an attempt ends."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from attrs import field, frozen
from msgspec import Meta, Struct

from gspc_trio.core.ids import Attempt, Count, ResourceId, Seconds, TaskId
from gspc_trio.core.resources import checked_feature


class DataUse(StrEnum):
    """What tasks do with data, for which a host may be the wrong one while others are there.

    ``files``: files are put beside the task, or taken from there. ``remote data``: it takes data from another
    host, or gives some to one.
    """

    FILES = "files"
    REMOTE = "remote data"


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


def _features(features: Iterable[str]) -> tuple[str, ...]:
    """Refuse a single feature where several are meant, and put them in an order: it does not matter.

    Raises:
        TypeError: they are no tuple of texts.
        ValueError: one of them can be no feature.
    """
    if isinstance(features, str):
        raise TypeError(f"features are a tuple of texts: ({features!r},) for this one")
    return tuple(sorted(set(map(checked_feature, features))))


@frozen
class Requirement:
    """One resource that a task needs (GSPC19 2.4).

    Attributes:
        resource_class: ``core``, ``socket``, ``node``, ``gpu``, or a class that you have added.
        preferences: ids of preferred resources, the best first. The id of a node or socket stands for every
            resource of the class below it.
        hard: True: take only a preferred resource, and wait for it.
        patience_s: seconds to wait for a preferred resource while others are free; 0: do not wait, None: as
            the resource manager does (0.05 s).
        features: what the host of the resource must have: flags of its processor, such as ``avx512f``, or
            what its options say (``--set features=``).

    Raises:
        TypeError: ``preferences`` or ``features`` is a single text instead of a tuple.
        ValueError: ``patience_s`` is negative or not finite, or no host can have such a feature.
    """

    resource_class: str = "core"
    preferences: tuple[ResourceId, ...] = field(default=(), converter=_ids)
    hard: bool = False
    patience_s: float | None = field(default=None)
    features: tuple[str, ...] = field(default=(), converter=_features)

    @patience_s.validator
    def _check_patience(self, _: object, patience_s: float | None) -> None:
        if patience_s is not None and not 0 <= patience_s < math.inf:
            raise ValueError(f"patience_s is a number of seconds, 0 or more, not {patience_s!r}")

    @property
    def is_bound(self) -> bool:
        """Whether some resources of the class will not do."""
        return self.hard or bool(self.features)


class Shape(Struct, frozen=True, cache_hash=True):
    """The resources that a task needs; tasks of equal shape wait in the same queue.

    Attributes:
        requirements: the resources, all granted together. The task runs on the first one.
        memory_bytes: memory that the task needs on the host of the first resource.
        memories: sizes of further blocks of memory there, besides ``memory_bytes``; each block is contiguous
            (RM-8).
        estimate_s: expected run time in seconds, or None. It is rounded up to a power of two.
        wait: True: wait for resources that do not exist yet. False: fail at once if there are not enough.
        same_host: True: take all resources from one host.
        at: name of the run-time system that they come from, in a job that has several; "": any.
    """

    requirements: Annotated[tuple[Requirement, ...], Meta(min_length=1)] = (Requirement(),)
    memory_bytes: Count = 0
    estimate_s: Seconds | None = None
    wait: bool = False
    same_host: bool = False
    memories: tuple[Annotated[int, Meta(ge=1)], ...] = ()
    at: str = ""

    def __str__(self) -> str:
        parts = []
        for requirement in self.requirements:
            text = requirement.resource_class
            if requirement.preferences:
                wish = "only" if requirement.hard else "preferably"
                text += f" ({wish} {', '.join(requirement.preferences)})"
            if requirement.features:
                text += f" with {' and '.join(requirement.features)}"
            parts.append(text)
        parts = [
            text if parts.count(text) == 1 else f"{parts.count(text)} {text}" for text in dict.fromkeys(parts)
        ]
        sizes_bytes = (self.memory_bytes, *self.memories)
        parts.extend(f"{size_bytes} bytes of memory" for size_bytes in sizes_bytes if size_bytes)
        return " + ".join(parts) + (f" at {self.at}" if self.at else "")


CORE = Shape()
"""One core: what a task asks for that says nothing."""


class TaskOptions(Struct, frozen=True):
    """Options of a task: retries, time-out, memory limit, priority.

    Attributes:
        attempts: how often the task is tried if it raises an error, the first time included.
        loss_attempts: how often it is tried if its process or host is lost, the first time included.
        timeout_s: seconds after which the task is stopped and fails with the kind ``timeout``; None: never.
        may_rerun: False: never run the task again once it may have started. If it is lost then, it fails with
            the kind ``unknown``. Such a task has its worker to itself.
        memory_bytes: the most memory that the task may use; 0: no limit.
        estimate_s: expected run time in seconds, or None.
        stage_in: whether the worker fetches data for the task before it runs; set by nets.
        stage_out: whether the worker stores data of the task after it ran; set by nets.
        priority: of the waiting tasks of a job, those with the highest priority get resources first.
        cache: False: the task runs even if the job has a cache that knows its result, and nothing of it is
            kept there. True: it is looked up also if it is a program that states no files, of which nobody
            knows what it reads and writes; None: such a program runs.
        output_bytes: expected size of its result, for plans; None: what others with its code have made.
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
    cache: bool | None = None
    output_bytes: Count | None = None

    def __post_init__(self) -> None:
        """Refuse sizes that nothing can have.

        Raises:
            ValueError: a size is negative.
        """
        if self.memory_bytes < 0:
            raise ValueError(f"memory_bytes must be at least 0, not {self.memory_bytes}")
        if self.output_bytes is not None and self.output_bytes < 0:
            raise ValueError(f"output_bytes must be at least 0, not {self.output_bytes}")


DEFAULT_OPTIONS = TaskOptions()


TO_COME = b""
"""Among encoded arguments: the result of another task, which the worker that makes it puts here."""


class TaskVariant(Struct, frozen=True):
    """One of several ways to run a task (GSPC19 3.6).

    Attributes:
        name: for people, unique among those of the task.
        code_id: number of its code in the job's code table.
        shape: what it needs to run.
        estimate_s: expected run time in seconds, or None.
        leading: encoded values that come before the arguments of the task.
        transfer_s: seconds that it takes to bring the task's data to where it would run.
    """

    name: str
    code_id: int
    shape: Shape = CORE
    estimate_s: Seconds | None = None
    leading: tuple[bytes, ...] = ()
    transfer_s: Seconds = 0.0


class TaskVariants(Struct, frozen=True):
    """All ways to run a task; one is chosen for each attempt.

    Attributes:
        ways: at least one.
        in_order: the first one of whose class a resource is free is taken, however long it runs. Otherwise
            the one is taken that is expected to end first.
        size: of the input; None: the bytes of the arguments.
    """

    ways: Annotated[tuple[TaskVariant, ...], Meta(min_length=1)]
    in_order: bool = False
    size: Count | None = None


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
        variants: ways to run it, of which the scheduler chooses; then code and shape are those of the first
            way until it has. None: there is one way only.
        items: it computes so many calls of a function. Each has a number behind that of the task, and is
            recorded and traced as if it were a task itself; the task is not. 0: it is no such task.
    """

    task_id: TaskId
    name: str
    code_id: int
    arguments: tuple[bytes, ...] = ()
    shape: Shape = CORE
    options: TaskOptions = DEFAULT_OPTIONS
    distance: int = 0
    variants: TaskVariants | None = None
    items: Count = 0


class TaskError(Struct, frozen=True):
    """Why an attempt did not finish.

    Attributes:
        kind: the type of the exception, or ``lost``, ``timeout``, ``exit status``, ``refused``,
            ``staging``, ``awaited`` (data that the task needs is being made again), ``unknown``.
        message: what happened, in one line.
        traceback: the traceback, with the frames of the user's code only, or "".
        pickled: the exception itself, or b"". Only the user's own processes unpickle it.
    """

    kind: str
    message: str
    traceback: str = ""
    pickled: bytes = b""

    @property
    def is_of_device(self) -> bool:
        """Whether a device has failed (EIO): the fault of the host rather than of the task."""
        return self.kind == "OSError" and self.message.startswith("[Errno 5]")


class FailedThrough(Struct, frozen=True):
    """A task that failed because one that it depends on failed or was cancelled.

    Attributes:
        task_id, name: which.
        error: kind and cause are those of the task where it began, which the message names.
    """

    task_id: TaskId
    name: str
    error: TaskError


class LastAttempt(Struct, frozen=True):
    """What is told of a task that has failed, beside the error.

    Attributes:
        name: of the task.
        attempt: number of its last attempt, from 1; 0 if none began.
        host: where that was, or "".
        stdout, stderr: the last part of what it printed.
        exit_status: of the process that died of it, minus the signal's number if one killed it; else None.
    """

    name: str = ""
    attempt: Attempt = 0
    host: str = ""
    stdout: bytes = b""
    stderr: bytes = b""
    exit_status: int | None = None


class Outcome(Struct, frozen=True):
    """How one attempt ended, as a worker reports it.

    Attributes:
        task_id: id of the task.
        attempt: number of the attempt, from 1.
        reason: finished, failed, cancelled, lost or returned.
        values: for each output of the task, the encoded values for it.
        error: why the attempt did not finish, or None.
        stdout, stderr: the last part of its output, at most 64 KiB each.
        started_s: when the code of the task began to run, in seconds since 1970; 0 if it did not.
        duration_s: for how many seconds it ran.
        staged_s: begin and end of stage-in, begin and end of stage-out, in seconds since 1970; 0 where there
            was none. Empty if nothing was staged.
        moved: (host, bytes, seconds) for data that was fetched from another host.
        first_run: its compute process had not run its code before.
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
    first_run: bool = False
