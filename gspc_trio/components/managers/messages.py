"""What crosses the doors of the resource managers of a run-time system: orders, and what goes to and fro."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ClassVar, TypeAlias

from msgspec import Struct

from gspc_trio.components.rm.events import RmEvent
from gspc_trio.components.rm.messages import (
    Checkpoint,
    Demand,
    Grant,
    GrantsAhead,
    Interrupt,
    Lapsed,
    Offence,
    Recall,
    Refuse,
    Release,
    Revoke,
)
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.core.ids import Count, JobId
from gspc_trio.core.machine import Tick
from gspc_trio.core.messages import Question
from gspc_trio.protocol.hidden import HidesFields
from gspc_trio.records.facts import GrantChanged, Record, ResourceChanged

SHARINGS = ("pessimistic", "optimistic")
"""How several resource managers share the hosts, see ``docs/scheduling.md``."""

MANAGER_ROLE = "manager"
"""In which a resource manager connects to its run-time system."""


class ManagerClaim(Struct, frozen=True):
    """A resource manager gives these resources if nobody else was given any of them since.

    Attributes:
        seen: number of events that it had been told when it decided.
        grant: what it gives.
    """

    seen: Count
    grant: Grant


JobWord: TypeAlias = Demand | Release | Interrupt
"""What a job says to the manager that serves it."""

WordToJob: TypeAlias = Grant | Recall | Refuse | Lapsed
"""What that says to it."""


class JobWords(Struct, frozen=True):
    """What a job has said at one time: it is passed on as it is."""

    job: JobId
    words: tuple[JobWord, ...]


class ManagerWords(Struct, frozen=True):
    """What a manager says of jobs at one time.

    Attributes:
        by_job: what each is to hear.
        records: of what happened, on the clock of the manager.
    """

    by_job: tuple[tuple[JobId, tuple[WordToJob, ...]], ...]
    records: tuple[Record, ...] = ()


Word: TypeAlias = (
    ManagerWords
    | Checkpoint
    | Grant
    | ManagerClaim
    | Recall
    | Refuse
    | Lapsed
    | Revoke
    | ResourcesLeft
    | RmAnswered
    | GrantsAhead
    | GrantChanged
    | ResourceChanged
    | Offence
)
"""What a resource manager says."""


class ManagerOrder(HidesFields, frozen=True):
    """What a resource manager is told when it is started, as JSON in the first line of its standard input.

    Attributes:
        rts: address of its run-time system.
        token: the secret that both know.
        name: its own.
        epoch, first, step: of the numbers of its grants.
        placement: which free resource is used next.
        claims: it does not give: it claims.
        credentials: for TLS, "" for none.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"token", "credentials"})

    rts: str
    token: bytes
    name: str
    epoch: int
    first: int
    step: int
    placement: str = "fifo"
    claims: bool = False
    credentials: str = ""


StartManager: TypeAlias = Callable[[ManagerOrder], Awaitable[None]]
"""Runs a resource manager until it is over; cancelled, it ends it."""


class ManagerHere(Struct, frozen=True):
    """A resource manager is there.

    Attributes:
        pid: of its process.
    """

    pid: Count


class BeginManaging(Question[ManagerHere], frozen=True):
    """RTS to resource manager: begin, you are mine."""


ManagerEvent: TypeAlias = RmEvent | JobWords
"""What a manager of several is told."""


# Into the machine -------------------------------------------------------------------------------------------


class ManagerUp(Struct, frozen=True):
    """A resource manager is there, and knows nothing yet."""

    number: Count


class ManagerDown(Struct, frozen=True):
    """A resource manager is no more."""

    number: Count
    reason: str


class ManagerSaid(Struct, frozen=True):
    """A resource manager has said something."""

    number: Count
    word: Word


ManagersEvent: TypeAlias = RmEvent | JobWords | ManagerUp | ManagerDown | ManagerSaid | Tick


# Out of it --------------------------------------------------------------------------------------------------


class TellManager(Struct, frozen=True):
    """Tell a resource manager that is there."""

    number: Count
    event: ManagerEvent


class TellJob(Struct, frozen=True):
    """Tell a job what its manager says."""

    job: JobId
    words: tuple[WordToJob, ...]


class ManagerRecords(Struct, frozen=True):
    """Note what has happened at a manager."""

    records: tuple[Record, ...]


ManagersAction: TypeAlias = TellManager | TellJob | ManagerRecords | Word
