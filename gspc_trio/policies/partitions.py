"""Which resource manager gets which host and which job, where each has a part of the hosts (ASP-11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

DRAIN_AFTER_S = 0.5
"""How long a request waits before a host that is in use is emptied for it."""


class HostView(Struct, frozen=True):
    """A host of a partition.

    Attributes:
        name: its id.
        classes: class -> number of its resources.
        held: how many of them are in use.
        features: that the host has.
        is_bound: it is to stay where it is: it rests, leaves or moves already.
    """

    name: str
    classes: Mapping[str, int]
    held: int = 0
    features: frozenset[str] = frozenset()
    is_bound: bool = False


class WantView(Struct, frozen=True):
    """A request that waits in a partition.

    Attributes:
        since_s: since when.
        missing: class -> how many resources of it would do.
        least: class -> how many of them it needs to begin at all.
        features: that it asks for with each class.
        hosts: it takes no others; empty: it takes any.
        had: hosts that have moved for it of late, in vain.
    """

    since_s: float
    missing: Mapping[str, int]
    least: Mapping[str, int]
    features: Sequence[tuple[str, frozenset[str]]] = ()
    hosts: frozenset[str] = frozenset()
    had: frozenset[str] = frozenset()

    def suits(self, host: HostView) -> bool:
        """Whether the host has something of what it waits for."""
        if self.hosts and host.name not in self.hosts:
            return False
        asked = dict(self.features)
        nothing: frozenset[str] = frozenset()
        return any(host.classes.get(one) and asked.get(one, nothing) <= host.features for one in self.missing)

    def likes(self, host: HostView) -> bool:
        """Whether it is worth while to have the host come."""
        return host.name not in self.had and self.suits(host)


class PartitionView(Struct, frozen=True):
    """A resource manager, its hosts, and what waits there.

    Attributes:
        number: which.
        weight: of its jobs.
        hosts: that are its own.
        wants: the oldest first.
        expects: how many hosts are emptied for it elsewhere.
    """

    number: int
    weight: float
    hosts: Sequence[HostView]
    wants: Sequence[WantView]
    expects: int = 0


class HostMove(Struct, frozen=True):
    """A host is to go to another partition: now, or, if it is in use, as soon as it is free.

    Attributes:
        host, source, target: which, from where, to where.
        want: place of the request that it moves for, among those of the target.
        drains: it is in use.
    """

    host: str
    source: int
    target: int
    want: int
    drains: bool = False


def roomiest(rooms: Mapping[int, tuple[int, int]]) -> int:
    """Return the partition for a job that comes: most room, then fewest jobs, then the lowest number.

    Args:
        rooms: partition -> (resources that are free, less what is waited for; number of jobs).
    """
    return min(rooms, key=lambda number: (-rooms[number][0], rooms[number][1], number))


def smallest(hosts: Mapping[int, int]) -> int:
    """Return the partition for a host that comes: the one with the fewest, then the lowest number."""
    return min(hosts, key=lambda number: (hosts[number], number))


def plan_moves(partitions: Sequence[PartitionView], now: float) -> list[HostMove]:
    """Return which hosts are to go where: idle ones to the oldest requests first.

    A host in use is emptied for a request that has waited for ``DRAIN_AFTER_S`` and that its own partition
    could never meet, or if the other one has more hosts for the weight of its jobs even without it.
    """
    waiting = [
        (want.since_s, part.number, place) for part in partitions for place, want in enumerate(part.wants)
    ]
    by_number = {part.number: part for part in partitions}
    moved: set[str] = set()
    moves: list[HostMove] = []
    drained: set[int] = set()
    for since_s, number, place in sorted(waiting):
        mine, want = by_number[number], by_number[number].wants[place]
        missing = _still_missing(mine, want)
        if not missing:
            continue
        donors = [part for part in partitions if part.number != number]
        for donor in sorted(donors, key=lambda part: (-_idle(part), part.number)):
            for host in donor.hosts:
                free = not (host.held or host.is_bound or host.name in moved)
                if not free or not want.likes(host) or _keeps(donor, host, (since_s, number, place)):
                    continue
                if not any(missing.get(name, 0) > 0 for name in host.classes):
                    continue
                moved.add(host.name)
                moves.append(HostMove(host.name, donor.number, number, place))
                for name, count in host.classes.items():
                    missing[name] = missing.get(name, 0) - count
        if now - since_s >= DRAIN_AFTER_S and number not in drained and not mine.expects:
            drained.add(number)
            if all(move.target != number for move in moves):
                moves += _drain(mine, place, donors, moved)
    return moves


def _still_missing(mine: PartitionView, want: WantView) -> dict[str, int]:
    """Return class -> what idle hosts of its own do not have of it; {} if they have it all."""
    missing = dict(want.missing)
    for host in mine.hosts:
        if not host.held and not host.is_bound and want.suits(host):
            for name in missing:
                missing[name] -= host.classes.get(name, 0)
    return missing if any(count > 0 for count in missing.values()) else {}


def _idle(part: PartitionView) -> int:
    return sum(not host.held for host in part.hosts)


def _keeps(donor: PartitionView, host: HostView, other: tuple[float, int, int]) -> bool:
    """Whether a request that goes before another one waits for such a host where it is.

    Of two that are equally old one goes before, or they would take hosts from each other for ever.
    """
    return any(
        (want.since_s, donor.number, place) < other and want.likes(host)
        for place, want in enumerate(donor.wants)
    )


def _drain(
    mine: PartitionView, place: int, donors: Sequence[PartitionView], moved: set[str]
) -> list[HostMove]:
    """Return the move of a host in use, the one of which the least is; [] if there is none to spare."""
    want = mine.wants[place]
    there: dict[str, int] = {}
    for host in mine.hosts:
        if want.suits(host):
            for name, count in host.classes.items():
                there[name] = there.get(name, 0) + count
    is_hopeless = any(there.get(name, 0) < count for name, count in want.least.items())
    best: tuple[float, int, str, int] | None = None
    for donor in donors:
        is_richer = (len(donor.hosts) - 1) * mine.weight >= (len(mine.hosts) + 1) * donor.weight
        if not (is_hopeless or is_richer):
            continue
        for host in donor.hosts:
            if host.held and not host.is_bound and host.name not in moved and want.likes(host):
                key = (-len(donor.hosts), host.held, host.name, donor.number)
                best = key if best is None else min(best, key)
    if best is None:
        return []
    moved.add(best[2])
    return [HostMove(best[2], best[3], mine.number, place, drains=True)]
