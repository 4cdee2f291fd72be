"""Resources that the present task holds, as a task with several of them sees them (co-allocation)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING

from gspc_trio.core.ids import ResourceId

if TYPE_CHECKING:  # compute processes read this, and are many
    from gspc_trio.core.resources import Resource

RESOURCES_VARIABLE = "GSPC_RESOURCES"
"""Environment variable of programs: ``id@host`` of each resource, commas between."""

GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable that says which GPUs a program sees."""

_held: ContextVar[tuple[str, ...]] = ContextVar("held", default=())


def held_resources() -> tuple[tuple[ResourceId, str], ...]:
    """Within a task that needs several resources: id and host of each, in the order of its ``requires``.

    Empty in other tasks, and outside of tasks.
    """
    return tuple([(name, host) for name, host, _, _ in map(_fields, _held.get())])


def describe_held(resources: Iterable[tuple[Resource, str]]) -> tuple[str, ...]:
    """Return these resources and their hosts as a task is told of them: ``id@host@cpus@gpus`` each."""
    return tuple([f"{it.resource_id}@{host}@{_list(it.cpus)}@{_list(it.gpus)}" for it, host in resources])


def hold(described: Sequence[str]) -> None:
    """The task that begins now, in this thread, holds these; or none."""
    _held.set(tuple(described))


def cpus_here(described: Sequence[str]) -> set[int]:
    """Return the CPUs of those resources that are on the first one's host; empty if one does not say."""
    found = _here(described, 2)
    return set() if "" in found else _numbers(found)


def gpus_here(described: Sequence[str]) -> set[int]:
    """Return the GPUs of those resources that are on the first one's host."""
    return _numbers(filter(None, _here(described, 3)))


def held_environment() -> dict[str, str]:
    """Return what the programs of the present task find in their environment."""
    described = _held.get()
    if not described:
        return {}
    found = {RESOURCES_VARIABLE: ",".join(f"{name}@{host}" for name, host in held_resources())}
    gpus = gpus_here(described)
    if gpus:
        found[GPUS_VARIABLE] = ",".join(map(str, sorted(gpus)))
    return found


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _fields(described: str) -> list[str]:
    return [*described.split("@"), "", "", ""][:4]


def _here(described: Sequence[str], field: int) -> list[str]:
    fields = [_fields(text) for text in described]
    return [each[field] for each in fields if each[1] == fields[0][1]]


def _numbers(texts: Iterable[str]) -> set[int]:
    return {int(number) for text in texts for number in text.split(",")}
