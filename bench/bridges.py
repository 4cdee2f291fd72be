"""How fast other tools compute on our workers, against what they compute on otherwise.

    python bench/bridges.py [--json] [--small] [--pairs N] [NAME...]

``joblib.batch1``  calls of joblib that do nothing, one in each batch: rate, of that of loky
``joblib.grid``    a ``GridSearchCV`` of 200 fits on 64 MiB: rate, of that of loky
``joblib.copies``  copies of these 64 MiB in shared memory while it runs; beside it, on standard error, all of
                   that memory, in which there are the indices of its folds, too
``each.rate``      2,000 commands that do nothing by ``gspc-jobserver each``: rate, of that of ``xargs -P``
``programs.vs_xargs``  2,000 ``Program`` tasks that do nothing: rate, of that of ``xargs -P``
``dask.rate``      graphs of 3,000 tasks that need no other: rate, of that of the executor's own ``submit``
``dask.rate_map``  the same, of that of the executor's ``map``
``dask.chain``     graphs of 10,000 tasks in a chain: rate, of that of a chain of the executor's futures
``dask.chain_all`` the same, when each is to be a task of its own
``seen.loss``      no-op tasks with metrics, spans and records all on, against none of them: the part of their
                   CPU time that these take
``seen.records``, ``seen.spans``, ``seen.metrics``  the same with one of them alone
``dask.array``     the sum of an array of random numbers, 1 GiB in 64 chunks: rate, of that of Dask's threads
``snakemake.cpu``  one more job of Snakemake that does nothing: CPU time, of that of one with ``--gspc-spawn``

``NAME`` is that of a figure; by default all are measured. A rate is the median of 15 pairs, or N: both sides
take turns. A figure whose packages are not installed is left out, saying so.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.request import urlopen

from figures import Figures, cpu_s, descendants, options_parser

PAIRS = 15
W1_TASKS = 10_000
MIB = 1 << 20


class Extent(NamedTuple):
    """How much is measured: whether only to see that it works, and in how many pairs of turns."""

    small: bool
    pairs: int


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


def joblib_batch1(extent: Extent) -> float:
    """Return the rate of calls that do nothing, of that of loky."""
    from joblib import Parallel, delayed

    def work() -> None:
        Parallel(batch_size=1)(delayed(abs)(number) for number in range(100 if extent.small else 2_000))

    return ratio(on_backend("gspc", work), on_backend("loky", work), extent.pairs)


def grid_search(extent: Extent) -> tuple[Callable[[], object], Any]:
    """Return a search of 200 fits on 64 MiB, which take a few milliseconds each, and what it is on."""
    import numpy
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV

    columns = 16
    rows = (1 if extent.small else 64) * MIB // 8 // columns
    chance = numpy.random.default_rng(1)
    x = chance.random((rows, columns))
    y = x.sum(axis=1)
    candidates = {"alpha": list(numpy.linspace(0.1, 1.0, 2 if extent.small else 40))}
    return lambda: GridSearchCV(Ridge(), candidates, cv=5, refit=False).fit(x, y), x


def joblib_grid(extent: Extent) -> float:
    """Return the rate of a grid search, of that of loky."""
    work, _ = grid_search(extent)
    return ratio(on_backend("gspc", work), on_backend("loky", work), extent.pairs)


def shared_mib() -> float:
    """Return how much shared memory there is on this host."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Shmem:")) / 1024


