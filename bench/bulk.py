"""A map over many items that do nothing, beside what other pools do with them.

    python bench/bulk.py [--json] [--small] [--pairs N]

``bulk.map_items_per_s``     ``Executor.map`` over a range, chunk size 1
``bulk.list_items_per_s``    the same over a list
``bulk.tuples_items_per_s``  the same over tuples, which are encoded one by one, and come back
``bulk.farm_items_per_s``    a job of a net, ``farm`` over a range, until its results are there
``bulk.map_cpu_us``          CPU time of an item in all processes
``bulk.NAME_items_per_s``    other pools, with the best chunk size of 1, 10, 100 and 1,000:
                             ``process_pool``, ``imap`` of ``multiprocessing.Pool``; ``joblib`` with
                             its own choice; ``ray`` and ``dask`` (a bag) with 1,000 items a task
``bulk.vs_best_peer``        ours over the best of them, median of turns
``bulk.waiting_bytes``       memory of the client for each item that waits, of a list of integers
``bulk.range_waiting_bytes``  the same of a range
``bulk.first_result_ms``     from the call of ``map`` over a range to its first result
``bulk.submit_first_ms``     from the first of as many separate calls of ``submit`` to its result
``bulk.submit_per_s``        all of them
``bulk.pool_submit_first_ms``, ``bulk.pool_submit_per_s``  of 20,000 calls of ``submit`` of a process pool

All take turns, with two processes each. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from multiprocessing.pool import Pool
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio
from figures import Figures, cpu_s, descendants, options_parser

from gspc_trio import Executor, farm, open_job, open_rts

CHUNKS = (1, 10, 100, 1_000)
PER_TASK = 1_000
SLOW_ITEMS = 20_000
"""Items that a way is first tried with, to find its best chunk size."""


def same(value: Any) -> Any:
    """Do nothing."""
    return value


def each(values: Iterable[Any]) -> list[Any]:
    """Do nothing, many times."""
    return [same(value) for value in values]


def wait_for(path: str) -> None:
    """Keep a worker busy until there is a file."""
    while not Path(path).exists():
        time.sleep(0.01)


Way = Callable[[int], int]
"""Maps over so many items, and returns how many results there were."""


def count(results: Iterable[Any]) -> int:
    """Return how many there are, keeping none."""
    return sum(1 for _ in results)


def with_pool(pool: ProcessPoolExecutor, chunk: int, items: int) -> int:
    """The pool of the standard library."""
    return count(pool.map(same, range(items), chunksize=chunk))


def with_imap(pool: Pool, chunk: int, items: int) -> int:
    """The other pool of the standard library."""
    return count(pool.imap(same, range(items), chunk))


def with_joblib(items: int) -> int:
    """Joblib chooses how many it sends at a time."""
    from joblib import Parallel, delayed

    call = delayed(same)
    return count(Parallel(n_jobs=2, batch_size="auto")(call(item) for item in range(items)))


def with_dask(items: int) -> int:
    """A bag of Dask, with processes."""
    import dask.bag

    bag = dask.bag.from_sequence(range(items), partition_size=PER_TASK).map(same)
    return count(bag.compute(scheduler="processes", num_workers=2))


def with_ray(task: Any, items: int) -> int:
    """Tasks of Ray."""
    import ray

    parts = [range(begin, min(begin + PER_TASK, items)) for begin in range(0, items, PER_TASK)]
    return sum(len(part) for part in ray.get([task.remote(part) for part in parts]))


def rate(way: Way, items: int) -> float:
    """Return items/s."""
    begun_s = time.perf_counter()
    found = way(items)
    taken_s = time.perf_counter() - begun_s
    assert found == items, (found, items)
    return items / taken_s


def peers(stack: ExitStack) -> dict[str, list[Way]]:
    """Open the other pools; return the ways to use each."""
    standard = stack.enter_context(ProcessPoolExecutor(2))
    other = stack.enter_context(multiprocessing.Pool(2))
    ways: dict[str, list[Way]] = {
        "process_pool": [partial(with_pool, standard, chunk) for chunk in CHUNKS],
        "imap": [partial(with_imap, other, chunk) for chunk in CHUNKS],
    }
    if find_spec("joblib") is not None:
        ways["joblib"] = [with_joblib]
    if find_spec("dask") is not None and find_spec("dask.bag") is not None:
        ways["dask"] = [with_dask]
    if find_spec("ray") is not None:
        import ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        stack.callback(ray.shutdown)
        ways["ray"] = [partial(with_ray, ray.remote(each))]
    return ways


def own_bytes() -> int:
    """Return the memory of this process, as far as it is its own."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def waiting_bytes(executor: Executor, items: Iterable[int], number: int, path: str) -> float:
    """Return the memory of each item that waits, while all workers are busy with something else."""
    busy = [executor.submit(wait_for, path) for _ in range(2)]
    before = own_bytes()
    results = executor.map(same, items)
    time.sleep(1)  # all that is made into tasks is one by now
    taken = own_bytes() - before
    Path(path).touch()
    assert count(results) == number
    for future in busy:
        future.result()
    Path(path).unlink()
    return taken / number


