"""What can be wrong with a bootstrap that a user asks for."""

from __future__ import annotations

from gspc_trio.components.rts.events import BootstrapAsked

CORES_MAX = 4096
"""Cores of one host: no hardware has more, and a machine cannot compute in so many processes."""


def refusal_of(event: BootstrapAsked, strategies: frozenset[str], rifs: int, rifs_max: int) -> str:
    """Return why a bootstrap cannot be, or "".

    Args:
        event: what is asked for.
        strategies: names of those there are.
        rifs, rifs_max: number of RIFs there are, and may be.
    """
    if event.strategy not in strategies:
        there = ", ".join(sorted(strategies)) or "none"
        return f"there is no strategy {event.strategy!r}; there are: {there}"
    if not event.hosts:
        return "no host was named"
    twice = sorted({host for host in event.hosts if event.hosts.count(host) > 1})
    if twice or "" in event.hosts:
        return f"hosts named twice: {', '.join(twice)}" if twice else "a host has no name"
    if event.cores < 0:
        return f"the number of cores is {event.cores}; it must not be negative"
    if event.cores > CORES_MAX:
        return f"a host offers at most {CORES_MAX} cores, not {event.cores}: each has a process of its own"
    if rifs + len(event.hosts) > rifs_max:
        return f"there may be {rifs_max} RIFs; there are {rifs}, {len(event.hosts)} more were asked for"
    return ""
