"""A Dask cluster for tests: a scheduler, and workers on addresses of this host that count as hosts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from gspc_trio.components.provision.find import find_provider
from tests.e2e.support import wait_until
from tests.engines.support import START_S, RunningCluster, end

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


def missing() -> str:
    """Return why there can be no Dask here, or ""."""
    return "" if find_spec("distributed") else "there is no Dask: pip install 'gspc-trio[dask]'"


class Dask(RunningCluster):
    """A running cluster; see ``Cluster``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the scheduler and the workers."""
        address = self._folder / "address"
        self.processes["scheduler"] = self._start("scheduler", "--port=0", f"--scheduler-file={address}")
        wait_until(lambda: '"tcp://' in self._told(address), "the scheduler is there", START_S)
        for host in HOSTS:
            self.start_worker(host)
        line = next(line for line in self._told(address).splitlines() if '"tcp://' in line)
        self.address = line.split('"')[-2].replace("tcp://", "dask://")
        self.provider = find_provider("dask", address=self.address)
        self.wait_complete()

    def _told(self, address: Path) -> str:
        return address.read_text() if address.exists() else ""

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "distributed.cli.dask_" + program, *arguments, "--no-dashboard")
        with (self._folder / "output").open("ab") as output:
            return subprocess.Popen(command, stdout=output, stderr=output, cwd=self._folder)

    def start_worker(self, host: str) -> None:
        file = f"--scheduler-file={self._folder / 'address'}"
        self.processes[host] = self._start(
            "worker", file, f"--host={host}", "--nthreads=1", "--no-nanny", "--death-timeout=180"
        )

    def lose_hosts(self) -> None:
        """See RunningCluster."""
        for host in HOSTS[:2]:
            self.processes[host].kill()
            self.processes[host].wait()
            self.start_worker(host)


@contextmanager
def open_dask(folder: Path) -> Iterator[Dask]:
    cluster = Dask(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.leave()
        for process in reversed(cluster.processes.values()):
            end(process)
