"""Pictures of a recorded run as SVG: how many cores computed when, and what each worker did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from gspc_trio.core.ids import ResourceId
from gspc_trio.core.task import TaskState
from gspc_trio.reports.run import RecordedAttempt, RecordedRun

WIDTH = 1_000
"""Columns of a picture: what is shorter than one is drawn as one."""

BINS = 200
"""Spans of time of which the average use is drawn."""

LANES_MAX = 200
"""Workers that are drawn, those that computed most before the others."""

COLOURS = 8
"""Names of tasks that have a colour of their own, those that computed most; the others share one."""


def used_cores(run: RecordedRun) -> list[float]:
    """Return how many workers computed on average in each of the ``BINS`` spans of the run."""
    length_s = (run.end_s - run.begin_s) / BINS
    bins = [0.0] * BINS
    if length_s <= 0:
        return bins
    for attempt in run.attempts:
        if attempt.begin_s:
            _add(bins, (attempt.begin_s - run.begin_s) / length_s, (attempt.end_s - run.begin_s) / length_s)
    return bins


def there_cores(run: RecordedRun) -> list[float]:
    """Return how many workers' resources were there on average in each of the ``BINS`` spans of the run.

    They are those of the classes on which tasks ran.
    """
    length_s = (run.end_s - run.begin_s) / BINS
    bins = [0.0] * BINS
    ran_on = {attempt.resource_id for attempt in run.attempts}
    classes = {run.resources[name].resource_class for name in ran_on if name in run.resources}
    if length_s <= 0:
        return bins
    for resource in run.resources.values():
        if resource.resource_class in classes:
            removed_s = run.end_s if resource.removed_s is None else resource.removed_s
            _add(bins, (resource.added_s - run.begin_s) / length_s, (removed_s - run.begin_s) / length_s)
    return bins


def _add(bins: list[float], begin: float, end: float) -> None:
    """Add to each bin the part of it that lies between two places, counted in bins."""
    begin, end = max(0.0, begin), min(float(len(bins)), end)
    first, last = int(begin), min(int(end), len(bins) - 1)
    if end <= begin:
        return
    if first == last:
        bins[first] += end - begin
        return
    bins[first] += first + 1 - begin
    for number in range(first + 1, last):
        bins[number] += 1.0
    bins[last] += end - last


def utilisation_svg(run: RecordedRun) -> str:
    """Return a picture of the cores that computed, below those that were there."""
    used, there = used_cores(run), there_cores(run)
    most = max([*used, *there, 1e-9])
    return (
        f'<svg class="use" viewBox="0 0 {BINS} 100" preserveAspectRatio="none" role="img">'
        f"<title>Resources that computed, of at most {most:.1f}</title>"
        f'<polygon class="there" points="{_area(there, most)}"/>'
        f'<polygon class="used" points="{_area(used, most)}"/></svg>'
    )


def _area(bins: Sequence[float], most: float) -> str:
    steps = [f"{x},{100 - 100 * value / most:.1f}" for i, value in enumerate(bins) for x in (i, i + 1)]
    return " ".join(["0,100", *steps, f"{len(bins)},100"])


def colours_of(run: RecordedRun) -> dict[str, int]:
    """Return the number of the colour of each task name, 0 for those that share one."""
    computed_s: dict[str, float] = {}
    for attempt in run.attempts:
        computed_s[attempt.name] = computed_s.get(attempt.name, 0.0) + attempt.compute_s
    names = sorted(computed_s, key=lambda name: (-computed_s[name], name))
    return {name: number + 1 if number < COLOURS else 0 for number, name in enumerate(names)}


def lanes(run: RecordedRun) -> dict[ResourceId, list[RecordedAttempt]]:
    """Return the attempts at each worker that is drawn, in order of its id."""
    found: dict[ResourceId, list[RecordedAttempt]] = {}
    computed_s: dict[ResourceId, float] = {}
    for attempt in run.attempts:
        found.setdefault(attempt.resource_id, []).append(attempt)
        computed_s[attempt.resource_id] = computed_s.get(attempt.resource_id, 0.0) + attempt.compute_s
    drawn = sorted(found, key=lambda name: (-computed_s[name], name))[:LANES_MAX]
    return {name: found[name] for name in sorted(drawn)}


def lane_svg(run: RecordedRun, attempts: Iterable[RecordedAttempt], colours: Mapping[str, int]) -> str:
    """Return what one worker did; at most one rectangle for each column of the picture."""
    length_s = max(run.end_s - run.begin_s, 1e-9)
    columns: dict[int, tuple[int, RecordedAttempt]] = {}
    for attempt in attempts:
        begin_s = attempt.begin_s or attempt.sent_s
        if not begin_s:
            continue
        end_s = attempt.end_s if attempt.begin_s else attempt.over_s
        first = max(0, min(WIDTH - 1, int(WIDTH * (begin_s - run.begin_s) / length_s)))
        width = max(1, round(WIDTH * (end_s - begin_s) / length_s))
        before = columns.get(first)
        if before is None or _weight(attempt) > _weight(before[1]):
            columns[first] = width, attempt
    drawn = "".join(
        f'<rect class="{_shade(attempt, colours)}" x="{first}" width="{width}" height="10">'
        f"<title>{_hint(run, attempt)}</title></rect>"
        for first, (width, attempt) in sorted(columns.items())
    )
    return f'<svg class="lane" viewBox="0 0 {WIDTH} 10" preserveAspectRatio="none">{drawn}</svg>'


def _weight(attempt: RecordedAttempt) -> tuple[bool, float]:
    return attempt.state is not TaskState.FINISHED, attempt.compute_s


def _shade(attempt: RecordedAttempt, colours: Mapping[str, int]) -> str:
    if attempt.state is TaskState.FINISHED:
        return f"c{colours[attempt.name]}"
    return "cancelled" if attempt.state is TaskState.CANCELLED else "failed"


def _hint(run: RecordedRun, attempt: RecordedAttempt) -> str:
    name = f"{attempt.name or 'task'} {attempt.task_id}"
    again = "" if attempt.number <= 1 else f", attempt {attempt.number}"
    state = "tried again" if attempt.state is TaskState.READY else str(attempt.state)
    begin_s = (attempt.begin_s or attempt.sent_s) - run.begin_s
    return escape(f"{name}{again}: {state}, {attempt.compute_s:.3f} s, begun at {begin_s:.3f} s")
