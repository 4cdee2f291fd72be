"""First figures of a whole job: throughput, round trip, cold start, idle memory.

    python bench/job.py [--json] [--small]

``job.noop_tasks_per_s``    no-op tasks submitted one by one, all results in the client
``job.roundtrip_p50_ms``    submit one task, wait for its result
``job.first_result_s``      from the start of a fresh interpreter to the first result
``job.idle_tree_mib``       memory (PSS) of that interpreter and everything it started, idle
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from compileall import compile_dir

from figures import Figures, options_parser, own_pss_mib, package_folder

from gspc_trio import Executor

WORKERS = 2
COLD_START = "--cold-start"


def noop(value: int) -> int:
    """Return the argument: the smallest task."""
    return value


def nap(value: int) -> int:
    """Keep a worker long enough that the next task goes to another one."""
    time.sleep(0.05)
    return value


def throughput(executor: Executor, tasks: int) -> float:
    """Return no-op tasks per second."""
    begun = time.perf_counter()
    results = [future.result() for future in [executor.submit(noop, i) for i in range(tasks)]]
    assert results == list(range(tasks))
    return tasks / (time.perf_counter() - begun)


def round_trips_ms(executor: Executor, number: int) -> list[float]:
    """Return the milliseconds of each of ``number`` round trips."""
    times = []
    for i in range(number):
        begun = time.perf_counter()
        assert executor.submit(noop, i).result() == i
        times.append(1e3 * (time.perf_counter() - begun))
    return times


def cold_start(begun_s: float) -> None:
    """In a fresh interpreter: print seconds to the first result, and the memory of the idle tree."""
    with Executor(cores=WORKERS) as executor:
        assert executor.submit(noop, 7).result() == 7
        first_s = time.time() - begun_s
        assert len([*executor.map(nap, range(4 * WORKERS))]) == 4 * WORKERS
        time.sleep(1.0)
        print(first_s, own_pss_mib())


def cold_starts(number: int) -> tuple[float, float]:
    """Return the medians of seconds to the first result and of idle MiB over fresh interpreters."""
    first_s, idle_mib = [], []
    compile_dir(package_folder(), quiet=1)  # as an installed package is: not each start compiles anew
    for _ in range(number):
        command = [sys.executable, __file__, COLD_START, str(time.time())]
        words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        first_s.append(float(words[0]))
        idle_mib.append(float(words[1]))
    return statistics.median(first_s), statistics.median(idle_mib)


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument(COLD_START, type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cold_start is not None:
        cold_start(options.cold_start)
        return
    tasks, trips, runs = (1_000, 100, 1) if options.small else (10_000, 1_000, 5)
    figures = Figures(options.json)
    with Executor(cores=WORKERS) as executor:
        throughput(executor, 1_000)
        rate = statistics.median(throughput(executor, tasks) for _ in range(runs))
        figures.add("job.noop_tasks_per_s", rate, "tasks/s")
        times = sorted(round_trips_ms(executor, trips))
        figures.add("job.roundtrip_p50_ms", times[len(times) // 2], "ms")
        figures.add("job.roundtrip_p99_ms", times[int(len(times) * 0.99)], "ms")
    first_s, idle_mib = cold_starts(runs)
    figures.add("job.first_result_s", first_s, "s")
    figures.add("job.idle_tree_mib", idle_mib, "MiB")


if __name__ == "__main__":
    main()
