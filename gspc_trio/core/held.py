"""What a task that needs several resources sees of them (section 3.6 of the house plan)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar

from gspc_trio.core.ids import ResourceId

RESOURCES_VARIABLE = "GSPC_RESOURCES"
"""Environment variable of programs: ``id@host`` of each resource, commas between."""

_held: ContextVar[tuple[str, ...]] = ContextVar("held", default=())


def held_resources() -> tuple[tuple[ResourceId, str], ...]:
    """Within a task that needs several resources: id and host of each, in the order of its ``requires``.

    Empty in other tasks, and outside of tasks.
    """
    return tuple([(name, host) for name, _, host in (text.partition("@") for text in _held.get())])


def describe_held(resources: Iterable[tuple[ResourceId, str]]) -> tuple[str, ...]:
    """Return ``id@host`` of each of these resources."""
    return tuple([f"{name}@{host}" for name, host in resources])


def hold(described: Sequence[str]) -> None:
    """The task that begins now, in this thread, holds these; or none."""
    _held.set(tuple(described))


def held_environment() -> dict[str, str]:
    """Return what the programs of the present task find in their environment."""
    described = _held.get()
    return {RESOURCES_VARIABLE: ",".join(described)} if described else {}
