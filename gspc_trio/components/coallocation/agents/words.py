"""What services, sites and clients of co-allocation say to one another, and what a request needs.

Along an edge of the tree of services, a request costs five messages: :class:`PartsRequest`,
:class:`PartsAccepted`, :class:`PartsReady`, :class:`PartsGo`, :class:`PartsDone`. Each request is answered by
one :class:`PartsDone`, whatever happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field

from gspc_trio.components.coallocation.agents.delegation import Credential

BARRIER_TIMEOUT_S = 60.0
"""How long a request may hold something before all of it is ready."""

LEASE_S = 6.0
"""A service that was not heard of for so long is gone."""

REGISTER_S = 2.0
"""How often a service registers with its parent."""


class PartNeed(Struct, frozen=True):
    """One part of a request: so many resources of a class, at one site.

    Attributes:
        resource_class: the class.
        count: how many.
        memory_bytes: on the host of the first one; 0 for none.
        features: that the site must have.
        contact: name of the site, "" for any.
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
    """

    path: tuple[str, ...]
    there: Mapping[str, int]
    free: Mapping[str, int] = field(default_factory=dict)
    memory_bytes: int = 0
    features: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Its own name."""
        return self.path[-1]


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
    credentials: Mapping[str, Credential] = field(default_factory=dict)


# Down an edge


class PartsRequest(Struct, frozen=True, tag=True):
    """Acquire this, and have it ready."""

    request: str
    parts: tuple[PlacedPart, ...]


class PartsGo(Struct, frozen=True, tag=True):
    """All parts are ready: start. To a client: they have started."""

    request: str


class CancelParts(Struct, frozen=True, tag=True):
    """Stop, and give all back; :class:`PartsDone` says that it is so."""

    request: str


# Up an edge


class PartsAccepted(Struct, frozen=True, tag=True):
    """All of it is held."""

    request: str


class PartsReady(Struct, frozen=True, tag=True):
    """All parts wait at the barrier."""

    request: str


class PartsDone(Struct, frozen=True, tag=True):
    """Nothing of it runs, nothing is held.

    Attributes:
        request: which.
        error: "" if all parts ran to their end, else why not.
        ran: whether its programs were started.
    """

    request: str
    error: str = ""
    ran: bool = False


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
