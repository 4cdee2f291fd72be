"""A large array that one task makes and the next one reads, on the same host; and arguments of 10 KiB.

    python bench/arrays.py [--json] [--small]

``arrays.empty_mb_s``          the array is made by ``gspc_trio.empty``, and not copied
``arrays.ordinary_mb_s``       NumPy makes it, and it is copied into shared memory once
``arrays.empty_vs_ordinary``   median of pairs
``arrays.shared_memory_mb_s``  tasks of ``ProcessPoolExecutor`` which make, open and remove ``SharedMemory``
``arrays.pool_mb_s``           the pool is given the array: it is pickled, and passes through the client
``arrays.arguments_per_s``     tasks/s of many tasks that are given 10 KiB each, one by one (W5b)
``arrays.pool_arguments_per_s``  the same of ``ProcessPoolExecutor``
``arrays.arguments_vs_pool``   median of pairs

All take turns, with two processes each. It needs NumPy; without that only the last three are measured.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from figures import Figures, options_parser

from gspc_trio import Executor, empty

ITEM_BYTES = 8
DATA_BYTES = 1 << 30
ARGUMENT_BYTES = 10 << 10


def make_ordinary(count: int, value: float) -> Any:
    """Return an array of NumPy."""
    import numpy

    return numpy.full(count, value)


def make_empty(count: int, value: float) -> Any:
    """Return an array in the memory layer."""
    array = empty(count)
    array[:] = value
    return array


def make_shared(count: int, value: float) -> str:
    """Return the name of shared memory with an array."""
    import numpy

    memory = SharedMemory(create=True, size=count * ITEM_BYTES)
    numpy.ndarray(count, float, memory.buf)[:] = value
    memory.close()
    return memory.name


def read(array: Any) -> float:
    """Touch every page."""
    return float(array[::512].sum())


def read_shared(name: str, count: int) -> float:
    """Touch every page of shared memory, and remove it."""
    import numpy

    memory = SharedMemory(name)
    total = read(numpy.ndarray(count, float, memory.buf))
    memory.close()
    memory.unlink()
    return total


def measured_s(one: Callable[[], float], expected: float) -> float:
    """Return how long a transfer takes."""
    begun_s = time.perf_counter()
    assert one() == expected
    return time.perf_counter() - begun_s


def arguments_per_s(submit: Callable[..., Any], arguments: list[bytes]) -> float:
    """Return tasks/s of tasks that are given these, until all results are there."""
    begun_s = time.perf_counter()
    futures = [submit(len, argument) for argument in arguments]
    total = sum(future.result() for future in futures)
    taken_s = time.perf_counter() - begun_s
    assert total == ARGUMENT_BYTES * len(arguments)
    return len(arguments) / taken_s


def measure_arguments(figures: Figures, tasks: int, turns: int) -> None:
    """Measure tasks that are given 10 KiB each."""
    arguments = [number.to_bytes(8, "little") * (ARGUMENT_BYTES // 8) for number in range(tasks)]
    ours: list[float] = []
    others: list[float] = []
    with Executor(cores=2, tune_gc=True) as executor, ProcessPoolExecutor(2) as pool:
        for turn in range(turns + 1):
            found = arguments_per_s(executor.submit, arguments), arguments_per_s(pool.submit, arguments)
            if turn:  # processes start in the first one
                ours.append(found[0])
                others.append(found[1])
    figures.add("arrays.arguments_per_s", statistics.median(ours), "tasks/s")
    figures.add("arrays.pool_arguments_per_s", statistics.median(others), "tasks/s")
    ratios = (here / there for here, there in zip(ours, others, strict=True))
    figures.add("arrays.arguments_vs_pool", statistics.median(ratios), "x")


def measure_arrays(figures: Figures, count: int, turns: int) -> None:
    """Measure arrays that one task makes and the next one reads."""
    expected = 3.0 * len(range(0, count, 512))
    resource_tracker.ensure_running()  # one for all processes, as all of them use the same memory
    with Executor(cores=2, tune_gc=True, data_bytes=DATA_BYTES) as executor, ProcessPoolExecutor(2) as pool:
        ways: dict[str, Callable[[], float]] = {
            "empty": lambda: executor.submit(read, executor.submit(make_empty, count, 3.0)).result(),
            "ordinary": lambda: executor.submit(read, executor.submit(make_ordinary, count, 3.0)).result(),
            "shared_memory": lambda: pool.submit(
                read_shared, pool.submit(make_shared, count, 3.0).result(), count
            ).result(),
            "pool": lambda: pool.submit(read, pool.submit(make_ordinary, count, 3.0).result()).result(),
        }
        taken_s: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(turns + 1):
            for name, one in ways.items():
                measured_s(one, expected)  # with the caches of the one before
                if turn:
                    taken_s[name].append(measured_s(one, expected))
    for name, each_s in taken_s.items():
        figures.add(f"arrays.{name}_mb_s", count * ITEM_BYTES / 1e6 / statistics.median(each_s), "MB/s")
    ratios = (there / here for here, there in zip(taken_s["empty"], taken_s["ordinary"], strict=True))
    figures.add("arrays.empty_vs_ordinary", statistics.median(ratios), "x")


def main() -> None:
    """Measure and print."""
    options = options_parser(__doc__).parse_args()
    figures = Figures(options.json)
    measure_arguments(figures, *((500, 1) if options.small else (10_000, 7)))
    if find_spec("numpy") is None:
        print("bench/arrays.py needs NumPy for all else", file=sys.stderr)
        return
    measure_arrays(figures, *((1 << 16, 3) if options.small else (1 << 23, 40)))


if __name__ == "__main__":
    main()
