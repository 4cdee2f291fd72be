"""What a no-op task costs the client and the compute processes.

    python bench/cost.py [--json] [--small] [--instructions]

To compare two versions, run it in turns, with ``PYTHONPATH`` at the one and the other. CPU times tell little
on a machine that does other work. What a program executes does not depend on that: ``--instructions`` counts
it for the client with valgrind, which is to be installed. Take the median of several runs: the two threads of
the client can share a chain in one of two ways.

``cost.bulk_*``    among many that are submitted at once
``cost.single_*``  one at a time, each waited for
``cost.chain_*``   each has the result of the one before as argument

``*_client_us``, ``*_compute_us``              CPU time
``*_client_switches``, ``*_compute_switches``  how often a process had to wait, or another one was preferred
``*_instructions``                             that the client executes (only with ``--instructions``)
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from figures import Figures, descendants, options_parser

from gspc_trio import Executor
from gspc_trio.executor.futures import TaskFuture

ALONE = "--alone"
VALGRIND = [
    "valgrind",
    "--tool=cachegrind",
    "--cache-sim=no",
    "--cachegrind-out-file=/dev/null",
    "--fair-sched=yes",
]
SETTLED_S = 5.0
"""After so long everything has been imported, also what measures the load of the host."""
TASKS = {"bulk": 20_000, "single": 2_000, "chain": 2_000}


def noop(value: int) -> int:
    """Return the argument."""
    return value


def bulk(executor: Executor, tasks: int) -> None:
    """Submit all at once."""
    for future in [executor.submit(noop, each) for each in range(tasks)]:
        future.result()


def single(executor: Executor, tasks: int) -> None:
    """Wait for each."""
    for each in range(tasks):
        executor.submit(noop, each).result()


def chain(executor: Executor, tasks: int) -> None:
    """Give each the result of the one before."""
    future: TaskFuture[int] = executor.submit(noop, 0)
    for _ in range(tasks - 1):
        future = executor.submit(noop, future)
    future.result()


SHAPES: dict[str, Callable[[Executor, int], None]] = {"bulk": bulk, "single": single, "chain": chain}


def used(pid: int) -> tuple[float, int]:
    """Return the microseconds of CPU time of a process, and how often it has left its processor."""
    time_us, switches = 0.0, 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # it has just ended
            time_us += int((thread / "schedstat").read_text().split()[0]) / 1000
            switches += sum(map(int, re.findall(r"ctxt_switches:\t(\d+)", (thread / "status").read_text())))
    return time_us, switches


def used_by(pids: list[int]) -> tuple[float, int]:
    """Return the sums of :func:`used`."""
    times_us, switches = zip(*map(used, pids), strict=True)
    return sum(times_us), sum(switches)


def bulk_us(executor: Executor, tasks: int) -> float:
    """Return the CPU time that a task of a bulk takes in this process and all below it."""
    gc.collect()
    pids = descendants(os.getpid())
    before_us, _ = used_by(pids)
    bulk(executor, tasks)
    return (used_by(pids)[0] - before_us) / tasks


def warm_up(executor: Executor) -> None:
    """Have everything been used that a task needs."""
    for run in SHAPES.values():
        run(executor, 100)


def execute_alone(name: str, tasks: int) -> None:
    """Run under valgrind, and end without taking anything down.

    Valgrind does not know descriptors of processes. Here no process ends that they would tell of.
    """

    def never_readable(pid: int, flags: int = 0) -> int:
        del pid, flags
        return os.pipe()[0]

    os.pidfd_open = never_readable
    executor = Executor(cores=2)
    warm_up(executor)
    time.sleep(SETTLED_S)
    gc.collect()
    gc.disable()  # it would come at another time in each run
    SHAPES[name](executor, tasks)
    os._exit(0)


def instructions(name: str, tasks: int) -> float:
    """Return how many instructions the client executes for a task."""
    counts = []
    for number in (1, 1 + tasks):
        command = [*VALGRIND, sys.executable, __file__, ALONE, name, str(number)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
        counts.append(int(re.findall(r"I\s+refs:\s+([\d,]+)", done.stderr)[-1].replace(",", "")))
    return (counts[1] - counts[0]) / tasks


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == [ALONE]:
        execute_alone(sys.argv[2], int(sys.argv[3]))
    parser = options_parser(__doc__)
    parser.add_argument("--instructions", action="store_true", help="count what the client executes, too")
    options = parser.parse_args()
    figures = Figures(options.json)
    with Executor(cores=2) as executor:
        warm_up(executor)
        client, *below = descendants(os.getpid())
        for name, run in SHAPES.items():
            tasks = 200 if options.small else TASKS[name]
            before = [used_by([client]), used_by(below)]
            run(executor, tasks)
            places = zip(("client", "compute"), ([client], below), before, strict=True)
            for place, pids, (time_us, switches) in places:
                now_us, now = used_by(pids)
                figures.add(f"cost.{name}_{place}_us", (now_us - time_us) / tasks, "us")
                figures.add(f"cost.{name}_{place}_switches", (now - switches) / tasks, "")
    for name in SHAPES if options.instructions else ():
        figures.add(f"cost.{name}_instructions", instructions(name, TASKS[name] // 4), "")


if __name__ == "__main__":
    main()
