"""How the cost of a task grows with the number of workers of one host.

    python bench/workers.py [--json] [--small]

CPU time of all processes (client, run-time system, RIF, workers) by task; workers are processes, more of them
than there are processors.

``workers.noop_cpu_us_N``    a no-op task among many, with N workers: results come by the hundred
``workers.sleep_cpu_us_N``   a task that sleeps for 5 ms: each result comes alone
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from figures import Figures, options_parser, own_cpu_s

from gspc_trio import Executor

WORKERS = (1, 2, 4, 16, 64)
SLEEP_S = 0.005


def noop(value: int) -> int:
    """Return the argument."""
    return value


def nap(value: int) -> int:
    """Sleep, and return the argument."""
    time.sleep(SLEEP_S)
    return value


def cost_us(executor: Executor, code: Callable[[int], int], tasks: int) -> float:
    """Return the microseconds of CPU time that each of so many tasks takes."""
    begun_s = own_cpu_s()
    assert [*executor.map(code, range(tasks))] == [*range(tasks)]
    return 1e6 * (own_cpu_s() - begun_s) / tasks


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    for workers in (2, 4) if options.small else WORKERS:
        with Executor(cores=workers) as executor:
            many, few, runs = (500, 20 * workers, 1) if options.small else (20_000, 200 * workers, 5)
            for name, code, tasks in (("noop", noop, many), ("sleep", nap, few)):
                cost_us(executor, code, max(100, tasks // 10))  # everything has been used once
                median = statistics.median(cost_us(executor, code, tasks) for _ in range(runs))
                figures.add(f"workers.{name}_cpu_us_{workers}", median, "us")


if __name__ == "__main__":
    main()
