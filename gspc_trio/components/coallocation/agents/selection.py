"""The selection agent: service and site for each part, the least that fits (COA-2).

What is free counts first: a part goes where the fewest resources are left over. Where not enough is free,
it waits where the least is waited for, and of equals at the site that has the fewest. What is free is less
than nothing where parts wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from gspc_trio.components.coallocation.agents.words import (
    OptionLadder,
    PartNeed,
    SiteOffer,
    batch_queue,
)

SEARCH_STEPS_MAX = 10_000
"""After so many places were looked at, parts that did not fit are said not to fit."""

Places = dict[int, tuple[str, ...]]
"""Part -> path of its site."""


def at_steps(
    needs: Sequence[PartNeed], ladders: Sequence[OptionLadder], steps: Sequence[int]
) -> tuple[PartNeed, ...]:
    """Return what is needed when each ladder stands at its step, 0 the best."""
    if not ladders:
        return tuple(needs)
    lowered = list(needs)
    for ladder, step in zip(ladders, steps, strict=True):
        lowered[ladder.part] = replace(lowered[ladder.part], **{ladder.field: ladder.values[step]})
    return tuple(lowered)


def lower(ladders: Sequence[OptionLadder], steps: Sequence[int]) -> tuple[int, ...] | None:
    """Return the steps when the last option that has a lower value goes one down, None if there is none."""
    for number in reversed(range(len(ladders))):
        if steps[number] + 1 < len(ladders[number].values):
            return (*steps[:number], steps[number] + 1, *steps[number + 1 :])
    return None


def choose(needs: Sequence[PartNeed], offers: Sequence[SiteOffer]) -> Places | str:
    """Return the site of each part, or why there is none.

    If one service below can hold all, it gets all: that is one edge of the tree. A site that several parts
    share has enough for all of them together.

    Args:
        needs: of the parts.
        offers: of all sites that can be asked.
    """
    for need in needs:
        if not any(_could(need, offer, offer.there) for offer in offers):
            return _why_not(need, offers)
    below: dict[str, list[SiteOffer]] = {}
    for offer in offers:
        if len(offer.path) > 1:
            below.setdefault(offer.path[0], []).append(offer)
    if len(needs) == 1 and not below and len(offers) == 1:
        return {0: offers[0].path}
    for free in (True, False):
        for some in (*_in_order(below.values(), free), offers):
            places = _search(needs, some, free)
            if places is not None:
                return places
    return f"{len(needs)} parts do not fit together into {len(offers)} sites"


def _in_order(groups: Iterable[list[SiteOffer]], free: bool) -> list[list[SiteOffer]]:
    """Return the sites of each service below: the smallest first, or where the least is waited for."""

    def key(group: list[SiteOffer]) -> tuple[float, int, tuple[str, ...]]:
        there = sum(sum(offer.there.values()) for offer in group)
        left = sum(sum(offer.free.values()) for offer in group)
        return (0.0 if free else (there - left) / max(1, there), there, group[0].path)

    return sorted(groups, key=key)


def _could(need: PartNeed, offer: SiteOffer, left: Mapping[str, int]) -> bool:
    if batch_queue(need.contact) is not None:
        return offer.is_meant_by(need.contact)  # its batch system says what there is
    return (
        offer.is_meant_by(need.contact)
        and left.get(need.resource_class, 0) >= need.count
        and offer.memory_bytes >= need.memory_bytes
        and offer.features >= need.features
    )


def _search(needs: Sequence[PartNeed], offers: Sequence[SiteOffer], free: bool) -> Places | None:
    """Place the parts with the least choice first; go back where one does not fit any more."""
    left = [dict(offer.free if free else offer.there) for offer in offers]
    choice = [sum(_could(need, offer, offer.there) for offer in offers) for need in needs]
    order = sorted(range(len(needs)), key=lambda part: (choice[part], -needs[part].count, part))
    candidates: list[list[int]] = []
    taken: list[int] = []
    steps = 0
    while len(taken) < len(order):
        need = needs[order[len(taken)]]
        if len(candidates) == len(taken):
            fits = [n for n, offer in enumerate(offers) if _could(need, offer, left[n])]
            # Taken from the end: the least that fits is the last.
            fits.sort(key=partial(_rank, need.resource_class, offers, left, free), reverse=True)
            candidates.append(fits)
        steps += 1
        if steps > SEARCH_STEPS_MAX + len(needs):
            return None
        if candidates[-1]:
            site = candidates[-1].pop()
            taken.append(site)
            _take(left[site], need, 1)
        else:
            candidates.pop()
            if not taken:
                return None
            before = needs[order[len(taken) - 1]]
            _take(left[taken.pop()], before, -1)
    return {order[number]: offers[site].path for number, site in enumerate(taken)}


def _take(left: dict[str, int], need: PartNeed, sign: int) -> None:
    if batch_queue(need.contact) is None:
        left[need.resource_class] -= sign * need.count


def _rank(
    kind: str, offers: Sequence[SiteOffer], left: Sequence[Mapping[str, int]], free: bool, number: int
) -> tuple[float, int, tuple[str, ...]]:
    """Return by what sites are compared: the least is asked first."""
    offer = offers[number]
    remains = left[number].get(kind, 0)
    there = offer.there.get(kind, 0)
    if free or not there:
        return 0.0, remains, offer.path
    return (2 * there - offer.free.get(kind, there) - remains) / there, remains, offer.path


def _why_not(need: PartNeed, offers: Sequence[SiteOffer]) -> str:
    wanted = f"{need.count} of class {need.resource_class}"
    if need.memory_bytes:
        wanted += f" with {need.memory_bytes} bytes"
    if need.features:
        wanted += f" with {', '.join(sorted(need.features))}"
    if need.contact:
        known = sorted({offer.name for offer in offers})
        if not any(offer.is_meant_by(need.contact) for offer in offers):
            hosts = sorted({host for offer in offers for host in offer.hosts})
            there = ", ".join(known + [host for host in hosts if host not in known]) or "none"
            return f"there is no site or host {need.contact}; there are {there:.200}"
        wanted += f" at {need.contact}"
    most = max((offer.there.get(need.resource_class, 0) for offer in offers), default=0)
    return f"no site has {wanted}; the largest has {most} of this class"
