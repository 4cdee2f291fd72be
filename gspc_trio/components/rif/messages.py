"""Messages to and from a RIF, besides work: joining, coming back, resources, held grants."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from gspc_trio.components.worker.messages import OpenJob
from gspc_trio.core.ids import Attempt, Count, GrantId, JobId, ResourceId, RifId, Seconds, TaskId
from gspc_trio.core.messages import Done, Question
from gspc_trio.core.resources import Resource
from gspc_trio.core.task import Outcome
from gspc_trio.iml.data_layer import DataLayer
from gspc_trio.protocol.hidden import HidesFields


class Hold(Struct, frozen=True):
    """These resources of the RIF belong to a co-allocated grant that runs elsewhere: refuse other submits."""

    job: JobId
    grant_id: GrantId
    resources: tuple[ResourceId, ...]


class Orphans(Struct, frozen=True):
    """What becomes of the tasks of a job that ``job`` has adopted.

    Attributes:
        job: who has adopted them.
        outstanding: of the first report: tasks that are at work here, or whose outcomes follow.
        outcomes: of tasks that have ended.
        over: nothing more comes from this RIF; what it said was at work and did not end is lost.
    """

    job: JobId
    outstanding: tuple[TaskId, ...]
    outcomes: tuple[Outcome, ...]
    over: bool


class AddResources(Struct, frozen=True):
    """Start a worker for each of these resources (RIF-1)."""

    resources: tuple[Resource, ...]


class RemoveResources(Struct, frozen=True):
    """Stop the workers of these resources; what they run is lost."""

    resource_ids: tuple[ResourceId, ...]


class Claim(Struct, frozen=True):
    """A RIF says what is in use under a grant, for a run-time system that was started again."""

    job: JobId
    grant_id: GrantId
    resources: tuple[ResourceId, ...]


class WorkerEndpoint(Struct, frozen=True):
    """How to reach the worker of a resource: through the RIF at ``address`` (RIF-4, proxy)."""

    resource_id: ResourceId
    resource_class: str
    rif_id: RifId
    host: str
    address: str


class DagReport(Struct, frozen=True):
    """What ``add`` started or ``remove`` removed (RTS-2)."""

    workers: tuple[WorkerEndpoint, ...]


class RifHello(Struct, frozen=True):
    """First message of a RIF to its RTS, on each connection.

    Attributes:
        rif_id, incarnation: as its RTS named it; a RIF started again has the next incarnation.
        pid, host: of its process.
        address: where schedulers reach it.
        hardware: what was found on the host, of which nothing is added before the RTS says so; of one that
            has connected again all that it has now, parents before children.
        claims: what is in use there, if it has connected again; None: it comes for the first time.
        ends_in_s: when its host ends, with all that runs there; None: nobody knows of an end.
        outside: where schedulers of other processes reach it, if ``address`` is in memory; or "".
    """

    rif_id: RifId
    incarnation: Count
    pid: Count
    host: str
    address: str
    hardware: tuple[Resource, ...]
    claims: tuple[Claim, ...] | None = None
    ends_in_s: Seconds | None = None
    outside: str = ""


class MemoryServer(Struct, frozen=True):
    """A memory server that a RIF runs on request (RIF-1); the RIF says so once more when it has come back.

    Attributes:
        layer: to which it belongs; who has this can keep data there.
        host, pid: name of its host, and the process of the RIF, with which it ends.
        memory_bytes, spill_bytes: what it may use.
    """

    layer: DataLayer
    host: str
    pid: Count
    memory_bytes: Count
    spill_bytes: Count


class StartServer(Question[MemoryServer], frozen=True):
    """RTS to RIF: run a memory server, of this layer or, if there is none, the first of a new one.

    Attributes:
        memory_bytes, spill_bytes: what it may use; without, what the options of the RIF say.
    """

    layer: DataLayer | None = None
    memory_bytes: Count = 0
    spill_bytes: Count = 0


class StopServer(Question[Done], frozen=True):
    """RTS to RIF: end the memory server that was asked for; what only it has is lost."""


class ServerEnded(Struct, frozen=True):
    """RIF to RTS: its memory server has ended by itself."""

    reason: str


class Endpoint(Struct, frozen=True):
    """How one worker is reached over a connection of its own (RIF-4).

    Attributes:
        address: of the endpoint; one connection is served there, once.
        token: its secret; b"" in memory.
        job: as which its client speaks there.
    """

    address: str
    token: bytes
    job: JobId


class OpenEndpoint(Question[Endpoint], frozen=True):
    """Client to RTS, and RTS to RIF: let the holder of a grant of one resource speak to its worker alone."""

    job: JobId
    resource_id: ResourceId
    grant_id: GrantId


class CloseJobEverywhere(Struct, frozen=True):
    """RTS to RIF: the job is gone; stop what it runs."""

    job: JobId


class StopRif(Struct, frozen=True):
    """RTS to RIF: stop all workers and go."""


class CannotStart(Struct, frozen=True):
    """RIF to RTS: its host could not start a process; ``detail`` says why."""

    detail: str


class WorkBack(Struct, frozen=True):
    """First message of a job server to a RIF that it could not hear for a while.

    What ended meanwhile is reported again, and what the RIF does not know any more as lost.

    Attributes:
        opening: what it said of itself the first time.
        attempts: (resource, task, attempt) of all that it has sent there and has not heard of.
    """

    opening: OpenJob
    attempts: tuple[tuple[ResourceId, TaskId, Attempt], ...]


class RifProcessOrder(HidesFields, frozen=True):
    """What a RIF in a process of its own is told, as JSON in the first line of its standard input.

    Attributes:
        rts: address of its RTS.
        token, credentials: the secret of the network, and what it needs for TLS, or "".
        rif_id, incarnation, host: who it is, and where.
        cores: how many it is to offer, 0 for what its hardware has.
        options: ``listen``, the address for schedulers; ``log_level``; ``directory``, where tasks with files
            run; ``time``, after which it ends. Those of its memory servers are read where these are started.
        grace_s: how long it waits for an RTS that is gone.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"token", "credentials"})

    rts: str
    token: bytes
    rif_id: RifId
    incarnation: int
    host: str
    cores: int
    options: dict[str, str]
    credentials: str = ""
    grace_s: float = 0.0
