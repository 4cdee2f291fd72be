"""What the calls of an executor may state, and what its constructor is given."""

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


_HAS_ITS_OWN = (
    "{} is for a run-time system that the executor starts; one that runs has as many workers as resources: "
    "leave it out"
)


def refuse_beside(name: str, **given: object) -> None:
    """Raise TypeError if something is given that is settled by the argument ``name``."""
    for other, value in given.items():
        if value:
            raise TypeError(f"{other} is an option of open_rts; {name} is open already: leave {other} out")


def checked_workers(
    max_workers: SupportsIndex | None, cores: int, is_running: bool, mp_context: object
) -> int:
    """Return the number of cores to offer, 0 for what there is.

    Args:
        max_workers: as the standard library calls it.
        cores: as everything else here calls it.
        is_running: whether the run-time system runs already.
        mp_context: how the standard library is told to start its processes.

    Raises:
        TypeError: both are given, or ``max_workers`` is no whole number.
        ValueError: ``max_workers`` is not positive, or the run-time system has its own; there is a context.
    """
    if mp_context is not None:
        raise ValueError(
            "mp_context has no meaning here: compute processes are always forked from a fresh interpreter "
            "that has never seen this program, so that no thread, lock or open file of it is in them; "
            "leave it out"
        )
    if max_workers is None:
        if cores and is_running:
            raise ValueError(_HAS_ITS_OWN.format(f"cores={cores}"))
        return cores
    if not isinstance(max_workers, SupportsIndex):
        raise TypeError(f"max_workers is a whole number, None for what this machine has, not {max_workers!r}")
    number = index(max_workers)
    if number <= 0:
        raise ValueError(f"max_workers must be greater than 0, not {number}")
    if cores:
        raise TypeError(f"max_workers={number} and cores={cores} say the same: give one of them")
    if is_running:
        raise ValueError(_HAS_ITS_OWN.format(f"max_workers={number}"))
    return number


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