@contextmanager
def most(measure: Callable[[], float], found: list[float]) -> Iterator[None]:
    """Measure again and again while a block runs."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            found.append(measure())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def copies_of(part: bytes) -> int:
    """Return how often these bytes are in memory that processes below this one share."""
    seen, count = set(), 0
    for pid in descendants(os.getpid()):
        with suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                span, mode, offset, device, inode, *_ = line.split()
                begin, end = (int(text, 16) for text in span.split("-"))
                piece = (device, inode, offset)
                if mode[3] != "s" or inode == "0" or piece in seen:
                    continue
                seen.add(piece)
                with suppress(OSError, OverflowError):
                    memory.seek(begin)
                    count += memory.read(end - begin).count(part)
    return count


def joblib_copies(extent: Extent) -> float:
    """Return how many copies of its 64 MiB a grid search has in shared memory at most."""
    search, x = grid_search(extent)
    work, before = on_backend("gspc", search), shared_mib()
    found, in_all = [0.0], [0.0]
    part = x[len(x) // 2 : len(x) // 2 + 4].tobytes()  # of random numbers: there are no others like them
    with most(shared_mib, in_all), most(lambda: copies_of(part), found):
        work()
    all_of_it = (max(in_all) - before) * MIB / float(x.nbytes)
    print(f"joblib.copies: with all else that is shared {all_of_it:.2f} of its size", file=sys.stderr)
    return max(found)


# Lists of commands --------------------------------------------------------------------------------------


def each_rate(extent: Extent) -> float:
    """Return the rate of commands that do nothing, of that of xargs on as many cores, each with its start."""
    cores = os.cpu_count() or 1
    command = str(Path(sys.executable).with_name("gspc-jobserver"))
    items = "".join(f"{number}\n" for number in range(100 if extent.small else 2_000)).encode()

    def run(*arguments: str) -> Callable[[], object]:
        return lambda: subprocess.run(arguments, input=items, check=True)

    ours, theirs = run(command, "each", "true"), run("xargs", f"-P{cores}", "-n1", "true")
    return ratio(ours, theirs, extent.pairs)


def programs_vs_xargs(extent: Extent) -> float:
    """Return the rate of programs that are tasks of a job, of that of xargs on as many cores."""
    import trio

    from gspc_trio import Program, farm, open_job, open_rts
    from gspc_trio.components.rts.shell.client import RunTimeSystem

    cores = os.cpu_count() or 1
    numbers = range(100 if extent.small else 2_000)
    items = "".join(f"{number}\n" for number in numbers).encode()

    async def run(rts: RunTimeSystem) -> None:
        net = farm(Program(["true", "{item}"]))
        async with open_job(net, rts=rts, values={"items": numbers}):
            pass

    def theirs() -> None:
        subprocess.run(("xargs", f"-P{cores}", "-n1", "true"), input=items, check=True)

    async def measure() -> float:
        async with open_rts() as rts:
            token = trio.lowlevel.current_trio_token()

            def ours() -> None:
                trio.from_thread.run(run, rts, trio_token=token)

            return await trio.to_thread.run_sync(ratio, ours, theirs, extent.pairs)

    return trio.run(measure)


# Dask -------------------------------------------------------------------------------------------------------


def add_one(number: float) -> float:
    """Return the next number."""
    return number + 1


def beside_executor(
    graph: dict[Any, Any], keys: Any, own: Callable[[Any], object], extent: Extent, **options: bool
) -> float:
    """Return the rate of a graph, of that of what the executor does by itself."""
    from gspc_trio import Executor
    from gspc_trio.dask import get

    with Executor(cores=2) as executor:
        on = get.on(executor)
        return ratio(lambda: on(graph, keys, **options), lambda: own(executor), extent.pairs)


def independent(extent: Extent) -> dict[Any, Any]:
    """Return a graph of tasks that need no other."""
    return {("task", number): (add_one, float(number)) for number in range(100 if extent.small else 3_000)}


def dask_rate(extent: Extent) -> float:
    """Return the rate of tasks that need no other, of that of submitted ones."""
    graph = independent(extent)

    def own(executor: Any) -> None:
        futures = [executor.submit(add_one, float(number)) for number in range(len(graph))]
        for future in futures:
            future.result()

    return beside_executor(graph, list(graph), own, extent)


def dask_rate_map(extent: Extent) -> float:
    """Return the rate of tasks that need no other, of that of mapped ones."""
    graph = independent(extent)
    numbers = [float(number) for number in range(len(graph))]
    return beside_executor(graph, list(graph), lambda executor: list(executor.map(add_one, numbers)), extent)


def dask_chain(extent: Extent, **options: bool) -> float:
    """Return the rate of tasks in a chain, of that of futures in a chain."""
    length = 100 if extent.small else 10_000
    graph: dict[Any, Any] = {("task", 0): (add_one, 0.0)}
    graph |= {("task", number): (add_one, ("task", number - 1)) for number in range(1, length)}

    def own(executor: Any) -> None:
        future = executor.submit(add_one, 0.0)
        for _ in range(length - 1):
            future = executor.submit(add_one, future)
        future.result()

    return beside_executor(graph, ("task", length - 1), own, extent, **options)


def dask_chain_all(extent: Extent) -> float:
    """Return the same for a chain of which each is a task of its own."""
    return dask_chain(extent, optimize_graph=False)


def dask_array(extent: Extent) -> float:
    """Return the rate of the sum of a large array, of that of Dask's threads."""
    import dask
    import dask.array

    from gspc_trio.dask import get

    side = (1 << 20) if extent.small else (1 << 27)
    total = dask.array.random.random(side, chunks=side // 64).sum()

    def with_scheduler(scheduler: Any) -> Callable[[], object]:
        def run() -> None:
            with dask.config.set(scheduler=scheduler, num_workers=2):
                total.compute()

        return run

    return ratio(with_scheduler(get), with_scheduler("threads"), extent.pairs)


# Snakemake --------------------------------------------------------------------------------------------------

SNAKEFILE = """
rule all:
    input: expand("out/{number}", number=range(int(config["jobs"])))

rule nothing:
    output: "out/{number}"
    shell: "touch {output}"
"""


def snakemake_cpu_s(folder: Path, jobs: int, *options: str) -> float:
    """Return the CPU time of a run of Snakemake with so many jobs, of all processes that it starts."""
    arguments = ("--executor", "gspc", "-j2", "--cores=2", "--forceall", "--quiet", "all", *options)
    before = os.times()
    subprocess.run(
        (sys.executable, "-m", "snakemake", "--config", f"jobs={jobs}", *arguments), cwd=folder, check=True
    )
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def snakemake_cpu(extent: Extent) -> float:
    """Return the CPU time that one more job takes, of that of one with an interpreter of its own."""
    found = []
    first, forked, spawned = (2, 4, 4) if extent.small else (4, 24, 8)  # the first jobs find nothing imported
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "Snakefile").write_text(SNAKEFILE)
        for _ in range(extent.pairs):
            more_s = [
                (snakemake_cpu_s(folder, jobs, *options) - snakemake_cpu_s(folder, first, *options))
                / (jobs - first)
                for jobs, options in ((forked, ()), (spawned, ("--gspc-spawn",)))
            ]
            found.append(more_s[0] / more_s[1])
    return statistics.median(found)


