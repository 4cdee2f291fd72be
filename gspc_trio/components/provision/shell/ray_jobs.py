"""Jobs of a running Ray cluster: ``python -m ...ray_jobs submit|list|cancel|size ADDRESS [NAME]``.

A job is a placement group whose bundles are on different nodes (STRICT_SPREAD), with an actor in each, which
starts a RIF and ends with it. Both are detached: they outlive this program. No actor is started again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.providers.task_engine import EngineJob, EngineRequest, EngineSize
from gspc_trio.components.provision.shell.engine_program import Refused, Unanswered, main
from gspc_trio.core.imports import missing_extra

NAMESPACE, PREFIX = "gspc-trio", "gspc-rif:"
"""Where the actors are; a placement group is called PREFIX and the name of its job."""

TRIES, GIVEN_UP = 4, "Starting Ray client server failed"
"""Ray starts a process of its own for each connection, and on a busy host gives that up too early."""


class RifNode:
    """An actor: it runs a RIF until that ends, or until the actor is killed."""

    def __init__(self, told: bytes, node: int) -> None:
        import subprocess
        import sys
        import threading

        command = (sys.executable, "-P", "-m", "gspc_trio.components.provision.shell.engine_node", str(node))
        self.process: subprocess.Popen[bytes] = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert self.process.stdin is not None
        self.process.stdin.write(told + b"\n")
        self.process.stdin.flush()
        threading.Thread(target=self._end_with_rif, daemon=True).start()

    def _end_with_rif(self) -> None:
        import os

        self.process.wait()
        os._exit(0)


class RayCluster:
    """A connection; see EngineCluster."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise Refused(missing_extra(address, error.name or "ray", "ray")) from error
        self._ray: Any = ray
        for number in range(TRIES):
            try:
                self._ray.init(address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
                return
            except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
                if GIVEN_UP not in str(error) or number == TRIES - 1:
                    raise Refused(f"cannot connect to {address}: {' '.join(str(error).split())}") from error

    def submit(self, wanted: EngineRequest, told: bytes) -> None:
        """Start a job; its actors wait until all of their nodes have room."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        fitting = sum(cores >= wanted.cores for cores in self._cores())
        if fitting < wanted.nodes:
            raise Refused(f"it has {fitting} nodes with {wanted.cores} cores, not {wanted.nodes}")
        bundles = [{"CPU": wanted.cores}] * wanted.nodes
        group = placement_group(bundles, "STRICT_SPREAD", PREFIX + wanted.name, lifetime="detached")
        actor: Any = self._ray.remote(RifNode)
        for node in range(wanted.nodes):
            actor.options(
                name=f"{wanted.name}:{node}",
                namespace=NAMESPACE,
                lifetime="detached",
                num_cpus=wanted.cores,
                max_restarts=0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, node),
            ).remote(told, node)

    def jobs(self, only: str) -> Iterator[EngineJob]:
        """Return the jobs, or this one."""
        from ray.util import list_named_actors

        groups = self._groups()
        live = {
            actor["name"].rpartition(":")[0]
            for actor in list_named_actors(all_namespaces=True)
            if actor["namespace"] == NAMESPACE
        }
        for name in [only] if only else groups:
            state = groups.get(name, "")
            if not state:
                yield EngineJob(name, BatchState.ENDED, "it has no placement group any more")
            elif name not in live:
                yield EngineJob(name, BatchState.ENDED, "its actors are over")
            elif state == "PENDING":
                yield EngineJob(name, BatchState.QUEUED, "its nodes have no free cores")
            else:
                yield EngineJob(name, BatchState.RUNNING)

    def cancel(self, name: str) -> None:
        """End a job; its actors are killed with their placement group."""
        from ray.util.placement_group import get_placement_group, remove_placement_group

        if name in self._groups():
            remove_placement_group(get_placement_group(PREFIX + name))

    def size(self) -> EngineSize:
        """Return how many nodes have cores, and how many each of them has at least."""
        cores = [number for number in self._cores() if number]
        if not cores:
            raise Unanswered("it has no node with cores")
        return EngineSize(len(cores), min(cores))

    def close(self) -> None:
        """Leave it."""
        self._ray.shutdown()

    def _cores(self) -> list[int]:
        """Return the cores of each node."""
        return [int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]]

    def _groups(self) -> dict[str, str]:
        """Return the states of the placement groups of jobs, by the name of the job."""
        from ray.util import placement_group_table

        return {
            group["name"].removeprefix(PREFIX): group["state"]
            for group in placement_group_table().values()
            if group["name"].startswith(PREFIX) and group["state"] != "REMOVED"
        }


if __name__ == "__main__":
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    sys.exit(main(RayCluster))
