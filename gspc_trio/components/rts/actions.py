"""Actions of the RTS machine: what its shell has to do."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from gspc_trio.components.rif.messages import AddResources, DagReport, RemoveResources, StopRif
from gspc_trio.components.rm.events import RmEvent
from gspc_trio.components.rm.messages import GrantsAhead, Revoke
from gspc_trio.components.rts.messages import Evacuate, NewWeight, Rest, Restrict, RifGone, RifUp
from gspc_trio.core.ids import JobId, ResourceId, RifId
from gspc_trio.records.facts import JobChanged, RifChanged, TaskCounts

# To strategies ----------------------------------------------------------------------------------------------


class StartRif(Struct, frozen=True):
    """Have the strategy start this incarnation; ``RifEnded`` comes when it has ended, whatever the cause.

    Attributes:
        rif_id, incarnation, host, strategy, cores, options: what, where and how.
        block, node, nodes: the block of which it is, "" for none, and which of its nodes.
        taken: it has its order already, from an earlier run-time system.
    """

    rif_id: RifId
    incarnation: int
    host: str
    strategy: str
    cores: int
    options: dict[str, str]
    block: str = ""
    node: int = 0
    nodes: int = 1
    taken: bool = False


class TellStrategy(Struct, frozen=True):
    """Tell whoever keeps a block whether the RIF of a node is connected, or why it is over (``lost``)."""

    block: str
    node: int
    incarnation: int
    is_connected: bool
    lost: str = ""


class KillRif(Struct, frozen=True):
    """Have the strategy end this incarnation now."""

    rif_id: RifId
    incarnation: int


# To RIFs ----------------------------------------------------------------------------------------------------


class AskRif(Struct, frozen=True):
    """Send to the RIF and come back with ``RifAnswered`` or ``RifRefused`` under the same number."""

    link: int
    call: int
    message: AddResources | RemoveResources


class TellRif(Struct, frozen=True):
    """Send to the RIF; its answer, if any, is an event of its own."""

    link: int
    message: Revoke | GrantsAhead | StopRif


class CloseJobAt(Struct, frozen=True):
    """Have these RIFs stop what the job runs there."""

    links: tuple[int, ...]
    job: JobId


class DropLink(Struct, frozen=True):
    """End the connection of a RIF, saying why."""

    link: int
    reason: str


# To jobs ----------------------------------------------------------------------------------------------------


class AcceptJob(Struct, frozen=True):
    """The job server at ``link`` is this job; it has ``adopted`` that one and takes its place, or none.

    Attributes:
        back: it was registered as this job before.
        rifs: where work of the adopted job may be: each is announced to its successor, or told to be gone.
    """

    link: int
    job: JobId
    adopted: JobId = ""
    back: bool = False
    rifs: tuple[RifId, ...] = ()


class RefuseJob(Struct, frozen=True):
    """The job server at ``link`` cannot join."""

    link: int
    reason: str


class TellJobs(Struct, frozen=True):
    """Tell these jobs that a RIF is there or gone, is to be used less or not at all, or their weight."""

    jobs: tuple[JobId, ...]
    message: RifUp | RifGone | NewWeight | Restrict | Rest | Evacuate


# To the resource manager ------------------------------------------------------------------------------------


class TellRm(Struct, frozen=True):
    """Give this event to the resource manager before anything else happens."""

    event: RmEvent


# To users ---------------------------------------------------------------------------------------------------


class Bootstrapped(Struct, frozen=True):
    """host -> RIF id of those that came up, host -> reason of those that failed; none is missing (RTS-1)."""

    started: dict[str, RifId]
    failed: dict[str, str]


class TornDown(Struct, frozen=True):
    """Ids of the RIFs that were taken down, in the order asked for."""

    stopped: tuple[RifId, ...]


class Weighed(Struct, frozen=True):
    """The job has the weight that was asked for."""


Result: TypeAlias = Bootstrapped | TornDown | DagReport | Weighed


class Answer(Struct, frozen=True):
    """Question number ``ask`` is answered."""

    ask: int
    result: Result


class QuestionRefused(Struct, frozen=True):
    """Question number ``ask`` cannot be answered; nothing was changed by it unless the reason says so."""

    ask: int
    reason: str


class Stopped(Struct, frozen=True):
    """Nothing is left: the shell may go."""


HostToResource: TypeAlias = dict[str, tuple[ResourceId, ...]]

RtsAction: TypeAlias = (
    StartRif
    | KillRif
    | TellStrategy
    | AskRif
    | TellRif
    | CloseJobAt
    | DropLink
    | AcceptJob
    | RefuseJob
    | TellJobs
    | TellRm
    | Answer
    | QuestionRefused
    | Stopped
    | RifChanged
    | JobChanged
    | TaskCounts
)
"""What the machine of the run-time system decides."""
