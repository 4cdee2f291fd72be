"""Options that a single call of an executor may state, and what tasks need as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import SupportsIndex, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from gspc_trio.core.similar import did_you_mean
from gspc_trio.core.task import Requirement, Shape, TaskOptions, TaskVariant, TaskVariants
from gspc_trio.workflow.arcs import WorkflowError
from gspc_trio.workflow.settings import Requires, checked_needs, requirements, whole_number
from gspc_trio.workflow.tokens import Plain


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
    output_bytes: int | None
    requires: Requires
    memories: Sequence[int]
    wait: bool
    same_host: bool
    at: str
    shape: Shape
    options: TaskOptions


_OF_OPTIONS = frozenset(
    {
        *("attempts", "loss_attempts", "timeout_s", "may_rerun", "memory_bytes", "estimate_s", "priority"),
        *("cache", "output_bytes"),
    }
)
_OF_SHAPE = frozenset({"memory_bytes", "estimate_s", "memories", "wait", "same_host", "at"})


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
    for name in ("memory_bytes", "output_bytes"):
        if stated.get(name) is not None:
            stated[name] = whole_number(name, stated[name], 0)
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


def plain_needs(value: object) -> object:
    """Return shape, options or variants of a task as plain data."""
    if isinstance(value, Struct | Requirement):
        value = [getattr(value, name) for name in type(value).__match_args__]
    return [plain_needs(item) for item in value] if isinstance(value, list | tuple) else value


def load_shape(row: Plain) -> Shape:
    """Return the shape that :func:`plain_needs` was given."""
    requirements, *rest = _tuples(row)
    return Shape(tuple(Requirement(*fields) for fields in requirements), *rest)


def _tuples(value: Plain) -> Plain:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


def load_variants(row: Plain) -> TaskVariants:
    """Return the variants that :func:`plain_needs` was given."""
    ways, *rest = row
    return TaskVariants(tuple(_load_way(*fields) for fields in ways), *rest)


def _load_way(name: str, code_id: int, shape: Plain, estimate_s: float | None, *rest: Plain) -> TaskVariant:
    return TaskVariant(name, code_id, load_shape(shape), estimate_s, *_tuples(rest))
