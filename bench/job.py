"""First figures of a whole job: throughput, round trip, cold start, idle memory; beside the standard pool.

    python bench/job.py [--json] [--small]

``job.noop_tasks_per_s``    no-op tasks submitted one by one, all results in the client
``job.chain_tasks_per_s``   a chain of 1,000 tasks, each with the result of the one before (W3)
``job.pool_chain_per_s``    the same with ``ProcessPoolExecutor``, in turns with it: each result is waited for
``job.chain_vs_pool``       median of pairs of these
``job.roundtrip_p50_ms``    submit one task, wait for its result (W2)
``job.pool_roundtrip_ms``   the same with ``ProcessPoolExecutor``, in turns with it
``job.pipe_roundtrip_ms``   the same with two bare processes and a pipe: no tool can be faster
``job.roundtrip_vs_pool``   the first of these three divided by the second
``job.spread_out_p50_ms``   the round trip when 20 ms pass between two calls: a task of its own for each
``job.pool_spread_out_ms``  the same with the pool
``job.first_result_s``      from the start of a fresh interpreter to the first result (W8)
``job.pool_first_result_s`` the same with the pool, in turns with it
``job.idle_tree_mib``       memory (PSS) of that interpreter and everything it started, idle
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from compileall import compile_dir
from concurrent.futures import Executor as AnyExecutor
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection

from figures import Figures, options_parser, own_pss_mib, package_folder

from gspc_trio import Executor
from gspc_trio.executor.futures import TaskFuture

WORKERS = 2
COLD_START = "--cold-start"
ROUNDS = 5
PAUSE_S = 0.02


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


def chain(executor: Executor, tasks: int) -> float:
    """Return the tasks per second of a chain."""
    begun = time.perf_counter()
    future: TaskFuture[int] = executor.submit(noop, tasks)
    for _ in range(tasks - 1):
        future = executor.submit(noop, future)
    assert future.result() == tasks
    return tasks / (time.perf_counter() - begun)


def waited_chain(pool: ProcessPoolExecutor, tasks: int) -> float:
    """Return the same for a pool, which knows no dependencies."""
    begun = time.perf_counter()
    value = tasks
    for _ in range(tasks):
        value = pool.submit(noop, value).result()
    return tasks / (time.perf_counter() - begun)


def add_chains(figures: Figures, executor: Executor, pool: ProcessPoolExecutor, tasks: int) -> None:
    """Measure chains: both take turns."""
    pairs = [(chain(executor, tasks), waited_chain(pool, tasks)) for _ in range(3 * ROUNDS)]
    ours, theirs = map(statistics.median, zip(*pairs, strict=True))
    figures.add("job.chain_tasks_per_s", ours, "tasks/s")
    figures.add("job.pool_chain_per_s", theirs, "tasks/s")
    figures.add("job.chain_vs_pool", statistics.median(mine / other for mine, other in pairs), "")


def echo(line: Connection) -> None:
    """Send back what comes."""
    while True:
        line.send_bytes(line.recv_bytes())


def round_trip(executor: AnyExecutor, number: int) -> None:
    """Submit one task, and wait for its result."""
    assert executor.submit(noop, number).result() == number


def times_ms(run: Callable[[int], None], number: int, pause_s: float = 0.0) -> list[float]:
    """Return the milliseconds of each of ``number`` runs."""
    times = []
    for i in range(number):
        if pause_s:
            time.sleep(pause_s)
        begun = time.perf_counter()
        run(i)
        times.append(1e3 * (time.perf_counter() - begun))
    return times


def add_round_trips(figures: Figures, executor: Executor, trips: int) -> None:
    """Measure round trips, and chains: executor, pool and pipe take turns."""
    here, there = multiprocessing.Pipe()
    peer = multiprocessing.Process(target=echo, args=(there,), daemon=True)
    peer.start()

    def ping(_: int) -> None:
        here.send_bytes(b"x")
        here.recv_bytes()

    try:
        with ProcessPoolExecutor(WORKERS) as pool:
            runs: dict[str, Callable[[int], None]] = {
                "ours": lambda number: round_trip(executor, number),
                "pool": lambda number: round_trip(pool, number),
                "pipe": ping,
            }
            times: dict[str, list[float]] = {name: [] for name in runs}
            apart: dict[str, list[float]] = {name: [] for name in runs}
            for run in runs.values():
                times_ms(run, 100)
            for _ in range(ROUNDS):
                for name, run in runs.items():
                    times[name] += times_ms(run, trips // ROUNDS)
            add_chains(figures, executor, pool, trips)
            for name in ("ours", "pool"):
                apart[name] = times_ms(runs[name], trips // 10, PAUSE_S)
    finally:
        peer.kill()
        peer.join()
    ours = sorted(times["ours"])
    p50 = {name: statistics.median(found) for name, found in times.items()}
    figures.add("job.roundtrip_p50_ms", p50["ours"], "ms")
    figures.add("job.roundtrip_p99_ms", ours[int(len(ours) * 0.99)], "ms")
    figures.add("job.pool_roundtrip_ms", p50["pool"], "ms")
    figures.add("job.pipe_roundtrip_ms", p50["pipe"], "ms")
    figures.add("job.roundtrip_vs_pool", p50["ours"] / p50["pool"], "")
    figures.add("job.spread_out_p50_ms", statistics.median(apart["ours"]), "ms")
    figures.add("job.pool_spread_out_ms", statistics.median(apart["pool"]), "ms")


def cold_start(begun_s: float) -> None:
    """In a fresh interpreter: print seconds to the first result, and the memory of the idle tree."""
    with Executor(cores=WORKERS) as executor:
        assert executor.submit(noop, 7).result() == 7
        first_s = time.time() - begun_s
        assert len([*executor.map(nap, range(4 * WORKERS))]) == 4 * WORKERS
        time.sleep(1.0)
        print(first_s, own_pss_mib())


POOL_START = """
import sys, time
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(int(sys.argv[1])) as pool:
    assert pool.submit(abs, -7).result() == 7
    print(time.time() - float(sys.argv[2]))
"""


def started(*command: str) -> list[float]:
    """Return what a fresh interpreter prints that is told when it was started."""
    command = (sys.executable, *command, str(time.time()))
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return [float(word) for word in words]


def cold_starts(number: int) -> tuple[float, float, float]:
    """Return medians over fresh interpreters: seconds to the first result, idle MiB, seconds of the pool."""
    compile_dir(package_folder(), quiet=1)  # as an installed package is: not each start compiles anew
    found = [
        (*started(__file__, COLD_START), *started("-c", POOL_START, str(WORKERS))) for _ in range(number)
    ]
    first_s, idle_mib, pool_s = map(statistics.median, zip(*found, strict=True))
    return first_s, idle_mib, pool_s


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
        add_round_trips(figures, executor, trips)
    first_s, idle_mib, pool_s = cold_starts(runs)
    figures.add("job.first_result_s", first_s, "s")
    figures.add("job.pool_first_result_s", pool_s, "s")
    figures.add("job.idle_tree_mib", idle_mib, "MiB")


if __name__ == "__main__":
    main()
