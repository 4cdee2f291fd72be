"""What was read and written in a stretch of time, added up for people: by job, task or host (ASP-8)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from gspc_trio.components.monitor.frames import FRAME_S
from gspc_trio.components.monitor.io_frames import IO
from gspc_trio.compute.io.area import COUNTS, SIZES
from gspc_trio.core.ids import Count, JobId, Seconds
from gspc_trio.core.messages import Question

BY: dict[str, tuple[str, ...]] = {"job": ("job",), "task": ("job", "task", "attempt"), "host": ("host",)}
"""What sums are made by -> columns of the table of frames."""

KEYS: dict[str, tuple[str, ...]] = {
    by: names if by == "host" else (*names, "run") for by, names in BY.items()
}
"""The same with the run of the run-time system where that is another one's otherwise."""

STEPS = 120
"""A stretch of time is told in so many steps at most."""

SUMS_MAX = 200
"""So many sums are told, those that have moved most."""

EVENTS_MAX = 50
"""So many events are told, the newest."""

DURATIONS_NS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
"""Upper ends of the ranges of durations; the last range has no end."""


class IoSum(Struct, frozen=True):
    """What a job, task or host has read and written.

    Attributes:
        keys: job; or job, task and attempt; or host.
        run: which run of the run-time system the job was of, if that was not the newest one; else 0.
        amounts: name -> amount, as in ``docs/monitoring.md``; what is 0 is absent.
        moved_bytes: bytes read and written in each step.
        read_durations, write_durations: how many calls took so long: each call counts with the mean of its
            task in its frame; see :data:`DURATIONS_NS`.
    """

    keys: tuple[str, ...]
    amounts: dict[str, Count]
    moved_bytes: tuple[Count, ...]
    read_durations: tuple[Count, ...]
    write_durations: tuple[Count, ...]
    run: Count = 0

    @property
    def hit_share(self) -> float | None:
        """Share of the bytes read that were in memory, 0 to 1; None if nothing was read."""
        return hit_share(self.amounts.get("read_bytes", 0), self.amounts.get("storage_read_bytes", 0))

    def sizes(self, direction: str) -> tuple[int, ...]:
        """Return how many calls have moved so much, as :data:`~gspc_trio.compute.io.area.SIZES`.

        Args:
            direction: ``read`` or ``write``.
        """
        return tuple(self.amounts.get(f"file_{direction}_to_{size}", 0) for size in SIZES)


class IoEvent(Struct, frozen=True):
    """Something that happened.

    Attributes:
        at_s: when, in seconds since 1970.
        kind: a word.
        host, job, task: whom it concerns, "" and 0 for none.
        detail: one line for people.
    """

    at_s: Seconds
    kind: str
    host: str
    job: JobId
    task: Count
    detail: str


class IoReport(Struct, frozen=True):
    """What was read and written.

    Attributes:
        begin_s: when the first step began, in seconds since 1970.
        step_s: seconds of a step.
        steps: what all together have done in each step, as :data:`~gspc_trio.compute.io.area.COUNTS`.
        sums: those that have moved most first.
        more: so many sums are left out.
        events: the newest last.
    """

    begin_s: Count
    step_s: Count
    steps: tuple[tuple[Count, ...], ...]
    sums: tuple[IoSum, ...]
    more: Count
    events: tuple[IoEvent, ...]

    def series(self, *names: str) -> list[float]:
        """Return the sum of some amounts per second, for each step.

        Args:
            names: of :data:`~gspc_trio.compute.io.area.COUNTS`.
        """
        places = [COUNTS.index(name) for name in names]
        return [sum(step[place] for place in places) / self.step_s for step in self.steps]

    def hits(self) -> list[float | None]:
        """Return the share of the bytes read that were in memory, for each step; None: nothing was read."""
        read, stored = COUNTS.index("read_bytes"), COUNTS.index("storage_read_bytes")
        return [hit_share(step[read], step[stored]) for step in self.steps]


class GetIo(Question[IoReport], frozen=True):
    """Ask the RTS what was read and written. It looks into its store for that, and does nothing else before.

    Attributes:
        by: ``job``, ``task`` or ``host``.
        job: of this job alone; "": of all.
        last_s: seconds that are told, up to the newest frame.
    """

    by: str = "job"
    job: JobId = ""
    last_s: Count = 600


def hit_share(read_bytes: int, stored_bytes: int) -> float | None:
    """Return the share of the bytes read that did not come from storage; None if nothing was read."""
    return max(0.0, 1 - stored_bytes / read_bytes) if read_bytes else None


def step_of(span_s: float) -> int:
    """Return the seconds of a step, so that a stretch of time has at most :data:`STEPS`.

    >>> step_of(600), step_of(601), step_of(86400)
    (5, 10, 720)
    """
    return FRAME_S * max(1, -(-int(-(-span_s // 1)) // (STEPS * FRAME_S)))


# SQL --------------------------------------------------------------------------------------------------------


MOVED = "coalesce(sum(read_bytes), 0) + coalesce(sum(write_bytes), 0)"
"""The bytes that rows have moved."""


def sums_sql(by: str, wanted: str) -> str:
    """Return the statement that adds up: keys, all amounts, calls by duration.

    Args:
        by: a key of :data:`BY`.
        wanted: a condition.
    """
    keys = ", ".join(KEYS[by])
    sums = ", ".join((*(f"sum({name})" for name in IO.counts), *_durations()))
    return (
        f"SELECT {keys}, {sums} FROM io WHERE {wanted} GROUP BY {keys} "
        f"ORDER BY {MOVED} DESC, {keys} LIMIT {SUMS_MAX}"
    )


def _durations() -> Iterator[str]:
    for direction in ("read", "write"):
        names = (f"file_{direction}_{pattern}" for pattern in ("consecutive", "forward", "random"))
        calls = f"({' + '.join(f'coalesce({name}, 0)' for name in names)})"
        mean = f"coalesce(file_{direction}_ns, 0) / max(1, {calls})"
        lower = -1
        for upper in (*DURATIONS_NS, 1 << 62):
            inside = f"{mean} > {lower} AND {mean} <= {upper}"
            yield f"sum(CASE WHEN {inside} THEN {calls} ELSE 0 END)"
            lower = upper


def steps_sql(by: str, wanted: str, keys: int) -> str:
    """Return the statement for the bytes that some of them have moved in each step.

    Args:
        by: a key of :data:`BY`.
        wanted: a condition.
        keys: of so many of them; their keys are arguments behind those of the condition.
    """
    names = ", ".join(KEYS[by])
    place = f"({', '.join('?' * len(KEYS[by]))})"
    there = f"({names}) IN (VALUES {', '.join([place] * keys)})"
    grouped = f"GROUP BY {names}, begin_s / ?"
    return f"SELECT {names}, begin_s / ?, {MOVED} FROM io WHERE {wanted} AND {there} {grouped}"


def totals_sql(wanted: str) -> str:
    """Return the statement for what all together have done in each step."""
    sums = ", ".join(f"coalesce(sum({name}), 0)" for name in COUNTS)
    return f"SELECT begin_s / ?, {sums} FROM io WHERE {wanted} GROUP BY 1"
