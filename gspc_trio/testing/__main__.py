"""``python -m gspc_trio.testing``: replay one seed, or hunt through many."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence

from msgspec.structs import asdict

from gspc_trio.testing.faults import Faults
from gspc_trio.testing.hunt import describe_schedule, hunt, parse_schedule, quiet, shrink
from gspc_trio.testing.options import Options, Report, any_shape
from gspc_trio.testing.simulation import simulate

TELL_S = 60.0
"""A hunt says so often how far it is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status: 0 if everything held."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    try:
        options = Options(
            hosts=chosen.hosts,
            cores=chosen.cores,
            jobs=chosen.jobs,
            tasks=chosen.tasks,
            faults=Faults.parse(chosen.faults),
            schedule=parse_schedule(chosen.schedule) if chosen.schedule else None,
            task_s=chosen.seconds,
            full_checks=chosen.full_checks,
        )
    except ValueError as error:
        parser.error(str(error))
    quiet()
    if chosen.seeds:
        return _hunt(chosen, options)
    if chosen.any_shape:
        options = any_shape(chosen.seed, options)
    return _replay(simulate(chosen.seed, options), shorten=not chosen.schedule)


def _parser() -> argparse.ArgumentParser:
    usual = Options()
    parser = argparse.ArgumentParser(
        prog="python -m gspc_trio.testing", description="Simulate a cluster from a seed, with faults."
    )
    parser.add_argument("--seed", type=int, default=0, help="seed to replay, or the first of --seeds")
    parser.add_argument("--seeds", type=int, default=0, help="number of seeds to hunt through, on all cores")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes of a hunt")
    parser.add_argument("--hosts", type=int, default=usual.hosts)
    parser.add_argument("--cores", type=int, default=usual.cores, help="cores of each host")
    parser.add_argument("--jobs", type=int, default=usual.jobs, help="jobs at one time")
    parser.add_argument("--tasks", type=int, default=usual.tasks, help="tasks of each job, about")
    parser.add_argument("--any-shape", action="store_true", help="draw these four from the seed")
    names = ", ".join(Faults.__struct_fields__)
    parser.add_argument("--faults", default="", help=f"at most so many of each, kills=5,cuts=0: {names}")
    parser.add_argument("--schedule", default="", help="exactly these faults, as a failing run prints them")
    parser.add_argument("--seconds", type=float, default=usual.task_s, help="mean time of a task")
    parser.add_argument(
        "--full-checks", action="store_true", help="machines check themselves after each event however large"
    )
    return parser


def _replay(report: Report, *, shorten: bool) -> int:
    """Print how a run went; the last line holds the hash of its events."""
    if report.broken and shorten:
        report = shrink(report)
    for line in report.happened:
        print(line)
    if report.broken:
        _tell(report)
    print(f"{report.events} events, {report.simulated_s:.3f} s simulated")
    print(f"seed {report.seed} event hash {report.digest}")
    return 1 if report.broken else 0


def _tell(report: Report) -> None:
    print("The story:")
    for line in report.story:
        print(f"  {line}")
    print(f"BROKEN: {report.broken}")
    print(f"replay it with: {_command(report)}")


def _command(report: Report) -> str:
    options, usual = report.options, Options()
    words = [f"python -m gspc_trio.testing --seed {report.seed}"]
    for name in ("hosts", "cores", "jobs", "tasks"):
        if getattr(options, name) != getattr(usual, name):
            words.append(f"--{name} {getattr(options, name)}")
    different = [
        f"{name}={int(value)}"
        for name, value in asdict(options.faults).items()
        if value != getattr(usual.faults, name)
    ]
    if options.task_s != usual.task_s:
        words.append(f"--seconds {options.task_s:g}")
    if different:
        words.append(f"--faults {','.join(different)}")
    return " ".join([*words, f"--schedule {describe_schedule(report.schedule)}"])


def _hunt(chosen: argparse.Namespace, options: Options) -> int:
    """Run many seeds; print the failing ones with their shortest schedule."""
    begun_s, done, events, simulated_s, failed, status = time.monotonic(), 0, 0, 0.0, 0, 0
    told_s = begun_s
    seeds = range(chosen.seed, chosen.seed + chosen.seeds)
    try:
        for report in hunt(seeds, options, chosen.workers, any_shapes=chosen.any_shape):
            done += 1
            events += report.events
            simulated_s += report.simulated_s
            if report.broken:
                failed, status = failed + 1, 1
                print(f"seed {report.seed} is broken: {report.broken}")
                _tell(report)
                sys.stdout.flush()
            if time.monotonic() > told_s + TELL_S:
                told_s = time.monotonic()
                print(f"{done} of {chosen.seeds} seeds, {failed} broken", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    elapsed_s = time.monotonic() - begun_s
    print(
        f"{done} seeds, {failed} broken; {events} events in {elapsed_s:.1f} s "
        f"({events / elapsed_s:.0f} events/s), {simulated_s / elapsed_s:.0f} times real time"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
