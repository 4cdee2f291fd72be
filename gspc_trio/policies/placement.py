"""Placement: from which host the next resource comes (ASPIDE 3.1.1, ASP-6).

``fifo`` takes the queues as they come (GSPC19 2.4.1). ``compact`` takes the host of which least is left
over, so
that hosts stay whole as long as they can; ``fair`` takes idle small hosts before busy large ones, so that
tasks get
in each other's way least; ``progressive`` goes by ``compact`` for as large a share of its grants as the
share of all
cores that is in use, and by ``fair`` for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct

from gspc_trio.core.similar import did_you_mean

FIFO = "fifo"
"""The placement that has no opinion."""


class Offer(Struct, frozen=True):
    """What a placement sees of a host: of each kind of room (cores, memory, disk) how much there is.

    Attributes:
        free: what nobody has.
        total: what there is.
        largest: the most that one host has.
    """

    free: tuple[float, ...]
    total: tuple[float, ...]
    largest: tuple[float, ...]


Rating: TypeAlias = Callable[[Offer], float]
"""The host for which it is least is taken."""

SIZE_COUNTS = 1e-6
"""How much the size of a host counts for ``fair`` beside its use: among those equally busy, small ones
come first."""

ROUNDING = 1e-9
"""Shares that add up to one but for rounding do so."""


def compact(offer: Offer) -> float:
    """Rate hosts by what is left of them: the fullest first."""
    return sum(free / most for free, most in zip(offer.free, offer.largest, strict=True) if most)


def fair(offer: Offer) -> float:
    """Rate hosts by the kind of room of which most is in use there: idle ones first, of these the small
    ones."""
    used = [1 - free / total for free, total in zip(offer.free, offer.total, strict=True) if total]
    size = sum(total / most for total, most in zip(offer.total, offer.largest, strict=True) if most)
    return max(used, default=0.0) + SIZE_COUNTS * size


PLACEMENTS: Mapping[str, Callable[[float], float] | None] = {
    FIFO: None,
    "compact": lambda _load: 1.0,
    "fair": lambda _load: 0.0,
    "progressive": lambda load: load,
}
"""Placements by the name that people give: which share of the grants goes by ``compact``, the rest by
``fair``, when
this share of all cores is in use. None: neither, the queues are taken as they come."""


def rating_of(placement: str, load: float, due: float) -> tuple[Rating | None, float]:
    """Return by what the next grant goes, and what is due after it.

    Grants by ``compact`` and by ``fair`` are interleaved: shares add up until they make a whole grant.

    Args:
        placement: one of ``PLACEMENTS``.
        load: share of all cores in use, from 0 to 1.
        due: the share of a grant by ``compact`` that is due from those before; 0 at first.

    Returns:
        The rating, None for the order of the queues; and ``due`` for the grant after this one.
    """
    share = PLACEMENTS[placement]
    if share is None:
        return None, due
    due += share(load)
    return (compact, due - 1) if due >= 1 - ROUNDING else (fair, due)


def bad_placement(placement: str) -> str:
    """Return what is wrong with the name of a placement, "" if nothing is."""
    if placement in PLACEMENTS:
        return ""
    return (
        f"there is no such placement{did_you_mean(placement, PLACEMENTS)}; there are: {', '.join(PLACEMENTS)}"
    )