def measure_waiting(kind: str, items: int) -> None:
    """Print the memory of each item that waits."""
    some = range(items) if kind == "range" else list(range(items))
    with TemporaryDirectory() as folder, Executor(cores=2) as executor:
        assert count(executor.map(same, range(1_000))) == 1_000
        print(waiting_bytes(executor, some, items, f"{folder}/go"))


def waiting_bytes_anew(kind: str, items: int) -> float:
    """Return the memory of each item that waits, of a process that has no freed memory to use."""
    command = [sys.executable, __file__, "--waiting", kind, "--items", str(items)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def first_result_ms(executor: Executor, items: int) -> float:
    """Return how long the first result of a map takes."""
    begun_s = time.perf_counter()
    results = executor.map(same, range(items))
    next(results)
    taken_s = time.perf_counter() - begun_s
    assert count(results) == items - 1
    return 1e3 * taken_s


def farm_rates(items: int, turns: int) -> list[float]:
    """Return items/s of as many jobs of a farm, on one run-time system."""

    async def run() -> list[float]:
        rates = []
        async with open_rts(cores=2) as rts:
            for _ in range(turns + 1):
                begun_s = time.perf_counter()
                async with open_job(farm(same), rts=rts, values={"items": range(items)}) as job:
                    found = (await job.wait_outputs())["results"]
                rates.append(items / (time.perf_counter() - begun_s))
                assert len(found) == items
        return rates[1:]

    return trio.run(run)


def submit_first_ms(executor: Executor | ProcessPoolExecutor, items: int) -> tuple[float, float]:
    """Return how long the first result of many separate calls takes, and calls/s of all."""
    ended_s: list[float] = []
    begun_s = time.perf_counter()
    first = executor.submit(same, 0)
    first.add_done_callback(lambda _: ended_s.append(time.perf_counter()))
    futures: list[Future[int]] = [executor.submit(same, item) for item in range(1, items)]
    for future in futures:
        future.result()
    return 1e3 * (ended_s[0] - begun_s), items / (time.perf_counter() - begun_s)


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="turns of all (5)")
    parser.add_argument("--waiting", choices=("list", "range"), help=argparse.SUPPRESS)
    parser.add_argument("--items", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.waiting:
        measure_waiting(options.waiting, options.items)
        return
    items, turns = (20_000, 1) if options.small else (1_000_000, options.pairs)
    figures = Figures(options.json)
    with ExitStack() as stack:
        ways = peers(stack)  # first, for they fork this process
        tried = SLOW_ITEMS // 10 if options.small else SLOW_ITEMS
        pool = stack.enter_context(ProcessPoolExecutor(2))
        submit_first_ms(pool, 1_000)
        best = {name: max(some, key=lambda way: rate(way, tried)) for name, some in ways.items()}
        executor = stack.enter_context(Executor(cores=2, tune_gc=True))
        listed, tuples = list(range(items)), [(item,) for item in range(items)]
        ours: dict[str, Way] = {
            "map": lambda items: count(executor.map(same, range(items))),
            "list": lambda _: count(executor.map(same, listed)),
            "tuples": lambda _: count(executor.map(same, tuples)),
        }
        rates: dict[str, list[float]] = {name: [] for name in (*ours, *best)}
        cpu_us = []
        rate(ours["map"], items)
        tree = descendants(os.getpid())
        for _ in range(turns):
            before_s = cpu_s(tree)
            rates["map"].append(rate(ours["map"], items))
            cpu_us.append(1e6 * (cpu_s(tree) - before_s) / items)
            for name in ("list", "tuples"):
                rates[name].append(rate(ours[name], items))
            for name, way in best.items():
                rates[name].append(rate(way, tried if name == "joblib" else items))
        rates["farm"] = farm_rates(items, turns)
        for name, found in rates.items():
            figures.add(f"bulk.{name}_items_per_s", statistics.median(found), "items/s")
        figures.add("bulk.map_cpu_us", statistics.median(cpu_us), "us")
        highest = [max(each) for each in zip(*(rates[name] for name in best), strict=True)]
        ratios = [here / there for here, there in zip(rates["map"], highest, strict=True)]
        figures.add("bulk.vs_best_peer", statistics.median(ratios), "x")
        firsts = [first_result_ms(executor, items) for _ in range(turns + 2)]
        figures.add("bulk.first_result_ms", statistics.median(firsts), "ms")
        submits: dict[str, list[tuple[float, float]]] = {"submit": [], "pool_submit": []}
        for _ in range(min(turns, 3)):
            submits["submit"].append(submit_first_ms(executor, items))
            submits["pool_submit"].append(submit_first_ms(pool, tried))
        for name, pairs in submits.items():
            figures.add(f"bulk.{name}_first_ms", statistics.median(first for first, _ in pairs), "ms")
            figures.add(f"bulk.{name}_per_s", statistics.median(all_ for _, all_ in pairs), "tasks/s")
    more = items if options.small else 5 * items
    for name, kind in (("waiting", "list"), ("range_waiting", "range")):
        figures.add(f"bulk.{name}_bytes", waiting_bytes_anew(kind, more), "bytes")


if __name__ == "__main__":
    main()
