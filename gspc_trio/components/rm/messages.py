"""Messages to and from the resource manager: demands of jobs, grants to them, and the ends of grants."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.core.ids import Count, GrantId, JobId, ResourceId
from gspc_trio.core.messages import Question
from gspc_trio.core.task import Shape


class Demand(Struct, frozen=True):
    """Job ``job`` can use ``credit`` more grants of ``shape`` than it had when it last received grant
    ``seen``; of its shapes, those of higher ``priority`` come first. If they are ``shared``, the job uses a
    grant for any of its shapes that differ in what they prefer alone: none of these is recalled for another.
    """

    job: JobId
    shape: Shape
    credit: Count
    seen: GrantId
    priority: int = 0
    shared: bool = False


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


class GetNewestGrant(Struct, frozen=True):
    """RIF to RTS: which is the newest grant of this resource that was given? ``grant_id`` is in doubt."""

    resource_id: ResourceId
    grant_id: GrantId


class NewestGrant(Struct, frozen=True):
    """Answer to GetNewestGrant; one that is older than what was in doubt says that this was never given."""

    grant_id: GrantId


class GrantsAhead(Struct, frozen=True):
    """RTS to RIF: a grant of this epoch that is newer was never given, until this is said again."""

    newest: GrantId


class ManagerReady(Struct, frozen=True):
    """Resource manager to RTS: it begins anew, with grants of this epoch, and is to be told what there is."""

    epoch: Count


class ServeRts(Question[ManagerReady], frozen=True):
    """RTS to resource manager that runs elsewhere: be mine (RTS-4); refused if it is another's.

    Attributes:
        epoch: the highest of the grants that were given before.
        name: of the RTS, for people.
    """

    epoch: Count
    name: str


class Offence(Struct, frozen=True):
    """Resource manager to RTS: a job has said what cannot be, which has changed nothing."""

    job: JobId
    reason: str


class JobCheckpoint(Struct, frozen=True):
    """What a job holds, and what it waits for.

    Attributes:
        job: which.
        grants: that it holds, with what is left of each.
        demands: what it can use, with the grants of ``sent``.
        sent: for each of ``demands`` the grants that the job may not have received when it last spoke.
    """

    job: JobId
    grants: tuple[Grant, ...]
    demands: tuple[Demand, ...]
    sent: tuple[tuple[GrantId, ...], ...]


class Checkpoint(Struct, frozen=True):
    """Resource manager to RTS: what all jobs hold and wait for; what was said of that before is over.

    Attributes:
        told: number of events that the resource manager had taken.
        newest: the newest grant that it has given.
        jobs: all that have joined.
        given: resource -> the newest grant of it, unless it is one of ``jobs``.
    """

    told: Count
    newest: GrantId
    jobs: tuple[JobCheckpoint, ...]
    given: dict[ResourceId, GrantId]


# What people are told ---------------------------------------------------------------------------------------


class ClassStatus(Struct, frozen=True):
    """Resources of a class: all, those that are free, held, and blocked by a held relative."""

    total: int
    free: int
    held: int
    blocked: int


class HostMemory(Struct, frozen=True):
    """A memory of a host: its size, and what is given to no task and no memory server."""

    host: str
    total_bytes: int
    free_bytes: int


class ClassNeed(Struct, frozen=True):
    """Resources of a class that a request needs, that there are, and that are free."""

    needed: int
    total: int
    free: int


class GrantHolder(Struct, frozen=True):
    """A job, one of its grants, and the resources that it holds under that."""

    job: JobId
    grant: GrantId
    resources: tuple[ResourceId, ...]


class Blocking(Struct, frozen=True):
    """A resource that would do, and its relative (or itself) that a job holds under a grant."""

    resource: ResourceId
    relative: ResourceId
    job: JobId
    grant: GrantId


class WaitingRequest(Struct, frozen=True):
    """Why a request waits.

    Attributes:
        shape: what it asks for, as text.
        credit: how many grants its job could use.
        since_s: when the oldest of them was asked for.
        needs: class -> what it needs of that.
        held_by: some of those who hold what it could use.
        place: among those who wait for one of the same classes; 1 is served next.
        patient_until_s: when it takes others than those that it prefers, None if it does or never will.
        blocking: one resource that would do, and what keeps it from being given.
        reason: all this in a line for people.
    """

    shape: str
    credit: Count
    since_s: float
    needs: dict[str, ClassNeed]
    held_by: tuple[GrantHolder, ...]
    place: Count
    patient_until_s: float | None
    blocking: Blocking | None
    reason: str
