"""Many seeds on all cores, and the shortest schedule of faults with which a failing one still fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat

from msgspec.structs import replace

from gspc_trio.executor import Executor
from gspc_trio.testing.faults import Fault
from gspc_trio.testing.options import Options, Report, any_shape
from gspc_trio.testing.simulation import simulate

SHRINK_RUNS_MAX = 200
"""Runs that shrinking may take."""


def quiet() -> None:
    """Keep the components' warnings about simulated faults off the terminal."""
    logging.disable(logging.ERROR)


def hunt(
    seeds: Iterable[int], options: Options, workers: int, *, any_shapes: bool = False
) -> Iterator[Report]:
    """Run seeds on several cores; yield a report of each, in their order, shortened if it is broken.

    Args:
        seeds: which.
        options: what is simulated.
        workers: number of processes.
        any_shapes: hosts, cores, jobs and tasks are drawn from each seed.
    """
    if workers <= 1:
        yield from map(partial(_look_at, options=options, any_shapes=any_shapes), seeds)
        return
    with Executor(cores=workers) as executor:  # which leaves nothing, however this process ends
        yield from executor.map(_look_at, seeds, repeat(options), repeat(any_shapes))


def _look_at(seed: int, options: Options, any_shapes: bool) -> Report:
    quiet()
    report = simulate(seed, any_shape(seed, options) if any_shapes else options)
    return shrink(report) if report.broken else report


def shrink(report: Report, run: Callable[[int, Options], Report] = simulate) -> Report:
    """Return the report of a run with as few faults as possible that is broken in the same way.

    Faults are left out in halves, quarters and one by one; the kind of failure has to stay the same.

    Args:
        report: of a run that is broken.
        run: runs a seed.
    """
    best, runs = report, 0
    size = max(1, len(best.schedule) // 2)
    while best.schedule and runs < SHRINK_RUNS_MAX:
        position, shorter = 0, False
        while position < len(best.schedule) and runs < SHRINK_RUNS_MAX:
            schedule = best.schedule[:position] + best.schedule[position + size :]
            tried = run(best.seed, replace(best.options, schedule=schedule))
            runs += 1
            if _kind(tried) == _kind(report):
                best, shorter = tried, True
            else:
                position += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return best


def _kind(report: Report) -> str:
    return report.broken.partition(":")[0]


def describe_schedule(schedule: tuple[Fault, ...]) -> str:
    """Return a schedule as ``--schedule`` reads it."""
    words = []
    for fault in schedule:
        lasts = f":{fault.lasts_s:g}" if fault.lasts_s else ""
        words.append(f"{fault.kind}:{fault.role}:{fault.step}{lasts}")
    return ",".join(words) or "none"


def parse_schedule(text: str) -> tuple[Fault, ...]:
    """Read ``kill:rif:12,pause:rts:40:7``, or ``none``.

    Raises:
        ValueError: it is not like that.
    """
    if text == "none":
        return ()
    return tuple(Fault.parse(word) for word in text.split(","))
