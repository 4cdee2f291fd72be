"""What batch systems and running clusters give, through the whole path: an Executor, its sites, their hosts.

    python bench/engines.py [--json] [--small]

``slurm.first_result_s``    seconds until the first result, from an Executor that begins with an empty queue
``slurm.vs_local``          no-op tasks a second on a node of Slurm, of those on a local RIF with one core:
                            both in processes of their own, with TLS, each of a run-time system of its own
``slurm.vs_embedded``       the same, of those of an executor that has its RIF in its own process
``slurm.queries_per_min``   commands a minute that ask Slurm for jobs, while a block runs and another waits
``dask.vs_own``             no-op tasks a second on a Dask cluster, as a multiple of its own ``submit``
``ray.vs_own``              the same for Ray

With ``GSPC_ENGINES=1`` clusters of Dask and Ray are started on this host, and a Slurm, if ``sinfo`` does not
answer already. What is not there is skipped, with a line that says why.
"""

from __future__ import annotations

import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from figures import Figures, options_parser

from gspc_trio import Executor
from gspc_trio.nursery.connections.network import outward_address

sys.path.append(str(Path(__file__).parents[1]))

from tests.engines import dask as dask_cluster
from tests.engines import ray as ray_cluster
from tests.engines import slurm as slurm_cluster

TRIES = 5
LOOK_S = 60.0
"""How long queries are counted."""

COUNTED = """#!/bin/sh
echo {name} >> {log}
exec {real} "$@"
"""


def noop(value: int) -> int:
    """Return the argument."""
    return value


def nap(seconds: float) -> str:
    """Sleep, and return where."""
    time.sleep(seconds)
    return os.environ.get("GSPC_BATCH_ID", "")


