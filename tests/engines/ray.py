"""A Ray cluster for tests: three nodes of one core on this host."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from gspc_trio.components.provision.batch import Command, CommandResult
from gspc_trio.components.provision.find import find_provider
from tests.e2e.support import free_port
from tests.engines.support import END_S, RunningCluster, end

TRIES = 4
GIVEN_UP = "Starting Ray client server failed"

NODES = """
import sys
from ray.cluster_utils import Cluster

head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": int(sys.argv[1])}
cluster = Cluster(initialize_head=True, head_node_args=head)
for _ in range(2):
    cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print("ready", flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def missing() -> str:
    """Return why there can be no Ray here, or ""."""
    return "" if find_spec("ray") and find_spec("grpc") else "there is no Ray: pip install 'gspc-trio[ray]'"


class Ray(RunningCluster):
    """A running cluster; see ``Cluster``."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self._await("ready")
        self.address = address
        self.provider = find_provider("ray", address=address)
        self.wait_complete()

    def run(self, command: Command, stdin: str = "") -> CommandResult:
        """Run it; Ray starts a process for each connection, and on a busy host gives that up too early."""
        for _ in range(TRIES):
            result = super().run(command, stdin)
            if GIVEN_UP not in result.errors:
                break
        return result

    def _await(self, word: str) -> None:
        assert self._process.stdout is not None
        while (line := self._process.stdout.readline()).strip() != word:
            assert line, "the cluster has ended"


@contextlib.contextmanager
def open_ray() -> Iterator[Ray]:
    port = free_port()
    command = (sys.executable, "-c", NODES, str(port))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield Ray(process, f"ray://127.0.0.1:{port}")
        finally:
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            end(process, with_session=True)
