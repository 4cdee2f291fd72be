"""Identifiers, and the counters they come from.

Ids are small, ordered and made by counters, so that a machine given the same events makes the same ids.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

Count: TypeAlias = Annotated[int, Meta(ge=0)]
"""A number of things, of bytes or of a place in a row: 0 or more. The codec refuses others."""

Seconds: TypeAlias = Annotated[float, Meta(ge=0.0)]
"""A time that something takes: 0 or more. The codec refuses others."""

JobId: TypeAlias = str
"""One job server's run, named by the RTS: ``j1``, ``j2``, ..."""

TaskId: TypeAlias = Count
"""One activity of a job, counted from 1 by the job's workflow engine."""

Attempt: TypeAlias = Count
"""Number of a try of a task, from 1.

Between a job and its workers it counts submissions, and messages of an old one are dropped. People are told
how many of them have begun.
"""

ResourceId: TypeAlias = str
"""A resource, unique in an RTS: ``r1.node``, ``r1.socket0``, ``r1.core3``."""

RifId: TypeAlias = str
"""A RIF, named by the RTS: ``r1``, ``r2``, ..."""

GrantId: TypeAlias = tuple[Count, Count]
"""(epoch of the RM, counter): grant ids only grow, also over restarts of the RM."""

NO_GRANT: GrantId = (0, 0)
"""Older than every grant: what a job has seen before its first one."""


def host_name(resource_id: ResourceId) -> RifId:
    """Return the part of the id that all resources of a host share: ``r1`` of ``r1.core3``."""
    return resource_id.partition(".")[0]


class Counter:
    """Counts up from 1, with a prefix for ids that people read.

    >>> names = Counter("j")
    >>> names.next_name(), names.next_name()
    ('j1', 'j2')
    """

    __slots__ = ("last", "prefix")

    def __init__(self, prefix: str = "", last: int = 0) -> None:
        self.prefix: str = prefix
        self.last: int = last

    def next(self) -> int:
        """Return the next number."""
        self.last += 1
        return self.last

    def next_name(self) -> str:
        """Return the prefix followed by the next number."""
        return f"{self.prefix}{self.next()}"

    def __contains__(self, name: str) -> bool:
        """Return whether this name was ever given out."""
        number = name.removeprefix(self.prefix)
        return name.startswith(self.prefix) and number.isdecimal() and 0 < int(number) <= self.last
