"""Options that a single call of an executor may state."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import SupportsIndex, TypedDict

from msgspec.structs import replace

from gspc_trio.core.similar import did_you_mean
from gspc_trio.core.task import Shape, TaskOptions
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.settings import Requires, checked_needs, requirements


class CallOptions(TypedDict, total=False):
    """What tasks may state; the meaning of each is in ``TaskOptions`` and ``Shape``.

    ``requires`` is a resource class or a list of them, one for each resource. ``shape`` and ``options`` take
    the place of all that the executor states.
    """

    attempts: int
    loss_attempts: int
    timeout_s: float | None
    may_rerun: bool
    memory_bytes: int
    estimate_s: float | None
    priority: int
    cache: bool | None
    requires: Requires
    memories: Sequence[int]
    wait: bool
    same_host: bool
    shape: Shape
    options: TaskOptions


_OF_OPTIONS = frozenset(
    {
        *("attempts", "loss_attempts", "timeout_s", "may_rerun", "memory_bytes", "estimate_s", "priority"),
        "cache",
    }
)
_OF_SHAPE = frozenset({"memory_bytes", "estimate_s", "memories", "wait", "same_host"})


def with_stated(shape: Shape, options: TaskOptions, given: CallOptions) -> tuple[Shape, TaskOptions]:
    """Return what tasks need and state about themselves when something else is stated besides.

    Raises:
        TypeError: there is no such option.
        WorkflowError: what is stated makes no sense.
    """
    names = CallOptions.__annotations__
    for name in given:
        if name not in names:
            raise TypeError(f"tasks have no option {name!r}{did_you_mean(name, names)}")
    shape, options = given.get("shape", shape), given.get("options", options)
    for value, kind, name in ((shape, Shape, "shape"), (options, TaskOptions, "options")):
        if not isinstance(value, kind):
            raise WorkflowError(f"{name} is a {kind.__name__}, not {value!r}")
    needs = {name: value for name, value in given.items() if name in _OF_SHAPE}
    if "requires" in given:
        needs["requirements"] = requirements(given["requires"])
    stated = {name: value for name, value in given.items() if name in _OF_OPTIONS}
    return checked_needs(replace(shape, **needs), replace(options, **stated))


def checked_count(name: str, value: SupportsIndex) -> int:
    """Return a number of things of which there is at least one.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is less.
    """
    if not isinstance(value, SupportsIndex):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    number = index(value)
    if number < 1:
        raise ValueError(f"{name} must be >= 1, not {number}")
    return number
