"""Messages to and from the resource manager: demands of jobs, grants to them, and the ends of grants."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.core.ids import Count, GrantId, JobId, ResourceId
from gspc_trio.core.task import Shape


class Demand(Struct, frozen=True):
    """Job ``job`` can use ``credit`` more grants of ``shape`` than it had when it last received grant
    ``seen``; of its shapes, those of higher ``priority`` come first.
    """

    job: JobId
    shape: Shape
    credit: Count
    seen: GrantId
    priority: int = 0


class Release(Struct, frozen=True):
    """Give back a grant, or the named part of it (empty: all)."""

    job: JobId
    grant_id: GrantId
    resources: tuple[ResourceId, ...] = ()


class Interrupt(Struct, frozen=True):
    """Withdraw every demand of the job; whoever waits is told so (RM-9)."""

    job: JobId


class Grant(Struct, frozen=True):
    """The job holds these resources, one for each requirement of the shape, until it releases the grant.

    ``memories`` are (memory id, offset) for each piece of memory that the shape asked for (RM-8).
    """

    job: JobId
    shape: Shape
    grant_id: GrantId
    resources: tuple[ResourceId, ...]
    memories: tuple[tuple[str, int], ...] = ()


class Recall(Struct, frozen=True):
    """Others wait: give these grants back when the task in compute ends."""

    job: JobId
    grant_ids: tuple[GrantId, ...]


class Refuse(Struct, frozen=True):
    """No grant of this shape will come: the reason says what was asked and what there is.

    ``kind`` is ``impossible``, ``unknown class``, ``unknown resource`` or ``interrupted``.
    """

    job: JobId
    shape: Shape
    reason: str
    kind: str = "impossible"


class Lapsed(Struct, frozen=True):
    """These grants are no longer the job's: resources removed, or revoked. What ran there is lost."""

    job: JobId
    grant_ids: tuple[GrantId, ...]
    reason: str


class Revoke(Struct, frozen=True):
    """Kill what runs under the grant on these resources, raise their fence to it, and answer Revoked."""

    grant_id: GrantId
    resources: tuple[ResourceId, ...]


class Revoked(Struct, frozen=True):
    """Nothing runs any more under the grant on these resources, nor will."""

    grant_id: GrantId
    resources: tuple[ResourceId, ...]


class GrantsAhead(Struct, frozen=True):
    """RTS to RIF: a grant of this epoch that is newer was never given, until this is said again."""

    newest: GrantId
