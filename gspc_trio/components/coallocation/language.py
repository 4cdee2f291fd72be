"""The language of co-allocation requests: one tree from text or XML, and the order that it states.

``parse_coallocation`` takes either; ``order_of`` says which jobs wait for which (COA-4, COA-5).
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.coallocation.text import parse_text
from gspc_trio.components.coallocation.tree import (
    Job,
    Multistage,
    Option,
    Place,
    Request,
    RslError,
    jobs_of,
)
from gspc_trio.components.coallocation.vocabulary import waits_of
from gspc_trio.components.coallocation.xml_form import parse_xml_request
from gspc_trio.core.imports import collector_paused


def parse_coallocation(source: str | bytes) -> Request:
    """Return the tree of a co-allocation request.

    Args:
        source: its text (``*(a)(b)``), or its XML; bytes are UTF-8.

    Raises:
        RslError: it cannot be read: with line and column, and what may stand there.
        TypeError: it is neither text nor bytes.
    """
    if not isinstance(source, str | bytes):
        raise TypeError(f"a request is text or bytes, not {source!r:.60}")
    if isinstance(source, bytes):
        source = source.removeprefix(BOM_UTF8)  # some editors write it before the text
    with collector_paused():  # a tree is no garbage
        if source.lstrip()[:1] in ("<", b"<"):
            data = source if isinstance(source, bytes) else source.encode("utf-8", "surrogatepass")
            request = parse_xml_request(data)
        else:
            request = parse_text(source if isinstance(source, str) else _decoded(source))
        order_of(request)
    return request


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = len(data[data.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8", "replace")) + 1
        raise RslError("the text is no UTF-8", (line, column)) from None


class JobOrder(Struct, frozen=True):
    """Which jobs of a request wait for which.

    Attributes:
        jobs: how many there are; they are numbered from 1 on.
        awaited: for each job, and then for each gate, the numbers of those that it waits for. A gate is
            numbered as a job, after the last one; it stands for all that it waits for, and runs nothing.
    """

    jobs: int
    awaited: tuple[tuple[int, ...], ...]

    def waits(self, number: int) -> tuple[int, ...]:
        """Return the numbers of the jobs that a job waits for, in rising order; the last ones, of a gate."""
        found: set[int] = set()
        stack = list(self.awaited[number - 1])
        while stack:
            other = stack.pop()
            if other <= self.jobs:
                found.add(other)
            else:
                stack.extend(self.awaited[other - 1])
        return tuple(sorted(found))


def order_of(request: Request, is_stated: bool = False) -> JobOrder:
    """Return which jobs of a request wait for which.

    With one ``wait`` anywhere these alone order. Else in each ``*`` all jobs that stand there as stages wait
    for all jobs below the other stages.

    Args:
        request: its tree.
        is_stated: it is part of a request with a ``wait`` elsewhere.

    Raises:
        RslError: a number is that of no job, of the job itself, or makes a cycle.
    """
    jobs = list(jobs_of(request))
    stated = [(number, option) for number, job in enumerate(jobs, 1) if (option := _wait_option(job))]
    if stated or is_stated:
        return JobOrder(len(jobs), _stated_waits(len(jobs), stated))
    return JobOrder(len(jobs), _implied_waits(request, len(jobs)))


def _wait_option(job: Job) -> Option | None:
    for option in job.options:
        if option.name == "wait":
            return option
    return None


_Edge: TypeAlias = tuple[int, int, Place]


def _stated_waits(count: int, stated: Sequence[tuple[int, Option]]) -> tuple[tuple[int, ...], ...]:
    """Return what ``wait`` says; refuse the first number, in the order of the text, that makes no sense."""
    edges: list[_Edge] = []
    wrong: RslError | None = None
    for number, other, place in ((at, *one) for at, option in stated for one in waits_of(option)):
        if other > count:
            wrong = RslError(f"there is no job {other}: they are numbered from 1 to {count}", place)
        elif other == number:
            wrong = RslError(f"job {number} waits for itself", place)
        if wrong is not None:
            break
        edges.append((number, other, place))
    if not _is_acyclic(count, edges):
        least, most = 1, len(edges)  # the least number of edges that have a cycle
        while least < most:
            middle = (least + most) // 2
            least, most = (middle + 1, most) if _is_acyclic(count, edges[:middle]) else (least, middle)
        number, other, place = edges[least - 1]
        raise RslError(f"jobs wait for each other in a circle: job {other} waits for job {number}", place)
    if wrong is not None:
        raise wrong
    found: list[set[int]] = [set() for _ in range(count)]
    for number, other, _ in edges:
        found[number - 1].add(other)
    return tuple(tuple(sorted(awaited)) for awaited in found)


def _is_acyclic(count: int, edges: Sequence[_Edge]) -> bool:
    """Whether all jobs can be put in an order in which each comes after those that it waits for."""
    left = [0] * (count + 1)
    dependents: list[list[int]] = [[] for _ in range(count + 1)]
    for number, other, _ in edges:
        left[number] += 1
        dependents[other].append(number)
    free = [number for number in range(1, count + 1) if not left[number]]
    for number in free:
        for other in dependents[number]:
            left[other] -= 1
            if not left[other]:
                free.append(other)
    return len(free) == count


def _implied_waits(request: Request, count: int) -> tuple[tuple[int, ...], ...]:
    """Return the order that the stages imply.

    Jobs wait only for the last ones below: those wait for the others themselves.
    """
    found: list[tuple[int, ...]] = [()] * count
    _last_ones(request, iter(range(1, count + 1)), found)
    return tuple(found)


def _last_ones(request: Request, numbers: Iterator[int], found: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Note what the jobs of a request wait for; return those after which it is over."""
    if not isinstance(request, Multistage):
        return (next(numbers),)
    own: list[int] = []
    below: list[int] = []
    for stage in request.stages:
        (below if isinstance(stage, Multistage) else own).extend(_last_ones(stage, numbers, found))
    awaited = tuple(below)
    if len(own) > 1 and len(below) > 1:
        found.append(awaited)
        awaited = (len(found),)
    for number in own:
        found[number - 1] = awaited
    return tuple(own) or awaited