def rate(executor: Executor, tasks: int, tries: int) -> float:
    """Return how many no-op tasks there are a second; the median of some tries."""
    assert [*executor.map(noop, range(tasks // 10))] == [*range(tasks // 10)]  # all has been used once
    found = []
    for _ in range(tries):
        begun_s = time.perf_counter()
        assert [*executor.map(noop, range(tasks))] == [*range(tasks)]
        found.append(tasks / (time.perf_counter() - begun_s))
    return statistics.median(found)


# Slurm ------------------------------------------------------------------------------------------------------


def sites_file(folder: Path, **more: object) -> Path:
    """Write a file with one site, of nodes with one core; return it."""
    settings = {"provider": "slurm", "max_time": "20m", "cores_per_node": 1, "shared": str(folder), **more}
    path = folder / "sites.toml"
    path.write_text("[hpc]\n" + "".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    return path


def first_result_s(folder: Path) -> float:
    """Return the seconds until the first result from an empty queue."""
    begun_s = time.perf_counter()
    with Executor(sites=sites_file(folder)) as executor:
        executor.submit(noop, 1).result()
        return time.perf_counter() - begun_s


@contextmanager
def run_time_system(folder: Path, *arguments: str) -> Iterator[Path]:
    """Run a run-time system in a process of its own, encrypted; give its connection file."""
    folder.mkdir()
    path = folder / "rts.json"
    command = [sys.executable, "-P", "-m", "gspc_trio.cli.rts", "start", "--connection-file", str(path)]
    command += ["--tls", "--listen", outward_address(), *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if not any(line.startswith("connection file") for line in process.stdout):
                raise SystemExit(f"no run-time system: {shlex.join(command)}")
            yield path
        finally:
            process.terminate()


def ratio(one: Executor, other: Executor, tasks: int, tries: int) -> float:
    """Return the rate of one as a multiple of that of another: the median of pairs in either order."""
    found = []
    for number in range(tries):
        turns = (one, other) if number % 2 else (other, one)
        rates = {executor: rate(executor, tasks, 1) for executor in turns}
        found.append(rates[one] / rates[other])
    return statistics.median(found)


def vs_local(folder: Path, tasks: int, tries: int) -> tuple[float, float]:
    """Return the rate of a node of Slurm as a multiple of that of a local RIF, and of an embedded one."""
    sites = str(sites_file(folder, max_nodes=1, slots=1))
    with (
        run_time_system(folder / "with-sites", "--sites", sites) as with_sites,
        run_time_system(folder / "local", "--strategy", "local", "--cores", "1") as local,
        Executor(connection_file=with_sites) as on_node,
        Executor(connection_file=local) as on_local,
        Executor(cores=1) as embedded,
    ):
        return ratio(on_node, on_local, tasks, tries), ratio(on_node, embedded, tasks, tries)


@contextmanager
def counted(folder: Path) -> Iterator[Callable[[], int]]:
    """Have commands that ask Slurm counted; give what returns how many there were."""
    log, commands = folder / "asked", folder / "commands"
    log.touch()
    commands.mkdir()
    for name in ("squeue", "sacct", "scontrol", "sinfo"):
        real = shutil.which(name)
        if real is not None:
            (commands / name).write_text(COUNTED.format(name=name, log=log, real=real))
            (commands / name).chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{commands}:{before}"
    try:
        yield lambda: log.read_text().count("\n")
    finally:
        os.environ["PATH"] = before


def queries_per_min(folder: Path, seconds: float) -> float:
    """Return how often a minute Slurm is asked while blocks begin, run and wait."""
    sites = sites_file(folder, max_nodes=1, slots=4, allocation_step=1)
    with counted(folder) as asked, Executor(sites=sites) as executor:
        begun_s = time.perf_counter()
        results = executor.map(nap, [1.0] * int(2 * seconds))
        for _ in results:
            if time.perf_counter() - begun_s >= seconds:
                break
        found = asked() / (time.perf_counter() - begun_s)
        executor.shutdown(cancel_futures=True)
    return 60 * found


def measure_slurm(figures: Figures, small: bool) -> None:
    """Measure with Slurm."""
    tasks, tries, look_s = (500, 1, 3.0) if small else (20_000, TRIES, LOOK_S)
    with TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        found = [first_result_s(folder) for _ in range(tries)]
        figures.add("slurm.first_result_s", statistics.median(found), "s")
        of_local, of_embedded = vs_local(folder, tasks, 3 * tries)
        figures.add("slurm.vs_local", of_local, "of 1")
        figures.add("slurm.vs_embedded", of_embedded, "of 1")
        figures.add("slurm.queries_per_min", queries_per_min(folder, look_s), "/min")


# Clusters of Dask and Ray -----------------------------------------------------------------------------------


def ours(address: str, tasks: int, tries: int) -> float:
    """Return the rate of no-op tasks on all three hosts of a cluster."""
    with Executor(sites=address) as executor:
        while len(set(executor.map(nap, [0.05] * 60))) < 3:
            pass
        return rate(executor, tasks, tries)


def own(run: Callable[[int], Any], tasks: int, tries: int) -> float:
    """Return the rate of no-op tasks of the cluster itself."""
    run(max(1, tasks // 10))
    found = []
    for _ in range(tries):
        begun_s = time.perf_counter()
        run(tasks)
        found.append(tasks / (time.perf_counter() - begun_s))
    return statistics.median(found)


def measure_dask(figures: Figures, small: bool) -> None:
    """Measure with Dask."""
    import distributed

    dask: Any = distributed
    tasks, tries = (200, 1) if small else (5_000, 3)
    with TemporaryDirectory(prefix="dask-") as name, dask_cluster.open_dask(Path(name)) as cluster:
        found = ours(cluster.address, 4 * tasks, tries)
        with dask.Client(cluster.address.replace("dask://", "tcp://")) as client:

            def run(count: int) -> None:
                client.gather([client.submit(noop, number, pure=False) for number in range(count)])

            figures.add("dask.vs_own", found / own(run, tasks, tries), "times")


def measure_ray(figures: Figures, small: bool) -> None:
    """Measure with Ray."""
    import ray as _ray

    ray: Any = _ray
    tasks, tries = (200, 1) if small else (5_000, 3)
    with ray_cluster.open_ray() as cluster:
        found = ours(cluster.address, 4 * tasks, tries)
        ray.init(cluster.own_address, logging_level="ERROR", log_to_driver=False)
        task = ray.remote(noop)

        def run(count: int) -> None:
            ray.get([task.remote(number) for number in range(count)])

        figures.add("ray.vs_own", found / own(run, tasks, tries), "times")
        ray.shutdown()


# What is there ----------------------------------------------------------------------------------------------


@contextmanager
def a_slurm() -> Iterator[None]:
    """Have the commands of Slurm at hand: of the one that answers here, else of one that is started."""
    if answers_slurm():
        yield
        return
    with TemporaryDirectory(prefix="slurm-") as name, slurm_cluster.open_slurm(Path(name)) as slurm:
        os.environ.update(slurm.environment)
        yield


def answers_slurm() -> bool:
    """Return whether a Slurm answers on this host."""
    if shutil.which("sinfo") is None:
        return False
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(["sinfo", "-h"], capture_output=True, check=False, timeout=20).returncode == 0
    return False


def main() -> None:
    """Measure and print."""
    parser = options_parser(__doc__)
    parser.add_argument("--only", choices=("slurm", "dask", "ray"), help="measure with one of them")
    options = parser.parse_args()
    figures = Figures(options.json)
    may_start = "" if os.environ.get("GSPC_ENGINES") else "nothing is started without GSPC_ENGINES=1"
    why_no_slurm = "" if answers_slurm() else may_start or slurm_cluster.missing()
    for name, why in (
        ("slurm", why_no_slurm),
        ("dask", may_start or dask_cluster.missing()),
        ("ray", may_start or ray_cluster.missing()),
    ):
        if options.only not in (None, name):
            continue
        if why:
            print(f"{name} is skipped: {why}", file=sys.stderr)
        elif name == "slurm":
            with a_slurm():
                measure_slurm(figures, options.small)
        else:
            (measure_dask if name == "dask" else measure_ray)(figures, options.small)


if __name__ == "__main__":
    main()
