"""What a recorded run has read and written, as parts of its page: over time, by job, by size and duration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gspc_trio.components.monitor.reports import IoReport, IoSum
from gspc_trio.compute.io.area import SIZES
from gspc_trio.tui.text import size

DURATIONS = ("1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "more")
"""Upper ends of the ranges of durations."""

HEADS = ("", "reads", "read", "in memory", "writes", "written")
"""Titles of the table of sums."""


def volume_svg(told: IoReport) -> str:
    """Return a picture of the bytes that were read and written in each step."""
    moved, read = told.series("read_bytes", "write_bytes"), told.series("read_bytes")
    most = max([*moved, 1e-9])
    return (
        f'<svg class="use" viewBox="0 0 {max(1, len(moved))} 100" preserveAspectRatio="none" role="img">'
        f"<title>Bytes read and written, at most {size(most)} in a second</title>"
        f'<polygon class="there" points="{_area(moved, most)}"/>'
        f'<polygon class="used" points="{_area(read, most)}"/></svg>'
        f'<p class="dim">Dark: read; light: written; at most {size(most)} in a second, in steps of '
        f"{told.step_s} s.</p>"
    )


def _area(values: Sequence[float], most: float) -> str:
    steps = [f"{x},{100 - 100 * value / most:.1f}" for i, value in enumerate(values) for x in (i, i + 1)]
    return " ".join(["0,100", *steps, f"{len(values)},100"])


def sum_rows(told: IoReport) -> Iterator[tuple[str, ...]]:
    """Yield rows for :data:`HEADS`."""
    for one in told.sums:
        hit = one.hit_share
        yield (
            " ".join(one.keys) + (f" (run {one.run})" if one.run else ""),
            str(one.amounts.get("read_calls", 0)),
            size(one.amounts.get("read_bytes", 0)),
            "" if hit is None else f"{hit:.0%}",
            str(one.amounts.get("write_calls", 0)),
            size(one.amounts.get("write_bytes", 0)),
        )


def size_rows(sums: Sequence[IoSum]) -> list[tuple[str | int, ...]]:
    """Return how many reads and writes moved at most so much; nothing if that was not counted."""
    return _rows(SIZES, [(one.sizes("read"), one.sizes("write")) for one in sums])


def duration_rows(sums: Sequence[IoSum]) -> list[tuple[str | int, ...]]:
    """Return how many reads and writes took at most so long; nothing if that was not counted."""
    return _rows(DURATIONS, [(one.read_durations, one.write_durations) for one in sums])


def _rows(
    ends: Sequence[str], counts: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[tuple[str | int, ...]]:
    reads, writes = ([sum(one[way][place] for one in counts) for place in range(len(ends))] for way in (0, 1))
    if not any((*reads, *writes)):
        return []
    names = (end if end == "more" else f"≤ {end}" for end in ends)
    return list(zip(names, reads, writes, strict=True))


def event_rows(told: IoReport, clock: Callable[[float], str]) -> list[tuple[str, ...]]:
    """Return the events: when, what, whose, and a line for people."""
    return [
        (clock(it.at_s), it.kind, " ".join(filter(None, (it.host, it.job, str(it.task or "")))), it.detail)
        for it in told.events
    ]
