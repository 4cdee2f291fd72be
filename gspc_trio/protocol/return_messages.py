"""Messages of those who come back: to their run-time system, or to one that was started in its place."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.core.exchange import Claim, Grant, GrantsAhead, OpenJob
from gspc_trio.core.ids import Attempt, JobId, ResourceId, Seconds, TaskId
from gspc_trio.protocol.messages import RegisterJob, RifHello


class RifBack(Struct, frozen=True):
    """First message of a RIF that has connected again.

    Attributes:
        hello: what it says of itself; ``hardware`` is what it has now, parents before children.
        claims: what is in use there.
    """

    hello: RifHello
    claims: tuple[Claim, ...]


class JobBack(Struct, frozen=True):
    """First message of a job server that has connected again.

    Answered by a JobRegistered, which is no answer to a call: what follows may be sent at once.

    Attributes:
        joining: what it says of itself.
        job: which job it is.
        grants: all that it holds.
    """

    joining: RegisterJob
    job: JobId
    grants: tuple[Grant, ...]


class WorkBack(Struct, frozen=True):
    """First message of a job server to a RIF that it could not hear for a while.

    What ended meanwhile is reported again, and what the RIF does not know any more as lost.

    Attributes:
        opening: what it said of itself the first time.
        attempts: (resource, task, attempt) of all that it has sent there and has not heard of.
    """

    opening: OpenJob
    attempts: tuple[tuple[ResourceId, TaskId, Attempt], ...]


class Await(Struct, frozen=True):
    """RTS to job: should this connection end, wait for the RTS so long, it may be back; 0: it will not."""

    grace_s: Seconds


class NewWeight(Struct, frozen=True):
    """RTS to job: its weight was changed to this, which it says of itself from now on when it comes back."""

    weight: float


RETURN_MESSAGE_TYPES: tuple[type, ...] = (RifBack, JobBack, Await, WorkBack, NewWeight, GrantsAhead)
