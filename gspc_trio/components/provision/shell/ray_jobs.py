"""Jobs of a running Ray cluster: ``python -m ...ray_jobs submit|list|cancel|size ADDRESS [NAME]``.

A job is a placement group whose bundles are on different nodes (STRICT_SPREAD), with an actor in each, which
starts a RIF and ends with it. Both are detached: they outlive this program. No actor is started again.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec
import ray as _ray

from gspc_trio.components.provision.batch import BatchState
from gspc_trio.components.provision.providers.task_engine import (
    REFUSED,
    EngineJob,
    EngineRequest,
    EngineSize,
)

ray: Any = _ray

NAMESPACE, PREFIX = "gspc-trio", "gspc-rif:"
"""Where the actors are; a placement group is called PREFIX and the name of its job."""

MADE_S = 30.0
"""How long the cluster may take to know an actor."""


class RifNode:
    """An actor: it runs a RIF until that ends, or until the actor is killed."""

    def __init__(self, told: bytes, node: int) -> None:
        import subprocess
        import sys
        import threading

        command = (sys.executable, "-P", "-m", "gspc_trio.components.provision.shell.engine_node", str(node))
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert self.process.stdin is not None
        self.process.stdin.write(told + b"\n")
        self.process.stdin.flush()
        threading.Thread(target=self._end_with_rif, daemon=True).start()

    def _end_with_rif(self) -> None:
        import os

        self.process.wait()
        os._exit(0)


def submit(told: bytes) -> int:
    """Start a job; its actors wait until all of their nodes have room."""
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    wanted = msgspec.json.decode(told, type=EngineRequest)
    there = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    fitting = sum(cores >= wanted.cores for cores in there)
    if fitting < wanted.nodes:
        print(f"it has {fitting} nodes with {wanted.cores} cores, not {wanted.nodes}", file=sys.stderr)
        return REFUSED
    bundles = [{"CPU": wanted.cores}] * wanted.nodes
    group = placement_group(bundles, "STRICT_SPREAD", PREFIX + wanted.name, lifetime="detached")
    actor: Any = ray.remote(RifNode)
    for node in range(wanted.nodes):
        actor.options(
            name=f"{wanted.name}:{node}",
            namespace=NAMESPACE,
            lifetime="detached",
            num_cpus=wanted.cores,
            max_restarts=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, node),
        ).remote(told, node)
    print(wanted.name)
    return 0


def list_jobs(only: str) -> int:
    """Print the jobs, or this one."""
    from ray.util import list_named_actors, placement_group_table

    groups = {
        group["name"].removeprefix(PREFIX): group["state"]
        for group in placement_group_table().values()
        if group["name"].startswith(PREFIX) and group["state"] != "REMOVED"
    }
    live = {
        actor["name"].rpartition(":")[0]
        for actor in list_named_actors(all_namespaces=True)
        if actor["namespace"] == NAMESPACE
    }
    for name in [only] if only else groups:
        state = groups.get(name, "")
        if not state:
            job = EngineJob(name, BatchState.ENDED, "it has no placement group any more")
        elif name not in live:
            job = EngineJob(name, BatchState.ENDED, "its actors are over")
        elif state == "PENDING":
            job = EngineJob(name, BatchState.QUEUED, "its nodes have no free cores")
        else:
            job = EngineJob(name, BatchState.RUNNING)
        print(msgspec.json.encode(job).decode())
    return 0


def cancel(name: str) -> int:
    """End a job; its actors are killed with their placement group."""
    from ray.util import placement_group_table
    from ray.util.placement_group import get_placement_group, remove_placement_group

    if any(
        group["name"] == PREFIX + name and group["state"] != "REMOVED"
        for group in placement_group_table().values()
    ):
        remove_placement_group(get_placement_group(PREFIX + name))
    return 0


def size() -> int:
    """Print how many nodes have cores, and how many each of them has at least."""
    cores = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    cores = [number for number in cores if number]
    if not cores:
        print("it has no node with cores", file=sys.stderr)
        return 1
    print(msgspec.json.encode(EngineSize(len(cores), min(cores))).decode())
    return 0


def main(verb: str, address: str, name: str) -> int:
    """Do one thing; return the exit status."""
    told = sys.stdin.buffer.read() if verb == "submit" else b""
    try:
        ray.init(address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        print(f"cannot connect to {address}: {error}", file=sys.stderr)
        return REFUSED
    if verb == "submit":
        return submit(told)
    if verb == "list":
        return list_jobs(name)
    return cancel(name) if verb == "cancel" else size()


if __name__ == "__main__":
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    sys.exit(main(sys.argv[1], sys.argv[2], "".join(sys.argv[3:])))
