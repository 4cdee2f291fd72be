"""A Ray cluster for tests: three nodes of one core on this host."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

from gspc_trio.components.provision.find import find_provider
from tests.e2e.support import free_port
from tests.engines.support import END_S, RunningCluster, end

NODES = """
import sys
from ray.cluster_utils import Cluster

head = {"num_cpus": 1, "include_dashboard": False, "ray_client_server_port": int(sys.argv[1])}
cluster = Cluster(initialize_head=True, head_node_args=head)
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
cluster.wait_for_nodes()
print("ready", cluster.address, flush=True)
for _ in sys.stdin:
    for node in nodes:
        cluster.remove_node(node, allow_graceful=False)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    print("lost", flush=True)
cluster.shutdown()
"""


def missing() -> str:
    """Return why there can be no Ray here, or ""."""
    return "" if find_spec("ray") and find_spec("grpc") else "there is no Ray: pip install 'gspc-trio[ray]'"


class Ray(RunningCluster):
    """A running cluster; see ``Cluster``.

    Attributes:
        own_address: for programs of Ray on this host.
    """

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.own_address = self._await("ready")
        self.address = address
        self.provider = find_provider("ray", address=address)

    def lose_hosts(self) -> None:
        """See RunningCluster."""
        assert self._process.stdin is not None
        print("lose", file=self._process.stdin, flush=True)
        self._await("lost")

    def _await(self, word: str) -> str:
        """Wait until the cluster says this; return what follows."""
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            assert line, "the cluster has ended"
            said, _, more = line.strip().partition(" ")
            if said == word:
                return more


@contextlib.contextmanager
def open_ray() -> Iterator[Ray]:
    port = free_port()
    command = (sys.executable, "-c", NODES, str(port))
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        cluster = None
        try:
            cluster = Ray(process, f"ray://127.0.0.1:{port}")
            cluster.wait_complete()
            yield cluster
        finally:
            if cluster is not None:
                cluster.leave()
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
            end(process, with_session=True)
