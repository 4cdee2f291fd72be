"""A million tasks through one job: does it stay as fast, and does it grow?

    python bench/million.py [--json] [--small]

``job.million_tasks_per_s``          no-op tasks, all results taken
``job.million_last_over_first``      speed of the last tenth over that of the first
``job.growth_bytes_per_task``        growth of the process with client and job server, per finished task
"""

from __future__ import annotations

import gc
import os
import time

from figures import Figures, options_parser

from gspc_trio import Executor

WAVES = 20


def noop(value: int) -> int:
    """Return the argument: the smallest task."""
    return value


def resident_bytes() -> int:
    """Return what this process has in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    tasks = 20_000 if options.small else 1_000_000
    figures = Figures(options.json)
    wave = tasks // WAVES
    times, cpu_times = [], []
    with Executor(cores=2, tune_gc=True) as executor:
        for _ in range(2):  # what the first ones leave behind is not growth
            assert sum(executor.map(noop, range(wave))) == wave * (wave - 1) // 2
        gc.collect()
        before = resident_bytes()
        for _ in range(WAVES):
            begun, cpu = time.perf_counter(), time.process_time()
            assert sum(executor.map(noop, range(wave))) == wave * (wave - 1) // 2
            times.append(time.perf_counter() - begun)
            cpu_times.append(time.process_time() - cpu)
        gc.collect()
        grown = resident_bytes() - before
    figures.add("job.million_tasks_per_s", tasks / sum(times), "tasks/s")
    figures.add("job.million_last_over_first", sum(times[:2]) / sum(times[-2:]), "")
    figures.add("job.million_last_over_first_cpu", sum(cpu_times[:2]) / sum(cpu_times[-2:]), "")
    figures.add("job.growth_bytes_per_task", grown / tasks, "bytes")


if __name__ == "__main__":
    main()
