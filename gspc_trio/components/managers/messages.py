"""What crosses the doors of the resource managers of a run-time system: orders, and what goes to and fro."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from attrs import field, frozen
from msgspec import Struct

from gspc_trio.components.rm.events import RmEvent
from gspc_trio.components.rm.messages import Grant, GrantsAhead, Lapsed, Offence, Recall, Refuse, Revoke
from gspc_trio.components.rts.events import ResourcesLeft, RmAnswered
from gspc_trio.core.ids import Count
from gspc_trio.core.machine import Tick
from gspc_trio.core.messages import Question
from gspc_trio.records.facts import GrantChanged, ResourceChanged

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


Word: TypeAlias = (
    Grant
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


@frozen
class ManagerOrder:
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

    rts: str
    token: bytes = field(repr=False)
    name: str
    epoch: int
    first: int
    step: int
    placement: str = "fifo"
    claims: bool = False
    credentials: str = field(default="", repr=False)


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


ManagersEvent: TypeAlias = RmEvent | ManagerUp | ManagerDown | ManagerSaid | Tick


# Out of it --------------------------------------------------------------------------------------------------


class TellManager(Struct, frozen=True):
    """Tell a resource manager that is there."""

    number: Count
    event: RmEvent


ManagersAction: TypeAlias = TellManager | Word
