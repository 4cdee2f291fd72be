"""Settings of a transition for its tasks."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, SupportsIndex, TypeAlias, TypedDict

from msgspec.structs import replace

from gspc_trio.core.code import Variants, checked_size
from gspc_trio.core.similar import did_you_mean
from gspc_trio.core.staging import Staged
from gspc_trio.core.task import Requirement, Shape, TaskOptions, TaskVariant, TaskVariants
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.calls import FunctionCall
from gspc_trio.workflow.tokens import Token, TokenCodec

PRIORITY_MAX = 1_000_000
"""Highest priority of tasks; the lowest is as far below 0."""

Requires: TypeAlias = "str | Requirement | Sequence[str | Requirement]"


class TaskSettings(TypedDict, total=False):
    """What a transition may say about its tasks; the meaning of each is in ``TaskOptions`` and ``Shape``."""

    requires: Requires
    wait: bool
    same_host: bool
    at: str
    attempts: int
    loss_attempts: int
    timeout_s: float | None
    may_rerun: bool
    memory_bytes: int
    memories: Sequence[int]
    estimate_s: float | None
    cache: bool | None
    output_bytes: int | None
    stage_in: bool | Staged
    stage_out: bool | Staged
    output_ranges: Mapping[str, str]


def task_settings(settings: TaskSettings, priority: int = 0) -> tuple[Shape, TaskOptions]:
    """Return what the settings say, as shape and options of tasks of this priority.

    Raises:
        WorkflowError: a setting that does not exist or makes no sense.
    """
    unknown = set(settings) - set(TaskSettings.__annotations__)
    if unknown:
        name, known = min(unknown), TaskSettings.__annotations__
        meant = did_you_mean(name, known)
        raise WorkflowError(f"unknown setting {name!r}; there are: {', '.join(known)}{meant}")
    given: dict[str, Any] = dict(settings)
    for name in ("wait", "same_host", "may_rerun"):
        if not isinstance(given.get(name, False), bool):  # "no" would count as True
            raise WorkflowError(f"{name} is True or False, not {given[name]!r}")
    if not isinstance(given.get("cache"), bool | None):
        raise WorkflowError(f"cache is True, False or None, not {given['cache']!r}")
    for name, least in (("attempts", 1), ("loss_attempts", 1), ("memory_bytes", 0)):
        if name in given:
            given[name] = whole_number(name, given[name], least)
    if given.get("output_bytes") is not None:
        given["output_bytes"] = whole_number("output_bytes", given["output_bytes"], 0)
    for name in ("timeout_s", "estimate_s"):
        if given.get(name) is not None:
            given[name] = _seconds(name, given[name])
    estimate_s = given.get("estimate_s")
    if estimate_s == math.inf:
        raise WorkflowError("estimate_s must be finite")
    memories = given.get("memories", ())
    if isinstance(memories, str | bytes) or not isinstance(memories, Iterable):
        raise WorkflowError(f"memories is a list of sizes in bytes, not {memories!r}")
    shape = Shape(
        requirements=requirements(given.get("requires", "core")),
        memory_bytes=given.get("memory_bytes", 0),
        memories=tuple(whole_number("a size in memories", size_bytes, 1) for size_bytes in memories),
        estimate_s=None if estimate_s is None else 2.0 ** math.ceil(math.log2(estimate_s)),
        wait=given.get("wait", False),
        same_host=given.get("same_host", False),
        at=_location(given.get("at", "")),
    )
    ranges, fetch, store = (given.get(name, False) for name in ("output_ranges", "stage_in", "stage_out"))
    files = isinstance(fetch, Mapping) or isinstance(store, Mapping)
    given["stage_in"] = bool(fetch or files or ranges)
    given["stage_out"] = bool(store or ranges)
    stated = {name: given[name] for name in _OPTIONS if name in given}
    return shape, TaskOptions(**stated, priority=_checked_priority(priority))


def task_variants(run: object, settings: TaskSettings) -> TaskVariants | None:
    """Return the variants of code with what their tasks need; the code of each has its place in their order
    as its number.

    Args:
        run: code of tasks.
        settings: what holds for all of them.

    Returns:
        None if there is one way only.

    Raises:
        WorkflowError: a setting that makes no sense.
    """
    if not isinstance(run, Variants):
        return None
    ways = []
    for number, (name, variant) in enumerate(run.ways.items()):
        its = settings.copy()
        if variant.requires is not None:
            its["requires"] = variant.requires
        if variant.estimate_s is not None:
            its["estimate_s"] = variant.estimate_s
        try:
            shape, options = task_settings(its)
        except WorkflowError as error:
            raise WorkflowError(f"variant {name!r}: {error}") from None
        ways.append(TaskVariant(name, number, shape, options.estimate_s))
    return TaskVariants(tuple(ways), run.in_order)


def sized(
    variants: TaskVariants, size: FunctionCall, codec: TokenCodec, binding: Sequence[Token]
) -> TaskVariants:
    """Return the variants of a task with the size of its input; one that cannot be told is that of its bytes.

    Args:
        variants: of the task.
        size: how it is told.
        codec: decodes tokens.
        binding: the tokens of the task.
    """
    try:
        told = size.function(*[codec.decode(binding[index]) for index in size.order])
        return replace(variants, size=checked_size(told))
    except Exception:  # of the user's function: only times depend on it
        return variants


def numbered(variants: TaskVariants, first: int) -> TaskVariants:
    """Return variants whose code begins at this number of a code table."""
    ways = tuple(replace(way, code_id=first + way.code_id) for way in variants.ways)
    return replace(variants, ways=ways)


def checked_needs(shape: Shape, options: TaskOptions) -> tuple[Shape, TaskOptions]:
    """Return shape and options of tasks that no transition states, with the same care.

    Memory and estimate that only the options state hold for the shape, too.

    Raises:
        WorkflowError: something in them makes no sense, or they are something else.
    """
    for given, kind, name in ((shape, Shape, "shape"), (options, TaskOptions, "options")):
        if not isinstance(given, kind):
            raise WorkflowError(f"{name} is a {kind.__name__}, not {given!r}")
    stated: TaskSettings = {
        "requires": shape.requirements,
        "wait": shape.wait,
        "same_host": shape.same_host,
        "at": shape.at,
        "memories": shape.memories,
        "attempts": options.attempts,
        "loss_attempts": options.loss_attempts,
        "timeout_s": options.timeout_s,
        "may_rerun": options.may_rerun,
        "memory_bytes": options.memory_bytes,
        "estimate_s": options.estimate_s,
        "stage_in": options.stage_in,
        "stage_out": options.stage_out,
        "cache": options.cache,
        "output_bytes": options.output_bytes,
    }
    found, options = task_settings(stated, options.priority)
    memory_bytes = whole_number("memory_bytes", shape.memory_bytes, 0) or found.memory_bytes
    estimate_s = shape.estimate_s if shape.estimate_s is not None else found.estimate_s
    return replace(found, memory_bytes=memory_bytes, estimate_s=estimate_s), options


def _location(name: object) -> str:
    if not isinstance(name, str):
        raise WorkflowError(f"at is the name of a run-time system of the job, not {name!r}")
    return name


def _checked_priority(value: object) -> int:
    """Return a priority: a whole number of either sign.

    Raises:
        WorkflowError: it is something else, or too large.
    """
    number = whole_number("priority", value, -PRIORITY_MAX)
    if number > PRIORITY_MAX:
        raise WorkflowError(f"priority must be at most {PRIORITY_MAX}, not {number}")
    return number


def whole_number(name: str, value: object, least: int) -> int:
    """Return the whole number that a setting is.

    Raises:
        WorkflowError: it is none, or less than it may be.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise WorkflowError(f"{name} must be a whole number, not {value!r}")
    number = operator.index(value)
    if number < least:
        raise WorkflowError(f"{name} must be at least {least}, not {number}")
    return number


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise WorkflowError(f"{name} must be a number of seconds, not {value!r}")
    seconds = float(value)
    if not seconds > 0:
        raise WorkflowError(f"{name} must be more than 0, not {seconds:g}")
    return seconds


_OPTIONS = (
    "attempts",
    "loss_attempts",
    "timeout_s",
    "may_rerun",
    "memory_bytes",
    "estimate_s",
    "stage_in",
    "stage_out",
    "cache",
    "output_bytes",
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
    if not isinstance(requires, str | Requirement | Iterable):
        raise WorkflowError(f"requires is a resource class or a list of them, not {requires!r}")
    listed = [requires] if isinstance(requires, str | Requirement) else list(requires)
    if not listed:
        raise WorkflowError("requires must name at least one resource class")
    for item in listed:
        if not isinstance(item, str | Requirement):
            raise WorkflowError(f"requires lists resource classes, not {item!r}")
    found = tuple(Requirement(item) if isinstance(item, str) else item for item in listed)
    if not all(item.resource_class for item in found):
        raise WorkflowError("requires has a resource class without a name")
    return found
