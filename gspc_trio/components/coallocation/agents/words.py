"""What services, sites and clients of co-allocation say to one another, and what a request needs.

Along an edge of the tree of services, a job costs five messages: :class:`PartsRequest`,
:class:`PartsAccepted`, :class:`PartsReady`, :class:`PartsGo`, :class:`PartsDone`. It is answered by one
:class:`PartsDone`, whatever happens. Once for all jobs of a request its service asks each site below that it
uses for a credential: :class:`CredentialWanted`, :class:`CredentialLent`.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from gspc_trio.components.coallocation.agents.delegation import Credential
from gspc_trio.core.messages import Done, Question

BARRIER_TIMEOUT_S = 60.0
"""How long a request may hold something before all of it is ready."""

LEASE_S = 6.0
"""A service that was not heard of for so long is gone."""

REGISTER_S = 2.0
"""How often a service registers with its parent."""


BATCH_SYSTEMS = ("slurm", "pbs", "oar", "local-batch")
"""Whose queues a contact may name, as in ``slurm:PARTITION`` and ``SITE/slurm:PARTITION``."""


def batch_queue(contact: str) -> tuple[str, str] | None:
    """Return the batch system and the queue that a contact names, None if it names none."""
    if not contact:
        return None
    name, colon, queue = contact.rpartition("/")[2].partition(":")
    return (name, queue) if colon and name in BATCH_SYSTEMS else None


PartResources: TypeAlias = tuple[tuple[int, tuple[str, ...]], ...]
"""Parts and what each has, in rising order, as ``id@host``."""

PartOutputs: TypeAlias = tuple[tuple[int, str], ...]
"""Parts and what the programs of each have printed, in rising order."""


class PartNeed(Struct, frozen=True):
    """One part of a request: so many resources of a class, at one site.

    Attributes:
        resource_class: the class.
        count: how many.
        memory_bytes: on the host of the first one; 0 for none.
        features: that the site must have.
        contact: name of the site, way to it, host, or queue of a batch system; "" for any.
        payload: what runs there, which no service looks at.
    """

    resource_class: str = "core"
    count: int = 1
    memory_bytes: int = 0
    features: frozenset[str] = frozenset()
    contact: str = ""
    payload: bytes = b""


class OptionLadder(Struct, frozen=True):
    """An option of a part with several values.

    Attributes:
        part: number of the part, from 0.
        field: attribute of its :class:`PartNeed`.
        values: of the attribute, best first; the first one is that of the need.
    """

    part: int
    field: str
    values: tuple[object, ...]


class SiteOffer(Struct, frozen=True):
    """What a site has.

    Attributes:
        path: names of the services on the way to it, and its own.
        there: class -> number of resources.
        free: class -> how many are free; it may be another number by now.
        memory_bytes: of its largest memory.
        features: of its hosts.
        hosts: their names.
        lends: it lends credentials to whoever asks; else who wants something brings one.
    """

    path: tuple[str, ...]
    there: dict[str, int]
    free: dict[str, int] = field(default_factory=dict)
    memory_bytes: int = 0
    features: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    lends: bool = False

    @property
    def name(self) -> str:
        """Its own name."""
        return self.path[-1]

    def is_meant_by(self, contact: str) -> bool:
        """Whether a part with this contact may be here: it names the site, the way to it, or a host.

        That of a batch system may be at any site, or at the one that is named before it.
        """
        if batch_queue(contact) is not None:
            contact = contact.rpartition("/")[0]
        way, said = "/" + "/".join(self.path), "/" + contact
        if contact in self.hosts or not contact:
            return True
        return way.endswith(said) or said.endswith(way)  # as a service further up names it


class PlacedPart(Struct, frozen=True):
    """A part and its site.

    Attributes:
        part: its number in the request of the client.
        need: what it needs.
        path: the way to the site, from the one who is asked.
        credential: with which the site gives it, None where none is asked for.
    """

    part: int
    need: PartNeed
    path: tuple[str, ...]
    credential: Credential | None = None


# From a client


class SubmitParts(Struct, frozen=True, tag=True):
    """A client wants all these parts at one time.

    Attributes:
        request: its name for it.
        needs: one for each part.
        ladders: options with several values, in the order of the text.
        on_error: so many more tries; None: no bound.
        barrier_timeout_s: how long something may be held until all is ready.
        credentials: site -> that with which it gives something.
    """

    request: str
    needs: tuple[PartNeed, ...]
    ladders: tuple[OptionLadder, ...] = ()
    on_error: int | None = 0
    barrier_timeout_s: float = BARRIER_TIMEOUT_S
    credentials: dict[str, Credential] = field(default_factory=dict)


class SubmitRequest(Struct, frozen=True, tag=True):
    """A client, or the service above, has a request to run; :class:`RequestDone` answers it in the end.

    Attributes:
        request: its name for it.
        text: of the request.
        jobs: the jobs that it names, as JSON.
        directory: where programs run that say nothing else.
        credentials: site -> that with which it gives something, where the site asks for one.
        is_stated: it is a stage of a request in which waits alone order.
        outlives: who asks has a journal, and comes back after a crash: it goes on for a while without.
    """

    request: str
    text: str
    jobs: str = "{}"
    directory: str = ""
    credentials: dict[str, Credential] = field(default_factory=dict)
    is_stated: bool = False
    outlives: bool = False


class CancelRequest(Struct, frozen=True, tag=True):
    """Start nothing more of it, and stop what runs; :class:`RequestDone` says that it is so."""

    request: str


class JobReport(Struct, frozen=True):
    """How a job of a request has ended.

    Attributes:
        number: of the job in the request.
        state: finished, failed, not run or cancelled.
        reason: why.
        output: what its programs have printed.
    """

    number: int
    state: str
    reason: str = ""
    output: str = ""


class JobsEnded(Struct, frozen=True, tag=True):
    """These jobs of a request have ended."""

    request: str
    ends: tuple[JobReport, ...]


class AttachRequest(Struct, frozen=True, tag=True):
    """A client wants to hear of a request that it has given to this service before that was started again; or
    the service above of a stage, when it was started again itself.

    Attributes:
        request: as who asks calls it.
        request_id: of a client's request.
    """

    request: str
    request_id: str = ""


class RequestTaken(Struct, frozen=True, tag=True):
    """A request of a client runs; by this id anyone can ask for it.

    Attributes:
        request, request_id: which.
        is_kept: it comes back if the service is started again after a crash.
    """

    request: str
    request_id: str
    is_kept: bool = False


class RequestDone(Struct, frozen=True, tag=True):
    """Nothing of a request runs, and nothing will; ``error`` says why it was refused."""

    request: str
    error: str = ""


# Down an edge


class PartsRequest(Struct, frozen=True, tag=True):
    """Acquire this, and have it ready."""

    request: str
    parts: tuple[PlacedPart, ...]


class PartsGo(Struct, frozen=True, tag=True):
    """All parts are ready: start. To a client: they have started.

    Attributes:
        request: which.
        resources: of all parts.
    """

    request: str
    resources: PartResources = ()


class CancelParts(Struct, frozen=True, tag=True):
    """Stop, and give all back; :class:`PartsDone` says that it is so."""

    request: str


class CredentialWanted(Struct, frozen=True, tag=True):
    """Lend a credential for a whole request, with which its tries ask for resources.

    Attributes:
        request: all tries of which the credential is for.
        path: the way to the site, from the one who is asked.
    """

    request: str
    path: tuple[str, ...]


# Up an edge


class CredentialLent(Struct, frozen=True, tag=True):
    """A run-time system has minted a credential for a request, or has not.

    Attributes:
        request: which.
        path: the way to the site, as it was asked for.
        credential: what was minted.
        error: why there is none.
    """

    request: str
    path: tuple[str, ...]
    credential: Credential | None = None
    error: str = ""


class PartsAccepted(Struct, frozen=True, tag=True):
    """All of it is held."""

    request: str


class PartsReady(Struct, frozen=True, tag=True):
    """All parts wait at the barrier.

    Attributes:
        request: which.
        resources: of the parts that were asked for.
    """

    request: str
    resources: PartResources = ()


class PartsDone(Struct, frozen=True, tag=True):
    """Nothing of it runs, nothing is held.

    Attributes:
        request: which.
        error: "" if all parts ran to their end, else why not.
        ran: whether its programs were started.
        outputs: of its parts.
    """

    request: str
    error: str = ""
    ran: bool = False
    outputs: PartOutputs = ()


# Between a service and its parent


class RegisterService(Struct, frozen=True, tag=True):
    """A service is there, and what its subtree has.

    Attributes:
        name: of the service.
        instance: of its process.
        names: all services and sites of its subtree.
        offers: of all sites in it; paths begin below the service.
    """

    name: str
    instance: str
    names: frozenset[str]
    offers: tuple[SiteOffer, ...] = ()


class ServiceRegistered(Struct, frozen=True, tag=True):
    """The parent knows it.

    Attributes:
        above: names of the parent and of all above it.
        doubled: names in the subtree that others had first: who has registered them is refused.
    """

    above: tuple[str, ...]
    doubled: frozenset[str] = frozenset()


class ServiceRefused(Struct, frozen=True, tag=True):
    """The parent refuses it."""

    reason: str


DownMessage: TypeAlias = PartsRequest | PartsGo | CancelParts
UpMessage: TypeAlias = PartsAccepted | PartsReady | PartsDone


# What anyone may ask a service


class RequestEntry(Struct, frozen=True):
    """A request of a service.

    Attributes:
        request_id: of it.
        asked_by: who has asked for it.
        text: its beginning.
        jobs: how many it has.
        states: state -> how many jobs are in it.
        is_over: nothing runs, and nothing will.
    """

    request_id: str
    asked_by: str
    text: str
    jobs: int
    states: dict[str, int]
    is_over: bool


class RequestList(Struct, frozen=True):
    """Requests of a service, oldest first."""

    requests: tuple[RequestEntry, ...]


class ListRequests(Question[RequestList], frozen=True):
    """Ask a service for its requests."""


class CoJobEntry(Struct, frozen=True):
    """A job of a request.

    Attributes:
        number, name: of it.
        state: where it is.
        reason: why.
        waits: numbers of the jobs that it waits for.
        sites: where its parts are, or the service that runs it.
        stages: numbers of the services of the stages that it is in, from the top; breadth first, from 1.
    """

    number: int
    name: str
    state: str
    reason: str = ""
    waits: tuple[int, ...] = ()
    sites: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()


class RequestDetails(Struct, frozen=True):
    """A request and its jobs."""

    entry: RequestEntry
    jobs: tuple[CoJobEntry, ...]


class GetRequest(Question[RequestDetails], frozen=True):
    """Ask a service for a request."""

    request_id: str


class RequestsShown(Struct, frozen=True):
    """Requests for people to look at: those that run, then those that are over, the newest first.

    Attributes:
        service: whose they are.
        requests: with the first jobs of each.
        more: so many more there are.
    """

    service: str
    requests: tuple[RequestDetails, ...]
    more: int = 0


class ShowRequests(Question[RequestsShown], frozen=True):
    """Ask a service for what people look at.

    Attributes:
        jobs: of so many jobs at most it tells.
    """

    jobs: int


class StopRequest(Question[Done], frozen=True):
    """Cancel a request; it is answered when nothing of it runs any more."""

    request_id: str


class ServiceDetails(Struct, frozen=True):
    """A service and what is below it.

    Attributes:
        name: of it.
        above: the services above, from its parent up.
        children: names of the services that have registered with it.
        offers: of all sites of its subtree.
        requests: how many run.
    """

    name: str
    above: tuple[str, ...]
    children: tuple[str, ...]
    offers: tuple[SiteOffer, ...]
    requests: int


class GetService(Question[ServiceDetails], frozen=True):
    """Ask a service what it is."""


RequestMessage: TypeAlias = (
    SubmitRequest | AttachRequest | CancelRequest | RequestTaken | JobsEnded | RequestDone
)
"""Of whole requests: down and up."""