# Seeing it --------------------------------------------------------------------------------------------------


def used_s(*roots: int) -> float:
    """Return the CPU time of these processes, and of all below them."""
    return cpu_s({pid for root in roots for pid in descendants(root)}, with_children=False)


@contextmanager
def started(*command: str, until: str) -> Iterator[tuple[int, str]]:
    """Run a program while a block runs; yield its process id, and the first line with a word in it."""
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if until in line)
        yield process.pid, line.strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


COLLECTOR = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


CLIENT = """
import sys
from pathlib import Path
from gspc_trio import Executor

file, records, tasks = sys.argv[1:]
with Executor(connection_file=file, records=Path(records) if records else None) as executor:
    print("ready", flush=True)
    for _ in sys.stdin:
        for future in [executor.submit(abs, number) for number in range(int(tasks))]:
            future.result()
        print("done", flush=True)
"""


class Side:
    """A client with a run-time system of its own, whose metrics are read after each second of its turns."""

    def __init__(self, client: subprocess.Popen[str], pid: int, metrics: str) -> None:
        self._client, self._pid, self._metrics = client, pid, metrics
        self._unread_s = 0.0

    def turn(self) -> None:
        """Let it run its tasks once."""
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        begun_s = time.perf_counter()
        print(file=self._client.stdin, flush=True)
        self._client.stdout.readline()
        self._unread_s += time.perf_counter() - begun_s
        if self._metrics and self._unread_s >= 1.0:
            self._unread_s -= 1.0
            with urlopen(self._metrics) as page:
                page.read()

    def used_s(self) -> float:
        """Return the CPU time of all its processes until now."""
        return used_s(self._client.pid, self._pid)


