"""Events that only the RTS sends to the resource manager; others, and its actions, are in ``messages``."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.rm.messages import (
    Demand,
    Grant,
    Interrupt,
    Lapsed,
    Recall,
    Refuse,
    Release,
    Revoke,
    Revoked,
)
from gspc_trio.core.ids import Count, GrantId, JobId, ResourceId
from gspc_trio.core.machine import Tick
from gspc_trio.core.resources import Resource
from gspc_trio.records.facts import GrantChanged, ResourceChanged

REMOVE_POLICIES = ("lose", "wait", "refuse")
"""What happens to held resources that are to be removed (RM-11), see :class:`Removed`."""


class Added(Struct, frozen=True):
    """These resources are there now (RM-1): parents before children, or parents that are there already.

    Attributes:
        resources: of one host.
        host: name of the host for people, or "".
    """

    resources: tuple[Resource, ...]
    host: str = ""


class Removed(Struct, frozen=True):
    """These resources, and whatever hangs below them, are to go (RM-11).

    Attributes:
        resource_ids: which.
        policy: ``lose``: they are gone already, grants on them lapse; ``wait``: free ones go now, held
            ones are recalled and go when they are released; ``refuse``: nothing goes if one of them is in
            use. Pieces of its memory alone do not keep a resource: grants on others that have them lapse.
    """

    resource_ids: tuple[ResourceId, ...]
    policy: str = "lose"


class Rested(Struct, frozen=True):
    """Give out nothing of these, and of what hangs below, and have it given back, until :class:`Resumed`."""

    resource_ids: tuple[ResourceId, ...]


class Resumed(Struct, frozen=True):
    """These may be used again; those that are gone meanwhile do not matter."""

    resource_ids: tuple[ResourceId, ...]


class Awaited(Struct, frozen=True):
    """Whoever has to confirm the revocation of a grant cannot be heard, and is awaited until then."""

    grant_id: GrantId
    until_s: float


class Coming(Struct, frozen=True):
    """A host is on its way (a RIF is started, or will be again): refuse nothing that it could meet.

    Attributes:
        name: of the host: the ids of its resources begin with it, up to the first dot.
        resources: that it will bring, parents before children; None: nobody knows yet, so nothing is refused.
            They replace what was said of it before.
        host: name of the host for people, or "".
    """

    name: str
    resources: tuple[Resource, ...] | None = None
    host: str = ""


class Settled(Struct, frozen=True):
    """A host is no longer on its way: it is there, or does not come."""

    name: str


class JobJoined(Struct, frozen=True):
    """A job may ask for resources from now on.

    Attributes:
        job: its id.
        weight: its share relative to the other jobs of its priority, more than 0.
        priority: jobs of a higher one get what comes free first, and back what others hold.
        placement: from which host its resources come (``policies.placement``); "": as the resource
            manager does.
    """

    job: JobId
    weight: float = 1.0
    priority: int = 0
    placement: str = ""


class JobWeighed(Struct, frozen=True):
    """A job's share is another from now on, and its priority and placement, unless these are None; see
    JobJoined."""

    job: JobId
    weight: float
    priority: int | None = None
    placement: str | None = None


class JobGone(Struct, frozen=True):
    """A job is over, or its job server is lost: everything it holds comes back (RM-10).

    Attributes:
        job: which.
        fenced: nothing of it runs any more; if not, each grant is revoked and its resources are free when
            ``Revoked`` says so.
    """

    job: JobId
    fenced: bool = False


class Claimed(Struct, frozen=True):
    """Grants are in use that this resource manager does not know: an earlier one has given them.

    Attributes:
        job: whose they are; it has joined.
        grants: as they were given. What is not there yet is held when it is added.
        whole: the job itself says so: it has no others, and has forgotten what it demanded.
    """

    job: JobId
    grants: tuple[Grant, ...]
    whole: bool = False


class Advanced(Struct, frozen=True):
    """Another resource manager has given this grant of what is here now: the next ones are newer."""

    grant_id: GrantId


class Numbering(Struct, frozen=True):
    """Which numbers the grants of a resource manager have: several of one epoch never give the same.

    Attributes:
        first: its grants are newer than this one.
        step: its first grant is so many newer, and each is so many newer than the one before, at least.
        own_first: what it has given before is used next, so it seldom wants what others want.
    """

    first: Count = 0
    step: Count = 1
    own_first: bool = False


class GivenElsewhere(Struct, frozen=True):
    """Another resource manager has given this: what was to be given of it here is not."""

    grant: Grant


class Overruled(Struct, frozen=True):
    """A grant was not given: another resource manager was first.

    Attributes:
        job, grant_id: of the grant; the job has to demand anew what it wants.
        held: what is held of the resources and their relatives.
    """

    job: JobId
    grant_id: GrantId
    held: tuple[Grant, ...]


RmEvent: TypeAlias = (
    Demand
    | Release
    | Interrupt
    | Added
    | Removed
    | Rested
    | Resumed
    | Awaited
    | Coming
    | Settled
    | JobJoined
    | JobWeighed
    | JobGone
    | Revoked
    | Claimed
    | Advanced
    | GivenElsewhere
    | Overruled
    | Tick
)
"""What the resource manager takes."""

RmAction: TypeAlias = Grant | Recall | Refuse | Lapsed | Revoke | GrantChanged | ResourceChanged
"""What the resource manager decides: words to jobs, revocations for the RIFs, records."""
