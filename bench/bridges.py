"""How fast other tools compute on our workers, against what they compute on otherwise.

    python bench/bridges.py [--json] [--small] [NAME...]

``joblib.batch1``  calls of joblib that do nothing, one in each batch: rate, of that of loky
``joblib.grid``    a ``GridSearchCV`` of 200 fits on 64 MiB: rate, of that of loky
``joblib.copies``  copies of these 64 MiB on a host while it runs
``each.rate``      2,000 commands that do nothing by ``gspc-jobserver each``: rate, of that of ``xargs -P``

``NAME`` is that of a figure; by default all are measured. A rate is the median of 15 pairs: both sides take
turns. A figure whose packages are not installed is left out, saying so.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from figures import Figures, options_parser

PAIRS = 15
MIB = 1 << 20


def ratio(ours: Callable[[], object], theirs: Callable[[], object], pairs: int) -> float:
    """Return how much faster ours is: the median of pairs of runs, after one that is not measured."""
    found = []
    for number in range(pairs + 1):
        seconds = {}
        for run in (ours, theirs) if number % 2 else (theirs, ours):
            begun_s = time.perf_counter()
            run()
            seconds[run] = time.perf_counter() - begun_s
        if number:
            found.append(seconds[theirs] / seconds[ours])
    return statistics.median(found)


# joblib -----------------------------------------------------------------------------------------------------


def on_backend(name: str, work: Callable[[], object]) -> Callable[[], None]:
    """Return work that joblib does on a backend, with two jobs."""
    import joblib

    import gspc_trio.joblib

    gspc_trio.joblib.register()

    def run() -> None:
        with joblib.parallel_config(name, n_jobs=2):
            work()

    return run


def joblib_batch1(small: bool) -> float:
    """Return the rate of calls that do nothing, of that of loky."""
    from joblib import Parallel, delayed

    def work() -> None:
        Parallel(batch_size=1)(delayed(abs)(number) for number in range(100 if small else 2_000))

    return ratio(on_backend("gspc", work), on_backend("loky", work), 1 if small else PAIRS)


def grid_search(small: bool) -> Callable[[], object]:
    """Return a search of 200 fits on 64 MiB, which take a few milliseconds each."""
    import numpy
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV

    columns = 16
    rows = (1 if small else 64) * MIB // 8 // columns
    chance = numpy.random.default_rng(1)
    x = chance.random((rows, columns))
    y = x.sum(axis=1)
    candidates = {"alpha": list(numpy.linspace(0.1, 1.0, 2 if small else 40))}
    return lambda: GridSearchCV(Ridge(), candidates, cv=5, refit=False).fit(x, y)


def joblib_grid(small: bool) -> float:
    """Return the rate of a grid search, of that of loky."""
    work = grid_search(small)
    return ratio(on_backend("gspc", work), on_backend("loky", work), 1 if small else PAIRS)


def shared_mib() -> float:
    """Return how much shared memory there is on this host."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Shmem:")) / 1024


@contextmanager
def most_shared(found: list[float]) -> Iterator[None]:
    """Note the most shared memory that there is while a block runs."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            found.append(shared_mib())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def joblib_copies(small: bool) -> float:
    """Return how many copies of its 64 MiB a grid search has in shared memory at most."""
    work = on_backend("gspc", grid_search(small))
    before, found = shared_mib(), [0.0]
    with most_shared(found):
        work()
    return round((max(found) - before) / (1 if small else 64), 1)


# Lists of commands --------------------------------------------------------------------------------------


def each_rate(small: bool) -> float:
    """Return the rate of commands that do nothing, of that of xargs on as many cores, each with its start."""
    cores = os.cpu_count() or 1
    command = str(Path(sys.executable).with_name("gspc-jobserver"))
    items = "".join(f"{number}\n" for number in range(100 if small else 2_000)).encode()

    def run(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run(arguments, input=items, check=True)

    ours, theirs = run(command, "each", "true"), run("xargs", f"-P{cores}", "-n1", "true")
    return ratio(ours, theirs, 1 if small else PAIRS)


FIGURES: Mapping[str, tuple[Callable[[bool], float], str, tuple[str, ...]]] = {
    "joblib.batch1": (joblib_batch1, "of loky", ("joblib",)),
    "joblib.grid": (joblib_grid, "of loky", ("sklearn",)),
    "joblib.copies": (joblib_copies, "copies", ("sklearn",)),
    "each.rate": (each_rate, "of xargs", ()),
}
"""Name -> what measures it, its unit, modules that it needs."""


def main(arguments: Any) -> None:
    """Print the figures."""
    figures = Figures(arguments.json)
    for name in arguments.names or FIGURES:
        measure, unit, needed = FIGURES[name]
        missing = [module for module in needed if not find_spec(module)]
        if missing:
            print(f"{name} is left out: there is no {' and no '.join(missing)}", file=sys.stderr)
            continue
        figures.add(name, measure(arguments.small), unit)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = options_parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a figure")
    main(parser.parse_args())