@contextmanager
def side_seen(folder: Path, endpoint: str, seen: tuple[str, ...], tasks: int) -> Iterator[Side]:
    """Start a client and its system while a block runs.

    As ``seen`` says, its metrics are read, its spans go to an endpoint, its records to a file.
    """
    file = folder / f"rts-{bool(seen)}.json"
    metrics = ("--metrics", "0") if "metrics" in seen else ()
    os.environ.update({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint if "spans" in seen else "", "NO_PROXY": "*"})
    script = str(Path(sys.executable).with_name("gspc-rts"))
    until = "http" if metrics else "connection file"
    records = str(folder / "records.jsonl") if "records" in seen else ""
    with started(script, "start", "--cores", "2", "--rts", str(file), *metrics, until=until) as (pid, line):
        command = (sys.executable, "-c", CLIENT, str(file), records, str(tasks))
        with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as client:
            assert client.stdout is not None
            client.stdout.readline()
            yield Side(client, pid, line.rpartition(" ")[2] if metrics else "")


def seen_loss(extent: Extent, seen_by: tuple[str, ...] = ("metrics", "spans", "records")) -> float:
    """Return how much more CPU time tasks that do nothing take when everything about them is written.

    Each pair is of many short turns, so that a machine that is slower for some seconds is so for both. What a
    side does after its turn, as to send spans, counts as well.
    """
    turns, tasks, found = (1, 1_000, []) if extent.small else (10, W1_TASKS, list[float]())
    with (
        TemporaryDirectory() as name,
        started("-c", COLLECTOR, until="http") as (_, endpoint),
        side_seen(Path(name), "", (), tasks) as unseen,
        side_seen(Path(name), endpoint, seen_by, tasks) as seen,
    ):
        for number in range(-1, extent.pairs):
            before_s = unseen.used_s(), seen.used_s()
            for turn in range(turns):
                for side in (seen, unseen) if turn % 2 else (unseen, seen):
                    side.turn()
            if number >= 0:  # before, it has loaded everything
                found.append(1 - (unseen.used_s() - before_s[0]) / (seen.used_s() - before_s[1]))
    least, middle, most_of_it = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
    spread = f"half of them {least:.3f} to {most_of_it:.3f}, all {min(found):.3f} to {max(found):.3f}"
    print(f"{', '.join(seen_by)}: {middle:.3f}, {spread}", file=sys.stderr)
    return middle


FIGURES: Mapping[str, tuple[Callable[[Extent], float], str, tuple[str, ...]]] = {
    "joblib.batch1": (joblib_batch1, "of loky", ("joblib",)),
    "joblib.grid": (joblib_grid, "of loky", ("sklearn",)),
    "joblib.copies": (joblib_copies, "copies", ("sklearn",)),
    "each.rate": (each_rate, "of xargs", ()),
    "programs.vs_xargs": (programs_vs_xargs, "of xargs", ()),
    "dask.rate": (dask_rate, "of submit", ("dask",)),
    "dask.rate_map": (dask_rate_map, "of map", ("dask",)),
    "dask.chain": (dask_chain, "of submit", ("dask",)),
    "dask.chain_all": (dask_chain_all, "of submit", ("dask",)),
    "dask.array": (dask_array, "of threads", ("dask", "numpy")),
    "seen.loss": (seen_loss, "of CPU time", ("opentelemetry", "prometheus_client")),
    "seen.records": (partial(seen_loss, seen_by=("records",)), "of CPU time", ()),
    "seen.spans": (partial(seen_loss, seen_by=("spans",)), "of CPU time", ("opentelemetry",)),
    "seen.metrics": (partial(seen_loss, seen_by=("metrics",)), "of CPU time", ("prometheus_client",)),
    "snakemake.cpu": (snakemake_cpu, "of spawned", ("snakemake", "snakemake_executor_plugin_gspc")),
}
"""Name -> what measures it, its unit, modules that it needs."""


def main(arguments: Any) -> None:
    """Print the figures."""
    figures = Figures(arguments.json)
    extent = Extent(arguments.small, 1 if arguments.small else arguments.pairs)
    for name in arguments.names or FIGURES:
        measure, unit, needed = FIGURES[name]
        missing = [module for module in needed if not find_spec(module)]
        if missing:
            print(f"{name} is left out: there is no {' and no '.join(missing)}", file=sys.stderr)
            continue
        figures.add(name, measure(extent), unit)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parser = options_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="so many pairs of turns")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a figure")
    main(parser.parse_args())
