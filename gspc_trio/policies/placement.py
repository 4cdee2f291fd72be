"""Placement policies (ASPIDE 3.1.1, ASP-6): the next resource comes from the host whose rating is lowest.

``fifo`` takes the queues as they come (GSPC19 2.4.1). ``compact`` keeps hosts, and so nodes and sockets,
whole as long as it can; ``fair`` spreads work so that tasks get in each other's way least; ``progressive``
is fair while there is room and the more compact the more is in use.
"""

from __future__ import annotations

from gspc_trio.components.rm.placing import Offer, Placement


def fifo(offer: Offer) -> float:  # noqa: ARG001
    """Rate all hosts the same: the resource that has been free longest is taken."""
    return 0.0


def compact(offer: Offer) -> float:
    """Rate hosts by what is left of them: the fullest first."""
    return float(offer.free_units)


def fair(offer: Offer) -> float:
    """Rate hosts by the share in use: idle ones first, and of these the small ones."""
    used = 1 - offer.free_units / offer.total_units
    return used + 1e-6 * offer.total_units


def progressive(offer: Offer) -> float:
    """Rate hosts between fair and compact, in proportion to the load of all."""
    free = offer.free_units / offer.total_units
    return (1 - offer.load) * (1 - free) + offer.load * free


PLACEMENTS: dict[str, Placement] = {
    "fifo": fifo,
    "compact": compact,
    "fair": fair,
    "progressive": progressive,
}
"""Placement policies by the name that people give."""
