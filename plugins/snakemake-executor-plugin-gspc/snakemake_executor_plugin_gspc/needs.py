"""What jobs need of a run-time system, from their threads and resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

BYTES_OF_MB = 1_000_000
SECONDS_OF_MINUTE = 60

WITH_CORES = frozenset({"node", "socket"})
"""Classes of resources that have cores below them: who has one has these."""


class NotOffered(ValueError):
    """A job asks for more of a class than there is."""


class JobNeeds(NamedTuple):
    """What a job needs.

    Attributes:
        cores: on which it computes.
        requires: a class for each resource, all of one host.
        memory_bytes: the most memory that it may take; 0: no limit.
        timeout_s: seconds after which it is ended; None: never.
    """

    cores: int
    requires: tuple[str, ...]
    memory_bytes: int = 0
    timeout_s: float | None = None


def needs_of(threads: int, resources: Mapping[str, object], offered: Mapping[str, int]) -> JobNeeds:
    """Return what a job needs.

    Args:
        threads: of the job, as many cores; no more than there are, as when Snakemake runs jobs itself.
        resources: of the job. ``mem_mb`` is memory, ``runtime`` the time-out in minutes, and what has the
            name of a class is that many of it. All others are left to Snakemake.
        offered: class -> how many there are.

    Raises:
        NotOffered: there is not as much of a class.
    """
    numbers = {
        name: value
        for name, value in resources.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 0
    }
    classes = {name: value for name, value in numbers.items() if name in offered}
    for name, value in classes.items():
        if value > offered[name]:
            raise NotOffered(f"the job asks for {name}={value}, but there is {name}={offered[name]}")
    cores = max(1, min(threads, offered.get("core") or threads))
    requires = [] if WITH_CORES & classes.keys() else ["core"] * cores
    for name, value in classes.items():
        requires += [name] * value
    minutes = numbers.get("runtime")
    return JobNeeds(
        cores,
        tuple(requires),
        numbers.get("mem_mb", 0) * BYTES_OF_MB,
        None if minutes is None else float(minutes * SECONDS_OF_MINUTE),
    )
