"""What the RTS machine has its shell do."""

from __future__ import annotations

from typing import Any, TypeAlias

from gspc_trio.core.exchange import AddResources, DagReport, RemoveResources, Revoke
from gspc_trio.core.ids import JobId, ResourceId, RifId
from gspc_trio.core.resources import Resource
from gspc_trio.core.value import frozen

# To strategies ----------------------------------------------------------------------------------------------


@frozen
class StartRif:
    """Have the strategy start this incarnation; ``RifEnded`` comes when it has ended, whatever the cause."""

    rif_id: RifId
    incarnation: int
    host: str
    strategy: str
    cores: int
    options: dict[str, str]


@frozen
class KillRif:
    """Have the strategy end this incarnation now."""

    rif_id: RifId
    incarnation: int


# To RIFs ----------------------------------------------------------------------------------------------------


@frozen
class AskRif:
    """Send to the RIF and come back with ``RifAnswered`` or ``RifRefused`` under the same number."""

    link: int
    call: int
    message: AddResources | RemoveResources


@frozen
class TellRif:
    """Send to the RIF; its answer, if any, is an event of its own."""

    link: int
    message: Revoke


@frozen
class CloseJobAt:
    """Have these RIFs stop what the job runs there."""

    links: tuple[int, ...]
    job: JobId


@frozen
class StopRif:
    """Ask the RIF to stop its workers and go."""

    link: int


@frozen
class DropLink:
    """End the connection of a RIF, saying why."""

    link: int
    reason: str


# To jobs ----------------------------------------------------------------------------------------------------


@frozen
class AcceptJob:
    """The job server at ``link`` is this job; it has ``adopted`` that one and takes its place, or none.

    Attributes:
        back: it was registered as this job before.
    """

    link: int
    job: JobId
    adopted: JobId = ""
    back: bool = False


@frozen
class RefuseJob:
    """The job server at ``link`` cannot join."""

    link: int
    reason: str


@frozen
class AnnounceRif:
    """Tell these jobs that the RIF is there with these resources, all it has now."""

    jobs: tuple[JobId, ...]
    rif_id: RifId
    incarnation: int
    host: str
    address: str
    resources: tuple[Resource, ...]


@frozen
class AnnounceGone:
    """Tell these jobs that the RIF is gone, with everything that ran on it."""

    jobs: tuple[JobId, ...]
    rif_id: RifId
    incarnation: int
    reason: str


# To the resource manager ------------------------------------------------------------------------------------


@frozen
class TellRm:
    """Give this event to the resource manager before anything else happens."""

    event: Any


# To users ---------------------------------------------------------------------------------------------------


@frozen
class Bootstrapped:
    """host -> RIF id of those that came up, host -> reason of those that failed; none is missing (RTS-1)."""

    started: dict[str, RifId]
    failed: dict[str, str]


@frozen
class TornDown:
    """Ids of the RIFs that were taken down, in the order asked for."""

    stopped: tuple[RifId, ...]


@frozen
class Weighed:
    """The job has the weight that was asked for."""


Result: TypeAlias = Bootstrapped | TornDown | DagReport | Weighed


@frozen
class Answer:
    """Question number ``ask`` is answered."""

    ask: int
    result: Result


@frozen
class Refused:
    """Question number ``ask`` cannot be answered; nothing was changed by it unless the reason says so."""

    ask: int
    reason: str


@frozen
class Stopped:
    """Nothing is left: the shell may go."""


HostToResource: TypeAlias = dict[str, tuple[ResourceId, ...]]
