"""What a transition may say about its tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

from gspc_trio.core.staging import Staged
from gspc_trio.core.task import Requirement, Shape, TaskOptions
from gspc_trio.workflow.arcs import WorkflowError

Requires: TypeAlias = "str | Requirement | Sequence[str | Requirement]"


class TaskSettings(TypedDict, total=False):
    """What a transition may say about its tasks; the meaning of each is in ``TaskOptions`` and ``Shape``."""

    requires: Requires
    wait: bool
    same_host: bool
    attempts: int
    loss_attempts: int
    timeout_s: float | None
    may_rerun: bool
    memory_bytes: int
    memories: Sequence[int]
    estimate_s: float | None
    stage_in: bool | Staged
    stage_out: bool | Staged
    output_ranges: Mapping[str, str]


def task_settings(settings: TaskSettings) -> tuple[Shape, TaskOptions]:
    """Return what the settings say, as shape and options.

    Raises:
        WorkflowError: a setting that does not exist or makes no sense.
    """
    unknown = set(settings) - set(TaskSettings.__annotations__)
    if unknown:
        raise WorkflowError(
            f"unknown setting {min(unknown)!r}; there are: {', '.join(TaskSettings.__annotations__)}"
        )
    for name in ("attempts", "loss_attempts"):
        if settings.get(name, 1) < 1:  # type: ignore[operator]
            raise WorkflowError(f"{name} must be at least 1")
    for name in ("timeout_s", "estimate_s"):
        seconds = settings.get(name)
        if seconds is not None and not seconds > 0:  # type: ignore[operator]
            raise WorkflowError(f"{name} must be more than 0")
    memory_bytes = settings.get("memory_bytes", 0)
    if memory_bytes < 0:
        raise WorkflowError("memory_bytes must not be negative")
    if any(size_bytes < 1 for size_bytes in settings.get("memories", ())):
        raise WorkflowError("memories are sizes in bytes, each at least 1")
    estimate_s = settings.get("estimate_s")
    if estimate_s == math.inf:
        raise WorkflowError("estimate_s must be finite")
    shape = Shape(
        requirements=requirements(settings.get("requires", "core")),
        memory_bytes=memory_bytes,
        memories=tuple(settings.get("memories", ())),
        estimate_s=None if estimate_s is None else 2.0 ** math.ceil(math.log2(estimate_s)),
        wait=settings.get("wait", False),
        same_host=settings.get("same_host", False),
    )
    given: dict[str, Any] = dict(settings)
    ranges, fetch, store = (given.get(name, False) for name in ("output_ranges", "stage_in", "stage_out"))
    files = isinstance(fetch, Mapping) or isinstance(store, Mapping)
    given["stage_in"] = bool(fetch or files or ranges)
    given["stage_out"] = bool(store or ranges)
    return shape, TaskOptions(**{name: given[name] for name in _OPTIONS if name in given})


_OPTIONS = (
    "attempts",
    "loss_attempts",
    "timeout_s",
    "may_rerun",
    "memory_bytes",
    "estimate_s",
    "stage_in",
    "stage_out",
)


def requirements(requires: Requires) -> tuple[Requirement, ...]:
    """Return the requirements for one or several resources, given as classes or requirements.

    Raises:
        WorkflowError: there are none, or they are given as something else.
    """
    if isinstance(requires, Mapping):  # {"core": 2} would silently ask for one core
        raise WorkflowError(
            "requires is a resource class or a list of them, one for each resource, not a mapping"
        )
    listed = [requires] if isinstance(requires, str | Requirement) else list(requires)
    if not listed:
        raise WorkflowError("requires must name at least one resource class")
    for item in listed:
        if not isinstance(item, str | Requirement):
            raise WorkflowError(f"requires lists resource classes, not {item!r}")
    return tuple(Requirement(item) if isinstance(item, str) else item for item in listed)
