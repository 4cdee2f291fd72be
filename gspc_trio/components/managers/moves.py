"""Hosts that go from one manager to another, and the requests for which they do (ASP-11)."""

from __future__ import annotations

from msgspec import Struct

from gspc_trio.components.rm.events import Added, Removed, RmEvent
from gspc_trio.components.rm.messages import Demand
from gspc_trio.core.ids import ResourceId, host_name
from gspc_trio.policies.partitions import WantView

AGAIN_S = 2.0
"""How long a host that has moved for a request, in vain, does not do so again."""


class MovingHost(Struct, eq=False):
    """A host that is to go to another manager.

    Attributes:
        source, target: from which, to which.
        rested: its resources that are kept free meanwhile; () if it was idle.
        asked: what the source was asked, None as long as the host is emptied.
        pending: what was said of it meanwhile.
    """

    source: int
    target: int
    rested: tuple[ResourceId, ...] = ()
    asked: Removed | None = None
    pending: list[RmEvent] = []


class UnmetRequest(Struct, eq=False):
    """A request that was not met at the last look: since when, and which hosts have moved for it when."""

    since_s: float
    had: dict[str, float]


def host_of(event: Added | Removed) -> str:
    """Return whose resources these are."""
    return host_name(event.resources[0].resource_id if isinstance(event, Added) else event.resource_ids[0])


def want_view(demand: Demand, left: int, entry: UnmetRequest, now: float) -> WantView:
    """Return a request as the policy sees it."""
    least: dict[str, int] = {}
    hosts: set[str] = set()
    features: list[tuple[str, frozenset[str]]] = []
    for need in demand.shape.requirements:
        features.append((need.resource_class, frozenset(need.features)))
        least[need.resource_class] = least.get(need.resource_class, 0) + 1
        if need.hard:
            hosts.update(map(host_name, need.preferences))
    missing = {name: count * left for name, count in least.items()}
    had = frozenset(host for host, moved_s in entry.had.items() if now - moved_s < AGAIN_S)
    return WantView(entry.since_s, missing, least, features, frozenset(hosts), had)
